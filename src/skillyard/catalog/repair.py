"""Reads frontmatter that no strict parser takes, field by field.

A field that is valid on its own is taken as it is. Another one is read as the text that its author saw, with a finding
for each such repair. Fields that decide what may run or who may call are never repaired, and are refused too if a
broken field before them may have swallowed or invented them.
"""

import re
from collections.abc import Callable, Iterator
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
_BLOCK_TEXT = re.compile(r"(?P<style>[|>])[+-]?[ \t]+(?P<text>[^\s#].*)$")
_BLOCK_HEAD = re.compile(r"(?P<style>[|>])[+\-0-9]*[ \t]*$")
_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Control characters are hidden from YAML in the private plane, which no script uses.
_HIDE = 0xF0000
_HIDDEN = re.compile("[\U000f0000-\U000fffff]")
_NESTED_VALUE = re.compile(r"(?P<head>[ \t]*(?:- +)*(?:[\w.\"'-]+:[ \t]+|- +))(?P<value>[^\s#|>].*)$")
_FLOW_ITEM = re.compile(r"(?P<head>[\[,{][ \t]*)(?P<value>[@`%][^,\[\]{}\"'\n]*)")


class Section(NamedTuple):
    """The lines of one top-level field. `line` is the file's."""

    key: str
    line: int
    column: int
    value_column: int
    first: str
    rest: str
    more: tuple[str, ...] = ()

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


class Sections(NamedTuple):
    sections: list[Section]
    findings: list[Finding]
    #: Two versions of the block are mixed: which lines belong together is unknown.
    has_conflict: bool


class RepairedValue(NamedTuple):
    """A field's value as read, and the rule that says what was done for it."""

    value: Json
    rule: Rule
    #: The broken text had no clear end: what follows it may be part of it.
    open_ended: bool = False


def repair(block: str, line: int, *, sure: bool = True) -> Block:
    """Return what can be read of the block. Guarded fields need a fence that is `sure`."""
    sections, findings, has_conflict = split_sections(block, line)
    read = Block({}, {}, findings)
    if len(sections) > MAX_SECTIONS:
        return read
    refused: list[str] = []
    trusted = sure and not has_conflict
    for section in sections:
        key, position = section.key, (section.line, section.column)
        if key in read.fields or key in refused:
            findings.append(Rule.YAML_DUPLICATE.at(*position, field=key))
        if not is_guarded(key):
            trusted &= _take(section, read)
        else:
            value = _read_guarded(section) if trusted and key not in read.positions else None
            if value is None:
                refused.append(key)
                read.fields.pop(key, None)
                findings.append(Rule.REPAIR_REFUSED.at(*position, field=key))
                continue
            read.fields[key] = value[key]
        read.positions[key] = position
    return read._replace(refused=tuple(dict.fromkeys(refused)))


def _read_guarded(section: Section) -> dict[str, Json] | None:
    """Return a guarded field only if strict YAML has it."""
    read = read_block(section.text, section.line)
    return read.fields if not read.failed and section.key in read.fields and not read.refused else None


def split_sections(block: str, line: int) -> Sections:
    """Cut a block into its top-level fields, which start at the indentation of the first one."""
    found: list[tuple[Section, list[str]]] = []
    findings: list[Finding] = []
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
            found.append((Section(name, number, key.start("key") + 1, key.end() + 1, text, rest), []))
        elif found:
            found[-1][1].append(text)
        elif text.strip() and not text.lstrip().startswith("#"):
            findings.append(Rule.REPAIR_LINE.at(number))
    sections = [section._replace(more=tuple(more)) for section, more in found]
    return Sections(sections, findings, has_conflict)


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
    for rule, rewrite in _REWRITES:
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

    def joined(pair: re.Match[str]) -> str:
        high, low = int(pair[1], 16), int(pair[2], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return _SURROGATE.sub("\ufffd", _SURROGATE_PAIR.sub(joined, text))


def _quote_nested(text: str) -> str:
    """Quote each value below the field that is no YAML on its own, and such items of flow lists."""
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
    (Rule.REPAIR_ESCAPE, _join_surrogates),
    (Rule.REPAIR_NESTED, _quote_nested),
)


def _as_plain_text(section: Section) -> Iterator[RepairedValue]:
    """Yield the value as plain text, for a reason that its first characters tell."""
    rest = section.rest
    if block := _BLOCK_TEXT.match(rest) or _BLOCK_HEAD.match(rest):
        yield _block_text(section, block)
    if section.hanging and section.key not in TEXT_FIELDS and rest:
        alone = read_block(section.first, section.line)
        if not alone.failed and section.key in alone.fields:
            yield RepairedValue(alone.fields[section.key], Rule.REPAIR_LINE, open_ended=True)
    if not rest and section.key not in TEXT_FIELDS:
        return
    text = " ".join(section.lines)
    if rest[:1] in {'"', "'"}:
        yield RepairedValue(_unquoted(_joined_quote(section)), Rule.REPAIR_QUOTES, open_ended=True)
    if rest[:1] in {"[", "{"}:
        yield RepairedValue(text, Rule.REPAIR_FLOW, open_ended=True)
    if rest and rest[0] in _INDICATORS:
        yield RepairedValue(text, Rule.REPAIR_INDICATOR)
    if section.hanging:
        yield RepairedValue(text, Rule.REPAIR_INDENT, open_ended=True)
    if text:
        yield RepairedValue(text, Rule.REPAIR_COLON)


def _block_text(section: Section, block: re.Match[str]) -> RepairedValue:
    """Read `> text` and `| text`: the author meant the text on the line and below it."""
    lines = section.lines[1:]
    rule = Rule.REPAIR_INDENT
    if "text" in block.groupdict():
        lines.insert(0, block["text"].strip())
        rule = Rule.REPAIR_BLOCK
    joiner = " " if block["style"] == ">" else "\n"
    return RepairedValue(joiner.join(lines), rule, open_ended=section.hanging)


def _joined_quote(section: Section) -> str:
    """Remove the quotes of a complete quoted line with more text below it; anything else stays as written."""
    first, *more = section.lines
    return " ".join((_unquoted(first), *more)) if more else first


def _unquoted(text: str) -> str:
    """Remove the quotes around a text, if both are there."""
    if len(text) > 1 and text[0] in {'"', "'"} and text[-1] == text[0]:
        return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1].replace("''", "'")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
