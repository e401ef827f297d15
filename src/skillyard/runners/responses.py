"""S3 responses: what a JSON skill printed, read with the variants that occur, or the reason why it is none."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.core.result import as_size, meaningful
from skillyard.core.values import Json, check_value
from skillyard.runners.process import quoted
from skillyard.sandbox.launch import Exit

INTERNAL = "INTERNAL_ERROR"


class Response(NamedTuple):
    """S3's own response object, and how it had to be read."""

    fields: Mapping[str, Json]
    normalised: tuple[str, ...] = ()
    seconds: float = 0.0
    overflowed: bool = False

    @property
    def success(self) -> bool:
        return self.fields["success"] is True


def read_response(ended: Exit, action: str | None, limit_seconds: float, *, strict: bool) -> Response:
    """Always a response: the skill's, or ours that says what went wrong."""
    response = _read(ended, action, limit_seconds, strict=strict)
    return response._replace(seconds=meaningful(ended.seconds), overflowed=ended.overflowed)


def _read(ended: Exit, action: str | None, limit_seconds: float, *, strict: bool) -> Response:
    if ended.timed_out:
        return failed(action, "TIMEOUT", Message("no response within {limit_seconds:g} s", limit_seconds=limit_seconds))
    if ended.overflowed:
        return failed(action, INTERNAL, Message("more than {count} on stdout", count=as_size(len(ended.stdout))))
    parsed = parse(ended.stdout)
    if isinstance(parsed, str):
        reason = parsed if ended.code == 0 else f"it ended with {_how(ended.code)}, and {parsed}"
        said = quoted(ended.stderr)
        return failed(action, INTERNAL, reason, {"exit_code": ended.code, **({"stderr": said} if said else {})})
    response = _shaped(parsed, action, strict=strict)
    if response.success and ended.code != 0:
        message = f"it reported success and ended with {_how(ended.code)}"
        return failed(action, INTERNAL, message, {"exit_code": ended.code})
    return _timed(response, ended.seconds)


def failed(action: str | None, code: str, message: str, details: Mapping[str, Json] | None = None) -> Response:
    error: dict[str, Json] = {"code": code, "message": message}
    if details:
        error["details"] = details
    return Response({"success": False, "action": action, "error": error})


_SUPPORTED = "supported_actions"
_CODES: Mapping[str, str] = {
    "ParamMissing": "MISSING_PARAM",
    "InvalidParam": "INVALID_PARAM",
    "Timeout": "TIMEOUT",
    "PermissionDenied": "PERMISSION_DENIED",
    "NotGranted": "PERMISSION_DENIED",
    "SkillNotFound": "DATA_NOT_FOUND",
}


def as_response(error: SkillError, action: str | None) -> Response:
    """One of our own errors, for a caller that speaks S3: with `supported_actions` where S3's own skills have it."""
    details = {key: value for key, value in error.details.items() if key not in {"code", _SUPPORTED}}
    code = error.details.get("code") or _CODES.get(error.type, INTERNAL)
    told: dict[str, Json] = {"code": str(code), "message": error.msg, "details": {"type": error.type, **details}}
    if _SUPPORTED in error.details:
        told[_SUPPORTED] = error.details[_SUPPORTED]
    return Response({"success": False, "action": action, "error": told})


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
    return (
        value
        if isinstance(value, dict)
        else Message("the response is not an object but {name}", name=type(value).__name__)
    )


def _shaped(fields: dict[str, Json], action: str | None, *, strict: bool) -> Response:
    wrong = what_is_wrong(fields)
    if wrong and strict:
        return failed(action, INTERNAL, Message("not an S3 response: {wrong}", wrong=wrong))
    notes: list[str] = [wrong] if wrong else []
    if wrong:
        fields = _as_response(fields)
    if fields["success"] is False and not isinstance(fields.get("error"), Mapping):
        error = fields.get("error") or fields.get("message") or Message("no message")
        fields = {**fields, "error": {"code": INTERNAL, "message": str(error)}}
    if fields.get("action") is None:
        fields = {**fields, "action": action}
    return Response(fields, tuple(notes))


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


def _timed(response: Response, seconds: float) -> Response:
    """`metadata.execution_time_ms` is there even where the skill does not count."""
    if not response.success:
        return response
    metadata = response.fields.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    timed: dict[str, Json] = {"execution_time_ms": round(seconds * 1000), **known}
    return response._replace(fields={**response.fields, "metadata": timed})


def _how(code: int) -> str:
    return Message("exit code {code}", code=code) if code >= 0 else f"signal {-code}"
