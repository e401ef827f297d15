"""Checks that patterns cannot express: binaries, the frontmatter's tools and hooks, names of packages.

Each yields what a rule says: its name, the words, and the line and column.
"""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from skillyard.catalog.manifest import parse_skill
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.threats.files import SkillFile
from skillyard.install.threats.rule import DATA, read_patterns, tables

Checked: TypeAlias = tuple[str, str, int, int]
_MACHINE_CODE = {bytes.fromhex(magic): about for magic, about in tables()["machine_code"].items()}
_ARCHIVES = frozenset({".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".whl", ".jar", ".egg", ".skill"})


def find_binary(file: SkillFile, names: frozenset[str]) -> Iterator[Checked]:
    """Files that nobody can read before they run. `names` are all files of the skill."""
    path, content = PurePosixPath(file.name), file.content
    if file.mode & (stat.S_ISUID | stat.S_ISGID):
        yield "setuid", f"its mode is {stat.S_IMODE(file.mode):o}", 1, 1
    said = next((about for magic, about in _MACHINE_CODE.items() if content.startswith(magic)), "")
    if content.startswith(b"MZ") and (b"PE\0\0" in content[:4096] or b"This program" in content[:512]):
        said = "a Windows program"
    # `__pycache__/x.cpython-312.pyc` comes from `x.py` beside the folder.
    folder = path.parent.parent if path.parent.name == "__pycache__" else path.parent
    source = str(folder / f"{path.name.partition('.')[0]}.py")
    if said:
        yield "machine-code", said, 1, 1
    elif path.suffix in {".pyc", ".pyo"} and source not in names:
        yield "orphan-bytecode", Message("there is no {path}", path=source), 1, 1
    elif path.suffix.lower() in _ARCHIVES:
        yield "archive", "what is inside was not looked at", 1, 1
    if file.size > len(content):
        yield "partly-read", f"{len(content)} of {file.size} bytes were looked at", 1, 1


_TOOL = re.compile(r"[\w*-]+(?:\([^)]*\))?")
_TOO_MUCH = read_patterns("tools")
#: A hook that only says something.
_ECHO = re.compile(r"echo[ \t][^;&|`$<>\n]*")
_RUNS = frozenset({"command", "path", "run", "script"})


def find_asked(file: SkillFile, folder: Path) -> Iterator[Checked]:
    """What the frontmatter asks for: tools without bounds, each rule once, and hooks that run a shell."""
    reading = parse_skill(file.content, folder / file.name)
    fields = reading.skill.fields if reading.skill else {}
    found: list[tuple[str, str, str]] = []
    for field in ("allowed-tools", "allowed_tools", "tools"):
        value = fields.get(field)
        words = " ".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
        for rule, pattern in _TOO_MUCH.items():
            if tool := next(filter(pattern.fullmatch, _TOOL.findall(words)), ""):
                found.append((rule, field, tool))
    commands = _commands(fields.get("hooks"))
    found += [("hook-command", "hooks", command) for command in commands if not _ECHO.fullmatch(command)]
    for rule, field, value in found:
        yield rule, f"{field}: {value}"[:200], *reading.positions.get(field, (1, 1))


def _commands(value: Json) -> Iterator[str]:
    """What hooks run, at any depth."""
    queue: list[Json] = [value]
    while queue:
        item = queue.pop()
        if isinstance(item, Mapping):
            yield from (text for key, text in item.items() if key in _RUNS and isinstance(text, str))
            queue += list(item.values())
        elif isinstance(item, list):
            queue += item


#: Short names are near to everything, and long ones to nothing by chance.
_SHORTEST = 5
_LONG = 9
_PACKAGES = read_patterns("packages")


def find_squats(file: SkillFile) -> Iterator[Checked]:
    """Packages that the file asks for and that are one slip away from a popular one."""
    for name, registry, at in _packages(file):
        plain, known = _plain(name), popular(registry)
        if len(plain) < _SHORTEST - 1 or plain in known:
            continue
        if near := next((near for near in sorted(_neighbours(plain)) if near in known and len(near) >= _SHORTEST), ""):
            yield "package-squat", f"{name} is nearly {near}", *file.place(at)


@cache
def popular(registry: str) -> frozenset[str]:
    """The most downloaded packages, and honest ones with names near to theirs; or the hosts of known installers."""
    text = (DATA / "rules" / f"popular-{registry}.txt").read_text("utf-8")
    lines = (line.partition("#")[0] for line in text.splitlines())
    return frozenset(name.lower() if registry == "hosts" else _plain(name) for line in lines for name in line.split())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _neighbours(name: str) -> frozenset[str]:
    """Names that a slip of the hand turns into this one. Of a short name only two letters swapped or one doubled count:
    another letter makes another honest name (`mssql`, `latch`, `aws-cdk`).
    """
    cuts = [(name[:i], name[i:]) for i in range(len(name) + 1)]
    near = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    near |= {a + b[0] + b for a, b in cuts if b} | {a + b[1:] for a, b in cuts if b and a[-1:] == b[0]}
    if len(name) >= _LONG:
        letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
        near |= {a + b[1:] for a, b in cuts if b} | {a + c + b for a, b in cuts for c in letters}
        near |= {a + c + b[1:] for a, b in cuts if b for c in letters}
    return frozenset(near) - {name}


def _packages(file: SkillFile) -> Iterator[tuple[str, str, int]]:
    """Each package that a file asks for: its name, the registry, and where it stands."""
    name = file.name.rpartition("/")[2].lower()
    if name == "package.json":
        yield from _of_package_json(file.text)
    elif re.fullmatch(r"[\w.-]*requirements[\w.-]*\.(?:txt|in)", name):
        yield from ((found[1], "pypi", found.start(1)) for found in _PACKAGES["requirement"].finditer(file.text))
    elif file.language == "python" and "# /// script" in file.text:
        for block in _PACKAGES["block"].finditer(file.text):
            quoted = _PACKAGES["quoted"].finditer(file.text, block.start(), block.end())
            yield from ((found[1], "pypi", found.start(1)) for found in quoted)
    if file.language in {"text", "shell"}:
        yield from _of_commands(file.text)


def _of_commands(text: str) -> Iterator[tuple[str, str, int]]:
    for command in _PACKAGES["install"].finditer(text):
        registry = "pypi" if command["pip"] else "npm"
        for word in re.finditer(r"\S+", command["names"]):
            if word[0][0] in "#(":
                break  # a comment
            if package := _PACKAGES["name"].fullmatch(word[0].strip("\"',.:)")):
                yield package[1], registry, command.start("names") + word.start()
            if word[0][-1] in ".,:)":
                break  # the sentence goes on


def _of_package_json(text: str) -> Iterator[tuple[str, str, int]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return
    for field in ("dependencies", "devDependencies", "optionalDependencies"):
        names = data.get(field) if isinstance(data, dict) else None
        for name in names if isinstance(names, dict) else ():
            if not name.startswith("@"):
                yield name, "npm", max(text.find(f'"{name}"'), 0)
