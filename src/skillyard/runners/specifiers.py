"""Requirements as texts: the PEP 723 block and the lines of a requirements file, read and put into one form.

Only plain requirements are taken (name, extras, versions, marker): where packages come from is the user's to say,
never a skill's.
"""

import re
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

from skillyard.core.errors import InvalidRequirements
from skillyard.core.messages import Message

_LONGEST_LINE = 1000
_MOST_PACKAGES = 500

START, _END = "# /// script", "# ///"
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
_ELSEWHERE = frozenset(
    {"sources", "index", "index-url", "default-index", "extra-index-url", "find-links", "override-dependencies"}
)


class Declared(NamedTuple):
    """What a file declares."""

    packages: tuple[str, ...]
    python: str
    source: str


def read_block(text: str, source: str) -> Declared | None:
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
    import tomllib  # noqa: PLC0415  (a requirements file needs none)

    try:
        fields = tomllib.loads("\n".join(line[2:] for line in body[: ends[-1]]))
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequirements(
            Message("{place}: the script block is not TOML: {error}", place=place, error=error)
        ) from None
    return _block(fields, source, place)


def _place(source: str, line: int) -> Message:
    return Message("{source}, line {line}", source=source, line=line)


def _block(fields: dict[str, Any], source: str, place: Message) -> Declared:
    tool = fields.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    if named := sorted(_ELSEWHERE & uv.keys()) if isinstance(uv, dict) else []:
        told = Message("{place}: [tool.uv] {named}: a skill cannot say where from", place=place, named=named[0])
        raise InvalidRequirements(told)
    dependencies, python = fields.get("dependencies", []), fields.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(item, str) for item in dependencies):
        raise InvalidRequirements(Message("{place}: dependencies must be a list of texts", place=place))
    if not isinstance(python, str) or (python.strip() and not _PYTHON.fullmatch(python.strip())):
        raise InvalidRequirements(Message("{place}: requires-python must be versions like '>=3.11'", place=place))
    found = [as_requirement(item, place) for item in dependencies]
    return Declared(_each_once(found, source), _clauses(python), source)


def read_requirements(text: str, source: str) -> tuple[str, ...]:
    """The requirements of a requirements.txt, normalised and sorted."""
    found: list[str] = []
    pending, begun = "", 0
    for number, line in enumerate(f"{text}\n".replace("\r\n", "\n").split("\n"), 1):
        begun = begun if pending else number
        bare = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        pending += bare.removesuffix("\\")
        if bare.endswith("\\"):
            continue
        if pending.strip():
            found.append(as_requirement(pending, _place(source, begun)))
        pending = ""
    return _each_once(found, source)


def _each_once(found: list[str], source: str) -> tuple[str, ...]:
    if len(found) > _MOST_PACKAGES:
        told = Message("{source} names more than {most_packages} packages", source=source, most_packages=_MOST_PACKAGES)
        raise InvalidRequirements(told)
    return tuple(sorted(dict.fromkeys(found)))


def as_requirement(text: str, place: str) -> str:
    """One plain requirement in its normal form; InvalidRequirements for anything else."""
    text = text.strip()
    found = _REQUIREMENT.fullmatch(text) if len(text) <= _LONGEST_LINE else None
    if found is None or text.lower().endswith(_ARCHIVES):
        _refuse(text, place)
    marker = (found["marker"] or "").strip()
    if found["marker"] is not None and not _is_marker(marker):
        told = Message("{place}: {marker!r} is no environment marker", place=place, marker=marker[:80])
        raise InvalidRequirements(told)
    name = re.sub(r"[-_.]+", "-", found["name"]).lower()
    extras = ",".join(sorted(extra.strip().lower() for extra in (found["extras"] or "").split(",") if extra.strip()))
    versions = _clauses(found["versions"] or found["bracketed"] or "")
    shown = f"{name}[{extras}]{versions}" if extras else f"{name}{versions}"
    return f"{shown}; {' '.join(marker.split())}" if marker else shown


def _is_marker(text: str) -> bool:
    """Whether a text is comparisons joined by `and` and `or`. The installer checks the brackets."""
    parts = re.split(r"\b(?:and|or)\b", text.replace("(", " ").replace(")", " "))
    return all(_COMPARISON.fullmatch(part.strip()) for part in parts)


def _refuse(text: str, place: str) -> NoReturn:
    shown = text[:80]
    if text.startswith("-") or " --" in text:
        reason = f"{shown!r} is an option of the installer: only package names and versions are taken"
    elif "://" in text or "@" in text:
        reason = f"{shown!r} names an address: packages come from the user's own index"
    elif text.startswith((".", "/", "~")) or "\\" in text or text.lower().endswith(_ARCHIVES):
        reason = f"{shown!r} is a path: packages come from the user's own index"
    else:
        reason = f"{shown!r} is no requirement like 'name>=1.0'"
    raise InvalidRequirements(Message("{place}: {reason}", place=place, reason=reason))


def _clauses(text: str) -> str:
    return ",".join(sorted(re.sub(r"\s+", "", clause) for clause in text.split(",") if clause.strip()))


def allows(specifier: str, version: tuple[int, ...]) -> bool:
    """Whether `requires-python` allows this version."""
    return all(_holds(clause, version) for clause in specifier.split(",") if clause)


def _holds(clause: str, version: tuple[int, ...]) -> bool:
    operator = re.match(r"[<>=!~]+", clause)
    assert operator  # noqa: S101  (a specifier is checked when it is read)
    wanted = clause[operator.end() :]
    numbers = numbers_of(wanted)
    # `==3.11` is meant as `==3.11.*` by whoever writes it.
    prefix = wanted.endswith(".*") or len(numbers) < 3
    have, want = _padded(version, numbers)
    same = version[: len(numbers)] == numbers if prefix else have == want
    match operator[0]:
        case "==" | "===":
            return same
        case "!=":
            return not same
        case "~=":
            return have >= want and version[: len(numbers) - 1] == numbers[:-1]
        case ">=" | ">":
            return have >= want if operator[0] == ">=" else have > want
        case _:
            return have <= want if operator[0] == "<=" else have < want


def numbers_of(text: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in release[0].split(".")) if release else ()


def _padded(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    width = max(len(one), len(other))
    return one + (0,) * (width - len(one)), other + (0,) * (width - len(other))
