"""The words after a skill's name, bound to its params.

Positional words fill the params in their order; `--key value`, `--key=value` and `key=value` name theirs.
What nothing takes is refused: never guessed, never dropped.
"""

import json
from collections.abc import Mapping, Sequence

from skillyard.core.errors import InvalidParam
from skillyard.core.messages import Message
from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.core.values import Json

#: The slot that we fill ourselves, and that a caller may name.
OUTPUT = "output"


def bind(skill: Skill, words: Sequence[str]) -> dict[str, Json]:
    """The values by name, as texts; JSON skills take any key, all others only what they declare."""
    known = {_plain(param.name): param for param in skill.params}
    bound: dict[str, Json] = {}
    rest = list(words)
    only_values = False
    while rest:
        word = rest.pop(0)
        if word == "--" and not only_values:
            only_values = True
        elif word.startswith("--") and len(word) > 2 and not only_values:
            _bind_option(skill, known, bound, word, rest)
        elif not only_values and _names_a_param(skill, known, word):
            key, _, value = word.partition("=")
            _put(bound, _name(known, key), value)
        else:
            _put(bound, _next_free(skill, bound, word), word)
    return bound


def _bind_option(skill: Skill, known: Mapping[str, Param], bound: dict[str, Json], word: str, rest: list[str]) -> None:
    key, equals, value = word[2:].partition("=")
    param = known.get(_plain(key))
    if param is None and key != OUTPUT and skill.kind is not Kind.JSON:
        raise InvalidParam(Message("unknown param '{key}'", key=key), details={"known": [p.name for p in skill.params]})
    if not equals:
        if param is not None and param.type is ParamType.BOOL and not _is_bool(rest[:1]):
            value = "true"
        elif rest:
            value = rest.pop(0)
        elif skill.kind is Kind.JSON:
            value = "true"
        else:
            raise InvalidParam(Message("'--{key}' needs a value", key=key))
    _put(bound, _name(known, key), value)


def _names_a_param(skill: Skill, known: Mapping[str, Param], word: str) -> bool:
    key, equals, _ = word.partition("=")
    if not equals:
        return False
    return _plain(key) in known or key == OUTPUT or (skill.kind is Kind.JSON and key.isidentifier())


def _next_free(skill: Skill, bound: Mapping[str, Json], word: str) -> str:
    for param in skill.params:
        if param.name not in bound:
            return param.name
    raise InvalidParam(
        Message("nothing takes {word!r}", word=word), details={"known": [param.name for param in skill.params]}
    )


def _put(bound: dict[str, Json], name: str, value: str) -> None:
    if name in bound:
        raise InvalidParam(Message("'{name}' is given twice", name=name))
    bound[name] = value


def _name(known: Mapping[str, Param], key: str) -> str:
    param = known.get(_plain(key))
    return param.name if param else key


def _plain(name: str) -> str:
    """--input-file names input_file too."""
    return name.replace("-", "_")


def _is_bool(words: Sequence[str]) -> bool:
    return any(word.lower() in {"true", "false"} for word in words)


def as_scalar(text: str) -> Json:
    """A value that no schema types: a JSON scalar where it is one, else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_scalar = value is None or isinstance(value, bool | int | float)
    return value if is_scalar and value == value else text
