"""JSON skills: one request on stdin, one response on stdout, progress on stderr; see docs/spec/json-skills.md."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.errors import (
    InvalidParam,
    OutputTooLarge,
    ParamMissing,
    PermissionDenied,
    RuntimeFailed,
    SkillError,
    Timeout,
)
from skillyard.core.messages import RAN, Message
from skillyard.core.result import Call, Outcome, as_size, meaningful
from skillyard.core.skill import Skill
from skillyard.core.values import Json, check_value
from skillyard.runners.interpreters import interpreter_of
from skillyard.runners.kind import (
    ERROR_FIELDS,
    Prepared,
    environment,
    in_repository,
    names_our_command,
    own_words,
    quoted,
    summary_of,
)
from skillyard.sandbox.launch import OUTPUT_BYTES, Exit, Launch, Sandbox

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial

INTERNAL = "INTERNAL_ERROR"


class JsonResponse(NamedTuple):
    """The response of a JSON skill, and how it had to be read."""

    fields: Mapping[str, Json]
    normalised: tuple[str, ...] = ()
    seconds: float = 0.0
    overflowed: bool = False

    @property
    def success(self) -> bool:
        return self.fields["success"] is True


def plan(call: Call) -> Launch:
    folder = call.skill.folder
    entry = call.files / call.skill.entry
    if not entry.resolve().is_relative_to(call.files.resolve()) or in_repository(Path(call.skill.entry)):
        raise PermissionDenied(Message("{entry} leads out of {folder}", entry=call.skill.entry, folder=folder))
    if not entry.is_file():
        raise RuntimeFailed(Message("the entry {entry} is missing in {folder}", entry=call.skill.entry, folder=folder))
    request: dict[str, Json] = {"action": call.action, "params": call.params, "context": call.context}
    return Launch(
        argv=(*interpreter_of(entry), str(call.run_folder / call.skill.entry)),
        cwd=call.run_folder if call.skill.role else call.root,
        env=environment(call),
        stdin=json.dumps(request, ensure_ascii=False, default=dict).encode(),
        limit_seconds=call.limit_seconds,
    )


def respond(prepared: Prepared, sandbox: Sandbox) -> JsonResponse:
    """Return the response itself, for `execute_skill`."""
    call = prepared.call
    return read_response(sandbox(prepared.program), call.action, call.limit_seconds, strict=call.strict)


def run(prepared: Prepared, sandbox: Sandbox) -> Outcome:
    return as_outcome(prepared.call, respond(prepared, sandbox))


def find_program(skill: Skill, script: str) -> Path:
    del script
    return skill.folder / skill.entry


def probe(skill: Skill, trial: "Trial") -> "Iterator[Probe]":
    from skillyard.runners.json_probes import json_probes  # noqa: PLC0415  (only `check` needs it)

    return json_probes(skill, trial)


def as_outcome(call: Call, response: JsonResponse) -> Outcome:
    """A success as data; a failure as the error that it stands for."""
    if not response.success:
        raise _failure(call, response)
    fields = response.fields
    data, message = fields.get("data"), fields.get("message")
    known = own_words(data) if isinstance(data, Mapping) else {"content": data}
    about: dict[str, Json] = {"skill": call.asked_as, "action": fields.get("action")}
    return Outcome(
        data={**about, **known, "metadata": fields.get("metadata") or {}},
        says=RAN,
        words={"label": call.skill.title or call.asked_as},
        summary=summary_of(message) if isinstance(message, str) else None,
        normalised=response.normalised,
    )


def _failure(call: Call, response: JsonResponse) -> SkillError:
    """The error that the code of a response stands for."""
    error = response.fields["error"]
    fields = error if isinstance(error, Mapping) else {"message": str(error)}
    code, message = str(fields.get("code") or "INTERNAL_ERROR"), str(fields.get("message") or Message("no message"))
    theirs = {key: value for key, value in fields.items() if key not in {"code", "message"}}
    details = {"code": code, **own_words(theirs, ERROR_FIELDS)}
    if names_our_command(message):  # advice that only we give, quoted as what it is
        message = Message("the program says: {message}", message=message)
    log = f"skillyard runs show {call.run_id}"
    if response.overflowed:
        return OutputTooLarge(message, details=details, limit=as_size(OUTPUT_BYTES), log=log)
    match code:
        case "TIMEOUT":
            return Timeout(call.asked_as, response.seconds or call.limit_seconds, call.limit_seconds)
        case "MISSING_PARAM":
            return ParamMissing((), told=message, details=details)
        case "INVALID_PARAM" | "UNKNOWN_ACTION":
            return InvalidParam(message, details=details)
        case "PERMISSION_DENIED":
            return PermissionDenied(message, details=details)
        case _:
            return RuntimeFailed(message, details=details, log=log)


def read_response(ended: Exit, action: str | None, limit_seconds: float, *, strict: bool) -> JsonResponse:
    """Always a response: the skill's, or ours that says what went wrong."""
    response = _read(ended, action, limit_seconds, strict=strict)
    return response._replace(seconds=meaningful(ended.seconds), overflowed=ended.overflowed)


def _read(ended: Exit, action: str | None, limit_seconds: float, *, strict: bool) -> JsonResponse:
    if ended.timed_out:
        return failed(action, "TIMEOUT", Message("no response within {limit_seconds:g} s", limit_seconds=limit_seconds))
    if ended.overflowed:
        return failed(action, INTERNAL, Message("more than {count} on stdout", count=as_size(len(ended.stdout))))
    parsed = parse(ended.stdout)
    how = Message("exit code {code}", code=ended.code) if ended.code >= 0 else f"signal {-ended.code}"
    if isinstance(parsed, str):
        reason = parsed if ended.code == 0 else f"it ended with {how}, and {parsed}"
        said = quoted(ended.stderr)
        return failed(action, INTERNAL, reason, {"exit_code": ended.code, **({"stderr": said} if said else {})})
    response = _shaped(parsed, action, strict=strict)
    if response.success and ended.code != 0:
        message = f"it reported success and ended with {how}"
        return failed(action, INTERNAL, message, {"exit_code": ended.code})
    if not response.success:
        return response
    metadata = response.fields.get("metadata")  # with the time even where the skill does not count it
    known = metadata if isinstance(metadata, Mapping) else {}
    timed: dict[str, Json] = {"execution_time_ms": round(ended.seconds * 1000), **known}
    return response._replace(fields={**response.fields, "metadata": timed})


def failed(action: str | None, code: str, message: str, details: Mapping[str, Json] | None = None) -> JsonResponse:
    error: dict[str, Json] = {"code": code, "message": message}
    if details:
        error["details"] = details
    return JsonResponse({"success": False, "action": action, "error": error})


_SUPPORTED = "supported_actions"
_CODES: Mapping[str, str] = {
    "ParamMissing": "MISSING_PARAM",
    "InvalidParam": "INVALID_PARAM",
    "Timeout": "TIMEOUT",
    "PermissionDenied": "PERMISSION_DENIED",
    "NotGranted": "PERMISSION_DENIED",
    "SkillNotFound": "DATA_NOT_FOUND",
}


def as_response(error: SkillError, action: str | None) -> JsonResponse:
    """Return one of our own errors as a response, with `supported_actions` as the skills themselves have it."""
    details = {key: value for key, value in error.details.items() if key not in {"code", _SUPPORTED}}
    code = error.details.get("code") or _CODES.get(error.type, INTERNAL)
    told: dict[str, Json] = {"code": str(code), "message": error.msg, "details": {"type": error.type, **details}}
    if _SUPPORTED in error.details:
        told[_SUPPORTED] = error.details[_SUPPORTED]
    return JsonResponse({"success": False, "action": action, "error": told})


def parse(stdout: bytes) -> dict[str, Json] | str:
    """The object, or what is wrong with it."""
    text = stdout.decode("utf-8", "replace").lstrip("\ufeff").strip()
    if not text:
        return Message("stdout is empty")
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        check_value(value)
    except (ValueError, RecursionError) as error:
        return Message("stdout is not JSON: {error}", error=error)
    if text[end:].strip():
        return Message("stdout holds more than one JSON document; logs belong on stderr")
    name = type(value).__name__
    return value if isinstance(value, dict) else Message("the response is not an object but {name}", name=name)


def _shaped(fields: dict[str, Json], action: str | None, *, strict: bool) -> JsonResponse:
    wrong = what_is_wrong(fields)
    if wrong and strict:
        return failed(action, INTERNAL, Message("not a response of the protocol: {wrong}", wrong=wrong))
    notes: list[str] = [wrong] if wrong else []
    if wrong:
        fields = _as_response(fields)
    if fields["success"] is False and not isinstance(fields.get("error"), Mapping):
        error = fields.get("error") or fields.get("message") or Message("no message")
        fields = {**fields, "error": {"code": INTERNAL, "message": str(error)}}
    if fields.get("action") is None:
        fields = {**fields, "action": action}
    return JsonResponse(fields, tuple(notes))


def what_is_wrong(fields: Mapping[str, Json]) -> str:
    if not isinstance(fields.get("success"), bool):
        return Message("`success` is missing") if "success" not in fields else Message("`success` is not true or false")
    if fields["success"] is False and not isinstance(fields.get("error"), Mapping):
        return Message("`error` is not an object with code and message")
    if fields["success"] is True and "data" not in fields:
        return Message("`data` is missing: flat keys")
    return ""


def _as_response(fields: Mapping[str, Json]) -> dict[str, Json]:
    """The usual variants: flat keys, `{"error": "text"}`, `ok` or `status` for success."""
    if isinstance(fields.get("success"), bool) and fields["success"] is False:
        return dict(fields)
    if fields.get("error") and not fields.get("success"):
        return {**fields, "success": False}
    told = fields.get("success", fields.get("ok", fields.get("status", True)))
    success = told is True or (isinstance(told, str) and told.lower() in {"ok", "success", "true", "done"})
    if not success:
        return {**fields, "success": False}
    about = ("action", "message", "metadata")
    data = fields.get("data", {k: v for k, v in fields.items() if k not in {*about, "success", "ok", "status"}})
    return {"success": True, "data": data, **{key: fields[key] for key in about if key in fields}}
