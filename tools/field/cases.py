"""Finds what can be tried in a clone of a skill repository: every program of every skill, with words to call it.

The words come from the strangers: lines in SKILL.md and in the program's own text that call the program. Where they
write of a file that does not exist, the case brings a sample of that sort. A program that nobody shows a call of is
called with `--help`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.field.samples import SAMPLES

#: How a plain run starts a program, by the ending of its name.
STARTERS: dict[str, tuple[str, ...]] = {
    ".py": ("python",),
    ".sh": ("bash",),
    ".js": ("node",),
    ".mjs": ("node",),
    ".cjs": ("node",),
}
#: A shell would read more into a word with one of these than a word.
_SHELL = re.compile(r"[$`|<>*?;&{}()\[\]#…]|\.\.\.")
_MOST_CALLS = 3
_MOST_BYTES = 2_000_000
_NO_PROGRAM = re.compile(
    r"(^|/)(test_[^/]*|[^/]*[_.](test|spec)|conftest|__init__|setup)\.\w+$|/(tests?|node_modules|__tests__)/"
)


class Case(NamedTuple):
    """One call of one program."""

    repository: str
    #: The skill's folder in the clone.
    skill: Path
    #: The program, relative to the skill's folder.
    program: str
    words: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.repository} {self.skill.name}:{self.program} {shlex.join(self.words)}".rstrip()

    @property
    def samples(self) -> dict[str, bytes]:
        """Files that the words name, with something in them."""
        wanted: dict[str, bytes] = {}
        for word in self.words:
            name = word.partition("=")[2] if word.startswith("--") and "=" in word else word
            path = Path(name)
            if name.startswith(("-", "/", "~", "http")) or ".." in path.parts or "://" in name:
                continue
            if path.suffix.lower() in SAMPLES:
                wanted[name] = SAMPLES[path.suffix.lower()]
        return wanted


def skill_files(clone: Path) -> list[Path]:
    return sorted(
        path
        for path in clone.rglob("*.md")
        if path.name.lower() == "skill.md" and path.is_file() and ".git" not in path.parts
    )


def find_cases(clone: Path) -> Iterator[Case]:
    for file in skill_files(clone):
        skill = file.parent
        manual = _text_of(file)
        for program in _programs(skill):
            relative = program.relative_to(skill).as_posix()
            source = _text_of(program)
            calls = dict.fromkeys((*_calls(manual, program.name), *_calls(source, program.name)))
            if "--help" in source or "argparse" in source or "click" in source or "usage" in source.lower():
                calls[("--help",)] = None
            for words in (list(calls) or [()])[: _MOST_CALLS + 1]:
                yield Case(clone.name, skill, relative, words)


def _programs(skill: Path) -> Iterator[Path]:
    """Yield what an agent would start: files of `scripts/` or beside SKILL.md that look like programs."""
    for folder in (skill / "scripts", skill):
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if path.suffix not in STARTERS or path.is_symlink() or not path.is_file():
                continue
            if _NO_PROGRAM.search(path.relative_to(skill).as_posix()):
                continue
            if path.suffix != ".py" or "__main__" in _text_of(path):
                yield path


def _calls(text: str, name: str) -> Iterator[tuple[str, ...]]:
    """Yield the words after the program's name in lines that call it."""
    pattern = re.compile(rf"(?:python3?|node|bash|sh|uv run|\./)[^\n`]*?{re.escape(name)}([^\n`]*)")
    found = 0
    for match in pattern.finditer(text.replace("\\\n", " ")):
        rest = re.split(r"\s(?:#|&&|\|)", match[1], maxsplit=1)[0].strip()
        if _SHELL.search(rest) or (not match[1].startswith((" ", "\t")) and rest):
            continue
        try:
            words = tuple(shlex.split(rest))
        except ValueError:
            continue
        if words and words != ("--help",):
            yield words
            found += 1
        if found == _MOST_CALLS:
            return


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
