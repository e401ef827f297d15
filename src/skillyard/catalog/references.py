"""References in a workflow's values: `${step.data.key[0]}`, `${inputs.x}`, `${item}`, `${index}`.

A path and nothing more: no expressions, no code, so that whoever reads a file knows what it can do. A value that is
exactly one reference keeps its type; in a longer text it is text. `$${` is a plain `${`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from skillyard.core.messages import Message
from skillyard.core.values import Json

#: Longer ones are cut where they are shown.
_SHOWN = 64
_OPENING = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
#: Whatever could be taken for more than a name is none: dots and brackets are the path, the rest would be expressions.
_WORD = r"[^\s.\[\]{}()$,;:|&<>=!?*+/\\'\"`@#%^~\x00-\x1f]+"
_WHOLE = re.compile(rf"({_WORD})((?:\.{_WORD}|\[\d{{1,9}}\])*)")
_PART = re.compile(rf"\.({_WORD})|\[(\d+)\]")


class Reference(NamedTuple):
    """Where a value comes from: a name, and the way from there."""

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
    """The text in pieces; ValueError says what is no reference."""
    pieces: list[str | Reference] = []
    end = 0
    for found in _OPENING.finditer(text):
        if plain := text[end : found.start()]:
            pieces.append(plain)
        end = found.end()
        pieces.append(_reference(found) if found[1] is not None else "${")
    if rest := text[end:]:
        pieces.append(rest)
    return tuple(pieces)


def _reference(found: re.Match[str]) -> Reference:
    whole = _WHOLE.fullmatch(found[1])
    if not found[2]:
        raise ValueError(
            Message("`{found}` has no closing brace; write `$${{` for a plain `${{`", found=found[0][:_SHOWN])
        )
    if whole is None:
        raise ValueError(
            Message(
                "`{found}` is no reference; "
                "write `${{step.data.key}}`, `${{inputs.name}}`, `${{item}}` or `${{index}}`",
                found=found[0][:_SHOWN],
            )
        )
    path = (part[1] if part[1] is not None else int(part[2]) for part in _PART.finditer(whole[2]))
    return Reference(whole[1], tuple(path))


def escape(text: str) -> str:
    """A text that fills to itself."""
    return text.replace("${", "$${")


def references(value: Json) -> Iterator[tuple[tuple[str | int, ...], Reference | ValueError]]:
    """Every reference below a value with where it stands, and what was meant as one and is none."""
    if isinstance(value, str):
        try:
            pieces = parse(value)
        except ValueError as error:
            yield (), error
        else:
            yield from (((), piece) for piece in pieces if isinstance(piece, Reference))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (((key, *path), found) for path, found in references(item))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from (((position, *path), found) for path, found in references(item))


def fill(value: Json, look: Look) -> Json:
    """The value with each reference looked up. What was looked up is never read for references again."""
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
    """In a text: a list is its items line by line, a mapping is JSON, nothing is nothing."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(map(as_text, value))
    return json.dumps(value, ensure_ascii=False, default=dict)


def walk(value: Json, path: tuple[str | int, ...]) -> Json:
    """Along the path. A key of a list is that key of each of its items; LookupError says where the way ends."""
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
        raise LookupError(
            Message("there is no `{step}`; {nearest}", step=step, nearest=nearest(str(step), list(value)))
        )
    raise LookupError(Message("there is nothing below {value}: no `{step}`", value=_kind(value), step=step))


def nearest(name: str, known: list[str]) -> str:
    """What to say to somebody who named what is not there."""
    from difflib import get_close_matches  # noqa: PLC0415  (only a mistake needs it)

    close = get_close_matches(name[:_SHOWN], known, n=1)
    if close:
        return Message("did you mean `{close}`?", close=close[0])
    return (
        Message("there are {known}", known=", ".join(f"`{each[:_SHOWN]}`" for each in known[:20]))
        if known
        else Message("there are none")
    )


def _kind(value: Json) -> str:
    return "nothing" if value is None else Message("a text") if isinstance(value, str) else Message("a plain value")
