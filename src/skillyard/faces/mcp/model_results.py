"""Results as a model reads them: a prompt filled in, hints that name tools, and nothing larger than it can use.

Every agent cuts what is long in its own way: at the end, in the middle, or by whole lines. So we cut first, keep the
whole in a file of the project, and break the lines.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from skillyard.core.envelope import as_json, as_text
from skillyard.core.errors import MetadataMissing, NotGranted, PermissionDenied, SkillNotFound
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result, as_size
from skillyard.core.states import State
from skillyard.core.values import Json

if TYPE_CHECKING:
    from skillyard.app.project import Project

#: Of a result as JSON, and what stays of a text that is longer.
MOST_CHARACTERS = 20_000
_HEAD, _TAIL = 6_000, 2_000
_KEPT_IN = "mybox/workspace"
_MOST_FILES = 20
#: A longer text than this has its long values below the two lines, each on lines of its own.
_LONG_TEXT, _LONG_VALUE, _LONGEST_LINE = 2_000, 400, 1_000
#: What the model can do itself, by the code of the error.
_HINTS = {
    SkillNotFound.code: Message("skill_search finds the skills of this project; only the user can install one"),
    MetadataMissing.code: Message("only the user can mend the skill; skill_search finds others"),
}
_FOR_PERSONS = frozenset({NotGranted.code})


def as_answer(result: Result) -> dict[str, Any]:
    """Text for the model, the same as JSON for programs: agents show it one of the two."""
    return {
        "content": [{"type": "text", "text": text_of(result)}],
        "structuredContent": result.as_dict(),
        "isError": result.state in {State.ERROR, State.TIMEOUT},
    }


def for_model(project: "Project", result: Result, lang: Lang) -> Result:
    """Return what the model gets of a result. A prompt is never cut: it is what the model must follow."""
    code, hint = result.meta.get("code"), result.meta.get("hint")
    if isinstance(hint, str) and isinstance(code, str) and code not in _FOR_PERSONS:
        if code in _HINTS:
            result = result._replace(meta={**result.meta, "hint": _HINTS[code].render(lang)})
        elif "`skillyard " in hint:
            told = Message("tell the user: {hint}", hint=hint).render(lang)
            result = result._replace(meta={**result.meta, "hint": told})
    if result.data.get("type") == "prompt" and "executable" in result.data:
        data = {key: value for key, value in result.data.items() if key not in {"rendered", "description"}}
        filled = result.data.get("rendered")
        data["content"] = filled if filled is not None else project.prompt_text(str(data["skill"]))
        return result._replace(data=data)
    return _cut(project, result)


def _cut(project: "Project", result: Result) -> Result:
    if len(as_json(result)) <= MOST_CHARACTERS:
        return result
    run = re.sub(r"[^A-Za-z0-9-]", "", str(result.meta.get("run") or result.meta.get("ts")))
    numbers = iter(range(1, _MOST_FILES + 1))

    def aside(text: str, ending: str) -> dict[str, Json]:
        shown: dict[str, Json] = {"head": text[:_HEAD], "tail": text[-_TAIL:], "size": as_size(len(text.encode()))}
        if (number := next(numbers, 0)) and project.paths.project is not None:
            path = f"{_KEPT_IN}/{run}-{number}.{ending}"
            with suppress(PermissionDenied, OSError):  # it is shown without a file then
                project.write_file(path, text.encode())
                return {"file": path, **shown}
        return shown

    def shorten(value: Json) -> Json:
        if isinstance(value, str):
            return aside(value, "txt") if len(value) > _HEAD + _TAIL else value
        if isinstance(value, Mapping):
            return {key: shorten(each) for key, each in value.items()}
        return [shorten(each) for each in value] if isinstance(value, list | tuple) else value

    data = {key: shorten(value) for key, value in result.data.items()}
    if len(as_json(result._replace(data=data))) > MOST_CHARACTERS:  # many values, not long ones
        whole = json.dumps(result.data, ensure_ascii=False, indent=1)
        small = {key: value for key, value in data.items() if len(json.dumps(value)) <= _LONG_VALUE}
        data = {**dict(islice(small.items(), _MOST_FILES)), "cut": aside(whole, "json")}
    return result._replace(data=data)


def text_of(result: Result) -> str:
    """The two lines; of a long result with its long values below them, as they are or as JSON, on many lines."""
    text = as_text(result)
    if len(text) <= _LONG_TEXT:
        return text
    long = {key: value for key, value in result.data.items() if len(json.dumps(value)) > _LONG_VALUE}
    short = {key: value for key, value in result.data.items() if key not in long}
    parts = [as_text(result._replace(data=short))]
    for key, value in long.items():
        shown = value.items() if isinstance(value, Mapping) and set(value) <= _ASIDE_KEYS else [("", value)]
        for name, each in shown:
            written = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False, indent=1)
            parts.append(f"data.{key}{'.' if name else ''}{name}:\n{_broken(written)}")
    return "\n\n".join(parts)


_ASIDE_KEYS = {"file", "head", "tail", "size"}


def _broken(text: str) -> str:
    lines = text.splitlines() or [""]
    pieces = (line[at : at + _LONGEST_LINE] for line in lines for at in range(0, max(len(line), 1), _LONGEST_LINE))
    return "\n".join(pieces)
