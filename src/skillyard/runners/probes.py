"""Probes for the text of a skill: SKILL.md itself, its size, and the files that it names."""

import re
from collections.abc import Iterator

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.catalog.reading import Reading
from skillyard.core.skill import Severity, Skill
from skillyard.runtime.trial import Probe, failed, passed

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
        return passed(name, "well written")
    first = worst[0]
    more = f" (and {len(worst) - 1} more: `skillyard validate`)" if len(worst) > 1 else ""
    says = f"{first.line}:{first.column} {first.message}{more}"
    is_bad = first.severity is Severity.ERROR
    return failed(name, says, first.advice) if is_bad else passed(name, says, first.advice)


def _size(body: str) -> Probe:
    name = "size"
    says = f"{len(body)} characters"
    if len(body) > MAX_CHARACTERS:
        advice = f"agents are handed at most {MAX_CHARACTERS}: move parts to files in references/"
        return failed(name, says, advice)
    return passed(name, says)


def _files(body: str, skill: Skill) -> Probe:
    """A link must lead somewhere; a file that is only mentioned may be an example."""
    name = "files it names"
    linked = dict.fromkeys(_LINK.findall(_CODE.sub("", body)))
    mentioned = dict.fromkeys(_MENTION.findall(body))
    broken = [link for link in linked if not (skill.folder / link).exists()]
    if broken:
        return failed(name, f"not there: {', '.join(broken[:5])}", "add the files, or correct the links")
    absent = [path for path in mentioned if not (skill.folder / path).exists()]
    if absent:
        return passed(name, f"mentioned, but not there: {', '.join(absent[:5])}", "add them if they are not examples")
    return passed(name, f"{len({*linked, *mentioned})}, all there")
