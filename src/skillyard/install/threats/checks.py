"""Checks that patterns cannot express: binaries, the frontmatter's tools and hooks, names of packages."""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import NamedTuple

from skillyard.catalog.manifest import Reading
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.threats.files import SkillFile

_MACHINE = (
    (b"\x7fELF", "a Linux program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xce\xfa\xed\xfe", "a macOS program"),
    (b"\xfe\xed\xfa\xce", "a macOS program"),
    (b"\xfe\xed\xfa\xcf", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or Java bytecode"),
    (b"\0asm", "a WebAssembly program"),
)
_ARCHIVES = frozenset({".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".whl", ".jar", ".egg", ".skill"})


def find_binary(file: SkillFile, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Rule and reason for files that nobody can read before they run. `names` are all files of the skill."""
    path = PurePosixPath(file.name)
    if file.mode & (stat.S_ISUID | stat.S_ISGID):
        yield "setuid", f"its mode is {stat.S_IMODE(file.mode):o}"
    if said := _machine(file.content):
        yield "machine-code", said
    elif path.suffix in {".pyc", ".pyo"} and _source(path) not in names:
        yield "orphan-bytecode", Message("there is no {path}", path=_source(path))
    elif path.suffix.lower() in _ARCHIVES:
        yield "archive", "what is inside was not looked at"
    if file.size > len(file.content):
        yield "partly-read", f"{len(file.content)} of {file.size} bytes were looked at"


def _machine(content: bytes) -> str:
    if content.startswith(b"MZ") and (b"PE\0\0" in content[:4096] or b"This program" in content[:512]):
        return "a Windows program"
    return next((said for magic, said in _MACHINE if content.startswith(magic)), "")


def _source(path: PurePosixPath) -> str:
    """`__pycache__/x.cpython-312.pyc` comes from `x.py` beside the folder."""
    folder = path.parent.parent if path.parent.name == "__pycache__" else path.parent
    return str(folder / f"{path.name.partition('.')[0]}.py")


_TOOL = re.compile(r"[\w*-]+(?:\([^)]*\))?")
_UNBOUNDED = re.compile(r"Bash(?:\((?:\*|:\*|\*:\*|)\))?", re.IGNORECASE)
_EVERYTHING = re.compile(r"\*|all", re.IGNORECASE)
#: With one of these a prefix bounds nothing.
_LOOSE = re.compile(
    r"(?:Bash|Shell)\((?:sudo|su|sh|bash|zsh|eval|exec|env|xargs|ssh|nc|ncat|rm|dd|mkfs|chmod|chown|osascript|"
    r"curl|wget|python3? -c|node -e|perl -e)(?: -[^)*]*)?[ :]?\*\)",
    re.IGNORECASE,
)
_RUNS = frozenset({"command", "path", "run", "script"})


def find_asked(reading: Reading) -> Iterator[tuple[str, str, str]]:
    """Rule, field and value of what the frontmatter asks for: tools without bounds, hooks that run a shell."""
    fields = reading.skill.fields if reading.skill else {}
    for field in ("allowed-tools", "allowed_tools", "tools"):
        yield from ((rule, field, tool) for rule, tool in _tools(fields.get(field)))
    for shown in _commands(fields.get("hooks")):
        yield "hook-command", "hooks", shown


def _tools(value: Json) -> Iterator[tuple[str, str]]:
    """Each rule once: a list of ten such tools has one problem."""
    words = " ".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
    tools = _TOOL.findall(words)
    checks = {"tools-everything": _EVERYTHING, "tools-loose": _LOOSE, "tools-unbounded": _UNBOUNDED}
    for rule, pattern in checks.items():
        if found := next(filter(pattern.fullmatch, tools), ""):
            yield rule, found


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


#: Short names are near to everything.
_SHORTEST = 5
_REQUIREMENT = re.compile(
    r"^[ \t]*([A-Za-z0-9][A-Za-z0-9._-]{1,80})[ \t]*(?:\[[^\]\n]{0,200}\])?[ \t]*(?:[=<>!~;#]|$)", re.MULTILINE
)
_BLOCK = re.compile(r"^# /// script[ \t]*\n((?:#.*\n)*?)# ///", re.MULTILINE)
_QUOTED = re.compile(r"""["']([A-Za-z0-9][A-Za-z0-9._-]{1,80})(?=[\[=<>!~;\s"'])""")
_INSTALL = re.compile(
    r"\b(?:(?P<pip>pip3? install|uv pip install|uv add|pipx install|poetry add)"
    r"|npm (?:install|i|add)|pnpm add|yarn add|bun add)(?P<names>(?:[ \t]+[^\s;&|`]{1,100}){1,30})",
)
#: No option, no path, no file, no scope: a name, with what may follow it.
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*?)(?:\[[\w,-]*\])?(?:[=<>~!@^].*)?")


class PackageMention(NamedTuple):
    """A package that a file asks for, and where."""

    name: str
    at: int
    registry: str


def find_squats(file: SkillFile) -> Iterator[tuple[PackageMention, str]]:
    """Packages that the file asks for and that are one slip away from a popular one, with that one."""
    for wanted in _wanted(file):
        near = nearly(wanted.name, wanted.registry)
        if near:
            yield wanted, near


def nearly(name: str, registry: str) -> str:
    """The popular name at one letter's distance; empty if there is none, or if the name is popular itself."""
    plain = _plain(name)
    known = popular(registry)
    if len(plain) < _SHORTEST - 1 or plain in known:
        return ""
    return next((near for near in sorted(_neighbours(plain)) if near in known and len(near) >= _SHORTEST), "")


@cache
def popular(registry: str) -> frozenset[str]:
    """The most downloaded packages, and honest ones with names near to theirs."""
    file = resources.files("skillyard.install.threats") / "rules" / f"popular-{registry}.txt"
    lines = (line.partition("#")[0] for line in file.read_text("utf-8").splitlines())
    return frozenset(_plain(name) for line in lines for name in line.split())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _neighbours(name: str) -> frozenset[str]:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
    cuts = [(name[:i], name[i:]) for i in range(len(name) + 1)]
    return frozenset(
        {
            *(a + b[1:] for a, b in cuts if b),
            *(a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1),
            *(a + c + b[1:] for a, b in cuts if b for c in letters),
            *(a + c + b for a, b in cuts for c in letters),
        }
    ) - {name}


def _wanted(file: SkillFile) -> Iterator[PackageMention]:
    name = file.name.rpartition("/")[2].lower()
    if name == "package.json":
        yield from _of_package_json(file)
    elif re.fullmatch(r"[\w.-]*requirements[\w.-]*\.(?:txt|in)", name):
        yield from (PackageMention(found[1], found.start(1), "pypi") for found in _REQUIREMENT.finditer(file.text))
    elif file.language == "python" and "# /// script" in file.text:
        for block in _BLOCK.finditer(file.text):
            yield from (
                PackageMention(n[1], n.start(1), "pypi")
                for n in _QUOTED.finditer(file.text, block.start(), block.end())
            )
    if file.language in {"text", "shell"}:
        yield from _of_commands(file)


def _of_package_json(file: SkillFile) -> Iterator[PackageMention]:
    try:
        data = json.loads(file.text)
    except (ValueError, RecursionError):
        return
    for field in ("dependencies", "devDependencies", "optionalDependencies"):
        names = data.get(field) if isinstance(data, dict) else None
        for name in names if isinstance(names, dict) else ():
            if not name.startswith("@"):
                yield PackageMention(name, max(file.text.find(f'"{name}"'), 0), "npm")


def _of_commands(file: SkillFile) -> Iterator[PackageMention]:
    for command in _INSTALL.finditer(file.text):
        registry = "pypi" if command["pip"] else "npm"
        for word in re.finditer(r"\S+", command["names"]):
            if word[0][0] in "#(":
                break  # a comment
            name = _NAME.fullmatch(word[0].strip("\"',.:)"))
            if name:
                yield PackageMention(name[1], command.start("names") + word.start(), registry)
            if word[0][-1] in ".,:)":
                break  # the sentence goes on
