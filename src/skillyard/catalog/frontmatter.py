"""Reads frontmatter: strictly, as YAML 1.1 without the parts that surprise, else field by field.

Strictly: the C parser composes nodes without resolving them, and the values are built here. That is faster than a
loader, keeps the position of each field, and keeps `yes`, `8004` and `1.0` as written where a field is text. Anchors,
aliases, tags and merge keys are refused: no skill uses them, and expanding them can exhaust the memory. Dates,
infinities and not-a-number stay text, because JSON has none of them.

Repaired: a field that is valid on its own is taken as it is. Another one is read as the text that its author saw, with
a finding for each such repair. Fields that decide what may run or who may call are never repaired, and are refused too
if a broken field before them may have swallowed or invented them.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from skillyard.catalog.findings import START, KeyPath, Position, make_finding, position_in
from skillyard.core.messages import Message
from skillyard.core.skill import Finding
from skillyard.core.values import MAX_DEPTH, Json

#: The fields that mean something to us or to other agents, in groups.
FIELDS: dict[str, list[str]] = json.loads(Path(__file__).with_name("fields.json").read_text("utf-8"))
#: Fields that are text whatever they look like: a skill may be called `yes`, and version 1.0 is not 1.
TEXT_FIELDS = frozenset(FIELDS["text"])
#: Fields that the standard wants as text, in every file.
REQUIRED_FIELDS = frozenset({"name", "description"})
#: Fields that decide what may run or who may call. A broken one is never guessed.
_GUARDED_FOLDED = frozenset(field.replace("_", "").replace("-", "") for field in FIELDS["guarded"])

#: Characters of which each can open a level. libyaml recurses once a level and crashes at some ten thousand.
_OPENERS = "[{-?"
_MAX_OPENERS = 5 * MAX_DEPTH
#: Where a value can start: only there do these three mean anything to YAML.
_REFUSED = re.compile(r"(?:^|[\[{,:?-])[ \t]*[&*!]", re.MULTILINE)
#: At the start of a line it is meant as a field, also within quotes that were left open.
_SWALLOWED = re.compile(r"(?:command|entry|protocol|params|parameters|required_params)[ \t]*:(?:\s|$)")
_COMMENT = re.compile(r"[ \t]+#")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False, "null": None, "~": None}
_CONSTANTS = {form: value for word, value in _WORDS.items() for form in (word, word.capitalize(), word.upper())}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_NUMBER_START = frozenset("+-.0123456789")
#: Types numbers; it parses nothing.
_LOADER = yaml.SafeLoader("")
_MAX_DIGITS = 300


class PurePythonParser(yaml.SafeLoader):
    """The parser for a PyYAML that was built without libyaml: the same answers, slower.

    Refuses escaped surrogates, as libyaml does: they would break whoever writes them out.
    """

    def __init__(self, stream: str) -> None:
        if surrogate := _ESCAPED_SURROGATE.search(stream):
            raise ReaderError("<block>", surrogate.start(), 0xD800, "unicode", "half a character is escaped")
        super().__init__(stream)


if yaml.__with_libyaml__:
    from yaml import CSafeLoader as _Parser
else:
    _Parser = PurePythonParser  # type: ignore[assignment, misc]  # (the same methods, another class)


class Block(NamedTuple):
    """Result of a reading. If it `failed`, the fields must not be used; the findings say why."""

    fields: dict[str, Json]
    positions: dict[str, Position]
    findings: list[Finding]
    failed: bool = False
    refused: tuple[str, ...] = ()

    def report(self, field: str, code: str, /, **values: object) -> None:
        self.findings.append(make_finding(code, *self.positions.get(field, START), **values))


class _Composer(_Parser):
    """Composes without resolving: values are typed below, by what each field wants."""

    def descend_resolver(self, _parent: object, _index: object) -> None: ...
    def ascend_resolver(self) -> None: ...
    def resolve(self, _kind: object, _value: object, _implicit: object) -> str:
        return ""


class _RefusedError(Exception):
    """A node has no JSON value; raised with the code of the finding and the node."""


def is_guarded(field: str) -> bool:
    """Whether it is a guarded field, in any spelling: `allowed_tools`, `Allowed-Tools`, `allowedTools`."""
    return field.replace("_", "").replace("-", "").lower() in _GUARDED_FOLDED


def read_block(block: str, line: int = 1) -> Block:
    """Return the fields of a frontmatter block whose first line is the file's `line`. Never raises."""
    # An anchor, alias or tag, or more levels than can be composed?
    may_refuse = ("&" in block or "*" in block or "!" in block) and _REFUSED.search(block)
    is_deep = len(block) > _MAX_OPENERS and sum(map(block.count, _OPENERS)) > _MAX_OPENERS
    findings = _check_events(block, line) if may_refuse or is_deep else []
    try:
        root = None if findings else _Composer(block).get_single_node()
        if type(root) is MappingNode:
            return _read_fields(root, block, line)
    except yaml.YAMLError as error:
        findings = [_invalid(error, block, line)]
    except _RefusedError as refused:
        code, node = refused.args
        findings = [make_finding(code, *_position(node.start_mark, line), limit=MAX_DEPTH)]
    else:
        if root is not None:
            shape = Message("a list") if type(root) is SequenceNode else "plain text"
            findings = [make_finding("yaml-not-mapping", *_position(root.start_mark, line), shape=shape)]
    return Block({}, {}, findings or [make_finding("frontmatter-empty", line)], failed=True)


def locate(block: str) -> dict[KeyPath, Position]:
    """Return the position of every key and item of a block that `read_block` could read. Only problems need it."""
    positions: dict[KeyPath, Position] = {}
    todo: list[tuple[KeyPath, Node | None]] = [((), _Composer(block).get_single_node())]
    while todo:
        path, node = todo.pop()
        is_mapping = isinstance(node, MappingNode)
        for number, child in enumerate(node.value if isinstance(node, MappingNode | SequenceNode) else ()):
            key, item = child if is_mapping else (child, child)
            inner = (*path, key.value if is_mapping else number)
            positions[inner] = _position(key.start_mark, 1)
            todo.append((inner, item))
    return positions


def typed(word: str) -> Json:
    """Return the value of a plain scalar, as YAML 1.1 reads it and JSON has it; 1:30.5 stays text."""
    if not word or word in _CONSTANTS:
        return _CONSTANTS.get(word)
    if word[0] not in _NUMBER_START or len(word) > _MAX_DIGITS:
        return word
    tag = _LOADER.resolve(ScalarNode, word, (True, False))  # type: ignore[no-untyped-call]
    node = ScalarNode(tag, word)
    try:
        if tag == "tag:yaml.org,2002:int":
            return int(_LOADER.construct_yaml_int(node))
        if tag == "tag:yaml.org,2002:float" and ":" not in word:
            number = float(_LOADER.construct_yaml_float(node))
            return number if math.isfinite(number) else word
    except ValueError:  # 0x_ has no digits
        pass
    return word


def read_verbatim(block: str, scalar: Callable[[str], Json] = typed) -> dict[str, Json]:
    """Return the fields of a block as YAML has them: none is read as text, nothing is repaired. Empty if it is none.

    `scalar` gives the value of a plain scalar.
    """
    if _check_events(block, 1):
        return {}
    doubles: list[ScalarNode] = []
    try:
        root = _Composer(block).get_single_node()
        fields = _value(root, 0, doubles, scalar) if type(root) is MappingNode else {}
    except (yaml.YAMLError, _RefusedError):
        return {}
    return fields if isinstance(fields, dict) and not doubles else {}


def _read_fields(root: MappingNode, block: str, line: int) -> Block:
    read = Block({}, {}, [])
    twice: tuple[str, ...] = ()
    doubles: list[ScalarNode] = []
    has_comment = " #" in block or "\t#" in block
    for key_node, node in root.value:
        _check_key(key_node)
        key, position = key_node.value, _position(key_node.start_mark, line)
        is_text = key in TEXT_FIELDS and type(node) is ScalarNode
        value = node.value if is_text else _value(node, 1, doubles)
        if is_text and not node.style and value in _NULLS:
            value = None
        elif is_text and not node.style and key in REQUIRED_FIELDS and not isinstance(typed(node.value), str):
            read.findings.append(make_finding("text-unquoted", *position, field=key, shown=value))
        if key in read.fields:
            read.findings.append(make_finding("yaml-duplicate", *position, field=key))
            twice = (*twice, key) if is_guarded(key) else twice
        read.fields[key] = value
        read.positions[key] = position
        if type(node) is ScalarNode and node.style in {'"', "'"} and node.start_mark.line != node.end_mark.line:
            inside = block.split("\n")[node.start_mark.line + 1 : node.end_mark.line + 1]
            if shown := next((text for text in inside if _SWALLOWED.match(text)), ""):
                read.findings.append(make_finding("field-swallowed", *position, field=key, shown=shown[:40]))
        # A comment right after a plain text: the author most likely meant it as part of the text.
        if has_comment and is_text and not node.style and _COMMENT.match(block, node.end_mark.index):
            read.findings.append(make_finding("value-cut", *_position(node.end_mark, line), field=key))
    for double in doubles:
        read.findings.append(make_finding("yaml-duplicate", *_position(double.start_mark, line), field=double.value))
    for key in twice:  # a guarded field that is there twice is not used: which one was meant is a guess
        read.fields.pop(key, None)
        read.findings.append(make_finding("repair-refused", *read.positions[key], field=key))
    return read._replace(refused=twice)


def _check_key(node: Node) -> None:
    if type(node.value) is not str:
        raise _RefusedError("yaml-key", node)
    if node.value == "<<" and not getattr(node, "style", None):
        raise _RefusedError("yaml-merge", node)


def _value(node: Node, depth: int, doubles: list[ScalarNode], scalar: Callable[[str], Json] = typed) -> Json:
    """Return the JSON value of a node; keys that a mapping has twice go to `doubles`."""
    if isinstance(node, ScalarNode):
        text: str = node.value
        return text if node.style else scalar(text)
    if depth > MAX_DEPTH:
        raise _RefusedError("yaml-too-deep", node)
    if type(node) is SequenceNode:
        return [_value(item, depth + 1, doubles, scalar) for item in node.value]
    items: dict[str, Json] = {}
    for key_node, item in node.value:
        _check_key(key_node)
        if key_node.value in items:
            doubles.append(key_node)
        items[key_node.value] = _value(item, depth + 1, doubles, scalar)
    return items


def _check_events(block: str, line: int) -> list[Finding]:
    """Report what is refused, from the flat stream of events: no depth can hurt here."""
    findings: list[Finding] = []
    depth = 0
    try:
        parser = _Composer(block)
        while event := parser.get_event():
            position = _position(event.start_mark, line)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return [make_finding("yaml-too-deep", *position, limit=MAX_DEPTH)]
            if isinstance(event, yaml.AliasEvent):
                findings.append(make_finding("yaml-alias", *position))
            elif getattr(event, "anchor", None) is not None:
                findings.append(make_finding("yaml-anchor", *position))
            elif getattr(event, "tag", None) is not None:
                findings.append(make_finding("yaml-tag", *position))
    except yaml.YAMLError as error:
        findings.append(_invalid(error, block, line))
    return findings


def _position(mark: "yaml.Mark | yaml._yaml.Mark | None", line: int) -> Position:
    """Return a position of libyaml or PyYAML, which count from 0, in a file where the block starts on `line`."""
    return (mark.line + line, mark.column + 1) if mark else (line, 1)


def _invalid(error: yaml.YAMLError, block: str, line: int) -> Finding:
    """Return the parser's own message at its own position."""
    if isinstance(error, yaml.MarkedYAMLError):
        position = _position(error.problem_mark or error.context_mark, line)
        return make_finding("yaml-invalid", *position, reason=error.problem or error.context or "unknown")
    index = getattr(error, "position", 0)
    index = index if isinstance(index, int) and 0 <= index <= len(block) else 0
    reason = getattr(error, "reason", "") or "unreadable characters"
    return make_finding("yaml-invalid", *position_in(block, index, line), reason=reason)


#: A block with more fields, or a field with more lines, is not repaired.
MAX_SECTIONS = 500
MAX_NESTED_LINES = 500

_KEY = re.compile(r"""(?P<indent>[ ]*)(?P<key>"[^"\n]+"|'[^'\n]+'|[^\W\d][\w.-]*)[ \t]*:(?=\s|$)[^\S\n]*""")
_CONFLICT = re.compile(r"(?:<{7}|={7}|>{7})(?: .*)?$")
_BLOCK_STYLE = re.compile(r"(?P<style>[|>])(?:[+-]?[ \t]+(?P<text>[^\s#].*)|[+\-0-9]*[ \t]*)$")
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


#: A value as read, the code of the finding about its repair, and whether the broken text had no clear end: what follows
#: it may be part of it.
_Repaired: TypeAlias = tuple[Json, str, bool]


def repair(block: str, line: int, *, sure: bool = True) -> Block:
    """Return what can be read of the block. Guarded fields need a fence that is `sure`."""
    findings: list[Finding] = []
    sections = _split_sections(block, line, findings)
    read = Block({}, {}, findings)
    if len(sections) > MAX_SECTIONS:
        return read
    refused: dict[str, None] = {}
    # With a conflict, two versions of the block are mixed: which lines belong together is unknown.
    trusted = sure and not any(finding.code == "merge-conflict" for finding in findings)
    for section in sections:
        key, position = section.key, (section.line, section.column)
        if key in read.fields or key in refused:
            findings.append(make_finding("yaml-duplicate", *position, field=key))
        alone = read_block(section.text, section.line)
        if not is_guarded(key):
            trusted &= _take(section, alone, read)
        elif trusted and key not in read.positions and key in alone.fields and not alone.refused:
            read.fields[key] = alone.fields[key]
        else:
            refused[key] = None
            read.fields.pop(key, None)
            read.positions.setdefault(key, position)
            findings.append(make_finding("repair-refused", *position, field=key))
            continue
        read.positions[key] = position
    return read._replace(refused=tuple(refused))


def _split_sections(block: str, line: int, findings: list[Finding]) -> list[Section]:
    """Cut a block into its top-level fields, which start at the indentation of the first one."""
    sections: list[Section] = []
    has_conflict = False
    indent: str | None = None
    for number, text in enumerate(block.split("\n"), line):
        if _CONFLICT.match(text):
            findings += [] if has_conflict else [make_finding("merge-conflict", number)]
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
            findings.append(make_finding("repair-line", number))
    return sections


def _take(section: Section, alone: Block, read: Block) -> bool:
    """Add the value of a section, which was read `alone` first. Return False if its end was unclear."""
    key = section.key
    if key in alone.fields:
        read.fields[key] = alone.fields[key]
        read.findings.extend(alone.findings)
        return True
    read.findings.extend(finding for finding in alone.findings if finding.code != "yaml-invalid")
    for value, code, is_open in _repairs(section):
        read.fields[key] = value
        read.findings.append(make_finding(code, section.line, section.value_column, field=key, shown=section.rest[:1]))
        return not is_open
    read.findings.append(make_finding("field-unreadable", section.line, section.column, field=key))
    return False


def _repairs(section: Section) -> Iterator[_Repaired]:
    """Yield each way of reading the section that works, the most faithful first."""
    for code, rewrite in (  # these keep the structure
        ("repair-tabs", _expand_tabs),
        ("repair-control", _hide_controls),
        ("repair-escape", _join_surrogates),
        ("repair-nested", _quote_nested),
    ):
        text = rewrite(section.text)
        if text != section.text:
            read = read_block(text, section.line)
            if section.key in read.fields:
                yield _unhide_controls(read.fields[section.key]), code, False
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


def _as_plain_text(section: Section) -> Iterator[_Repaired]:
    """Yield the value as plain text, for a reason that its first characters tell."""
    rest = section.rest
    lines = [line.strip() for line in (rest, *section.more) if line.strip()]
    # Are lines not indented that should be?
    hanging = any(line.strip() and not line[0].isspace() for line in section.more)
    if block := _BLOCK_STYLE.match(rest):  # the author meant the text on the line and below it
        meant = [block["text"].strip(), *lines[1:]] if block["text"] else lines[1:]
        code = "repair-block" if block["text"] else "repair-indent"
        yield (" " if block["style"] == ">" else "\n").join(meant), code, hanging
    if hanging and section.key not in TEXT_FIELDS and rest:
        alone = read_block(section.first, section.line)
        if section.key in alone.fields:
            yield alone.fields[section.key], "repair-line", True
    if not rest and section.key not in TEXT_FIELDS:
        return
    text = " ".join(lines)
    if rest[:1] in {'"', "'"}:  # a complete quoted line with more text below it loses its quotes first
        whole = " ".join((_unquoted(lines[0]), *lines[1:])) if lines[1:] else lines[0]
        yield _unquoted(whole), "repair-quotes", True
    if rest[:1] in {"[", "{"}:
        yield text, "repair-flow", True
    if rest and rest[0] in "*&!@%`,?-:>|":
        yield text, "repair-indicator", False
    if hanging:
        yield text, "repair-indent", True
    if text:
        yield text, "repair-colon", False


def _unquoted(text: str) -> str:
    """Remove the quotes around a text, if both are there."""
    if len(text) > 1 and text[0] in {'"', "'"} and text[-1] == text[0]:
        return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1].replace("''", "'")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
