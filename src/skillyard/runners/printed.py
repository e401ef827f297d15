"""What a program printed, as data: one JSON object is merged, an envelope adopted, the rest is content.

Whatever it prints are its own words. Facts of the runtime under their names (`FACTS`), and errors that only the runtime
can state, are kept apart under `reported`: nobody who reads a result can take them for ours.
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from skillyard.core.envelope import from_dict, has_icon, read_envelope
from skillyard.core.errors import RuntimeFailed, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.core.values import Json, check_value

REPORTED = "reported"
#: What only the runtime says of a run.
FACTS = frozenset(
    {
        *("skill", "output_path", "outputs", "cached", "original_result", "changes"),
        *("grant", "resume_command", "may_need", REPORTED),
    }
)
#: How an error is told: in the details of one these would replace what we say.
ERROR_FIELDS = frozenset({"type", "msg", "recoverable"})
#: Of our own error types, those that a program may state about itself.
_THEIRS = frozenset(
    {"ParamMissing", "InvalidParam", "InvalidArgs", "PermissionDenied", "RuntimeFailed", "RuntimeError"}
)
#: Commands that allow something, in a summary where they would look like advice of ours.
_COMMAND = re.compile(
    r"skillyard\s(?:.{0,80}\s)?(?:grant|trust|env|review|revoke|add|link|init|service|run|task|mcp)\b", re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[\w.-]{1,64}")
_LONGEST_REASON = 200


class Printed(NamedTuple):
    """The data, and the envelope's summary and state where the program printed one."""

    data: dict[str, Json]
    summary: str | None = None
    state: State | None = None


def as_printed(stdout: bytes, *, ours: bool = False) -> Printed:
    """`ours`: it was printed by a program of our own, whose facts are the runtime's."""
    fields, envelope = _read(stdout)
    if ours:
        return Printed(fields, envelope.summary, envelope.state) if envelope else Printed(fields)
    data = own_words(fields)
    if envelope is None:
        return Printed(data)
    if not _may_state(envelope):
        raise _reported(envelope)
    if envelope.state is State.PENDING:  # the text of a question to a person
        data = own_words(data, frozenset({"prompts"}))
    summary = summary_of(envelope.summary)
    if summary is None:
        data = own_words({**data, "summary": envelope.summary}, frozenset({"summary"}))
    return Printed(data, summary, envelope.state)


def own_words(fields: Mapping[str, Json], more: frozenset[str] = frozenset()) -> dict[str, Json]:
    """The same with what only the runtime can state moved below `reported`."""
    facts = {key: value for key, value in fields.items() if key in FACTS or key in more}
    if not facts:
        return dict(fields)
    before = facts.pop(REPORTED, {})
    kept = {key: value for key, value in fields.items() if key not in facts and key != REPORTED}
    return {**kept, REPORTED: {**(before if isinstance(before, Mapping) else {REPORTED: before}), **facts}}


def names_our_command(text: str) -> bool:
    """Whether it names a command of ours that allows or starts something."""
    return _COMMAND.search(_as_seen(text)) is not None


def summary_of(text: str | None) -> str | None:
    """A program's own summary; None where it reads like an error or an advice of ours."""
    if not text or names_our_command(text) or _is_our_type(text.partition(":")[0]):
        return None
    return text


def _is_our_type(text: str) -> bool:
    """Whether a person would read it as one of our error types."""
    return _as_seen(text).replace(" ", "").casefold() in {name.casefold() for name in _our_types()}


def _as_seen(text: str) -> str:
    """Without what a reader does not see: compatibility forms, invisible characters, runs of spaces, backslashes."""
    import unicodedata  # noqa: PLC0415  (only programs that print an envelope need it)

    plain = unicodedata.normalize("NFKC", text)
    shown = (" " if char == "\\" or char.isspace() else char for char in plain if unicodedata.category(char) != "Cf")
    return " ".join("".join(shown).split())


def _may_state(envelope: Result) -> bool:
    """Whether a program can know it: not that something is not granted, nor how an interrupt goes on."""
    data = envelope.data
    match envelope.state:
        case State.INTERRUPTED:
            return False
        case State.PENDING:
            names = data.get("required")
            return isinstance(names, list) and bool(names) and all(map(_is_plain_name, names))
        case State.ERROR:
            like_ours = _is_our_type(str(data.get("type"))) or names_our_command(str(data.get("msg")))
            return not like_ours and summary_of(envelope.summary) is not None
        case _:
            return True


def _is_plain_name(name: Json) -> bool:
    return isinstance(name, str) and _PLAIN_NAME.fullmatch(name) is not None


def _reported(envelope: Result) -> RuntimeFailed:
    data = envelope.data
    reason = data.get("msg") if isinstance(data.get("msg"), str) else envelope.summary
    told = " ".join(str(reason).split())[:_LONGEST_REASON]
    reported: dict[str, Json] = {"state": str(envelope.state), "summary": envelope.summary, "data": dict(data)}
    return RuntimeFailed(Message("the program says: {message}", message=told), details={REPORTED: reported})


def _our_types() -> frozenset[str]:
    """The error types that only the runtime states."""
    found, queue = set[str](), [SkillError]
    while queue:
        kind = queue.pop()
        found.add(kind.type)
        queue += kind.__subclasses__()
    return frozenset(found - _THEIRS)


def _read(stdout: bytes) -> tuple[dict[str, Json], Result | None]:
    text = stdout.decode("utf-8", "replace").replace("\r\n", "\n").strip("\n")
    if not text.strip():
        return {}, None
    if (fields := _as_object(text)) is not None:
        return _adopted(fields)
    if not has_icon(text):
        return {"content": text}, None
    try:
        envelope = read_envelope(text)
    except ValueError:
        return {"content": text}, None
    return dict(envelope.data), envelope


def _as_object(text: str) -> dict[str, Json] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        fields = json.loads(text)
        check_value(fields)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _adopted(fields: dict[str, Json]) -> tuple[dict[str, Json], Result | None]:
    if {"agent", "state", "summary"} <= fields.keys():
        try:
            envelope = from_dict(fields)
        except ValueError:
            return fields, None
        return dict(envelope.data), envelope
    data = fields.get("data")
    if isinstance(fields.get("success"), bool) and isinstance(data, Mapping):
        return dict(data), None
    return fields, None
