"""The envelope as a JSON Schema, for those who read `--json`, HTTP or MCP with a validator."""

from collections.abc import Mapping, Sequence

from skillyard.core import errors
from skillyard.core.errors import SkillError
from skillyard.core.states import State
from skillyard.core.values import Json

_TEXT: Mapping[str, Json] = {"type": "string"}
_TEXTS: Mapping[str, Json] = {"type": "array", "items": {"type": "string"}}
_ITEMS: Mapping[str, Json] = {"type": "array"}
_SECONDS: Mapping[str, Json] = {"type": "number", "minimum": 0}
_LIMIT = "The limit that was reached; null where the program itself gave up."


def envelope_schema() -> dict[str, Json]:
    """Draft 2020-12. What `data` must hold depends on the state; what else it holds is the skill's affair."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Skillyard result",
        "description": "What every run and every command returns: one object, whichever face asked.",
        "type": "object",
        "required": ["agent", "state", "summary", "data", "meta"],
        "additionalProperties": False,
        "properties": {
            "agent": {"type": "string", "pattern": r"^\S+$", "description": "Who answers: one word."},
            "state": {"enum": [str(state) for state in State]},
            "summary": {"type": "string", "description": "One line for people, in their language."},
            "data": {"type": "object"},
            "meta": _meta(),
        },
        "allOf": [_rule(state, needs) for state, needs in _data_by_state().items()],
    }


def _meta() -> Json:
    return {
        "type": "object",
        "required": ["agent", "time", "ts"],
        "properties": {
            "agent": _TEXT,
            "time": {**_SECONDS, "description": "Seconds that it took."},
            "ts": {
                "type": "string",
                "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$",
                "description": "When it started, UTC.",
            },
            "run": {"type": "string", "description": "The id of the run, where one was recorded."},
            "hint": {"type": "string", "description": "What to do about it."},
            "normalised": {**_TEXTS, "description": "What was read although it was not written to the letter."},
        },
    }


def _rule(state: State, data: Json) -> Json:
    return {
        "if": {"properties": {"state": {"const": str(state)}}},
        "then": {"properties": {"data": data}},
    }


def _data_by_state() -> Mapping[State, Json]:
    return {
        State.SUCCESS: {
            "if": {"required": ["cached", "original_result"], "properties": {"cached": {"const": True}}},
            "then": {"properties": {"original_result": {"type": "object", "description": "The first run's data."}}},
        },
        State.PARTIAL: _object(succeeded=_ITEMS, failed=_ITEMS),
        State.PENDING: {
            "required": ["required", "optional"],
            "properties": {
                "required": {**_TEXTS, "minItems": 1},
                "optional": _TEXTS,
                "prompts": {"type": "object", "additionalProperties": _TEXT},
            },
        },
        State.INTERRUPTED: _object(interrupted_skills=_ITEMS, resume_command=_TEXT),
        State.ERROR: _object(
            type={**_TEXT, "examples": _types()}, msg=_TEXT, recoverable={"type": ["boolean", "null"]}
        ),
        State.TIMEOUT: {
            **_object(elapsed=_SECONDS, limit={**_SECONDS, "type": ["number", "null"], "description": _LIMIT}),
            "oneOf": [_object(skill=_TEXT), _object(script=_TEXT), _object(backend=_TEXT)],
        },
    }


def _object(**properties: Json) -> dict[str, Json]:
    """An object that has at least these."""
    return {"required": list(properties), "properties": properties}


def _types() -> Sequence[str]:
    """The types on the wire that we ourselves give."""
    classes = (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SkillError))
    return sorted({cls.type for cls in classes if cls is not SkillError})
