"""Adds the findings that only `validate` shows: the standard's finer rules, and what other agents do with the file."""

import re
from collections.abc import Iterator, Mapping

from skillyard.catalog.findings import START, Position, Rule, position_in
from skillyard.catalog.manifest import Reading
from skillyard.catalog.skill_fields import describe_type
from skillyard.catalog.skill_text import decode
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Skill
from skillyard.core.values import Json

STANDARD_FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
#: Fields that only Claude Code knows (its reference of SKILL.md frontmatter).
CLAUDE_FIELDS = frozenset(
    (
        *("when_to_use", "argument-hint", "arguments", "disable-model-invocation", "user-invocable"),
        *("disallowed-tools", "model", "effort", "context", "agent", "hooks", "paths", "shell"),
    )
)
#: Fields that we know on top.
OWN_FIELDS = frozenset(
    (
        *("title", "tags", "triggers", "keywords", "version", "command", "entry", "protocol", "actions"),
        *("params", "parameters", "required_params", "timeout", "timeout_seconds"),
    )
)
MAX_COMPATIBILITY = 500
MAX_BODY_LINES = 500
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
_PORTABLE_RULES = {
    "arguments": Rule.PORTABLE_ARGUMENTS,
    "injection": Rule.PORTABLE_INJECTION,
    "variable": Rule.PORTABLE_VARIABLE,
    "file": Rule.PORTABLE_FILE,
}
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
    encoding = decode(reading.source).findings if isinstance(reading.source, bytes) else ()
    more = (*encoding, *_fields(reading, reading.skill), *_texts(reading, reading.skill), *_body(reading))
    findings = tuple(sorted((*reading.findings, *more), key=lambda found: (found.line, found.column)))
    return reading._replace(findings=findings, skill=reading.skill._replace(findings=findings))


def _fields(reading: Reading, skill: Skill) -> Iterator[Finding]:
    for field, value in skill.fields.items():
        position = reading.positions.get(field, START)
        wanted = _WANTED.get(field)
        if wanted and value is not None and describe_type(value) not in wanted:
            yield Rule.FIELD_TYPE.at(*position, field=field, shape=describe_type(value), wanted=wanted)
        if field in CLAUDE_FIELDS:
            yield Rule.FIELD_EXTENSION.at(*position, field=field, agents="Claude Code")
        elif field in OWN_FIELDS:
            yield Rule.FIELD_EXTENSION.at(*position, field=field, agents=Message("Skillyard and a few others"))
        elif field not in STANDARD_FIELDS:
            yield Rule.FIELD_UNKNOWN.at(*position, field=field)
    for field in ("compatibility", "allowed-tools", "metadata"):
        yield from _standard_field(field, skill.fields.get(field), reading.positions.get(field, START))


def _standard_field(field: str, value: Json, position: Position) -> Iterator[Finding]:
    if field == "compatibility" and isinstance(value, str) and len(value) > MAX_COMPATIBILITY:
        yield Rule.COMPATIBILITY_TOO_LONG.at(*position, count=len(value), limit=MAX_COMPATIBILITY)
    elif field == "allowed-tools" and isinstance(value, list):
        yield Rule.TOOLS_LIST.at(*position)
    elif field == "metadata" and isinstance(value, Mapping):
        yield from (Rule.METADATA_VALUES.at(*position, field=key) for key in value if not isinstance(value[key], str))


def _texts(reading: Reading, skill: Skill) -> Iterator[Finding]:
    """Check what a model sees of the skill before it is loaded, and what nobody sees."""
    position = reading.positions.get("description", START)
    if tag := _XML.search(skill.description):
        yield Rule.DESCRIPTION_XML.at(*position, shown=tag[0])
    yield Rule.CATALOG_COST.at(*position, count=len(skill.name) + len(skill.description))
    if hidden := _HIDDEN.search(reading.text):
        yield Rule.HIDDEN_CHARACTERS.at(*position_in(reading.text, hidden.start()), shown=f"U+{ord(hidden[0]):04X}")


def _body(reading: Reading) -> Iterator[Finding]:
    body = reading.body
    if not body.strip():
        yield Rule.BODY_EMPTY.at(reading.body_line)
        return
    count = body.rstrip("\n").count("\n") + 1
    if count > MAX_BODY_LINES:
        yield Rule.BODY_LONG.at(reading.body_line, count=count, limit=MAX_BODY_LINES)
    if conflict := _CONFLICT.search(body):
        yield Rule.MERGE_CONFLICT.at(*position_in(body, conflict.start(), reading.body_line))
    yield from _portability(body, reading.body_line)


def _portability(body: str, line: int) -> Iterator[Finding]:
    """Report each thing once, where it is first: a text that uses $1 ten times has one problem."""
    said: set[str] = set()
    for found in _PORTABLE.finditer(body):
        if len(said) == MAX_PORTABILITY:
            return
        if found[0] not in said:
            said.add(found[0])
            rule = _PORTABLE_RULES[str(found.lastgroup)]
            yield rule.at(*position_in(body, found.start(), line), shown=found[0])
