"""What a skill takes, as it says itself, and values made up for it."""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skillyard.core.skill import Param
from skillyard.core.values import Json

#: No scalar type takes this.
WRONG: Json = {"unexpected": ["object"]}
_SCALARS = frozenset({"string", "int", "number", "bool", "enum", "path"})


class Wanted(NamedTuple):
    """One param: SKILL.md's, or the one that the program itself describes."""

    name: str
    type: str = "any"
    required: bool = False
    default: Json = None
    choices: tuple[Json, ...] = ()

    @property
    def is_scalar(self) -> bool:
        return self.type in _SCALARS


def declared(params: Iterable[Param]) -> tuple[Wanted, ...]:
    return tuple(Wanted(p.name, str(p.type), p.required, p.default, p.choices) for p in params)


def described(stdout: bytes) -> dict[str, tuple[Wanted, ...]]:
    """What `--actions` of `skillyard.skill` printed; nothing where the program does not know the option."""
    try:
        found = json.loads(stdout)
        return {str(action["name"]): tuple(map(_wanted, action["params"])) for action in found["actions"]}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _wanted(param: Mapping[str, Json]) -> Wanted:
    choices = param.get("choices")
    return Wanted(
        name=str(param["name"]),
        type=str(param.get("type")).split(" or ")[0],
        required=param.get("required") is True,
        default=param.get("default"),
        choices=tuple(choices) if isinstance(choices, list) else (),
    )


def least(params: Iterable[Wanted], path: str) -> dict[str, Json]:
    """What is needed, and the defaults that a run fills in."""
    return {p.name: sample(p, path) for p in params if p.required or p.default is not None}


def most(params: Iterable[Wanted], path: str) -> dict[str, Json]:
    return {p.name: sample(p, path) for p in params}


def sample(param: Wanted, path: str) -> Json:
    if param.default is not None:
        return param.default
    if param.choices:
        return param.choices[0]
    samples: dict[str, Json] = {
        "int": 1,
        "number": 1.5,
        "bool": True,
        "path": path,
        "list": ["example"],
        "dict": {"key": "value"},
    }
    return samples.get(param.type, "example")
