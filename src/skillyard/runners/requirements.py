"""What a program of a skill needs beside the standard library: what it imports, with the versions that are declared.

For Python a PEP 723 block says everything; else a requirements.txt or pyproject.toml gives the versions, and more. For
JavaScript that is package.json (see `node_imports`). A program that imports only the standard library needs nothing,
whatever a file beside it says. Every run asks, and most need nothing: what is declared is read by `specifiers`, loaded
only where something is.

Imports are followed through the skill's own modules. Needed are those that run before anything else does: at the top
of a module, not inside a function and not where a failed import is caught and the program goes on. Others are optional.
"""

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from skillyard.core.capability import PACKAGE, PACKAGES, WITHOUT
from skillyard.core.errors import InvalidCommand, ProgramMissing
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.core.values import Json, lazy_pattern
from skillyard.runners.interpreters import find_program, interpreter_of, is_javascript, is_python, read_head, version_of
from skillyard.runners.kind import load_kind
from skillyard.sandbox.launch import Launch, Mount

PIP, NPM = "pip", "npm"
#: How a PEP 723 block begins.
START = "# /// script"
#: Of a file that is read.
LONGEST_BYTES = 262_144
_MOST_SCRIPTS, _MOST_FILES, _MOST_FOLDERS = 500, 200, 500
_ENDINGS = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".mts"})
#: Every program finds these: node looks for packages in all folders above its own.
_NODE_MODULES = Path("/node_modules")
_IMPORT = lazy_pattern(rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w., \t]+))", re.MULTILINE)
#: Modules that every run has: Python's own, and ours.
_THERE = sys.stdlib_module_names | {"skillyard"}
#: Folders that programs put on the path themselves, or are started from.
_SOURCES = ("", "src", "lib", "scripts")


class Requirements(NamedTuple):
    """Packages for one interpreter. Two skills that need the same share one environment."""

    packages: tuple[str, ...]
    #: `requires-python`, or nothing.
    python: str
    #: The file that says so, from the skill's folder.
    source: str
    #: The Python or node that would run it, and its version.
    interpreter: str
    version: str
    #: Those of the packages that the program imports and nobody declares.
    imported: tuple[str, ...] = ()
    installer: str = PIP

    @property
    def digest(self) -> str:
        """The name of the environment: a hash of its packages and its platform."""
        import hashlib  # noqa: PLC0415  (most skills need nothing)

        other = () if self.installer == PIP else (self.installer,)
        parts = ("1", *self.packages, "", self.python, self.version, sys.platform, os.uname().machine, *other)
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=10).hexdigest()


class PackageChoice(NamedTuple):
    """What a person changed about the packages of a skill."""

    more: tuple[str, ...] = ()
    #: Requirements that cannot be had, by name or by their whole line.
    without: tuple[str, ...] = ()

    @classmethod
    def of(cls, granted: Iterable[str]) -> "PackageChoice":
        """Return the choice that these capabilities hold."""
        pairs = sorted(capability.partition(":")[::2] for capability in granted)
        return cls(*(tuple(text for name, text in pairs if name == kind) for kind in (PACKAGE, WITHOUT)))

    @property
    def capabilities(self) -> frozenset[str]:
        pairs = zip((PACKAGE, WITHOUT), self, strict=True)
        return frozenset(f"{name}:{text}" for name, listed in pairs for text in listed)

    def changed(self, change: "PackageChoice") -> "PackageChoice":
        """Return the choice after another one. Of one package the last word counts."""
        anew = {plain_name(each) for each in (*change.more, *change.without)}
        kept = ((each for each in listed if plain_name(each) not in anew) for listed in self)
        return PackageChoice(*(tuple(sorted((*old, *new))) for old, new in zip(kept, change, strict=True)))


def describe_needs(needs: Iterable[Requirements]) -> str:
    """Return what is needed, for a question or an error: `rich>=13, pandas (imported, not declared)`."""
    needs = tuple(needs)
    imported = tuple(dict.fromkeys(name for each in needs for name in each.imported))
    declared = [package for each in needs for package in each.packages if package not in imported]
    declared += [f"Python {each.python}" for each in needs if each.python]
    shown = ", ".join(dict.fromkeys(declared))
    if not imported:
        return shown
    more = Message("{packages} (imported, not declared)", packages=", ".join(imported))
    return Message("{first}, {more}", first=shown, more=more) if shown else more


class Imports(NamedTuple):
    """What a Python program imports."""

    #: The top-level modules of packages without which it does not start.
    modules: tuple[str, ...] = ()
    #: Those that it can do without, or needs only later.
    optional: tuple[str, ...] = ()
    #: Folders with modules of the skill where Python does not look by itself, from the skill's folder.
    roots: tuple[str, ...] = ()
    #: The program's file, from the skill's folder, and its name for `python -m` where it imports relatively.
    program: str = ""
    name: str = ""
    #: Another Python of this machine that the program asks for.
    python: str = ""

    def applied(self, launch: Launch, folder: Path) -> Launch:
        """Return the launch that finds the skill's own modules. `folder` is the skill's as the program sees it."""
        if self.python:
            launch = launch._replace(argv=(self.python, *launch.argv[1:]))
        if not self.roots:
            return launch
        argv, places = launch.argv, [str(folder / root) for root in self.roots]
        if self.name:
            named = [at for at, word in enumerate(argv) if launch.cwd / word == folder / self.program]
            argv = (*argv[: named[0]], "-m", self.name, *argv[named[0] + 1 :]) if named else argv
        path = os.pathsep.join((*places, *filter(None, (launch.env.get("PYTHONPATH"),))))
        return launch._replace(argv=argv, env={**launch.env, "PYTHONPATH": path})


class Packages(NamedTuple):
    """The packages of one run. A run never installs any: it uses an environment that was built."""

    needs: Requirements
    #: The environment; where it will be, while it is not built.
    folder: Path
    built: bool
    granted: bool
    #: The parts of the environment and of the interpreter behind it.
    readable: tuple[Path, ...]

    @property
    def missing(self) -> bool:
        return not (self.built and self.granted)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return (Mount(self.folder / "node_modules", _NODE_MODULES),) if self.needs.installer == NPM else ()

    def in_environment(self, launch: Launch) -> Launch:
        """Return the launch with the environment's interpreter and its programs on the PATH."""
        if self.needs.installer == NPM:  # only `require` knows NODE_PATH; see `mounts`
            modules, argv = self.folder / "node_modules", launch.argv
            programs, own = modules / ".bin", {"NODE_PATH": str(modules)}
        else:
            programs, own = self.folder / "bin", {"VIRTUAL_ENV": str(self.folder)}
            argv = (str(programs / "python"), *launch.argv[1:])
        path = f"{programs}:{launch.env.get('PATH', '')}".rstrip(":")
        return launch._replace(argv=argv, env={**launch.env, **own, "PATH": path})

    def as_dict(self) -> dict[str, Json]:
        return {
            "packages": list(self.needs.packages),
            "imported": list(self.needs.imported),
            "requires_python": self.needs.python,
            "source": self.needs.source,
            "digest": self.needs.digest,
            "built": self.built,
        }


def find_packages(
    skill: Skill, script: str, granted: frozenset[str], own_home: Path, seen_at: Path
) -> tuple[Packages | None, Imports]:
    """Return the packages that the program needs, None if the standard library is enough, and its imports."""
    needs, imports = _find(skill, script, PackageChoice.of(granted), seen_at)
    if needs is None:
        return None, imports
    from skillyard.runners.environments import choose_python, find, home_of, readable_parts  # noqa: PLC0415

    if not needs.packages:  # only another Python
        return None, imports._replace(python=choose_python(needs))
    folder, is_built = home_of(own_home) / needs.digest, find(needs, own_home) is not None
    return Packages(needs, folder, is_built, PACKAGES in granted, readable_parts(needs, own_home)), imports


def find_requirements(skill: Skill, script: str = "", choice: PackageChoice | None = None) -> Requirements | None:
    """Return what a program needs, with what a person changed; None if the standard library is enough."""
    return _find(skill, script, choice or PackageChoice(), skill.folder)[0]


def list_requirements(skill: Skill, choice: PackageChoice | None = None) -> tuple[Requirements, ...]:
    """Return the requirements of everything that the skill can run, without duplicates."""
    files = (path.relative_to(skill.folder) for path in sorted(skill.folder.rglob("*")) if path.suffix in _ENDINGS)
    shown = [file for file in files if not any(part.startswith((".", "node_modules")) for part in file.parts)]
    found = {needs.digest: needs for needs in (find_requirements(skill, "", choice),) if needs}
    for script in shown[:_MOST_SCRIPTS]:
        with suppress(ProgramMissing):  # whoever runs it is told
            if needs := find_requirements(skill, script.as_posix(), choice):
                found[needs.digest] = needs
    return tuple(found.values())


def _find(skill: Skill, script: str, choice: PackageChoice, seen_at: Path) -> tuple[Requirements | None, Imports]:
    """Return what the program needs and imports: a Python or JavaScript file, or the folder for `python -m`."""
    folder, nothing = skill.folder, Imports()
    program = load_kind(skill, script).find_program(skill, script)
    if program == folder:
        return _find_for_python(folder, folder, (), choice), nothing
    if program is None or not program.is_file() or not program.resolve().is_relative_to(folder.resolve()):
        return None, nothing
    if is_python(program):
        imports = find_imports(program, folder)
        return _find_for_python(program, folder, imports.modules, choice), imports
    if is_javascript(program):
        from skillyard.runners.node_imports import find_node_requirements  # noqa: PLC0415  (only for JavaScript)

        more = tuple(each.removeprefix(f"{NPM}:") for each in choice.more if each.startswith(f"{NPM}:"))
        return find_node_requirements(program, folder, seen_at, more, frozenset(choice.without)), nothing
    return None, nothing


def _find_for_python(
    program: Path, folder: Path, imported: tuple[str, ...], choice: PackageChoice
) -> Requirements | None:
    is_file = program.is_file()
    without = frozenset(map(plain_name, choice.without)) | {*choice.without}
    more = tuple(each for each in choice.more if not each.startswith(f"{NPM}:"))
    modules = {module: package for module in imported if plain_name(package := package_of(module)) not in without}
    content = read_head(program, LONGEST_BYTES) if is_file else b""
    if is_file and not modules and not more and START.encode() not in content:
        return None
    from skillyard.runners.specifiers import allows, numbers_of, read_declared, satisfied  # noqa: PLC0415

    declared = read_declared(content, program, folder, imports=bool(modules) or not is_file, without=without)
    if declared is None and not modules and not more:
        return None
    interpreter = interpreter_of(program)[0] if is_file else find_program("python3")
    packages = {plain_name(each): each for each in declared.packages} if declared else {}
    has_block = declared is not None and declared.is_block
    places = (find_installed(module, interpreter) for module in modules)
    if modules and not has_block and not more and all(satisfied(packages, place) for place in places):
        return None
    missing = [] if has_block else [name for name in modules.values() if plain_name(name) not in packages]
    undeclared = tuple(sorted(missing, key=str.lower))
    packages |= {plain_name(each): each for each in (*undeclared, *more)}
    requires = declared.python if declared and "python" not in without else ""
    version = version_of(interpreter)
    if not packages and allows(requires, numbers_of(version)):
        return None
    sources = (declared.source if declared else "", "imports" if undeclared else "", "--with" if more else "")
    chosen = tuple(sorted(packages.values(), key=str.lower))
    return Requirements(chosen, requires, ", ".join(filter(None, sources)), interpreter, version, undeclared)


def plain_name(package: str) -> str:
    """Return the name of a requirement as indexes compare it; `npm:` and a scope stay."""
    found = re.match(r"(?:npm:)?(?:@[\w.-]+/)?[\w.-]+", package)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else package


def find_imports(program: Path, folder: Path) -> Imports:
    """Return what the program of this skill imports."""
    search = _Search(program, folder)
    while search.waiting and len(search.seen) <= _MOST_FILES:
        search.read(search.waiting.pop())
    roots, name = search.roots, ""
    if search.is_relative:  # it needs a dotted name, which counts from the folder above its package
        top = program.parent
        while (top / "__init__.py").is_file() and top != folder:
            top = top.parent
        if top == program.parent != folder:
            top = top.parent
        roots = {top: None, **roots, program.parent: None}
        name = ".".join(program.relative_to(top).with_suffix("").parts)
    return Imports(
        modules=tuple(sorted(search.needed)),
        optional=tuple(sorted(search.optional - search.needed)),
        roots=tuple(root.relative_to(folder).as_posix() for root in roots),
        program=program.relative_to(folder).as_posix(),
        name=name,
    )


def find_module(name: str, folder: Path) -> tuple[str, Path] | None:
    """Return the file of the skill that `python -m name` would run, and the folder that it is found from."""
    base = Path(*name.split("."))
    for root in _SOURCES:
        for file in (folder / root / base.with_suffix(".py"), folder / root / base / "__main__.py"):
            if file.is_file():
                return root, file
    return None


@cache
def _renamed() -> dict[str, str]:
    """Return the packages that have another name than their module."""
    lines = Path(__file__).with_name("module_packages.txt").read_text("utf-8").splitlines()
    return {module: package for module, _, package in (line.partition(" ") for line in lines)}


def package_of(module: str) -> str:
    return _renamed().get(module, module.replace("_", "-"))


def find_installed(module: str, python: str) -> Path | None:
    """Return where the packages of this Python, or of the environment that it belongs to, have the module."""
    prefixes = dict.fromkeys(Path(path).parents[1] for path in (python, os.path.realpath(python)))
    libraries = (prefix / part / "lib" for prefix in prefixes for part in ("", "local"))
    places = (place for library in libraries for place in library.glob("python3*/*-packages"))
    path = module.replace(".", "/")
    forms = (f"{path}.py", path, f"{path}.*.so")
    return next((found for place in places for form in forms for found in place.glob(form)), None)


class _Search:
    """Follows the imports of a program through the modules of its skill."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.waiting, self.seen = [program], {program}
        self.needed, self.optional = set[str](), set[str]()
        self.roots: dict[Path, None] = {}
        self.is_relative = False
        inside = [place for place in program.parents if place.is_relative_to(folder)]
        self._places = list(dict.fromkeys((program.parent, *(place / name for place in inside for name in _SOURCES))))

    def read(self, file: Path) -> None:
        """Add what one file imports."""
        try:
            content = read_head(file, LONGEST_BYTES)
        except InvalidCommand:
            return
        listed = (b"".join(found).split(b",") for found in _IMPORT.findall(content))
        names = (words[0] for texts in listed for text in texts if (words := text.split()))
        if all(name.partition(b".")[0].decode() in _THERE for name in names):
            return  # parsing takes longer than most programs
        from skillyard.runners.python_imports import find_imports  # noqa: PLC0415  (brings ast)

        needed, everything = find_imports(content)
        for level, dotted in sorted(everything):
            is_needed = (level, dotted) in needed
            found = list(self._own_files(file, level, dotted, moves_path=b"sys.path" in content))
            if is_needed:
                self.is_relative = self.is_relative or (level > 0 and file == self._program)
                self.waiting += (each for each in found if each not in self.seen)
                self.seen.update(found)
            top, *inner = dotted.split(".")
            if not level and not found and top not in _THERE:
                longer = f"{top}.{inner[0]}" if inner else ""
                (self.needed if is_needed else self.optional).add(longer if longer in _renamed() else top)

    def _own_files(self, file: Path, level: int, dotted: str, *, moves_path: bool) -> list[Path]:
        """Return the skill's own files behind a name."""
        if level:
            return _files(dotted, file.parents[min(level, len(file.parents)) - 1])
        if dotted.partition(".")[0] in _THERE:
            return []
        for place in dict.fromkeys((file.parent, *self._places)):
            if found := _files(dotted, place):
                if place not in {self._program.parent, file.parent}:
                    self.roots[place] = None
                return found
        for parent, folders, _ in islice(os.walk(self._folder), _MOST_FOLDERS if moves_path else 0):
            # To where it moves the path, only the program knows: any folder of the skill.
            folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
            if found := _files(dotted, Path(parent)):
                return found
        return []


def _files(dotted: str, place: Path) -> list[Path]:
    """Return the files of a dotted name that lie in this folder."""
    parts = dotted.split(".")
    top = place / parts[0]
    if not top.with_suffix(".py").is_file() and not any(top.glob("*.py")) and not top.joinpath(*parts[1:2]).is_dir():
        return []
    bases = (place.joinpath(*parts[:count]) for count in range(len(parts), 0, -1))
    files = [file for base in bases for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()]
    return [*files, top] if top.is_dir() else files  # a folder without __init__.py is a package too
