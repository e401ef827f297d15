"""What the frontmatter asks an agent for: tools without bounds, and hooks that run a shell."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from skillyard.catalog.manifest import Reading
from skillyard.core.values import Json

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


class Asked(NamedTuple):
    rule: str
    field: str
    shown: str


def find_asked(reading: Reading) -> Iterator[Asked]:
    fields = reading.skill.fields if reading.skill else {}
    for field in ("allowed-tools", "allowed_tools", "tools"):
        yield from (Asked(rule, field, tool) for rule, tool in _tools(fields.get(field)))
    for shown in _commands(fields.get("hooks")):
        yield Asked("hook-command", "hooks", shown)


def _tools(value: Json) -> Iterator[tuple[str, str]]:
    """Each rule once: a list of ten such tools has one problem."""
    words = " ".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
    tools = _TOOL.findall(words)
    checks = {"tools-everything": _EVERYTHING, "tools-loose": _LOOSE, "tools-unbounded": _UNBOUNDED}
    for rule, pattern in checks.items():
        if found := next(filter(pattern.fullmatch, tools), ""):
            yield rule, found


def _commands(value: Json) -> Iterator[str]:
    """Whatever a hook runs, however deep it stands."""
    queue: list[Json] = [value]
    while queue:
        item = queue.pop()
        if isinstance(item, Mapping):
            yield from (text for key, text in item.items() if key in _RUNS and isinstance(text, str))
            queue += list(item.values())
        elif isinstance(item, list):
            queue += item
