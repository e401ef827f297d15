"""JSON skills: one request on stdin, one response on stdout, progress on stderr; see docs/spec/json-skills.md."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.errors import InvalidParam, OutputTooLarge, PermissionDenied, RuntimeFailed, SkillError, Timeout
from skillyard.core.messages import Message
from skillyard.core.result import Call, Outcome, as_size, meaningful
from skillyard.core.skill import Skill
from skillyard.core.values import Json, check_value
from skillyard.runners.interpreters import interpreter_of
from skillyard.runners.kind import (
    INTERNAL,
    Prepared,
    RanProgram,
    environment,
    flaw_of_error,
    flaws_of_bytes,
    is_of_skill,
    own_words,
    quoted,
    reported_error,
    reporting,
    summary_of,
    without_claims,
)
from skillyard.sandbox.launch import OUTPUT_BYTES, Exit, Launch, Sandbox

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial

#: The field of a skill whose program reads its params beside `action`.
FLAT_PARAMS = "flat_params"
_CODES: Mapping[str, str] = {
    "ParamMissing": "MISSING_PARAM",
    "InvalidParam": "INVALID_PARAM",
    "Timeout": "TIMEOUT",
    "PermissionDenied": "PERMISSION_DENIED",
    "NotGranted": "PERMISSION_DENIED",
    "SkillNotFound": "DATA_NOT_FOUND",
}


class JsonResponse(NamedTuple):
    """The response of a JSON skill, and how it had to be read."""

    fields: Mapping[str, Json]
    normalised: tuple[str, ...] = ()
    seconds: float = 0.0
    overflowed: bool = False
    #: A limit of ours was reached; the code TIMEOUT alone is the program's word.
    timed_out: bool = False

    @property
    def success(self) -> bool:
        return self.fields["success"] is True


def plan(call: Call) -> Launch:
    folder = call.skill.folder
    entry = call.files / call.skill.entry
    if not is_of_skill(call, call.skill.entry):
        raise PermissionDenied(Message("{entry} leads out of {folder}", entry=call.skill.entry, folder=folder))
    if not entry.is_file():
        raise RuntimeFailed(Message("the entry {entry} is missing in {folder}", entry=call.skill.entry, folder=folder))
    given = call.params if call.skill.fields.get(FLAT_PARAMS) is True else {"params": call.params}
    if taken := sorted({"action", "context"} & given.keys()):
        raise InvalidParam(Message("{name} is the request's own key beside flat params", name=taken[0]))
    request: dict[str, Json] = {"action": call.action, **given, "context": call.context}
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
    from skillyard.runners.probes import json_probes  # noqa: PLC0415  (only `check` needs it)

    return json_probes(skill, trial)


def as_outcome(call: Call, response: JsonResponse) -> Outcome:
    """A success as data; a failure as the error that it stands for."""
    if not response.success:
        raise _failure(call, response)
    fields = response.fields
    data, message = fields.get("data"), fields.get("message")
    known = own_words(data) if isinstance(data, Mapping) else {"content": data}
    about: dict[str, Json] = {"skill": call.asked_as, "action": fields.get("action")}
    outcome = Outcome(
        data={**about, **_with_metadata(known, fields.get("metadata") or {})},
        words={"label": call.skill.title or call.asked_as},
        summary=summary_of(message) if isinstance(message, str) else None,
        normalised=response.normalised,
    )
    return without_claims(outcome, call.run_folder if call.skill.role else call.root, response.seconds)


def _with_metadata(data: Mapping[str, Json], metadata: Json) -> dict[str, Json]:
    """Return the data with the metadata of the response; the skill's own `metadata` in its data wins."""
    if "metadata" not in data:
        return {**data, "metadata": metadata}
    own = data["metadata"]
    if isinstance(own, Mapping) and isinstance(metadata, Mapping):
        return {**data, "metadata": {**metadata, **own}}
    return reporting(data, {"response_metadata": metadata})


def _failure(call: Call, response: JsonResponse) -> SkillError:
    """The error that the code of a response stands for."""
    log = f"skillyard runs show {call.run_id}"
    if response.timed_out:
        return Timeout(call.asked_as, response.seconds, call.limit_seconds)
    ran = RanProgram(call.asked_as, response.seconds, log)
    error = reported_error(response.fields, ran) or RuntimeFailed(Message("no message"), log=log)
    if response.overflowed:
        return OutputTooLarge(error.msg, details=error.details, limit=as_size(OUTPUT_BYTES), log=log)
    error.normalised = response.normalised
    return error


def read_response(ended: Exit, action: str | None, limit_seconds: float, *, strict: bool) -> JsonResponse:
    """Always a response: the skill's, or ours that says what went wrong."""
    if ended.timed_out:
        message = Message("no response within {limit_seconds:g} s", limit_seconds=limit_seconds)
        response = failed(action, "TIMEOUT", message)
    elif ended.overflowed:
        message = Message("more than {count} on stdout", count=as_size(len(ended.stdout)))
        response = failed(action, INTERNAL, message)
    else:
        response = _read(ended, action, strict=strict)
    return response._replace(seconds=meaningful(ended.seconds), overflowed=ended.overflowed, timed_out=ended.timed_out)


def _read(ended: Exit, action: str | None, *, strict: bool) -> JsonResponse:
    fields = parse(ended.stdout)
    how = Message("exit code {code}", code=ended.code) if ended.code >= 0 else f"signal {-ended.code}"
    details: dict[str, Json] = {"exit_code": ended.code}
    if isinstance(fields, str):
        said, reason = quoted(ended.stderr), fields
        if ended.code != 0:  # a crash: its last words say more than what is missing on stdout
            reason = said or f"it ended with {how}, and {fields}"
        if ended.hit:
            details["limit_hit"] = ended.hit
        return failed(action, INTERNAL, reason, details=details | ({"stderr": said} if said else {}))
    flaws = flaws_of_bytes(ended.stdout)
    if wrong := what_is_wrong(fields):
        flaws = (wrong, *flaws)
    if flaws and strict:
        return failed(action, INTERNAL, Message("not a response of the protocol: {wrong}", wrong=flaws[0]))
    fields = _normalise(fields, wrong) if wrong else fields
    if fields.get("action") is None:
        fields = {**fields, "action": action}
    if fields["success"] is True:
        if ended.code != 0:
            return failed(action, INTERNAL, f"it reported success and ended with {how}", details=details)
        metadata = fields.get("metadata")  # with the time even where the skill does not count it
        known = metadata if isinstance(metadata, Mapping) else {}
        fields = {**fields, "metadata": {"execution_time_ms": round(ended.seconds * 1000), **known}}
    return JsonResponse(fields, flaws)


def failed(action: str | None, code: str, message: str, **more: Json) -> JsonResponse:
    return JsonResponse({"success": False, "action": action, "error": {"code": code, "message": message, **more}})


def as_response(error: SkillError, action: str | None) -> JsonResponse:
    """Return one of our own errors as a response, with `supported_actions` as the skills themselves have it."""
    details = {"type": error.type, **error.details}
    code = details.pop("code", None) or _CODES.get(error.type, INTERNAL)
    supported = {name: details.pop(name) for name in ("supported_actions",) if name in details}
    return failed(action, str(code), error.msg, details=details, **supported)


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


def what_is_wrong(fields: Mapping[str, Json]) -> str:
    if not isinstance(fields.get("success"), bool):
        return Message("`success` is missing") if "success" not in fields else Message("`success` is not true or false")
    if fields["success"] is False and (flaw := flaw_of_error(fields.get("error"))):
        return flaw
    if fields["success"] is True and "data" not in fields:
        return Message("`data` is missing: flat keys")
    return ""


def _normalise(fields: Mapping[str, Json], wrong: str) -> dict[str, Json]:
    """Return the response that a usual variant means: flat keys, `{"error": "text"}`, `ok` or `status` for success."""
    told, error = fields.get("success", fields.get("ok", fields.get("status", True))), fields.get("error")
    success = told is True or (isinstance(told, str) and told.lower() in {"ok", "success", "true", "done"})
    if not success or (error and not fields.get("success")):
        if not isinstance(error, Mapping):
            error = {"message": str(error or fields.get("message") or wrong)}
        if flaw_of_error(error):
            error = {**error, "code": INTERNAL}
        return {**fields, "success": False, "error": error}
    about = ("action", "message", "metadata")
    data = fields.get("data", {k: v for k, v in fields.items() if k not in {*about, "success", "ok", "status"}})
    return {"success": True, "data": data, **{key: fields[key] for key in about if key in fields}}
