"""Requirements as texts: the PEP 723 block and the lines of a requirements file, read and put into one form.

Only plain requirements are taken (name, extras, versions, marker): where packages come from is the user's to say,
never a skill's.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.core.errors import InvalidRequirements
from skillyard.core.messages import Message
from skillyard.runners.interpreters import read_head
from skillyard.runners.requirements import LONGEST_BYTES, START, plain_name

_LONGEST_LINE = 1000
_MOST_PACKAGES = 500
_FILE, _PROJECT_FILE = "requirements.txt", "pyproject.toml"
_END = "# ///"
_CLAUSE = r"(?:===|~=|==|!=|<=|>=|<|>)\s*+[A-Za-z0-9][A-Za-z0-9.*+!_-]*+"
_CLAUSES = rf"{_CLAUSE}(?:\s*+,\s*+{_CLAUSE})*+\s*+,?"
_PYTHON = re.compile(_CLAUSES)
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*+"
    r"(?:\[(?P<extras>[A-Za-z0-9._,\s-]*+)\]\s*+)?"
    rf"(?:(?P<versions>{_CLAUSES})|\((?P<bracketed>\s*+{_CLAUSES}\s*+)\))?\s*+"
    r"(?:;(?P<marker>.*))?"
)
_VALUE = r"""(?:[a-z_]++|'[\w .+*!-]*+'|"[\w .+*!-]*+")"""
_COMPARISON = re.compile(rf"{_VALUE}\s*+(?:[<>]=?|[!=~]=|===|\bnot\s++in\b|\bin\b)\s*+{_VALUE}", re.ASCII)
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
#: What would fetch a package from somewhere else, or another one of the same name.
_ELSEWHERE = {"sources", "index", "index-url", "default-index", "extra-index-url"}
_ELSEWHERE |= {"find-links", "override-dependencies"}


class Declared(NamedTuple):
    """What a file declares."""

    packages: tuple[str, ...]
    python: str
    source: str
    #: Of the program itself: it says everything that it needs.
    is_block: bool = False


def read_declared(
    content: bytes, program: Path, folder: Path, *, imports: bool, without: frozenset[str]
) -> Declared | None:
    """Return what the program's own block declares, else the file beside it where the program `imports` a package."""
    source = program.relative_to(folder).as_posix() if program.is_relative_to(folder) else program.name
    block = read_block(content.decode("utf-8", "replace"), source, without)
    if block or not imports:
        return block
    places = [place for place in program.parents if place.is_relative_to(folder)] or [folder]
    for file in (place / name for place in places for name in (_FILE, _PROJECT_FILE)):
        if not file.is_file():
            continue
        name = file.relative_to(folder).as_posix()
        if not file.resolve().is_relative_to(folder.resolve()):
            raise InvalidRequirements(Message("{name} leads out of {folder}/", name=name, folder=folder.name))
        read = read_requirements if file.name == _FILE else _read_project
        if (declared := read(_read_text(file, name), name, without)) is not None:
            return declared
    return None


def _read_text(file: Path, name: str) -> str:
    content = read_head(file, LONGEST_BYTES)
    if len(content) == LONGEST_BYTES:
        told = Message("{path} is larger than {max_bytes} bytes", path=name, max_bytes=LONGEST_BYTES)
        raise InvalidRequirements(told)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        told = Message("{name} is not UTF-8 at byte {start}", name=name, start=error.start)
        raise InvalidRequirements(told) from None


def read_block(text: str, source: str, without: frozenset[str] = frozenset()) -> Declared | None:
    """Return the `script` block of PEP 723; None if there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    starts = [at for at, line in enumerate(lines) if line.rstrip() == START]
    if not starts:
        return None
    place = _place(source, starts[0] + 1)
    if len(starts) > 1:
        raise InvalidRequirements(Message("{place}: a second script block", place=_place(source, starts[1] + 1)))
    body = list(takewhile(lambda line: line.rstrip() == "#" or line.startswith("# "), lines[starts[0] + 1 :]))
    ends = [at for at, line in enumerate(body) if line.rstrip() == _END]
    if not ends:
        raise InvalidRequirements(Message("{place}: the script block is not closed by '{end}'", place=place, end=_END))
    try:
        fields = _parse_toml("\n".join(line[2:] for line in body[: ends[-1]]))
    except ValueError as error:
        told = Message("{place}: the script block is not TOML: {error}", place=place, error=error)
        raise InvalidRequirements(told) from None
    tool = fields.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    if named := sorted(_ELSEWHERE & uv.keys()) if isinstance(uv, dict) else []:
        told = Message("{place}: [tool.uv] {named}: a skill cannot say where from", place=place, named=named[0])
        raise InvalidRequirements(told)
    return _read_table(fields, source, place, without)._replace(is_block=True)


def _read_project(text: str, source: str, without: frozenset[str]) -> Declared | None:
    """Return what the `[project]` of a pyproject.toml declares; None if it has none, or is no TOML: imports count."""
    try:
        fields = _parse_toml(text).get("project")
    except ValueError:
        return None
    return _read_table(fields, source, source, without) if isinstance(fields, dict) else None


def _parse_toml(text: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  (a requirements file needs none)

    return tomllib.loads(text)


def _place(source: str, line: int) -> Message:
    return Message("{source}, line {line}", source=source, line=line)


def _read_table(fields: dict[str, Any], source: str, place: str, without: frozenset[str]) -> Declared:
    dependencies, python = fields.get("dependencies", []), fields.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(item, str) for item in dependencies):
        raise InvalidRequirements(Message("{place}: dependencies must be a list of texts", place=place))
    if not isinstance(python, str) or (python.strip() and not _PYTHON.fullmatch(python.strip())):
        raise InvalidRequirements(Message("{place}: requires-python must be versions like '>=3.11'", place=place))
    return _declare(((item, place) for item in dependencies), _sort_clauses(python), source, without)


def read_requirements(text: str, source: str, without: frozenset[str] = frozenset()) -> Declared:
    """Return the requirements of a requirements.txt, normalised and sorted."""
    found: list[tuple[str, str]] = []
    pending, begun = "", 0
    for number, line in enumerate(f"{text}\n".replace("\r\n", "\n").split("\n"), 1):
        begun = begun if pending else number
        bare = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        pending += bare.removesuffix("\\")
        if not bare.endswith("\\"):
            found += [(pending, _place(source, begun))] if pending.strip() else []
            pending = ""
    return _declare(found, "", source, without)


def _declare(lines: Iterable[tuple[str, str]], python: str, source: str, without: frozenset[str]) -> Declared:
    """Return the requirements, each with its place, but for those that a person goes on without."""
    named = [(line.strip(), re.match(r"[\w.-]+", line.strip()), place) for line, place in lines]
    left_out = {line for line, name, _ in named if line in without or (name and plain_name(name[0]) in without)}
    found = {as_requirement(line, place) for line, _, place in named if line not in left_out}
    if len(found) > _MOST_PACKAGES:
        told = Message("{source} names more than {most_packages} packages", source=source, most_packages=_MOST_PACKAGES)
        raise InvalidRequirements(told)
    return Declared(tuple(sorted(found)), python, source)


def as_requirement(text: str, place: str) -> str:
    """One plain requirement in its normal form; InvalidRequirements for anything else."""
    text = text.strip()
    found = _REQUIREMENT.fullmatch(text) if len(text) <= _LONGEST_LINE else None
    if found is None or text.lower().endswith(_ARCHIVES):
        reason = Message("{place}: {reason}", place=place, reason=_why_refused(text))
        raise InvalidRequirements(reason, details={"line": text})
    marker = (found["marker"] or "").strip()
    # Comparisons joined by `and` and `or`; the installer checks the brackets.
    comparisons = re.split(r"\b(?:and|or)\b", marker.replace("(", " ").replace(")", " "))
    if found["marker"] is not None and not all(_COMPARISON.fullmatch(each.strip()) for each in comparisons):
        told = Message("{place}: {marker!r} is no environment marker", place=place, marker=marker[:80])
        raise InvalidRequirements(told)
    extras = ",".join(sorted(extra.strip().lower() for extra in (found["extras"] or "").split(",") if extra.strip()))
    versions = _sort_clauses(found["versions"] or found["bracketed"] or "")
    shown = f"{plain_name(found['name'])}[{extras}]{versions}" if extras else f"{plain_name(found['name'])}{versions}"
    return f"{shown}; {' '.join(marker.split())}" if marker else shown


def _why_refused(text: str) -> str:
    shown = repr(text[:80])
    if text.startswith("-") or " --" in text:
        return f"{shown} is an option of the installer: only package names and versions are taken"
    if "://" in text or "@" in text:
        return f"{shown} names an address: packages come from the user's own index"
    if text.startswith((".", "/", "~")) or "\\" in text or text.lower().endswith(_ARCHIVES):
        return f"{shown} is a path: packages come from the user's own index"
    return f"{shown} is no requirement like 'name>=1.0'"


def _sort_clauses(text: str) -> str:
    return ",".join(sorted(re.sub(r"\s+", "", clause) for clause in text.split(",") if clause.strip()))


def allows(specifier: str, version: tuple[int, ...]) -> bool:
    """Whether `requires-python` allows this version."""
    return all(_holds(clause, version) for clause in specifier.split(",") if clause)


def _holds(clause: str, version: tuple[int, ...]) -> bool:
    operator = clause[: len(clause) - len(clause.lstrip("<>=!~"))]
    numbers = numbers_of(clause.removeprefix(operator))
    width = max(len(version), len(numbers))
    have, want = (each + (0,) * (width - len(each)) for each in (version, numbers))
    # `==3.11` is meant as `==3.11.*` by whoever writes it.
    is_prefix = clause.endswith(".*") or len(numbers) < 3
    same = version[: len(numbers)] == numbers if is_prefix else have == want
    compatible = have >= want and version[: len(numbers) - 1] == numbers[:-1]
    ordered = {">=": have >= want, ">": have > want, "<=": have <= want, "<": have < want}
    return {"==": same, "===": same, "!=": not same, "~=": compatible, **ordered}[operator]


def numbers_of(text: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in release[0].split(".")) if release else ()


def satisfied(packages: Mapping[str, str], module: Path | None) -> bool:
    """Whether an installed module has the version that was declared for its package, if one was."""
    for info in module.parent.glob("*.dist-info") if module else ():
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        wanted = packages.get(plain_name(name), "")
        if not allows(re.sub(r"^[^<>=!~;]*|;.*", "", wanted), numbers_of(version)):
            return False
    return module is not None
