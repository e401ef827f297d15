"""skillyard.lock: what was installed from where, file by file. TOML that people read, in an order that never changes.

It comes with a clone, so everything in it is checked when it is read: no name in it can be a path.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.files import read_whole
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.install.names import as_safe_path, as_slug, quoted
from skillyard.install.tree import FileDigests, tree_hash

VERSION = 1
#: Every file of every skill has a line.
_MOST_BYTES = 64 * 1024 * 1024
_HEAD = """\
# Written by skillyard; commit it. `skillyard restore` installs exactly this, `skillyard verify` compares.
version = 1
"""
_TEXTS = ("name", "source", "ref", "commit", "path", "reviewed", "hash")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NEEDED = frozenset({"name", "source", "hash"})


class InstalledSkill(NamedTuple):
    """One installed skill."""

    #: Its folder below the place.
    folder: str
    #: What its SKILL.md says, and `--skill` takes.
    name: str
    #: As it can be fetched again; without what stands in `ref` and `path`.
    source: str
    #: What was asked for (a branch, a tag); nothing is the source's own default.
    ref: str
    #: What that was when it was fetched, where the source knows such a thing.
    commit: str
    #: Its folder inside the source.
    path: str
    #: The severity that a person kept it in spite of; for people to read, it decides nothing.
    reviewed: str
    hash: str
    files: FileDigests


class Lock(NamedTuple):
    skills: Mapping[str, InstalledSkill]

    def with_changes(self, changed: Iterable[InstalledSkill] = (), removed: Iterable[str] = ()) -> "Lock":
        gone = set(removed)
        kept = {folder: skill for folder, skill in self.skills.items() if folder not in gone}
        return Lock({**kept, **{skill.folder: skill for skill in changed}})


def read_lock(file: Path) -> Lock:
    try:
        return parse_lock(read_whole(file, _MOST_BYTES), str(file))
    except FileNotFoundError:
        return Lock({})
    except UnicodeDecodeError as error:
        raise InvalidArgs(Message("{place}: {reason}", place=file, reason=error)) from None


def parse_lock(text: str, shown: str = "skillyard.lock") -> Lock:
    """Parse a lock. InvalidArgs, with the place, if it is not what we write."""
    place, found = shown, dict[str, InstalledSkill]()
    try:
        fields = tomllib.loads(text)
        version, skills = fields.get("version"), fields.get("skills", {})
        if version != VERSION:
            said = Message("version {version!r} is not {known}: another skillyard wrote it", version=version, known=1)
            raise InvalidArgs(said)
        if not isinstance(skills, dict):
            raise InvalidArgs(Message("[skills] must be a table"))
        for folder, table in skills.items():
            place = f"{shown}: [skills.{quoted(folder)}]"
            found[folder] = _installed(folder, table)
    except (tomllib.TOMLDecodeError, RecursionError, SkillError) as error:
        raise InvalidArgs(Message("{place}: {reason}", place=place, reason=error)) from None
    return Lock(found)


def _installed(folder: str, table: Any) -> InstalledSkill:
    if as_slug(folder) != folder:
        raise InvalidArgs(Message("it is no name of a skill's folder"))
    if not isinstance(table, dict):
        raise InvalidArgs(Message("it must be a table"))
    texts = {key: table.get(key, None if key in _NEEDED else "") for key in _TEXTS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise InvalidArgs(Message("it needs {needed}, as texts", needed=", ".join(sorted(_NEEDED))))
    if texts["path"]:
        as_safe_path(str(texts["path"]))
    files = table.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(mark, str) for mark in files.values()):
        raise InvalidArgs(Message("files must be texts by path"))
    for path in files:
        if str(as_safe_path(path)) != path:
            raise InvalidArgs(Message("{path!r} is no plain path", path=path))
    if tree_hash(files) != texts["hash"]:
        raise InvalidArgs(Message("the hash is not that of its files: a merge may have gone wrong"))
    files = dict(sorted(files.items()))
    return InstalledSkill(folder=folder, files=files, **{key: str(text) for key, text in texts.items()})


def as_text(lock: Lock) -> str:
    """Sorted, one fact on each line, so that branches merge line by line."""
    parts = [_HEAD]
    for folder in sorted(lock.skills):
        skill = lock.skills[folder]
        fields = skill._asdict()
        lines = [f"{key} = {quoted(fields[key])}" for key in _TEXTS if fields[key] or key in _NEEDED]
        files = [f"{quoted(path)} = {quoted(mark)}" for path, mark in sorted(skill.files.items())]
        header = folder if _BARE.fullmatch(folder) else quoted(folder)
        parts.append("\n".join(["", f"[skills.{header}]", *lines, "", f"[skills.{header}.files]", *files, ""]))
    return "".join(parts)
