"""The envelope: a result as text that both people and programs read.

    ✅ skills 执行成功: Markdown转换 → mybox/output/result.html
      state: success | data: {skill: "markdown-converter"} | meta: {agent: skills, time: 1.8}

`parse` reads back exactly what is written here. `read_envelope` reads what programs and people write like it: values
over several lines, plain words, other line ends. See docs/spec.
"""

import json
import re
from collections.abc import Mapping

from skillyard.core import flow_yaml
from skillyard.core.result import Result
from skillyard.core.states import MARKS, State
from skillyard.core.values import MAX_DEPTH, Json, check_text, check_value

_ICONS = {mark.icon.replace("\ufe0f", "") for mark in MARKS.values()} | {"⏭"}
_ICONS |= {mark.ascii for mark in MARKS.values()} | {"[skip]"}


def as_text(result: Result, encoding: str = "utf-8") -> str:
    """Return the two lines. What `encoding` lacks is escaped, and the icon falls back to ASCII."""
    head, *parts = _parts(result, encoding)
    return f"{head}\n  {' | '.join(parts)}"


def as_block(result: Result, encoding: str = "utf-8") -> str:
    """Return the longer layout: state, data and meta on a line each."""
    return "\n  ".join(_parts(result, encoding))


def as_json(result: Result) -> str:
    """Return one JSON object on one line, without characters that end a line or move a cursor."""
    check_value(result.as_dict())
    return flow_yaml.escape_unsafe(json.dumps(result.as_dict(), ensure_ascii=False, default=dict))


def from_json(text: str) -> Result:
    """Return the result that `as_json` rendered. Raise ValueError if it is none."""
    try:
        fields = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    if not isinstance(fields, Mapping):
        raise ValueError("an envelope is a JSON object")  # noqa: TRY004
    return from_dict(fields)


def from_dict(fields: Mapping[str, Json]) -> Result:
    """Return the result that a JSON object holds. Raise ValueError if it is none."""
    check_value(fields)
    agent, state, summary = fields.get("agent"), fields.get("state"), fields.get("summary")
    data, meta = fields.get("data", {}), fields.get("meta", {})
    if not (isinstance(agent, str) and isinstance(state, str) and isinstance(summary, str)):
        raise ValueError("an envelope has agent, state and summary, each a text")  # noqa: TRY004
    if not (isinstance(data, Mapping) and isinstance(meta, Mapping)):
        raise ValueError("an envelope's data and meta are mappings")  # noqa: TRY004
    return Result(agent=agent, state=State(state), summary=summary, data=data, meta=meta)


def has_icon(text: str) -> bool:
    """Whether it starts as an envelope does. Cheap: asked of everything that a program prints."""
    return text[:8].split(" ", 1)[0].replace("\ufe0f", "") in _ICONS


def parse(text: str) -> Result:
    """Return the result that `as_text` or `as_block` rendered, with at most one line end after it.

    Raise ValueError for anything else: each result has one text in each form, and rendering it again gives that text.
    """
    result, text = read_envelope(text), text.removesuffix("\n")
    characters = frozenset(text)
    for written in (as_text(result), as_block(result)):
        # As written in some encoding: one that has exactly the characters of the text.
        _, _, rest = written.partition(" ")
        shown = "".join(c if c.isascii() or c in characters else flow_yaml.as_code(c) for c in rest)
        if text in {f"{icon} {shown}" for icon in (result.mark.icon, result.mark.ascii)}:
            return result
    raise ValueError("this is like an envelope, but not as one is written")


def read_envelope(text: str) -> Result:
    """Return the result of an envelope as programs write it. The ValueError for anything else says where it differs."""
    check_text(text)
    first, _, rest = text.strip("\r\n").partition("\n")
    head = re.fullmatch(r"(\S+) (\S+)(?: (.*))?", first.rstrip("\r"))
    if not head or not has_icon(first):
        raise ValueError("line 1: <icon> <agent> <summary> expected")
    reader = flow_yaml.FlowYamlReader(rest)
    state = reader.skip(r"\s*state:[ \t]*(\w+)[ \t]*")
    if not state:
        raise ValueError("line 2: state: <code> expected")
    parts: dict[str, dict[str, Json]] = {}
    while part := reader.skip(r"\s*+(?:\|\s*+)?(data|meta):[ \t]*"):
        if part[1] in parts:
            raise reader.error("the end")
        parts[part[1]] = reader.mapping()
    reader.expect_end()
    agent, summary = flow_yaml.unescape(head[2]), flow_yaml.unescape(head[3] or "")
    return Result(agent, State(state[1]), summary, parts.get("data", {}), parts.get("meta", {}))


def _parts(result: Result, encoding: str) -> tuple[str, str, str, str]:
    """Return the first line, and state, data and meta. Where meta starts with the agent's name, that has no quotes."""
    if not re.fullmatch(r"\S+", result.agent):
        raise ValueError(f"an agent's name is one word, not {result.agent!r}")
    icon = result.mark.icon if flow_yaml.encodes(result.mark.icon, encoding) else result.mark.ascii
    head = f"{icon} {flow_yaml.escape(result.agent, encoding)} {flow_yaml.escape(result.summary, encoding)}"
    data, meta = flow_yaml.write(result.data, encoding), flow_yaml.write(result.meta, encoding)
    agent = str(result.meta.get("agent"))
    quoted = f'{{agent: "{agent}"'
    if meta.startswith(quoted) and flow_yaml.is_bare(agent):
        meta = f"{{agent: {agent}{meta.removeprefix(quoted)}"
    return head, f"state: {result.state}", f"data: {data}", f"meta: {meta}"
