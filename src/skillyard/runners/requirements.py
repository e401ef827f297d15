"""What a Python program of a skill needs beside the standard library: its PEP 723 block, else a requirements file.

Every run asks, and most need nothing: what is declared is read by `specifiers`, loaded only where something is.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.errors import InvalidCommand, InvalidRequirements
from skillyard.core.messages import Message
from skillyard.core.skill import SLOT, Kind, Skill
from skillyard.runners.interpreters import find_program, interpreter_of, is_python, runs_python, version_of
from skillyard.runners.template import split

if TYPE_CHECKING:
    from skillyard.runners.specifiers import Declared

FILE = "requirements.txt"
_LONGEST_BYTES = 262_144
_MOST_SCRIPTS = 500

#: How a PEP 723 block begins.
_START = b"# /// script"
_OWN_FOLDER = frozenset({"skill", "baseDir", "CLAUDE_SKILL_DIR"})


class Requirements(NamedTuple):
    """Packages for one interpreter. Two skills that need the same share one environment."""

    packages: tuple[str, ...]
    #: `requires-python`, or nothing.
    python: str
    #: The file that says so, from the skill's folder.
    source: str
    #: The Python that would run it, and its version.
    interpreter: str
    version: str

    @property
    def digest(self) -> str:
        """Names the environment: what goes in, and what it runs on."""
        machine = os.uname().machine if hasattr(os, "uname") else ""
        parts = ("1", *self.packages, "", self.python, self.version, sys.platform, machine)
        import hashlib  # noqa: PLC0415  (most skills need nothing)

        return hashlib.blake2b("\n".join(parts).encode(), digest_size=10).hexdigest()

    @property
    def told(self) -> str:
        """For a question or an error: `pandas>=2, rich`."""
        python = (f"Python {self.python}",) if self.python else ()
        return ", ".join((*self.packages, *python))


def find_requirements(skill: Skill, script: str = "") -> Requirements | None:
    """None for what is no Python program, and for what the standard library is enough for."""
    found = _program(skill, script)
    declared = _declared(found, skill.folder) if found else None
    if found is None or declared is None:
        return None
    interpreter = interpreter_of(found)[0] if found.is_file() else find_program("python3")
    version = version_of(interpreter)
    from skillyard.runners.specifiers import allows, numbers_of  # noqa: PLC0415

    if not declared.packages and allows(declared.python, numbers_of(version)):
        return None
    return Requirements(declared.packages, declared.python, declared.source, interpreter, version)


def list_requirements(skill: Skill) -> tuple[Requirements, ...]:
    """Of everything that the skill can run, each once."""
    files = (path.relative_to(skill.folder) for path in sorted(skill.folder.rglob("*.py")))
    scripts = [file.as_posix() for file in files if not any(part.startswith(".") for part in file.parts)]
    found = [find_requirements(skill, script) for script in ("", *scripts[:_MOST_SCRIPTS])]
    return tuple({needs.digest: needs for needs in found if needs}.values())


def _program(skill: Skill, script: str) -> Path | None:
    """The Python file that would run; the folder itself for `python -m`."""
    folder = skill.folder
    if script or skill.kind is Kind.JSON:
        path = folder / (script or skill.entry)
    elif skill.kind is Kind.COMMAND:
        named = _in_command(skill)
        if named is None or named == folder:
            return named
        path = named
    else:
        return None
    return path if path.is_file() and _is_inside(path, folder) and is_python(path) else None


def _in_command(skill: Skill) -> Path | None:
    try:
        words = [_own_folder(word, skill.folder) for word in split(skill.command)]
    except InvalidCommand:
        return None  # the run itself says why
    if not runs_python(words[0]):
        return skill.folder / words[0]
    for word in words[1:]:
        if word in {"-m", "-c"}:
            return skill.folder
        if not word.startswith("-"):
            return skill.folder / word
    return None


def _own_folder(word: str, folder: Path) -> str:
    return SLOT.sub(lambda slot: str(folder) if slot[1] in _OWN_FOLDER else slot[0], word)


def _declared(program: Path, folder: Path) -> "Declared | None":
    """The program's own block, even an empty one, else the file beside it, else the skill's."""
    content = _read(program) if program.is_file() else b""
    if _START in content:
        from skillyard.runners.specifiers import read_block  # noqa: PLC0415

        block = read_block(content.decode("utf-8", "replace"), _name(program, folder))
        if block:
            return block
    for place in dict.fromkeys((program.parent if program.is_file() else folder, folder)):
        if (place / FILE).is_file():
            return _in_file(place / FILE, folder)
    return None


def _in_file(file: Path, folder: Path) -> "Declared | None":
    from skillyard.runners.specifiers import Declared, read_requirements  # noqa: PLC0415

    name = _name(file, folder)
    if not _is_inside(file, folder):
        raise InvalidRequirements(Message("{name} leads out of {folder}/", name=name, folder=folder.name))
    packages = read_requirements(_text(_read(file), name), name)
    return Declared(packages, "", name) if packages else None


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_LONGEST_BYTES)
    except OSError as error:  # unreadable, or gone since we looked
        raise InvalidCommand(f"{path}: {error.strerror}") from None


def _text(content: bytes, name: str) -> str:
    if len(content) == _LONGEST_BYTES:
        raise InvalidRequirements(
            Message("{path} is larger than {max_bytes} bytes", path=name, max_bytes=_LONGEST_BYTES)
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequirements(
            Message("{name} is not UTF-8 at byte {start}", name=name, start=error.start)
        ) from None
