"""Reads frontmatter that no strict parser takes, field by field.

A field that is valid on its own is taken as it is. Another one is read as the text that its author saw, with a finding
for each such repair. Fields that decide what may run or who may call are never repaired, and are refused too if a
broken field before them may have swallowed or invented them.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import TEXT_FIELDS, Block, is_guarded, read_block
from skillyard.core.skill import Finding
from skillyard.core.values import Json

#: A block with more fields, or a field with more lines, is not repaired.
MAX_SECTIONS = 500
MAX_NESTED_LINES = 500

_KEY = re.compile(r"""(?P<indent>[ ]*)(?P<key>"[^"\n]+"|'[^'\n]+'|[^\W\d][\w.-]*)[ \t]*:(?=\s|$)[^\S\n]*""")
_CONFLICT = re.compile(r"(?:<{7}|={7}|>{7})(?: .*)?$")
_INDICATORS = "*&!@%`,?-:>|"
_BLOCK = re.compile(r"(?P<style>[|>])(?:[+-]?[ \t]+(?P<text>[^\s#].*)|[+\-0-9]*[ \t]*)$")
_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Control characters are hidden from YAML in the private plane, which no script uses.
_HIDE = 0xF0000
_HIDDEN = re.compile("[\U000f0000-\U000fffff]")
_NESTED_VALUE = re.compile(r"(?P<head>[ \t]*(?:- +)*(?:[\w.\"'-]+:[ \t]+|- +))(?P<value>[^\s#|>].*)$")
_FLOW_ITEM = re.compile(r"(?P<head>[\[,{][ \t]*)(?P<value>[@`%][^,\[\]{}\"'\n]*)")


class Section(NamedTuple):
    """The lines of one top-level field. `line` is the file's, `rest` the value on the first line."""

    key: str
    line: int
    column: int
    value_column: int
    first: str
    rest: str
    more: list[str]

    @property
    def text(self) -> str:
        return "\n".join((self.first, *self.more)) + "\n"

    @property
    def lines(self) -> list[str]:
        """Every line of the value that is not blank, without its indentation."""
        return [line.strip() for line in (self.rest, *self.more) if line.strip()]

    @property
    def hanging(self) -> bool:
        """Whether lines that should be indented below the field are not."""
        return any(line.strip() and not line[0].isspace() for line in self.more)


class RepairedValue(NamedTuple):
    """A field's value as read, and the rule that says what was done for it."""

    value: Json
    rule: Rule
    #: The broken text had no clear end: what follows it may be part of it.
    open_ended: bool = False


def repair(block: str, line: int, *, sure: bool = True) -> Block:
    """Return what can be read of the block. Guarded fields need a fence that is `sure`."""
    findings: list[Finding] = []
    sections = _split_sections(block, line, findings)
    read = Block({}, {}, findings)
    if len(sections) > MAX_SECTIONS:
        return read
    refused: list[str] = []
    # With a conflict, two versions of the block are mixed: which lines belong together is unknown.
    trusted = sure and not any(finding.code == Rule.MERGE_CONFLICT.code for finding in findings)
    for section in sections:
        key, position = section.key, (section.line, section.column)
        if key in read.fields or key in refused:
            findings.append(Rule.YAML_DUPLICATE.at(*position, field=key))
        if not is_guarded(key):
            trusted &= _take(section, read)
        else:
            alone = read_block(section.text, section.line)
            can_use = trusted and key not in read.positions and not alone.failed and not alone.refused
            if not can_use or key not in alone.fields:
                refused.append(key)
                read.fields.pop(key, None)
                findings.append(Rule.REPAIR_REFUSED.at(*position, field=key))
                continue
            read.fields[key] = alone.fields[key]
        read.positions[key] = position
    return read._replace(refused=tuple(dict.fromkeys(refused)))


def _split_sections(block: str, line: int, findings: list[Finding]) -> list[Section]:
    """Cut a block into its top-level fields, which start at the indentation of the first one."""
    sections: list[Section] = []
    has_conflict = False
    indent: str | None = None
    for number, text in enumerate(block.split("\n"), line):
        if _CONFLICT.match(text):
            findings += [] if has_conflict else [Rule.MERGE_CONFLICT.at(number)]
            has_conflict = True
            continue
        key = _KEY.match(text)
        if key and (indent is None or key["indent"] == indent):
            indent = key["indent"]
            name, rest = key["key"].strip("\"'"), text[key.end() :].rstrip()
            sections.append(Section(name, number, key.start("key") + 1, key.end() + 1, text, rest, []))
        elif sections:
            sections[-1].more.append(text)
        elif text.strip() and not text.lstrip().startswith("#"):
            findings.append(Rule.REPAIR_LINE.at(number))
    return sections


def _take(section: Section, read: Block) -> bool:
    """Add the value of a section. Return False if its end was unclear."""
    alone = read_block(section.text, section.line)
    if not alone.failed and section.key in alone.fields:
        read.fields[section.key] = alone.fields[section.key]
        read.findings.extend(alone.findings)
        return True
    read.findings.extend(finding for finding in alone.findings if finding.code != Rule.YAML_INVALID.code)
    repaired = next(_repairs(section), None)
    if repaired is None:
        read.findings.append(Rule.FIELD_UNREADABLE.at(section.line, section.column, field=section.key))
        return False
    read.fields[section.key] = repaired.value
    position = (section.line, section.value_column)
    read.findings.append(repaired.rule.at(*position, field=section.key, shown=section.rest[:1]))
    return not repaired.open_ended


def _repairs(section: Section) -> Iterator[RepairedValue]:
    """Yield each way of reading the section that works, the most faithful first."""
    for rule, rewrite in (  # these keep the structure
        (Rule.REPAIR_TABS, _expand_tabs),
        (Rule.REPAIR_CONTROL, _hide_controls),
        (Rule.REPAIR_ESCAPE, _join_surrogates),
        (Rule.REPAIR_NESTED, _quote_nested),
    ):
        text = rewrite(section.text)
        if text != section.text:
            read = read_block(text, section.line)
            if not read.failed and section.key in read.fields:
                yield RepairedValue(_unhide_controls(read.fields[section.key]), rule)
    yield from _as_plain_text(section)


def _expand_tabs(text: str) -> str:
    return re.sub(r"^[ \t]+", lambda tabs: tabs[0].replace("\t", "  "), text, flags=re.MULTILINE)


def _hide_controls(text: str) -> str:
    if _HIDDEN.search(text):
        return text
    return _CONTROL.sub(lambda found: chr(_HIDE + ord(found[0])), text)


def _unhide_controls(value: Json) -> Json:
    if isinstance(value, str):
        return _HIDDEN.sub(lambda found: chr(ord(found[0]) - _HIDE), value)
    if isinstance(value, list):
        return [_unhide_controls(item) for item in value]
    if isinstance(value, dict):
        return {key: _unhide_controls(item) for key, item in value.items()}
    return value


def _join_surrogates(text: str) -> str:
    """Join the two escapes that JSON writes for one character beyond the BMP; YAML does not."""
    joined = _SURROGATE_PAIR.sub(lambda pair: bytes.fromhex(pair[1] + pair[2]).decode("utf-16-be"), text)
    return _SURROGATE.sub("\ufffd", joined)


def _quote_nested(text: str) -> str:
    """Quote each value below the field that is no YAML on its own, and such items of flow lists."""
    lines = text.split("\n")
    if len(lines) > MAX_NESTED_LINES + 1:
        return text
    for number, written in enumerate(lines):
        line = _FLOW_ITEM.sub(lambda item: item["head"] + _quoted(item["value"].rstrip()), written)
        lines[number] = line
        found = _NESTED_VALUE.match(line)
        if number and found and read_block(f"value: {found['value']}").failed:
            lines[number] = found["head"] + _quoted(_unquoted(found["value"].rstrip()))
    return "\n".join(lines)


def _as_plain_text(section: Section) -> Iterator[RepairedValue]:
    """Yield the value as plain text, for a reason that its first characters tell."""
    rest = section.rest
    if block := _BLOCK.match(rest):  # the author meant the text on the line and below it
        lines = [block["text"].strip(), *section.lines[1:]] if block["text"] else section.lines[1:]
        rule = Rule.REPAIR_BLOCK if block["text"] else Rule.REPAIR_INDENT
        yield RepairedValue((" " if block["style"] == ">" else "\n").join(lines), rule, section.hanging)
    if section.hanging and section.key not in TEXT_FIELDS and rest:
        alone = read_block(section.first, section.line)
        if not alone.failed and section.key in alone.fields:
            yield RepairedValue(alone.fields[section.key], Rule.REPAIR_LINE, open_ended=True)
    if not rest and section.key not in TEXT_FIELDS:
        return
    text = " ".join(section.lines)
    if rest[:1] in {'"', "'"}:  # a complete quoted line with more text below it loses its quotes first
        first, *more = section.lines
        whole = " ".join((_unquoted(first), *more)) if more else first
        yield RepairedValue(_unquoted(whole), Rule.REPAIR_QUOTES, open_ended=True)
    if rest[:1] in {"[", "{"}:
        yield RepairedValue(text, Rule.REPAIR_FLOW, open_ended=True)
    if rest and rest[0] in _INDICATORS:
        yield RepairedValue(text, Rule.REPAIR_INDICATOR)
    if section.hanging:
        yield RepairedValue(text, Rule.REPAIR_INDENT, open_ended=True)
    if text:
        yield RepairedValue(text, Rule.REPAIR_COLON)


def _unquoted(text: str) -> str:
    """Remove the quotes around a text, if both are there."""
    if len(text) > 1 and text[0] in {'"', "'"} and text[-1] == text[0]:
        return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1].replace("''", "'")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
