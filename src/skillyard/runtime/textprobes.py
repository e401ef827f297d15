"""Probes for the text of a skill: SKILL.md itself, its size, and the files that it names."""

import re
from collections.abc import Iterator

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import Reading, read_skill
from skillyard.core.messages import Message
from skillyard.core.skill import Severity, Skill
from skillyard.runtime.probe_sandbox import Probe, failed, passed

#: S4: what is handed to a backend agent, over all skills; a longer one is never handed over.
MAX_CHARACTERS = 30_000
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(\s{0,9}+<?([^)<>#:\s]{1,500}+)[^)]{0,500}+\)")
_MENTION = re.compile(r"(?<![\w/.-])(?:scripts|references|assets)/[\w./-]*\w\.\w+")


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
        return failed(
            name,
            Message("not there: {broken}", broken=", ".join(broken[:5])),
            Message("add the files, or correct the links"),
        )
    absent = [path for path in mentioned if not (skill.folder / path).exists()]
    if absent:
        return passed(
            name,
            Message("mentioned, but not there: {absent}", absent=", ".join(absent[:5])),
            Message("add them if they are not examples"),
        )
    return passed(name, Message("{count}, all there", count=len({*linked, *mentioned})))
