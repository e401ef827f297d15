"""What a Python program of a skill needs beside the standard library: its PEP 723 block, else a requirements file.

Every run asks, and most need nothing: what is declared is read by `specifiers`, loaded only where something is.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.capability import PACKAGES
from skillyard.core.errors import InvalidCommand, InvalidRequirements
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runners.interpreters import find_program, interpreter_of, is_python, version_of
from skillyard.runners.kind import load_kind
from skillyard.sandbox.launch import Launch

if TYPE_CHECKING:
    from skillyard.runners.specifiers import Declared

FILE = "requirements.txt"
_LONGEST_BYTES = 262_144
_MOST_SCRIPTS = 500

#: How a PEP 723 block begins.
_START = b"# /// script"


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
        """The name of the environment: a hash of its packages and its platform."""
        machine = os.uname().machine if hasattr(os, "uname") else ""
        parts = ("1", *self.packages, "", self.python, self.version, sys.platform, machine)
        import hashlib  # noqa: PLC0415  (most skills need nothing)

        return hashlib.blake2b("\n".join(parts).encode(), digest_size=10).hexdigest()

    @property
    def told(self) -> str:
        """For a question or an error: `pandas>=2, rich`."""
        python = (f"Python {self.python}",) if self.python else ()
        return ", ".join((*self.packages, *python))


class Packages(NamedTuple):
    """The packages of one run. A run never installs any: it uses an environment that was built."""

    needs: Requirements
    #: The environment's Python; where it will be, while it is not built.
    python: Path
    built: bool
    granted: bool
    #: The parts of the environment and of the interpreter behind it.
    readable: tuple[Path, ...]

    @property
    def missing(self) -> bool:
        return not (self.built and self.granted)

    def in_environment(self, launch: Launch) -> Launch:
        """Return the launch with the environment's Python and its programs on the PATH."""
        programs = self.python.parent
        own = {"VIRTUAL_ENV": str(programs.parent), "PATH": f"{programs}:{launch.env.get('PATH', '')}".rstrip(":")}
        return launch._replace(argv=(str(self.python), *launch.argv[1:]), env={**launch.env, **own})

    def as_dict(self) -> dict[str, Json]:
        return {
            "packages": list(self.needs.packages),
            "requires_python": self.needs.python,
            "source": self.needs.source,
            "digest": self.needs.digest,
            "built": self.built,
        }


def find_packages(skill: Skill, script: str, granted: frozenset[str], own_home: Path) -> Packages | None:
    """Return the packages that the program needs; None if the standard library is enough."""
    needs = find_requirements(skill, script)
    if needs is None:
        return None
    from skillyard.runners.environments import find, python_of, readable_parts  # noqa: PLC0415  (most need nothing)

    return Packages(
        needs=needs,
        python=python_of(needs, own_home),
        built=find(needs, own_home) is not None,
        granted=PACKAGES in granted,
        readable=readable_parts(needs, own_home),
    )


def find_requirements(skill: Skill, script: str = "") -> Requirements | None:
    """Return what a Python program needs; None for other programs, or if the standard library is enough."""
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
    """Return the requirements of everything that the skill can run, without duplicates."""
    files = (path.relative_to(skill.folder) for path in sorted(skill.folder.rglob("*.py")))
    scripts = [file.as_posix() for file in files if not any(part.startswith(".") for part in file.parts)]
    found = [find_requirements(skill, script) for script in ("", *scripts[:_MOST_SCRIPTS])]
    return tuple({needs.digest: needs for needs in found if needs}.values())


def _program(skill: Skill, script: str) -> Path | None:
    """Return the Python file that would run, or the folder for `python -m`; None for other programs."""
    path = load_kind(skill, script).find_program(skill, script)
    if path is None or path == skill.folder:
        return path
    return path if path.is_file() and _is_inside(path, skill.folder) and is_python(path) else None


def _declared(program: Path, folder: Path) -> "Declared | None":
    """Return what the program's own block declares, else the file beside it, else the skill's file."""
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
        told = Message("{path} is larger than {max_bytes} bytes", path=name, max_bytes=_LONGEST_BYTES)
        raise InvalidRequirements(told)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        told = Message("{name} is not UTF-8 at byte {start}", name=name, start=error.start)
        raise InvalidRequirements(told) from None
