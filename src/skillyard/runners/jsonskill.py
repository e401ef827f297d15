"""JSON skills (S3): one request on stdin, one response on stdout, progress on stderr."""

import json
from collections.abc import Mapping

from skillyard.core.errors import InvalidParam, ParamMissing, PermissionDenied, RuntimeFailed, SkillError
from skillyard.core.phrases import RAN
from skillyard.core.request import Call, Outcome
from skillyard.core.values import Json, check_value
from skillyard.runners.program import check_exit, environment, find_program, quoted
from skillyard.sandbox.launch import Launch, Sandbox


def plan(call: Call) -> Launch:
    entry = str(call.skill.folder / call.skill.entry)
    request = {"action": call.action, "params": call.params, "context": call.context}
    return Launch(
        argv=(find_program("python3", call.skill.folder), entry),
        cwd=call.skill.folder if call.skill.role else call.root,
        env=environment(call),
        stdin=json.dumps(request, ensure_ascii=False, default=dict).encode(),
        limit_seconds=call.limit_seconds,
    )


def run(call: Call, sandbox: Sandbox) -> Outcome:
    ended = sandbox(plan(call))
    response = _response(ended.stdout)
    if response is None or (response["success"] and ended.code != 0):
        check_exit(call, ended)
        raise RuntimeFailed(
            f"no S3 response on stdout: {quoted(ended.stdout[:200]) or 'it is empty'}",
            details={"code": "INTERNAL_ERROR"},
        )
    if not response["success"]:
        raise _failure(response.get("error"))
    data = response.get("data")
    message = response.get("message")
    return Outcome(
        data={
            "skill": call.asked_as,
            "action": response.get("action") or call.action,
            **(data if isinstance(data, Mapping) else {"content": data}),
            "metadata": response.get("metadata") or {"execution_time_ms": round(ended.seconds * 1000)},
        },
        says=RAN,
        words={"label": call.skill.title or call.asked_as},
        summary=message if isinstance(message, str) else None,
    )


def _response(stdout: bytes) -> dict[str, Json] | None:
    try:
        response = json.loads(stdout)
        check_value(response)
    except (ValueError, RecursionError):
        return None
    return response if isinstance(response, dict) and isinstance(response.get("success"), bool) else None


def _failure(error: Json) -> SkillError:
    fields = error if isinstance(error, Mapping) else {"message": str(error)}
    code, message = str(fields.get("code") or "INTERNAL_ERROR"), str(fields.get("message") or "no message")
    details = {key: value for key, value in fields.items() if key != "message"} | {"code": code}
    match code:
        case "MISSING_PARAM":
            return _named(ParamMissing(()), message, details)
        case "INVALID_PARAM" | "UNKNOWN_ACTION":
            return InvalidParam(message, details=details)
        case "PERMISSION_DENIED":
            return PermissionDenied(message, details=details)
        case _:
            return RuntimeFailed(message, details=details)


def _named(error: ParamMissing, message: str, details: Mapping[str, Json]) -> ParamMissing:
    """The skill itself says what is missing, in its own words."""
    error.msg, error.details, error.words = message, details, {"names": message}
    return error
