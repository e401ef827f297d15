"""Adds the findings that only `validate` shows: the standard's finer rules, and what other agents do with the file."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from skillyard.catalog.findings import START, make_finding, position_in
from skillyard.catalog.frontmatter import FIELDS
from skillyard.catalog.manifest import Reading, describe_type
from skillyard.catalog.skill_text import decode
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Skill

MAX_COMPATIBILITY = 500
MAX_BODY_LINES = 500
#: 95 of 100 public skills have at most so many characters in name and description.
USUAL_COST = 600
#: Further ones are not reported.
MAX_PORTABILITY = 50

#: Zero width, direction marks, invisible operators, tag characters, variation selectors beyond emoji's.
_HIDDEN = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e01ef]"
    "|(?<=[\x00-\x7f])[\u200c\u200d]"  # between letters of other scripts and in emoji these two are spelling
)
_XML = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>")
_CONFLICT = re.compile(r"^(?:<{7} .+|>{7} .+)$", re.MULTILINE)
_PORTABLE = re.compile(
    r"(?P<arguments>\$ARGUMENTS(?:\[\d+\])?|(?<![\w$\\])\$[0-9](?![\w.,]))"
    r"|(?P<injection>(?:^|(?<=\s))!`[^`\n]+`)"
    r"|(?P<variable>\$\{(?:CLAUDE_PLUGIN_ROOT|CLAUDE_SKILL_DIR|CLAUDE_SESSION_ID|CLAUDE_PROJECT_DIR)\})"
    r"|(?P<file>(?:^|(?<=\s))@(?:\.{0,2}/|~/)?[\w-]+(?:/[\w.-]+)*\.(?:md|txt|json|ya?ml|py|sh|toml)\b)",
    re.MULTILINE,
)
#: What a field should be; fields that may be anything are not here.
_WANTED = {
    **dict.fromkeys(("title", "license", "compatibility", "version", "model", "context", "agent", "effort"), "text"),
    **dict.fromkeys(("when_to_use", "argument-hint"), "text"),
    **dict.fromkeys(("disable-model-invocation", "user-invocable"), Message("true or false")),
    **dict.fromkeys(("metadata", "hooks"), Message("a mapping")),
    **dict.fromkeys(("allowed-tools", "disallowed-tools", "arguments", "paths"), Message("text or a list")),
    **dict.fromkeys(("tags", "triggers", "keywords"), Message("text or a list")),
}


def lint(reading: Reading) -> Reading:
    """Return the reading with all findings, in the order of the file."""
    if reading.skill is None:
        return reading
    # A scan does not decode the body below a frontmatter that is fine.
    encoding = decode(reading.fence.source).findings if isinstance(reading.fence.source, bytes) else ()
    more = (*encoding, *_fields(reading, reading.skill), *_texts(reading, reading.skill), *_body(reading))
    findings = tuple(sorted((*reading.findings, *more), key=lambda found: (found.line, found.column)))
    return reading._replace(findings=findings, skill=reading.skill._replace(findings=findings))


def _fields(reading: Reading, skill: Skill) -> Iterator[Finding]:
    for field, value in skill.fields.items():
        position = reading.positions.get(field, START)
        wanted, shape = _WANTED.get(field), describe_type(value)
        if wanted and shape not in wanted:
            yield make_finding("field-type", *position, field=field, shape=shape, wanted=wanted)
        if field in FIELDS["claude"]:  # its reference of SKILL.md frontmatter
            yield make_finding("field-extension", *position, field=field, agents="Claude Code")
        elif field in FIELDS["own"]:
            yield make_finding("field-extension", *position, field=field, agents=Message("Skillyard and a few others"))
        elif field not in FIELDS["standard"]:
            yield make_finding("field-unknown", *position, field=field)
    about, tools, metadata = (skill.fields.get(field) for field in ("compatibility", "allowed-tools", "metadata"))
    if isinstance(about, str) and len(about) > MAX_COMPATIBILITY:
        position = reading.positions.get("compatibility", START)
        yield make_finding("compatibility-too-long", *position, count=len(about), limit=MAX_COMPATIBILITY)
    if isinstance(tools, list):
        yield make_finding("tools-list", *reading.positions.get("allowed-tools", START))
    for key, value in metadata.items() if isinstance(metadata, Mapping) else ():
        if not isinstance(value, str):
            yield make_finding("metadata-values", *reading.positions.get("metadata", START), field=key)


def _texts(reading: Reading, skill: Skill) -> Iterator[Finding]:
    """Check what a model sees of the skill before it is loaded, and what nobody sees."""
    position = reading.positions.get("description", START)
    if tag := _XML.search(skill.description):
        yield make_finding("description-xml", *position, shown=tag[0])
    if (count := len(skill.name) + len(skill.description)) > USUAL_COST:
        yield make_finding("catalog-cost", *position, count=count, limit=USUAL_COST)
    if hidden := _HIDDEN.search(reading.text):
        position = position_in(reading.text, hidden.start())
        yield make_finding("hidden-characters", *position, shown=f"U+{ord(hidden[0]):04X}")


def _body(reading: Reading) -> Iterator[Finding]:
    body, line = reading.body, reading.fence.body_line
    if not body.strip():
        yield make_finding("body-empty", line)
        return
    count = body.rstrip("\n").count("\n") + 1
    if count > MAX_BODY_LINES:
        yield make_finding("body-long", line, count=count, limit=MAX_BODY_LINES)
    if conflict := _CONFLICT.search(body):
        yield make_finding("merge-conflict", *position_in(body, conflict.start(), line))
    # Each thing once, where it is first: a text that uses $1 ten times has one problem.
    firsts: dict[str, re.Match[str]] = {}
    for found in _PORTABLE.finditer(body):
        firsts.setdefault(found[0], found)
    for found in islice(firsts.values(), MAX_PORTABILITY):
        yield make_finding(f"portable-{found.lastgroup}", *position_in(body, found.start(), line), shown=found[0])
