"""Reads frontmatter strictly: YAML 1.1 without the parts that surprise.

The C parser composes nodes without resolving them, and the values are built here. That is faster than a loader, keeps
the position of each field, and keeps `yes`, `8004` and `1.0` as written where a field is text. Anchors, aliases, tags
and merge keys are refused: no skill uses them, and expanding them can exhaust the memory. Dates, infinities and
not-a-number stay text, because JSON has none of them.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from skillyard.catalog.findings import START, Position, Rule, position_in
from skillyard.core.messages import Message
from skillyard.core.skill import Finding
from skillyard.core.values import MAX_DEPTH, Json

#: Fields that are text whatever they look like: a skill may be called `yes`, and version 1.0 is not 1.
TEXT_FIELDS = frozenset(
    (
        *("name", "title", "description", "license", "compatibility", "command", "entry", "protocol", "version"),
        *("model", "context", "agent", "argument-hint", "when_to_use", "when-to-use", "effort"),
        *("author", "category", "homepage"),
    )
)
#: Fields that decide what may run or who may call. A broken one is never guessed.
GUARDED_FIELDS = frozenset(
    (
        *("command", "entry", "protocol", "params", "parameters", "required_params"),
        *("allowed-tools", "disallowed-tools", "tools", "hooks", "shell", "permissions"),
        *("disable-model-invocation", "user-invocable", "user-invokable"),
    )
)
_GUARDED_FOLDED = frozenset(field.replace("_", "").replace("-", "") for field in GUARDED_FIELDS)

#: Characters of which each can open a level. libyaml recurses once a level and crashes at some ten thousand.
_OPENERS = "[{-?"
_MAX_OPENERS = 5 * MAX_DEPTH
#: Where a value can start: only there do these three mean anything to YAML.
_REFUSED = re.compile(r"(?:^|[\[{,:?-])[ \t]*[&*!]", re.MULTILINE)
_COMMENT = re.compile(r"[ \t]+#")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False, "null": None}
_CONSTANTS: dict[str, Json] = {
    form: value for word, value in _WORDS.items() for form in (word, word.capitalize(), word.upper())
}
_CONSTANTS |= {"": None, "~": None}
_NULLS = frozenset(word for word, value in _CONSTANTS.items() if value is None)
#: A plain scalar that starts with another character is text, which spares most values the look-ups below.
_TYPED_START = frozenset("yYnNtTfFoO~+-.0123456789")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_OTHER_INT = re.compile(r"([-+]?)0(?:(b)([01_]+)|(x)([0-9a-fA-F_]+)|()([0-7_]+))")
_BASE_60 = re.compile(r"([-+]?)([1-9][0-9_]*(?::[0-5]?[0-9])+)")
_FLOAT = re.compile(r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_BASES = {"b": 2, "x": 16, "": 8}
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
    _Parser = PurePythonParser  # type: ignore[assignment, misc]


class Block(NamedTuple):
    """Result of the strict reading. If it `failed`, the fields must not be used; the findings say why."""

    fields: dict[str, Json]
    positions: dict[str, Position]
    findings: list[Finding]
    failed: bool = False
    refused: tuple[str, ...] = ()

    def report(self, field: str, rule: Rule, /, **values: object) -> None:
        """Add a finding at the position of a field."""
        self.findings.append(rule.at(*self.positions.get(field, START), **values))


class _Composer(_Parser):
    """Composes without resolving: values are typed below, by what each field wants."""

    def descend_resolver(self, _parent: object, _index: object) -> None: ...
    def ascend_resolver(self) -> None: ...
    def resolve(self, _kind: object, _value: object, _implicit: object) -> str:
        return ""


class _RefusedError(Exception):
    """A node has no JSON value."""

    def __init__(self, rule: Rule, node: Node) -> None:
        self.rule, self.node = rule, node


def is_guarded(field: str) -> bool:
    """Whether it is a guarded field, in any spelling: `allowed_tools`, `Allowed-Tools`, `allowedTools`."""
    return field.replace("_", "").replace("-", "").lower() in _GUARDED_FOLDED


def read_block(block: str, line: int = 1) -> Block:
    """Return the fields of a frontmatter block whose first line is the file's `line`. Never raises."""
    findings = _check_events(block, line) if _needs_care(block) else []
    try:
        root = None if findings else _Composer(block).get_single_node()
        if type(root) is MappingNode:
            return _read_fields(root, block, line)
    except yaml.YAMLError as error:
        findings = [_invalid(error, block, line)]
    except _RefusedError as refused:
        findings = [refused.rule.at(*_position(refused.node.start_mark, line), limit=MAX_DEPTH)]
    else:
        if root is not None:
            shape = Message("a list") if type(root) is SequenceNode else "plain text"
            findings = [Rule.YAML_NOT_MAPPING.at(*_position(root.start_mark, line), shape=shape)]
    return Block({}, {}, findings or [Rule.FRONTMATTER_EMPTY.at(line)], failed=True)


def locate(block: str) -> dict[tuple[str | int, ...], Position]:
    """Return the position of every key and item of a block that `read_block` could read. Only problems need it."""
    positions: dict[tuple[str | int, ...], Position] = {}
    todo: list[tuple[tuple[str | int, ...], Node | None]] = [((), _Composer(block).get_single_node())]
    while todo:
        path, node = todo.pop()
        items: Iterable[tuple[str | int, Node, Node]] = ()
        if isinstance(node, MappingNode):
            items = ((key.value, key, item) for key, item in node.value)
        elif isinstance(node, SequenceNode):
            items = ((number, item, item) for number, item in enumerate(node.value))
        for step, start, item in items:
            positions[*path, step] = _position(start.start_mark, 1)
            todo.append(((*path, step), item))
    return positions


def typed(word: str) -> Json:
    """Return the value of a plain scalar, as YAML 1.1 reads it and JSON has it."""
    if not word:
        return None
    if word[0] not in _TYPED_START:
        return word
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    if len(word) > _MAX_DIGITS:
        return word
    if _INT.fullmatch(word):
        return int(word.replace("_", ""))
    if _FLOAT.fullmatch(word):
        value = float(word.replace("_", ""))
        return word if value in {float("inf"), float("-inf")} else value
    if found := _OTHER_INT.fullmatch(word):
        sign, base, digits = (group for group in found.groups() if group is not None)
        return int(f"{sign}{digits.replace('_', '') or '0'}", _BASES[base])
    if found := _BASE_60.fullmatch(word):
        number = 0
        for part in found[2].replace("_", "").split(":"):
            number = number * 60 + int(part)  # YAML 1.1 reads 1:30 as ninety
        return -number if found[1] == "-" else number
    return word


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
        if key in read.fields:
            read.findings.append(Rule.YAML_DUPLICATE.at(*position, field=key))
            twice = (*twice, key) if is_guarded(key) else twice
        read.fields[key] = value
        read.positions[key] = position
        # A comment right after a plain text: the author most likely meant it as part of the text.
        if has_comment and is_text and not node.style and _COMMENT.match(block, node.end_mark.index):
            read.findings.append(Rule.VALUE_CUT.at(*_position(node.end_mark, line), field=key))
    for double in doubles:
        read.findings.append(Rule.YAML_DUPLICATE.at(*_position(double.start_mark, line), field=double.value))
    for key in twice:  # a guarded field that is there twice is not used: which one was meant is a guess
        read.fields.pop(key, None)
        read.findings.append(Rule.REPAIR_REFUSED.at(*read.positions[key], field=key))
    return read._replace(refused=twice)


def _check_key(node: Node) -> None:
    if type(node.value) is not str:
        raise _RefusedError(Rule.YAML_KEY, node)
    if node.value == "<<" and not getattr(node, "style", None):
        raise _RefusedError(Rule.YAML_MERGE, node)


def _value(node: Node, depth: int, doubles: list[ScalarNode]) -> Json:
    """Return the JSON value of a node; keys that a mapping has twice go to `doubles`."""
    if isinstance(node, ScalarNode):
        text: str = node.value
        return text if node.style else typed(text)
    if depth > MAX_DEPTH:
        raise _RefusedError(Rule.YAML_TOO_DEEP, node)
    if type(node) is SequenceNode:
        return [_value(item, depth + 1, doubles) for item in node.value]
    items: dict[str, Json] = {}
    for key_node, item in node.value:
        _check_key(key_node)
        if key_node.value in items:
            doubles.append(key_node)
        items[key_node.value] = _value(item, depth + 1, doubles)
    return items


def _needs_care(block: str) -> bool:
    """Whether there may be an anchor, alias or tag, or more levels than can be composed."""
    if ("&" in block or "*" in block or "!" in block) and _REFUSED.search(block):
        return True
    return len(block) > _MAX_OPENERS and sum(map(block.count, _OPENERS)) > _MAX_OPENERS


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
                return [Rule.YAML_TOO_DEEP.at(*position, limit=MAX_DEPTH)]
            for rule, is_refused in (
                (Rule.YAML_ALIAS, isinstance(event, yaml.AliasEvent)),
                (Rule.YAML_ANCHOR, getattr(event, "anchor", None) is not None),
                (Rule.YAML_TAG, getattr(event, "tag", None) is not None),
            ):
                if is_refused:
                    findings.append(rule.at(*position))
                    break
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
        return Rule.YAML_INVALID.at(*position, reason=error.problem or error.context or "unknown")
    index = getattr(error, "position", 0)
    index = index if isinstance(index, int) and 0 <= index <= len(block) else 0
    reason = getattr(error, "reason", "") or "unreadable characters"
    return Rule.YAML_INVALID.at(*position_in(block, index, line), reason=reason)
