"""The envelope: a result as text that both people and programs read.

    ✅ skills 执行成功: Markdown转换 → mybox/output/result.html
      state: success | data: {skill: "markdown-converter"} | meta: {agent: skills, time: 1.8}

`parse` reads back exactly what is written here. `read_envelope` reads what programs and people write like it: values
over several lines, plain words, other line ends. `data` and `meta` are YAML flow mappings on one line: identifier
keys are bare, strings double-quoted, and nothing in a value can end the line or move the cursor. The patterns of the
reader are compiled on first use: most runs only write. See docs/spec."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from skillyard.core.result import Result
from skillyard.core.states import CACHED, MARKS, State
from skillyard.core.values import MAX_DEPTH, Json, check_text, check_value, lazy_pattern

_ICONS = {icon for mark in (*MARKS.values(), CACHED) for icon in (mark.icon.replace("\ufe0f", ""), mark.ascii)}


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
    return escape_unsafe(json.dumps(result.as_dict(), ensure_ascii=False, default=dict))


def data_as_json(result: Result) -> str:
    """Return the data alone as one JSON object."""
    check_value(result.data)
    return escape_unsafe(json.dumps(result.data, ensure_ascii=False, default=dict))


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
        shown = "".join(c if c.isascii() or c in characters else as_code(c) for c in rest)
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
    reader = FlowYamlReader(rest)
    state = reader.skip(r"\s*state:[ \t]*(\w+)[ \t]*")
    if not state:
        raise ValueError("line 2: state: <code> expected")
    parts: dict[str, dict[str, Json]] = {}
    while part := reader.skip(r"\s*+(?:\|\s*+)?(data|meta):[ \t]*"):
        if part[1] in parts:
            raise reader.error("the end")
        parts[part[1]] = reader.mapping()
    reader.expect_end()
    return Result(
        unescape(head[2]), State(state[1]), unescape(head[3] or ""), parts.get("data", {}), parts.get("meta", {})
    )


def _parts(result: Result, encoding: str) -> tuple[str, str, str, str]:
    """Return the first line, and state, data and meta. Where meta starts with the agent's name, that has no quotes."""
    if not re.fullmatch(r"\S+", result.agent):
        raise ValueError(f"an agent's name is one word, not {result.agent!r}")
    icon = result.mark.icon if encodes(result.mark.icon, encoding) else result.mark.ascii
    head = f"{icon} {escape(result.agent, encoding)} {escape(result.summary, encoding)}"
    data, meta = write(result.data, encoding), write(result.meta, encoding)
    agent = str(result.meta.get("agent"))
    quoted = f'{{agent: "{agent}"'
    if meta.startswith(quoted) and is_bare(agent):
        meta = f"{{agent: {agent}{meta.removeprefix(quoted)}"
    return head, f"state: {result.state}", f"data: {data}", f"meta: {meta}"


#: Line ends, C0 and C1 controls, direction overrides, byte order marks and non-characters.
_UNSAFE = lazy_pattern(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
#: Words that YAML 1.1 reads as something other than text.
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
#: YAML readers look no further than 1,024 characters for the colon of a plain key.
_LONGEST_PLAIN_KEY = 1000
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}

_ESCAPE = r"(?s)\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))"
_UNESCAPED = dict(zip("nrtbf0eavN_LP", "\n\r\t\b\f\0\x1b\a\v\x85\xa0\u2028\u2029", strict=True))
_DOUBLE_QUOTED = r'(?s)"([^"\\]*(?:\\.[^"\\]*)*)"'
_SINGLE_QUOTED = r"'([^']*(?:''[^']*)*)'"
_PLAIN = r"[^,\[\]{}\"'\n:]+(?::(?![\s,\[\]{}])[^,\[\]{}\"'\n:]*)*"
_INT = r"[-+]?[0-9]+"
_FLOAT = r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
_CONSTANTS: Mapping[str, Json] = {"true": True, "false": False, "null": None, "~": None}


def write(value: Mapping[str, Json], encoding: str = "utf-8") -> str:
    """Return one line of YAML; characters that `encoding` lacks are escaped."""
    check_value(value)
    return _for_encoding(_write(value), encoding)


def escape(text: str, encoding: str = "utf-8") -> str:
    """Return text for the first line of an envelope: one line, whatever it holds, that `unescape` reads back."""
    check_text(text)
    return _for_encoding(escape_unsafe(text.replace("\\", "\\\\")), encoding)


def escape_unsafe(written: str) -> str:
    """Return JSON that means the same, without characters that end a line or move a cursor."""
    if written.isprintable():  # which nothing of that is
        return written
    return _UNSAFE.sub(lambda found: _SHORT_ESCAPES.get(found[0]) or as_code(found[0]), written)


def as_code(character: str) -> str:
    """Return the escape that stands for a character where an encoding lacks it."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def encodes(text: str, encoding: str) -> bool:
    """Whether the encoding has all of these characters."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def is_bare(word: str) -> bool:
    """Whether any YAML reader takes the word for text without quotes."""
    is_identifier = word.isascii() and word.isidentifier()
    return is_identifier and word.lower() not in _YAML_WORDS and len(word) <= _LONGEST_PLAIN_KEY


def _for_encoding(text: str, encoding: str) -> str:
    if encodes(text, encoding):
        return text
    return "".join(each if encodes(each, encoding) else as_code(each) for each in text)


def _write(value: Json) -> str:
    match value:
        case None | bool() | int():
            return json.dumps(value)
        case float():
            text = repr(value)
            # YAML 1.1 takes 1e+16 for text.
            return text.replace("e", ".0e") if "e" in text and "." not in text else text
        case str():
            return escape_unsafe(json.dumps(value, ensure_ascii=False))
        case Mapping():
            return "{" + ", ".join(f"{_write_key(key)}: {_write(item)}" for key, item in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(_write, value)) + "]"


def _write_key(key: str) -> str:
    if is_bare(key):
        return key
    text = _write(key)
    # An encoding that lacks a character makes ten of it: \U0001f600.
    return text if len(text) <= _LONGEST_PLAIN_KEY // 10 else f"? {text} "


def unescape(text: str) -> str:
    """Return the text behind `escape`. Raise ValueError for an escape that is no character."""

    def unescaped(found: re.Match[str]) -> str:
        digits = found[1] or found[2] or found[3]
        if digits is None:
            return _UNESCAPED.get(found[4], found[4])
        if int(digits, 16) > 0x10FFFF:
            raise ValueError(f"\\U{digits} is no character")
        return chr(int(digits, 16))

    if "\\" not in text:
        return text
    text = re.sub(_ESCAPE, unescaped, text)
    if not re.search(r"[\ud800-\udfff]", text):
        return text
    try:  # two escaped halves make one character, as in JSON
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("lone surrogate in an escape") from None


class FlowYamlReader:
    """Reads one value after another from a text. Every ValueError says where."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def error(self, wanted: str) -> ValueError:
        line = self._text.count("\n", 0, self._position) + 1
        column = self._position - self._text.rfind("\n", 0, self._position)
        return ValueError(f"line {line}, column {column}: {wanted} expected")

    def skip(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self._text, self._position)
        if found:
            self._position = found.end()
        return found

    def expect_end(self) -> None:
        if self._peek():
            raise self.error("the end")

    def mapping(self, depth: int = 0) -> dict[str, Json]:
        if not self._take("{"):
            raise self.error("{")
        items: dict[str, Json] = {}
        for _ in self._until("}"):
            self._take("?")
            key = self._quoted() if self._peek() in {'"', "'"} else self._plain()
            if key in items:
                raise self.error(f"a key other than {key!r}, which is there already,")
            if not self._take(":"):
                raise self.error(":")
            items[key] = self._value(depth + 1)
        return items

    def _until(self, end: str) -> Iterator[None]:
        """Yield for each item before `end`, and read the comma after it."""
        while not self._take(end):
            yield
            if not self._take(",") and self._peek() != end:
                raise self.error(f", or {end}")

    def _peek(self) -> str:
        self.skip(r"\s*")
        return self._text[self._position : self._position + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._position += 1
        return True

    def _value(self, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        following = self._peek()
        if following == "{":
            return self.mapping(depth)
        if following in {'"', "'"}:
            return self._quoted()
        if not self._take("["):
            return self._plain_value()
        return [self._value(depth + 1) for _ in self._until("]")]

    def _quoted(self) -> str:
        if found := self.skip(_DOUBLE_QUOTED):
            return unescape(found[1])
        if found := self.skip(_SINGLE_QUOTED):
            return found[1].replace("''", "'")
        raise self.error("the end of a quoted text")

    def _plain(self) -> str:
        found = self.skip(_PLAIN)
        if not found or not found[0].strip():
            raise self.error("a value")
        return found[0].strip()

    def _plain_value(self) -> Json:
        start, word = self._position, self._plain()
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if re.fullmatch(_INT, word):
            return int(word)
        if not re.fullmatch(_FLOAT, word):
            return word
        if math.isfinite(number := float(word)):
            return number
        self._position = start
        raise self.error("a finite number")
