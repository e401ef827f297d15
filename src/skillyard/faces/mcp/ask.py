"""Asking the person at the client for a param: a form, where the client can show one.

Clients of the handshake take a question while the call runs; those of 2026-07-28 take it as the call's answer and call
again with what was said. What was said before travels in the request's state: no more than the caller's own words.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillyard.core.values import Json
from skillyard.faces.mcp.schema import Signature

_KEY = "params"


class Answer(NamedTuple):
    """`accept` with values, `decline` or `cancel`."""

    action: str
    values: Mapping[str, Json]


def can_ask(ctx: ServerRequestContext[Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    asks = capabilities.elicitation if capabilities else None
    return asks is not None and (asks.form is not None or asks.url is None)


def said_before(params: types.CallToolRequestParams) -> Mapping[str, Json]:
    """The answers of earlier rounds, which the client brings back."""
    try:
        before = json.loads(params.request_state or "{}")
    except (ValueError, RecursionError):
        return {}
    return before if isinstance(before, dict) else {}


def answer_in(params: types.CallToolRequestParams, form: Signature) -> Answer | None:
    """What the client brings with the call."""
    given = (params.input_responses or {}).get(_KEY)
    return _as_answer(given, form) if isinstance(given, types.ElicitResult) else None


def question(message: str, form: Signature, before: Mapping[str, Json]) -> types.InputRequiredResult:
    asked = types.ElicitRequestFormParams(message=message, requested_schema=dict(form.schema))
    return types.InputRequiredResult(
        input_requests={_KEY: types.ElicitRequest(params=asked)}, request_state=json.dumps(before)
    )


def takes_questions_as_results(ctx: ServerRequestContext[Any]) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


async def ask(ctx: ServerRequestContext[Any], message: str, form: Signature) -> Answer | None:
    """None where the client has the form but cannot show it now."""
    try:
        given = await ctx.session.elicit_form(message, dict(form.schema), ctx.request_id)
    except MCPError:
        return None
    return _as_answer(given, form)


def _as_answer(given: types.ElicitResult, form: Signature) -> Answer:
    content = given.content or {}
    values: dict[str, Json] = {
        form.params[key]: value for key, value in content.items() if key in form.params and value is not None
    }
    return Answer(given.action, values)
