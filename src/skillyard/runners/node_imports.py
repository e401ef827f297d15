"""The packages that a JavaScript program imports when it starts, with the versions that its package.json names.

Followed through the skill's own modules. Found by the text: `import` and `export … from` at the start of a line, and
`require` in a statement of its own there. One further in may never run, or be guarded, and is not asked for.
"""

import json
import re
from pathlib import Path

from skillyard.core.errors import InvalidCommand, InvalidRequirements
from skillyard.core.messages import Message
from skillyard.runners.interpreters import find_program, node_version, read_head
from skillyard.runners.requirements import NPM, Requirements

FILE = "package.json"
_BUILTINS = frozenset(Path(__file__).with_name("node_builtins.txt").read_text("utf-8").split())
_IGNORED = re.compile(rb"/\*.*?\*/|^[ \t]*//[^\n]*|`(?:[^`\\]|\\.)*`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(
    rb"""^(?:(?:import|export)[ \t]+(?!type\b)(?:[\w$*{}\s,]{1,2000}?\sfrom\s*)?["']([^"'\n]+)["']"""
    rb"""|(?:(?:const|let|var)\s[\w$\s{},:]{1,2000}=\s*)?(?:require|await import)\(\s*["']([^"'\n]+)["']\s*\))""",
    re.MULTILINE,
)
_PACKAGE = re.compile(r"(@[a-z0-9][\w.~-]*/[\w.~-]+|[a-z0-9][\w.~-]*)(?:/.*)?")
_VERSION = re.compile(r"[\w.^~<>=|*+ -]{1,100}")
_ENDINGS = ("", ".js", ".mjs", ".cjs", ".ts", ".mts", "/index.js", "/index.mjs", "/index.ts")
_DECLARING = ("peerDependencies", "devDependencies", "optionalDependencies", "dependencies")
_MOST_FILES, _LONGEST_BYTES = 200, 1_048_576


def find_node_requirements(
    program: Path, folder: Path, seen_at: Path, more: tuple[str, ...], without: frozenset[str]
) -> Requirements | None:
    """Return the packages that the program needs and does not find; None if it finds all.

    `seen_at` is the skill's folder as the program sees it: what lies above counts too.
    """
    inside = [place for place in program.parents if place.is_relative_to(folder)]
    wanted = sorted(name for name in _imports(program, folder) if name not in without)
    places = [place / "node_modules" for place in (*inside, *seen_at.parents)]
    if not more and all(any((place / name).is_dir() for place in places) for name in wanted):
        return None
    file = next((place / FILE for place in inside if (place / FILE).is_file()), None)
    tables = _read_tables(file) if file else {}
    versions = {name: version for table in _DECLARING for name, version in tables.get(table, {}).items()}
    chosen = dict.fromkeys(name for name in (*tables.get("dependencies", {}), *wanted) if name not in without)
    packages = {_spec(name, versions.get(name, "")) for name in chosen} | {*more}
    imported = tuple(name for name in wanted if name not in versions)
    declared = file.relative_to(folder).as_posix() if file else ""
    source = ", ".join(filter(None, (declared, "imports" if imported else "", "--with" if more else "")))
    node = find_program("node")
    return Requirements(tuple(sorted(packages)), "", source, node, f"{node_version(node)[0]}", imported, NPM)


def _spec(name: str, version: str) -> str:
    if not _VERSION.fullmatch(version or "*") or not _PACKAGE.fullmatch(name):
        reason = Message("{shown!r} names no version: packages come from the user's own registry", shown=version[:80])
        told = Message("{place}: {reason}", place=f"{FILE}: {name}", reason=reason)
        raise InvalidRequirements(told, details={"line": name})
    return f"{name}@{version}" if version else name


def _imports(program: Path, folder: Path) -> set[str]:
    waiting, seen, found = [program], {program}, set[str]()
    while waiting and len(seen) <= _MOST_FILES:
        file = waiting.pop()
        for name in _imported(file):
            if name.startswith("."):
                bases = (Path(f"{file.parent / name}{end}").resolve() for end in _ENDINGS)
                own = next(filter(Path.is_file, bases), None)
                if own and own not in seen and own.is_relative_to(folder.resolve()):
                    waiting.append(own)
                    seen.add(own)
            elif (package := _PACKAGE.fullmatch(name)) and package[1] not in _BUILTINS:
                found.add(package[1])
    return found


def _imported(file: Path) -> list[str]:
    try:
        content = _IGNORED.sub(b"``", read_head(file, _LONGEST_BYTES))
    except InvalidCommand:
        return []
    return [(one or other).decode("utf-8", "replace") for one, other in _IMPORT.findall(content)]


def _read_tables(file: Path) -> dict[str, dict[str, str]]:
    try:
        fields = json.loads(read_head(file, _LONGEST_BYTES))
    except (InvalidCommand, ValueError, RecursionError) as error:
        raise InvalidRequirements(Message("{name} cannot be read: {error}", name=FILE, error=error)) from None
    tables = fields.items() if isinstance(fields, dict) else ()
    found = {key: table for key, table in tables if isinstance(table, dict)}
    return {key: {name: str(version) for name, version in table.items()} for key, table in found.items()}
