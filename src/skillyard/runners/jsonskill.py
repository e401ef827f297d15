"""JSON skills (S3): one request on stdin, one response on stdout, progress on stderr."""

import json
from collections.abc import Mapping
from pathlib import Path

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
from skillyard.core.request import Call, Outcome
from skillyard.core.result import as_size
from skillyard.runners.interpreters import interpreter_of
from skillyard.runners.printed import ERROR_FIELDS, names_our_command, own_words, summary_of
from skillyard.runners.process import environment, in_repository
from skillyard.runners.responses import Response, read_response
from skillyard.sandbox.launch import OUTPUT_BYTES, Launch, Sandbox


def plan(call: Call) -> Launch:
    folder = call.skill.folder
    entry = call.files / call.skill.entry
    if not entry.resolve().is_relative_to(call.files.resolve()) or in_repository(Path(call.skill.entry)):
        raise PermissionDenied(Message("{entry} leads out of {folder}", entry=call.skill.entry, folder=folder))
    if not entry.is_file():
        raise RuntimeFailed(Message("the entry {entry} is missing in {folder}", entry=call.skill.entry, folder=folder))
    request = {"action": call.action, "params": call.params, "context": call.context}
    return Launch(
        argv=(*interpreter_of(entry), str(call.run_folder / call.skill.entry)),
        cwd=call.run_folder if call.skill.role else call.root,
        env=environment(call),
        stdin=json.dumps(request, ensure_ascii=False, default=dict).encode(),
        limit_seconds=call.limit_seconds,
    )


def respond(call: Call, sandbox: Sandbox) -> Response:
    """S3's response itself, for `execute_skill`."""
    ended = sandbox(plan(call))
    return read_response(ended, call.action, call.limit_seconds, strict=call.strict)


def run(call: Call, sandbox: Sandbox) -> Outcome:
    return as_outcome(call, respond(call, sandbox))


def as_outcome(call: Call, response: Response) -> Outcome:
    """A success as data; a failure as the error that it stands for."""
    if not response.success:
        raise _failure(call, response)
    fields = response.fields
    data, message = fields.get("data"), fields.get("message")
    known = own_words(data) if isinstance(data, Mapping) else {"content": data}
    return Outcome(
        data={
            "skill": call.asked_as,
            "action": fields.get("action"),
            **known,
            "metadata": fields.get("metadata") or {},
        },
        says=RAN,
        words={"label": call.skill.title or call.asked_as},
        summary=summary_of(message) if isinstance(message, str) else None,
        normalised=response.normalised,
    )


def _failure(call: Call, response: Response) -> SkillError:
    """The nine codes of S3, as our own error types."""
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
