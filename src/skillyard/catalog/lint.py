"""What `validate` says on top of a reading: the standard's finer rules, and what other agents make of it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from skillyard.catalog.encoding import decode
from skillyard.catalog.fields import CLAUDE_FIELDS, OWN_FIELDS, STANDARD_FIELDS
from skillyard.catalog.findings import Rule
from skillyard.catalog.params import shape
from skillyard.catalog.reading import Reading
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Skill
from skillyard.core.values import Json

MAX_COMPATIBILITY = 500
MAX_BODY_LINES = 500
#: After so many different ones the point is made.
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
_TEXT, _FLAG, _LIST, _WORDS = "text", Message("true or false"), Message("a list"), Message("text or a list")
#: What a field should be; None where anything goes.
_WANTED = {
    "title": _TEXT,
    "license": _TEXT,
    "compatibility": _TEXT,
    "version": _TEXT,
    "model": _TEXT,
    "context": _TEXT,
    "agent": _TEXT,
    "effort": _TEXT,
    "when_to_use": _TEXT,
    "argument-hint": _TEXT,
    "disable-model-invocation": _FLAG,
    "user-invocable": _FLAG,
    "metadata": Message("a mapping"),
    "hooks": Message("a mapping"),
    "allowed-tools": _WORDS,
    "disallowed-tools": _WORDS,
    "arguments": _WORDS,
    "paths": _WORDS,
    "tags": _WORDS,
    "triggers": _WORDS,
    "keywords": _WORDS,
}


def lint(reading: Reading) -> Reading:
    """The same reading with every finding there is, in the order of the file."""
    if reading.skill is None:
        return reading
    more = (
        *_encoding(reading),
        *_fields(reading, reading.skill),
        *_texts(reading, reading.skill),
        *_body(reading),
    )
    findings = tuple(sorted((*reading.findings, *more), key=lambda found: (found.line, found.column)))
    return replace(reading, findings=findings, skill=reading.skill._replace(findings=findings))


def _encoding(reading: Reading) -> tuple[Finding, ...]:
    """What a scan did not look at: the encoding of a body below a frontmatter that is fine."""
    return decode(reading.source).findings if isinstance(reading.source, bytes) else ()


def _fields(reading: Reading, skill: Skill) -> Iterator[Finding]:
    for field, value in skill.fields.items():
        place = reading.places.get(field, (1, 1))
        wanted = _WANTED.get(field)
        if wanted and value is not None and shape(value) not in wanted:
            yield Rule.FIELD_TYPE.at(*place, field=field, shape=shape(value), wanted=wanted)
        if field in CLAUDE_FIELDS:
            yield Rule.FIELD_EXTENSION.at(*place, field=field, agents="Claude Code")
        elif field in OWN_FIELDS:
            yield Rule.FIELD_EXTENSION.at(*place, field=field, agents=Message("Skillyard and a few others"))
        elif field not in STANDARD_FIELDS:
            yield Rule.FIELD_UNKNOWN.at(*place, field=field)
    yield from _standard(reading, skill.fields)


def _standard(reading: Reading, fields: Mapping[str, Json]) -> Iterator[Finding]:
    compatibility, metadata = fields.get("compatibility"), fields.get("metadata")
    if isinstance(compatibility, str) and len(compatibility) > MAX_COMPATIBILITY:
        place = reading.places.get("compatibility", (1, 1))
        yield Rule.COMPATIBILITY_TOO_LONG.at(*place, count=len(compatibility), limit=MAX_COMPATIBILITY)
    if isinstance(fields.get("allowed-tools"), list):
        yield Rule.TOOLS_LIST.at(*reading.places.get("allowed-tools", (1, 1)))
    if isinstance(metadata, Mapping):
        place = reading.places.get("metadata", (1, 1))
        for field, value in metadata.items():
            if not isinstance(value, str):
                yield Rule.METADATA_VALUES.at(*place, field=field)


def _texts(reading: Reading, skill: Skill) -> Iterator[Finding]:
    """What a model sees of the skill before it is loaded, and what nobody sees."""
    place = reading.places.get("description", (1, 1))
    if tag := _XML.search(skill.description):
        yield Rule.DESCRIPTION_XML.at(*place, shown=tag[0])
    yield Rule.CATALOG_COST.at(*place, count=len(skill.name) + len(skill.description))
    if hidden := _HIDDEN.search(reading.text):
        spot = _place(reading.text, hidden.start(), 1)
        yield Rule.HIDDEN_CHARACTERS.at(*spot, shown=f"U+{ord(hidden[0]):04X}")


def _body(reading: Reading) -> Iterator[Finding]:
    body = reading.body
    if not body.strip():
        yield Rule.BODY_EMPTY.at(reading.body_line)
        return
    count = body.rstrip("\n").count("\n") + 1
    if count > MAX_BODY_LINES:
        yield Rule.BODY_LONG.at(reading.body_line, count=count, limit=MAX_BODY_LINES)
    if conflict := _CONFLICT.search(body):
        yield Rule.MERGE_CONFLICT.at(*_place(body, conflict.start(), reading.body_line))
    yield from _portability(body, reading.body_line)


def _portability(body: str, line: int) -> Iterator[Finding]:
    """Each thing once, where it first stands: a text that uses $1 ten times has one problem."""
    said: set[str] = set()
    for found in _PORTABLE.finditer(body):
        if len(said) == MAX_PORTABILITY:
            return
        if found[0] not in said:
            said.add(found[0])
            rule = _PORTABLE_RULES[str(found.lastgroup)]
            yield rule.at(*_place(body, found.start(), line), shown=found[0])


def _place(text: str, index: int, line: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + line, index - text.rfind("\n", 0, index)
