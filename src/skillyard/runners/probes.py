"""Probes for `skillyard check`: what each returns, made-up values for a skill's params, and the probes of its text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import Reading, read_skill
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import Param, Severity, Skill
from skillyard.core.values import Json
from skillyard.sandbox.launch import Exit, Launch

#: A file of every trial, for params that take a path.
SAMPLE = "sample.txt"
#: What is handed to a backend agent, over all skills; a longer text is never handed over.
MAX_CHARACTERS = 30_000
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(\s{0,9}+<?([^)<>#:\s]{1,500}+)[^)]{0,500}+\)")
_MENTION = re.compile(r"(?<![\w/.-])(?:scripts|references|assets)/[\w./-]*\w\.\w+")
_SCALARS = frozenset({"string", "int", "number", "bool", "enum", "path"})


class ProbeVerdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Probe(NamedTuple):
    """The result of one probe, with advice."""

    name: str
    verdict: ProbeVerdict
    says: str
    #: Also where it passed: what would be better still.
    advice: str = ""

    def as_dict(self) -> dict[str, Json]:
        return {"name": self.name, "verdict": str(self.verdict), "says": self.says, "advice": self.advice}


def passed(name: str, says: str, advice: str = "") -> Probe:
    return Probe(name, ProbeVerdict.PASSED, says, advice)


def failed(name: str, says: str, advice: str = "") -> Probe:
    return Probe(name, ProbeVerdict.FAILED, says, advice)


def skipped(name: str, says: str, advice: str = "") -> Probe:
    return Probe(name, ProbeVerdict.SKIPPED, says, advice)


class Trial(Protocol):
    """A project of its own that is thrown away, the real sandbox, and no grants."""

    @property
    def root(self) -> Path: ...

    @property
    def limit_seconds(self) -> float: ...

    def check(self, skill: Skill, params: Mapping[str, Json], action: str | None = None) -> Call:
        """Check a request with these params, as a run does."""

    def start(self, call: Call, launch: Launch) -> Exit:
        """Start a program under the policy of an ungranted skill."""

    def strays(self) -> list[str]:
        """Return the files that were written where none should be."""


class ExpectedParam(NamedTuple):
    """One param: SKILL.md's, or the one that the program itself describes."""

    name: str
    type: str = "any"
    required: bool = False
    default: Json = None
    choices: tuple[Json, ...] = ()

    @property
    def is_scalar(self) -> bool:
        return self.type in _SCALARS


def declared(params: Iterable[Param]) -> tuple[ExpectedParam, ...]:
    return tuple(ExpectedParam(p.name, str(p.type), p.required, p.default, p.choices) for p in params)


def least(params: Iterable[ExpectedParam], path: str) -> dict[str, Json]:
    """Return values for the required params, and the defaults that a run fills in."""
    return {p.name: sample(p, path) for p in params if p.required or p.default is not None}


def most(params: Iterable[ExpectedParam], path: str) -> dict[str, Json]:
    return {p.name: sample(p, path) for p in params}


def sample(param: ExpectedParam, path: str) -> Json:
    if param.default is not None:
        return param.default
    if param.choices:
        return param.choices[0]
    samples: dict[str, Json] = {"int": 1, "number": 1.5, "bool": True, "path": path}
    return {**samples, "list": ["example"], "dict": {"key": "value"}}.get(param.type, "example")


def text_probes(skill: Skill) -> Iterator[Probe]:
    reading = lint(read_skill(skill.path))
    yield _manifest(reading)
    yield _size(reading.body.strip())
    yield _files(reading.body, skill)


def _manifest(reading: Reading) -> Probe:
    name = "SKILL.md"
    worst = sorted(
        (finding for finding in reading.findings if finding.severity is not Severity.NOTE),
        key=lambda finding: -finding.severity.rank,
    )
    if not worst:
        return passed(name, Message("well written"))
    first = worst[0]
    says = Message("{line}:{column} {reason}", line=first.line, column=first.column, reason=first.message)
    if len(worst) > 1:
        says = Message("{first} (and {count} more: `skillyard validate`)", first=says, count=len(worst) - 1)
    is_bad = first.severity is Severity.ERROR
    return failed(name, says, first.advice) if is_bad else passed(name, says, first.advice)


def _size(body: str) -> Probe:
    name = Message("size")
    says = Message("{count} characters", count=len(body))
    if len(body) > MAX_CHARACTERS:
        advice = Message(
            "agents are handed at most {max_characters}: move parts to files in references/",
            max_characters=MAX_CHARACTERS,
        )
        return failed(name, says, advice)
    return passed(name, says)


def _files(body: str, skill: Skill) -> Probe:
    """A link must lead somewhere; a file that is only mentioned may be an example."""
    name = Message("files it names")
    linked = dict.fromkeys(_LINK.findall(_CODE.sub("", body)))
    mentioned = dict.fromkeys(_MENTION.findall(body))
    broken = [link for link in linked if not (skill.folder / link).exists()]
    if broken:
        advice = Message("add the files, or correct the links")
        return failed(name, Message("not there: {broken}", broken=", ".join(broken[:5])), advice)
    absent = [path for path in mentioned if not (skill.folder / path).exists()]
    if absent:
        advice = Message("add them if they are not examples")
        return passed(name, Message("mentioned, but not there: {absent}", absent=", ".join(absent[:5])), advice)
    return passed(name, Message("{count}, all there", count=len({*linked, *mentioned})))
