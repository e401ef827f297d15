"""Frontmatter that no strict parser takes, read field by field.

Each field that is valid on its own is taken as it is. One that is not is read as the text that its author
saw, and each such repair is a finding. Fields that decide what may run or who may call are never repaired,
and are not taken either where a broken field before them may have swallowed or invented them.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from skillyard.catalog.fields import TEXT_FIELDS, is_guarded
from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Block, Place, read_block
from skillyard.catalog.sections import Section, split_sections
from skillyard.core.skill import Finding
from skillyard.core.values import Json

#: A block with more fields, or a field with more lines, is no slip of the pen: it is not mended.
MAX_SECTIONS = 500
MAX_NESTED_LINES = 500

_INDICATORS = "*&!@%`,?-:>|"
_BLOCK_TEXT = re.compile(r"(?P<style>[|>])[+-]?[ \t]+(?P<text>[^\s#].*)$")
_BLOCK_HEAD = re.compile(r"(?P<style>[|>])[+\-0-9]*[ \t]*$")
_HALVES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Where control characters are hidden from YAML: the private plane, which no script uses.
_HIDE = 0xF0000
_HIDDEN = re.compile("[\U000f0000-\U000fffff]")
_NESTED_VALUE = re.compile(r"(?P<head>[ \t]*(?:- +)*(?:[\w.\"'-]+:[ \t]+|- +))(?P<value>[^\s#|>].*)$")
_FLOW_ITEM = re.compile(r"(?P<head>[\[,{][ \t]*)(?P<value>[@`%][^,\[\]{}\"'\n]*)")


class Mended(NamedTuple):
    """A field's value as read, and what had to be done for it."""

    value: Json
    rule: Rule
    #: The broken text had no clear end: what follows it may be part of it.
    open_ended: bool = False


def repair(block: str, line: int, *, sure: bool = True) -> Block:
    """What can be read of the block. Guarded fields need a fence that is `sure`."""
    cut = split_sections(block, line)
    fields: dict[str, Json] = {}
    places: dict[str, Place] = {}
    findings = list(cut.findings)
    refused: list[str] = []
    trusted = sure and not cut.conflict
    if len(cut.sections) > MAX_SECTIONS:
        return Block({}, {}, findings)
    for section in cut.sections:
        place = (section.line, section.column)
        if section.key in fields or section.key in refused:
            findings.append(Rule.YAML_DUPLICATE.at(*place, field=section.key))
        if is_guarded(section.key):
            value = _guarded(section) if trusted and section.key not in places else None
            if value is None:
                refused.append(section.key)
                fields.pop(section.key, None)
                findings.append(Rule.REPAIR_REFUSED.at(*place, field=section.key))
                continue
            fields[section.key], places[section.key] = value[section.key], place
            continue
        trusted &= _take(section, fields, findings)
        places[section.key] = place
    return Block(fields, places, findings, refused=tuple(dict.fromkeys(refused)))


def _guarded(section: Section) -> dict[str, Json] | None:
    """A guarded field only as strict YAML has it."""
    read = read_block(section.text, section.line)
    return read.fields if not read.failed and section.key in read.fields and not read.refused else None


def _take(section: Section, fields: dict[str, Json], findings: list[Finding]) -> bool:
    """Put the section's value into the fields; False where its end was unclear."""
    read = read_block(section.text, section.line)
    if not read.failed and section.key in read.fields:
        fields[section.key] = read.fields[section.key]
        findings += read.findings
        return True
    findings += [finding for finding in read.findings if finding.code != Rule.YAML_INVALID.code]
    mended = next(_mendings(section), None)
    if mended is None:
        findings.append(Rule.FIELD_UNREADABLE.at(section.line, section.column, field=section.key))
        return False
    fields[section.key] = mended.value
    place = (section.line, section.value_column)
    findings.append(mended.rule.at(*place, field=section.key, shown=section.rest[:1]))
    return not mended.open_ended


def _mendings(section: Section) -> Iterator[Mended]:
    """Each way of reading the section that works, the most faithful first."""
    for rule, rewrite in _REWRITES:
        text = rewrite(section.text)
        if text != section.text:
            read = read_block(text, section.line)
            if not read.failed and section.key in read.fields:
                yield Mended(_shown(read.fields[section.key]), rule)
    yield from _texts(section)


def _expand_tabs(text: str) -> str:
    return re.sub(r"^[ \t]+", lambda tabs: tabs[0].replace("\t", "  "), text, flags=re.MULTILINE)


def _hide_controls(text: str) -> str:
    if _HIDDEN.search(text):
        return text
    return _CONTROL.sub(lambda found: chr(_HIDE + ord(found[0])), text)


def _shown(value: Json) -> Json:
    """Control characters back in their places."""
    if isinstance(value, str):
        return _HIDDEN.sub(lambda found: chr(ord(found[0]) - _HIDE), value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return value


def _join_halves(text: str) -> str:
    """JSON writes characters beyond the BMP as two escapes, YAML does not know that."""

    def joined(pair: re.Match[str]) -> str:
        high, low = int(pair[1], 16), int(pair[2], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return _HALF.sub("\ufffd", _HALVES.sub(joined, text))


def _quote_nested(text: str) -> str:
    """Quote each value below the field that is no YAML on its own; in lists also single items."""
    first, *lines = text.split("\n")
    if len(lines) > MAX_NESTED_LINES:
        return text
    return "\n".join((_quote_items(first), *map(_quote_line, lines)))


def _quote_line(line: str) -> str:
    line = _quote_items(line)
    found = _NESTED_VALUE.match(line)
    if not found or not read_block(f"value: {found['value']}").failed:
        return line
    return found["head"] + _quoted(_unquoted(found["value"].rstrip()))


def _quote_items(line: str) -> str:
    return _FLOW_ITEM.sub(lambda item: item["head"] + _quoted(item["value"].rstrip()), line)


#: Rewritings of a field's YAML that keep its structure.
_REWRITES: tuple[tuple[Rule, Callable[[str], str]], ...] = (
    (Rule.REPAIR_TABS, _expand_tabs),
    (Rule.REPAIR_CONTROL, _hide_controls),
    (Rule.REPAIR_ESCAPE, _join_halves),
    (Rule.REPAIR_NESTED, _quote_nested),
)


def _texts(section: Section) -> Iterator[Mended]:
    """The value as plain text, for a reason that its first characters tell."""
    rest = section.rest
    if block := _BLOCK_TEXT.match(rest) or _BLOCK_HEAD.match(rest):
        yield _block_text(section, block)
    if section.hanging and section.key not in TEXT_FIELDS and rest:
        alone = read_block(section.first, section.line)
        if not alone.failed and section.key in alone.fields:
            yield Mended(alone.fields[section.key], Rule.REPAIR_LINE, open_ended=True)
    if not rest and section.key not in TEXT_FIELDS:
        return
    text = " ".join(section.lines)
    if rest[:1] in {'"', "'"}:
        yield Mended(_unquoted(_joined_quote(section)), Rule.REPAIR_QUOTES, open_ended=True)
    if rest[:1] in {"[", "{"}:
        yield Mended(text, Rule.REPAIR_FLOW, open_ended=True)
    if rest and rest[0] in _INDICATORS:
        yield Mended(text, Rule.REPAIR_INDICATOR)
    if section.hanging:
        yield Mended(text, Rule.REPAIR_INDENT, open_ended=True)
    if text:
        yield Mended(text, Rule.REPAIR_COLON)


def _block_text(section: Section, block: re.Match[str]) -> Mended:
    """`> text` and `| text`: what the author wanted is below and on the line alike."""
    lines = section.lines[1:]
    rule = Rule.REPAIR_INDENT
    if "text" in block.groupdict():
        lines.insert(0, block["text"].strip())
        rule = Rule.REPAIR_BLOCK
    joiner = " " if block["style"] == ">" else "\n"
    return Mended(joiner.join(lines), rule, open_ended=section.hanging)


def _joined_quote(section: Section) -> str:
    """A complete quoted line with more text below it loses its quotes; anything else is as written."""
    first, *more = section.lines
    return " ".join((_unquoted(first), *more)) if more else first


def _unquoted(text: str) -> str:
    """Without the quotes around it, where both are there."""
    if len(text) > 1 and text[0] in {'"', "'"} and text[-1] == text[0]:
        return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1].replace("''", "'")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
