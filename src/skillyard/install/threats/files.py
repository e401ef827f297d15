"""The files of a skill: bounded in number and size, read without following links, each with its language."""

import os
import stat
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from skillyard.catalog.skill_text import decode
from skillyard.install.threats.rule import tables

MAX_FILES = 2_000
MAX_DEPTH = 12
#: Of a longer file the start is looked at, and the rest is said to be unread.
MAX_FILE_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 32 * 1024 * 1024
_BY_ENDING: Mapping[str, str] = {
    f".{ending}": name for name, endings in tables()["languages"].items() for ending in endings
}
_SCRIPTS = frozenset({"python", "shell", "powershell", "javascript", "program"})
_INTERPRETERS: Mapping[str, str] = tables()["interpreters"]
_HEAD = 8192


class SkillFile:
    """One file; what follows from its content is computed when it is needed."""

    def __init__(self, name: str, content: bytes, mode: int = 0o644, size: int | None = None) -> None:
        self.name = name
        self.content = content
        self.mode = mode
        self.size = len(content) if size is None else size
        self._has: dict[str, bool] = {}

    @property
    def is_skill(self) -> bool:
        return self.name.lower() == "skill.md"

    @cached_property
    def language(self) -> str:
        """By its ending, else by its first line; `binary` if it is no text, else `other`."""
        known = _BY_ENDING.get(PurePosixPath(self.name).suffix.lower())
        if self.is_skill:
            return "text"
        if known:
            return known
        if self.content.startswith(b"#!"):
            first = self.content[:200].partition(b"\n")[0].decode("latin-1")
            return next((language for word, language in _INTERPRETERS.items() if word in first), "program")
        wide = self.content.startswith((b"\xff\xfe", b"\xfe\xff"))
        return "binary" if b"\0" in self.content[:_HEAD] and not wide else "other"

    @property
    def is_script(self) -> bool:
        return self.language in _SCRIPTS

    @property
    def is_prose(self) -> bool:
        """Whether somebody reads it before acting on it, or it acts only inside a container."""
        name = PurePosixPath(self.name).name.lower()
        is_container = name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile")
        return self.language == "text" or is_container

    @property
    def kinds(self) -> frozenset[str]:
        """The words by which a rule says what it applies to."""
        more = {"skill": self.is_skill, "script": self.is_script}
        return frozenset({self.language, *(word for word, holds in more.items() if holds)})

    @cached_property
    def text(self) -> str:
        """Without NUL, which shells skip and patterns would stumble over."""
        return decode(self.content).text.replace("\0", "")

    @cached_property
    def joined(self) -> str:
        """The text with continued lines joined, at unchanged indices."""
        return self.text.replace("\\\n", "  ") if "\\\n" in self.text else self.text

    @cached_property
    def small(self) -> str:
        return self.joined.lower()

    def has(self, word: str) -> bool:
        """Whether the small-letter text contains the word; cached, because many rules ask for the same words."""
        if word not in self._has:
            self._has[word] = word in self.small
        return self._has[word]

    def place(self, index: int) -> tuple[int, int]:
        """Line and column, both counted from 1."""
        return self.text.count("\n", 0, index) + 1, index - self.text.rfind("\n", 0, index)


class UnreadFile(NamedTuple):
    """Something that was not read: the rule that says so, where, and the reason."""

    rule: str
    name: str
    reason: str


def read_files(folder: Path, max_files: int = MAX_FILES) -> Iterator[SkillFile | UnreadFile]:
    """Everything below the folder, SKILL.md first. What cannot be read is yielded, never raised."""
    total = 0
    for count, entry in enumerate(_entries(folder)):
        if isinstance(entry, UnreadFile):
            yield entry
            continue
        if count >= max_files or total > MAX_TOTAL_BYTES:
            yield UnreadFile("too-much", ".", f"only {count} files and {total} bytes were looked at")
            return
        found = _read(folder, entry)
        total += len(found.content) if isinstance(found, SkillFile) else 0
        if found:
            yield found


def _entries(folder: Path) -> Iterator[str | UnreadFile]:
    """Paths relative to the folder, by name, files before folders."""
    queue = [("", 0)]
    while queue:
        inside, depth = queue.pop()
        if depth > MAX_DEPTH:
            yield UnreadFile("too-much", inside, f"folders inside folders, more than {MAX_DEPTH} deep")
            continue
        try:
            with os.scandir(folder / inside) as listed:
                entries = sorted(listed, key=lambda entry: (entry.name.lower() != "skill.md", entry.name))
        except OSError as error:
            yield UnreadFile("unreadable", inside or ".", error.strerror or "it cannot be listed")
            continue
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from (f"{inside}{entry.name}" for entry in entries if entry not in folders)
        names = [entry.name for entry in reversed(folders) if entry.name != ".git"]
        queue += [(f"{inside}{name}/", depth + 1) for name in names]


def _read(folder: Path, name: str) -> SkillFile | UnreadFile | None:
    """None for a link that stays inside: it leads to what is read anyway."""
    path = folder / name
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            if path.resolve().is_relative_to(folder.resolve()):
                return None
            return UnreadFile("link-outside", name, f"it leads to {path.readlink()}")
        if not stat.S_ISREG(found.st_mode):
            return UnreadFile("unreadable", name, "it is no file, no folder and no link")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES)
    except RuntimeError as error:
        return UnreadFile("unreadable", name, f"a link that leads in a circle: {error}")
    except (OSError, ValueError) as error:
        return UnreadFile("unreadable", name, getattr(error, "strerror", None) or str(error))
    return SkillFile(name, content, found.st_mode, found.st_size)
