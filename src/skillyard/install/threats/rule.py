"""The rules as data, read once from `rules/*.toml`, and what a scan says by them: levels, hits, a verdict, SARIF."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from skillyard.core.messages import Message
from skillyard.core.values import Json

DATA = Path(__file__).parent


class ThreatLevel(IntEnum):
    """How bad a threat is, in order. Results carry its name."""

    SAFE = 0
    INFO = 1
    LOW = 2
    MEDIUM = 3
    #: Something could not be read. It may be anything, so it stands above what an agent may decide.
    UNKNOWN = 4
    HIGH = 5
    CRITICAL = 6

    def __str__(self) -> str:
        return self.name

    def lowered(self, steps: int) -> "ThreatLevel":
        """So many steps milder, at least INFO; UNKNOWN stays UNKNOWN."""
        return _LADDER[max(_LADDER.index(self) - steps, 0)] if self in _LADDER else self


_LADDER = (ThreatLevel.INFO, ThreatLevel.LOW, ThreatLevel.MEDIUM, ThreatLevel.HIGH, ThreatLevel.CRITICAL)
#: From here on an install is held back, and `scan` fails.
HELD = ThreatLevel.MEDIUM


class ThreatHit(NamedTuple):
    """One rule at one place. `file` is relative to the skill's folder; `excerpt` is safe to print."""

    rule: str
    severity: ThreatLevel
    file: str
    line: int = 1
    column: int = 1
    excerpt: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def as_dict(self) -> dict[str, Json]:
        return {**self._asdict(), "severity": self.severity.name}

    @classmethod
    def of(cls, data: Mapping[str, Json]) -> "ThreatHit":
        """Read back what `as_dict` wrote. A missing or wrong severity becomes UNKNOWN."""
        rule, file, excerpt = (str(data.get(key, "")) for key in ("rule", "file", "excerpt"))
        line, column = (found if isinstance(found := data.get(key), int) else 1 for key in ("line", "column"))
        severity = ThreatLevel.__members__.get(str(data.get("severity")), ThreatLevel.UNKNOWN)
        return cls(rule, severity, file, line, column, excerpt)


class ScanVerdict(NamedTuple):
    """All hits, the worst first."""

    hits: tuple[ThreatHit, ...] = ()

    @property
    def severity(self) -> ThreatLevel:
        return max((hit.severity for hit in self.hits), default=ThreatLevel.SAFE)

    @property
    def held(self) -> bool:
        """Whether an install waits for a decision."""
        return self.severity >= HELD

    @property
    def lines_that_matter(self) -> tuple[ThreatHit, ...]:
        """The worst three hits, each rule once while there are others to show."""
        firsts = {hit.rule: hit for hit in reversed(self.hits)}
        return tuple(sorted(self.hits, key=lambda hit: hit is not firsts[hit.rule])[:3])


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
    #: A match that is this as a whole is two steps milder; with a group `source`, only if that is a known host or the
    #: skill's own.
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
    #: What one of the call's own arguments must be.
    argument: str = ""
    #: Only where SKILL.md does not say this.
    unless_said: str = ""
    #: Examples, which the tests run: a text, or a table with its file, `text` or `hex`, and mode.
    must_hit: tuple[str | Mapping[str, Any], ...] = ()
    must_not_hit: tuple[str | Mapping[str, Any], ...] = ()

    @cached_property
    def regex(self) -> re.Pattern[str]:
        flags = re.MULTILINE if self.case else re.MULTILINE | re.IGNORECASE
        return re.compile("|".join(f"(?:{pattern})" for pattern in self.patterns), flags)


@cache
def all_rules() -> Mapping[str, ThreatRule]:
    """Every rule by its id, in the order of the files."""
    found: dict[str, ThreatRule] = {}
    for file in sorted((DATA / "rules").glob("*.toml")):
        content = tomllib.loads(file.read_text("utf-8"))
        for data in content["rule"]:
            rule = _as_rule(file.stem, data, content.get("words", {}))
            if rule.id in found:
                raise ValueError(f"two rules are called {rule.id}")
            found[rule.id] = rule
    return found


@cache
def tables() -> Mapping[str, Any]:
    """What the code beside the rules needs to know."""
    return tomllib.loads((DATA / "tables.toml").read_text("utf-8"))


def read_patterns(name: str) -> dict[str, re.Pattern[str]]:
    """The patterns of one of these tables; the parts of a long one are joined."""
    return {key: re.compile("".join(parts)) for key, parts in tables()[name].items()}


#: How each key of a table is read.
_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("id", "why", "softer", "literal", "argument", "unless_said"), str),
    **dict.fromkeys(("case", "spans", "quotable"), bool),
    **dict.fromkeys(("severity", "prose"), ThreatLevel.__getitem__),
    **dict.fromkeys(("title", "advice"), Message.plain),
    **dict.fromkeys(("applies", "imports", "calls", "mentions"), frozenset),
    **dict.fromkeys(("needs", "patterns", "ranges", "must_hit", "must_not_hit"), tuple),
}


def _as_rule(category: str, data: Mapping[str, Any], words: Mapping[str, str]) -> ThreatRule:
    """Refuse unknown keys: a misspelt key makes a rule that does not work, which is worse than none.

    `{{x}}` in a pattern stands for the file's word `x`.
    """
    if unknown := data.keys() - _READ.keys():
        raise ValueError(f"{data['id']}: unknown keys {sorted(unknown)}")
    fields = {key: _READ[key](value) for key, value in {"prose": data["severity"], **data}.items()}
    fields["patterns"] = tuple(_with_words(text, words) for text in fields.get("patterns", ()))
    fields["softer"] = _with_words(fields.get("softer", ""), words)
    if ranges := fields.pop("ranges", ()):  # characters that cannot be written one by one: each of them is needed
        fields["needs"] = tuple(chr(c) for first, last in ranges for c in range(ord(first), ord(last) + 1))
    return ThreatRule(category=category, **fields)


def _with_words(pattern: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: words[found[1]], pattern)


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: SARIF knows three words; the number is what GitHub sorts security results by.
_LEVELS = {
    ThreatLevel.SAFE: ("none", "0.0"),
    ThreatLevel.INFO: ("note", "1.0"),
    ThreatLevel.LOW: ("note", "3.0"),
    ThreatLevel.MEDIUM: ("warning", "5.0"),
    ThreatLevel.UNKNOWN: ("warning", "6.0"),
    ThreatLevel.HIGH: ("error", "8.0"),
    ThreatLevel.CRITICAL: ("error", "9.5"),
}


def as_sarif(verdicts: Iterable[tuple[str, ScanVerdict]], version: str) -> dict[str, Json]:
    """One run over all skills; each comes with the path of its folder."""
    rules: list[Json] = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": rule.advice},
            "defaultConfiguration": {"level": _LEVELS[rule.severity][0]},
            "properties": {"security-severity": _LEVELS[rule.severity][1], "tags": ["security", rule.category]},
        }
        for rule in all_rules().values()
    ]
    results: list[Json] = [_result(folder, hit) for folder, verdict in verdicts for hit in verdict.hits]
    driver: dict[str, Json] = {"name": "skillyard", "version": version, "rules": rules}
    run: dict[str, Json] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(folder: str, hit: ThreatHit) -> dict[str, Json]:
    path = f"{folder.rstrip('/')}/{hit.file}" if folder not in {"", "."} else hit.file
    place: dict[str, Json] = {
        "artifactLocation": {"uri": quote(path)},
        "region": {"startLine": hit.line, "startColumn": hit.column},
    }
    return {
        "ruleId": hit.rule,
        "ruleIndex": list(all_rules()).index(hit.rule),
        "level": _LEVELS[hit.severity][0],
        "message": {"text": f"{all_rules()[hit.rule].title}: {hit.excerpt}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"severity": hit.severity.name},
    }
