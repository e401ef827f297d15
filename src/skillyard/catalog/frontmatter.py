"""Frontmatter read strictly: YAML 1.1 without the parts that surprise.

The C parser composes nodes without resolving them, and the values are built here: that is faster than a
loader, keeps where each field stands, and keeps `yes`, `8004` and `1.0` as written where a field is text.
Anchors, aliases, tags and merge keys are refused: they occur in no skill, and a reader that expands them
can be made to run out of memory.
"""

import re
from typing import NamedTuple, Protocol

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from skillyard.catalog.fields import TEXT_FIELDS, is_guarded
from skillyard.catalog.findings import Rule
from skillyard.catalog.scalars import NULLS, typed
from skillyard.core.messages import Message
from skillyard.core.skill import Finding
from skillyard.core.values import MAX_DEPTH, Json

if yaml.__with_libyaml__:
    from yaml._yaml import CParser as _Parser
else:
    from skillyard.catalog.slowyaml import Parser as _Parser  # type: ignore[assignment]

#: Characters of which each can open a level. libyaml recurses once a level and dies of some ten thousand.
_OPENERS = "[{-?"
_MAX_OPENERS = 5 * MAX_DEPTH
#: Where a value can start: only there do these three mean anything to YAML.
_REFUSED = re.compile(r"(?:^|[\[{,:?-])[ \t]*[&*!]", re.MULTILINE)
_CUT = re.compile(r"[ \t]+#")

Place = tuple[int, int]


class _Mark(Protocol):
    """Where libyaml or PyYAML says that something is, counted from 0."""

    line: int
    column: int


class Block(NamedTuple):
    """What the strict reading gave. `failed`: the fields are not to be used, the findings say why."""

    fields: dict[str, Json]
    places: dict[str, Place]
    findings: list[Finding]
    failed: bool = False
    refused: tuple[str, ...] = ()


class _Composer(_Parser):
    """Composes without resolving: values are typed below, by what each field wants."""

    def descend_resolver(self, _parent: object, _index: object) -> None: ...

    def ascend_resolver(self) -> None: ...

    def resolve(self, _kind: object, _value: object, _implicit: object) -> str:
        return ""


def read_block(block: str, line: int = 1) -> Block:
    """The fields of a frontmatter block whose first line is the file's `line`. Never raises."""
    findings = _check_events(block, line) if _needs_care(block) else []
    if findings:
        return Block({}, {}, findings, failed=True)
    try:
        root = _Composer(block).get_single_node()
    except yaml.YAMLError as error:
        return Block({}, {}, [_invalid(error, block, line)], failed=True)
    if root is None:
        return Block({}, {}, [Rule.FRONTMATTER_EMPTY.at(line)], failed=True)
    if type(root) is not MappingNode:
        shape = Message("a list") if type(root) is SequenceNode else "plain text"
        place = _place(root.start_mark, line)
        return Block({}, {}, [Rule.YAML_NOT_MAPPING.at(*place, shape=shape)], failed=True)
    return _fields(root, block, line)


def locate(block: str) -> dict[tuple[str | int, ...], Place]:
    """Where every key and every item of a block stands that `read_block` could read; asked only about problems."""
    places: dict[tuple[str | int, ...], Place] = {}
    todo: list[tuple[tuple[str | int, ...], Node | None]] = [((), _Composer(block).get_single_node())]
    while todo:
        path, node = todo.pop()
        if isinstance(node, MappingNode):
            for key, item in node.value:
                places[*path, key.value] = _place(key.start_mark, 1)
                todo.append(((*path, key.value), item))
        elif isinstance(node, SequenceNode):
            for position, item in enumerate(node.value):
                places[*path, position] = _place(item.start_mark, 1)
                todo.append(((*path, position), item))
    return places


def _fields(root: MappingNode, block: str, line: int) -> Block:
    """The values by hand, field by field."""
    fields: dict[str, Json] = {}
    places: dict[str, Place] = {}
    findings: list[Finding] = []
    twice: tuple[str, ...] = ()
    doubles: list[ScalarNode] = []
    cut = " #" in block or "\t#" in block
    for key_node, node in root.value:
        mark = key_node.start_mark
        place = (mark.line + line, mark.column + 1)
        key = key_node.value
        if type(key) is not str or (key == "<<" and not key_node.style):
            rule = Rule.YAML_MERGE if key == "<<" else Rule.YAML_KEY
            return Block({}, {}, [rule.at(*place)], failed=True)
        if key in fields:
            findings.append(Rule.YAML_DUPLICATE.at(*place, field=key))
            twice = (*twice, key) if is_guarded(key) else twice
        try:
            fields[key] = _text(node, doubles) if key in TEXT_FIELDS else _value(node, 1, doubles)
        except _Refused as refused:
            return Block({}, {}, [refused.finding(line)], failed=True)
        places[key] = place
        if cut and key in TEXT_FIELDS:
            findings += _cuts(key, node, block, line)
    findings += [Rule.YAML_DUPLICATE.at(*_place(double.start_mark, line), field=double.value) for double in doubles]
    return _without(Block(fields, places, findings), twice) if twice else Block(fields, places, findings)


def _without(block: Block, guarded: tuple[str, ...]) -> Block:
    """A guarded field that stands twice is not used at all: which one was meant is a guess."""
    for key in guarded:
        block.fields.pop(key, None)
        block.findings.append(Rule.REPAIR_REFUSED.at(*block.places[key], field=key))
    return block._replace(refused=guarded)


class _Refused(Exception):
    """A node that has no JSON value."""

    def __init__(self, rule: Rule, node: Node) -> None:
        super().__init__(rule.code)
        self.rule = rule
        self.node = node

    def finding(self, line: int) -> Finding:
        return self.rule.at(*_place(self.node.start_mark, line), limit=MAX_DEPTH)


def _text(node: Node, doubles: list[ScalarNode]) -> Json:
    """A text field as written; only an empty one is nothing."""
    if type(node) is ScalarNode:
        text: str = node.value
        return None if not node.style and text in NULLS else text
    return _value(node, 1, doubles)


def _value(node: Node, depth: int, doubles: list[ScalarNode]) -> Json:
    kind = type(node)
    if isinstance(node, ScalarNode):
        text: str = node.value
        return text if node.style else typed(text)
    if depth > MAX_DEPTH:
        raise _Refused(Rule.YAML_TOO_DEEP, node)
    if kind is SequenceNode:
        return [_value(item, depth + 1, doubles) for item in node.value]
    return _mapping(node, depth, doubles)


def _mapping(node: Node, depth: int, doubles: list[ScalarNode]) -> dict[str, Json]:
    items: dict[str, Json] = {}
    for key_node, item in node.value:
        key = key_node.value
        if type(key) is not str:
            raise _Refused(Rule.YAML_KEY, key_node)
        if key == "<<" and not key_node.style:
            raise _Refused(Rule.YAML_MERGE, key_node)
        if key in items:
            doubles.append(key_node)
        items[key] = _value(item, depth + 1, doubles)
    return items


def _cuts(field: str, node: Node, block: str, line: int) -> list[Finding]:
    """A comment right after a plain text: the author most likely meant it as part of the text."""
    mark = node.end_mark
    if type(node) is not ScalarNode or node.style or not _CUT.match(block, mark.index):
        return []
    return [Rule.VALUE_CUT.at(mark.line + line, mark.column + 1, field=field)]


def _needs_care(block: str) -> bool:
    """Anything that could be an anchor, alias or tag, or nested too deep to be composed at all."""
    if ("&" in block or "*" in block or "!" in block) and _REFUSED.search(block):
        return True
    return len(block) > _MAX_OPENERS and sum(map(block.count, _OPENERS)) > _MAX_OPENERS


def _check_events(block: str, line: int) -> list[Finding]:
    """What is refused, from the flat stream of events: no depth can hurt here."""
    findings: list[Finding] = []
    depth = 0
    try:
        parser = _Composer(block)
        while event := parser.get_event():
            place = _place(event.start_mark, line)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return [Rule.YAML_TOO_DEEP.at(*place, limit=MAX_DEPTH)]
            if rule := _refusal(event):
                findings.append(rule.at(*place))
    except yaml.YAMLError as error:
        findings.append(_invalid(error, block, line))
    return findings


def _place(mark: _Mark | None, line: int) -> Place:
    return (mark.line + line, mark.column + 1) if mark else (line, 1)


def _refusal(event: yaml.Event) -> Rule | None:
    if isinstance(event, yaml.AliasEvent):
        return Rule.YAML_ALIAS
    if not isinstance(event, yaml.NodeEvent):
        return None
    if event.anchor is not None:
        return Rule.YAML_ANCHOR
    tagged = isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None
    return Rule.YAML_TAG if tagged else None


def _invalid(error: yaml.YAMLError, block: str, line: int) -> Finding:
    """The parser's own words, at its own place."""
    if isinstance(error, yaml.MarkedYAMLError):
        place = _place(error.problem_mark or error.context_mark, line)
        return Rule.YAML_INVALID.at(*place, reason=error.problem or error.context or "unknown")
    index = getattr(error, "position", 0)
    index = index if isinstance(index, int) and 0 <= index <= len(block) else 0
    place = (block.count("\n", 0, index) + line, index - block.rfind("\n", 0, index))
    return Rule.YAML_INVALID.at(*place, reason=getattr(error, "reason", "") or "unreadable characters")
