"""References in the values of a workflow: `${step.data.key[0]}`, `${inputs.x}`, `${item}`, `${index}`.

Only paths: no expressions, no code, so that whoever reads a file knows what it can do. A value that is
exactly one reference keeps its type; in a longer text it is text. `$${` is a plain `${`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from skillyard.core.messages import Message
from skillyard.core.values import Json

#: Longer texts are cut in messages.
_SHOWN = 64
_OPENING = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
#: A name has no dots and brackets, which are the path, and nothing that could be an expression.
_WORD = r"[^\s.\[\]{}()$,;:|&<>=!?*+/\\'\"`@#%^~\x00-\x1f]+"
_WHOLE = re.compile(rf"({_WORD})((?:\.{_WORD}|\[\d{{1,9}}\])*)")
_PART = re.compile(rf"\.({_WORD})|\[(\d+)\]")


class Reference(NamedTuple):
    """The source of a value: a name, and the path below it."""

    name: str
    path: tuple[str | int, ...] = ()

    @property
    def shown(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"${{{self.name}{''.join(steps)}}}"


def is_word(text: str) -> bool:
    """Whether a reference can name it."""
    return bool(re.fullmatch(_WORD, text))


Look: TypeAlias = Callable[[Reference], Json]


def parse(text: str) -> tuple[str | Reference, ...]:
    """Return the text in pieces. Raise ValueError for a `${` that is no reference."""
    pieces: list[str | Reference] = []
    end = 0
    for found in _OPENING.finditer(text):
        pieces.append(text[end : found.start()])
        end = found.end()
        if found[1] is None:
            pieces.append("${")
            continue
        shown, whole = found[0][:_SHOWN], _WHOLE.fullmatch(found[1])
        if not found[2]:
            raise ValueError(Message("`{found}` has no closing brace; write `$${{` for a plain `${{`", found=shown))
        if whole is None:
            wrong = Message(
                "`{found}` is no reference; "
                "write `${{step.data.key}}`, `${{inputs.name}}`, `${{item}}` or `${{index}}`",
                found=shown,
            )
            raise ValueError(wrong)
        path = (part[1] if part[1] is not None else int(part[2]) for part in _PART.finditer(whole[2]))
        pieces.append(Reference(whole[1], tuple(path)))
    return tuple(piece for piece in (*pieces, text[end:]) if piece)


def references(value: Json) -> Iterator[tuple[tuple[str | int, ...], Reference | ValueError]]:
    """Yield the path of every reference in a value with the reference, or with the error if it is none."""
    if isinstance(value, str):
        try:
            pieces = parse(value)
        except ValueError as error:
            yield (), error
        else:
            yield from (((), piece) for piece in pieces if isinstance(piece, Reference))
    elif isinstance(value, Mapping | list | tuple):
        items: Iterable[tuple[str | int, Json]] = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from (((key, *path), found) for path, found in references(item))


def fill(value: Json, look: Look) -> Json:
    """Return the value with each reference looked up. Values that were looked up are not searched for references."""
    if isinstance(value, str):
        pieces = parse(value)
        if len(pieces) == 1 and isinstance(pieces[0], Reference):
            return look(pieces[0])
        return "".join(piece if isinstance(piece, str) else as_text(look(piece)) for piece in pieces)
    if isinstance(value, Mapping):
        return {key: fill(item, look) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, look) for item in value]
    return value


def as_text(value: Json) -> str:
    """Return a value as part of a text: a list line by line, a mapping as JSON, None as nothing."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(map(as_text, value))
    return json.dumps(value, ensure_ascii=False, default=dict)


def walk(value: Json, path: tuple[str | int, ...]) -> Json:
    """Return the value at a path. A key of a list is that key of each item. Raise LookupError where the path ends."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(value, list | tuple):
        if isinstance(step, str):
            return [walk(item, path) for item in value]
        if step < len(value):
            return walk(value[step], rest)
        raise LookupError(Message("there is no [{step}] in a list of {count}", step=step, count=len(value)))
    if isinstance(value, Mapping):
        if step in value:
            return walk(value[str(step)], rest)
        advice = nearest(str(step), list(value))
        raise LookupError(Message("there is no `{step}`; {nearest}", step=step, nearest=advice))
    kind = "nothing" if value is None else Message("a text") if isinstance(value, str) else Message("a plain value")
    raise LookupError(Message("there is nothing below {value}: no `{step}`", value=kind, step=step))


def nearest(name: str, known: list[str]) -> str:
    """Return advice for a name that does not exist."""
    from difflib import get_close_matches  # noqa: PLC0415  (only a mistake needs it)

    if close := get_close_matches(name[:_SHOWN], known, n=1):
        return Message("did you mean `{close}`?", close=close[0])
    shown = ", ".join(f"`{each[:_SHOWN]}`" for each in known[:20])
    return Message("there are {known}", known=shown) if known else Message("there are none")
