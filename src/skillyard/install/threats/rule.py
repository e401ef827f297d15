"""The rules as data: read once from `rules/*.toml`, compiled where they are first needed."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

from skillyard.core.messages import Message
from skillyard.install.threats.verdict import ThreatLevel


class RuleExample(NamedTuple):
    """A file that a rule must hit, or must not hit."""

    file: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class ThreatRule:
    """One kind of threat.

    `patterns` are looked for in the files that it applies to; `calls` and `imports` in the syntax tree of Python. A
    rule with neither is a check that the code makes, and stands here for its words and examples.
    """

    id: str
    category: str
    severity: ThreatLevel
    #: What it weighs in a text that an agent reads, where that is less than in a program.
    prose: ThreatLevel
    title: Message
    why: str
    advice: Message
    applies: frozenset[str]
    #: One of these stands in every match, in small letters: most rules are done after this look.
    needs: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    #: A match that is this as a whole is two steps milder.
    softer: str = ""
    #: Large and small letters differ.
    case: bool = False
    #: A match may go over several lines; others are looked for only on the lines that hold what they need.
    spans: bool = False
    #: Whether a quotation or a warning makes it milder.
    quotable: bool = True
    imports: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    #: What such a call must mention: a name, or a text that holds this.
    mentions: frozenset[str] = frozenset()
    literal: str = ""
    #: Only where SKILL.md does not say this.
    unless_said: str = ""
    must_hit: tuple[RuleExample, ...] = ()
    must_not_hit: tuple[RuleExample, ...] = ()

    @cached_property
    def regex(self) -> re.Pattern[str]:
        flags = re.MULTILINE if self.case else re.MULTILINE | re.IGNORECASE
        return re.compile("|".join(f"(?:{pattern})" for pattern in self.patterns), flags)


@cache
def all_rules() -> Mapping[str, ThreatRule]:
    """Every rule by its id, in the order of the files."""
    found: dict[str, ThreatRule] = {}
    folder = resources.files("skillyard.install.threats") / "rules"
    for file in sorted(folder.iterdir(), key=lambda path: path.name):
        if file.name.endswith(".toml"):
            category = file.name.removesuffix(".toml")
            for data in tomllib.loads(file.read_text("utf-8"))["rule"]:
                rule = _as_rule(category, data)
                if rule.id in found:
                    raise ValueError(f"two rules are called {rule.id}")
                found[rule.id] = rule
    return found


_LISTS = ("needs", "patterns")
_SETS = ("imports", "calls", "mentions")
_PLAIN = ("softer", "case", "spans", "quotable", "literal", "unless_said")
_WORDS = ("id", "severity", "prose", "title", "why", "advice", "applies", "ranges", "must_hit", "must_not_hit")


def _as_rule(category: str, data: Mapping[str, Any]) -> ThreatRule:
    """Refuse unknown keys: a misspelt key makes a rule that does not work, which is worse than none."""
    if unknown := data.keys() - {*_LISTS, *_SETS, *_PLAIN, *_WORDS}:
        raise ValueError(f"{data['id']}: unknown keys {sorted(unknown)}")
    more: dict[str, Any] = {key: tuple(data[key]) for key in _LISTS if key in data}
    if "ranges" in data:  # characters that cannot be written one by one: each of them is needed
        more["needs"] = tuple(chr(c) for first, last in data["ranges"] for c in range(ord(first), ord(last) + 1))
    more |= {key: frozenset(data[key]) for key in _SETS if key in data}
    more |= {key: data[key] for key in _PLAIN if key in data}
    applies = frozenset(data["applies"])
    return ThreatRule(
        id=data["id"],
        category=category,
        severity=ThreatLevel[data["severity"]],
        prose=ThreatLevel[data.get("prose", data["severity"])],
        title=Message.plain(data["title"]),
        why=data["why"],
        advice=Message.plain(data["advice"]),
        applies=applies,
        must_hit=tuple(_as_example(example, applies) for example in data["must_hit"]),
        must_not_hit=tuple(_as_example(example, applies) for example in data["must_not_hit"]),
        **more,
    )


#: Where an example stands that names no file: the first of these that the rule applies to.
_FILES = {"shell": "run.sh", "script": "run.sh", "python": "run.py", "javascript": "run.js", "skill": "SKILL.md"}


def _as_example(data: str | Mapping[str, Any], applies: frozenset[str]) -> RuleExample:
    usual = next((file for language, file in _FILES.items() if language in applies), "notes.txt")
    if isinstance(data, str):
        return RuleExample(usual, data.encode())
    content = bytes.fromhex(data["hex"]) if "hex" in data else data["text"].encode()
    return RuleExample(data.get("file", usual), content, data.get("mode", 0o644))
