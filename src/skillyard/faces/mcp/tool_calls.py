"""A tool call: from the client's arguments to one result, with progress, questions and cancellation in between."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillyard.app.project import Project
from skillyard.core.envelope import as_text
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.core.skill import Kind
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import AGENT
from skillyard.faces.mcp import calls
from skillyard.faces.mcp.listing import Options, Shown, clean
from skillyard.faces.mcp.tools import Signature, form_of, own_tools, signature_of
from skillyard.sandbox.cancel_token import CancelToken

#: Programs that run at once; more wait for their turn.
_MOST_RUNS = 32
_MOST_LOOKS = 4
#: As long as a stopped run may take to be gone, and more.
_END_SECONDS = 10.0

T = TypeVar("T")


class Threads:
    """The threads behind the server: the runtime waits for programs, and the protocol must not wait with it.

    Runs and lookups have threads of their own, so that a search never waits for runs that take minutes.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._runs = ThreadPoolExecutor(_MOST_RUNS, "run")
        self._looks = ThreadPoolExecutor(_MOST_LOOKS, "look")
        self._watch = ThreadPoolExecutor(1, "watch")
        self._running: dict[Future[Any], CancelToken] = {}

    async def look(self, work: Callable[[Project], T]) -> T:
        """Something short: what the catalog or the history knows."""
        return await asyncio.get_running_loop().run_in_executor(self._looks, lambda: work(self._project))

    async def watch(self, work: Callable[[Project], T]) -> T:
        """The same, always in the one thread: what it saw last time is what it compares with.

        The hourly backup of our database is made here too, where nobody waits for it."""

        def watch() -> T:
            self._project.back_up_if_due()
            return work(self._project)

        return await asyncio.get_running_loop().run_in_executor(self._watch, watch)

    async def run(self, work: Callable[[Project, CancelToken], T]) -> T:
        """A run. Whoever is cancelled here takes the run with it."""
        stop = CancelToken()
        future = self._runs.submit(lambda: work(self._project, stop))
        self._running[future] = stop
        future.add_done_callback(lambda ended: self._running.pop(ended, None))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            stop.cancel()
            raise

    def close(self) -> None:
        """End every run, and return when each has its end in the history, or cannot have one in time."""
        running = dict(self._running)
        for stop in running.values():
            stop.cancel()
        for pool in (self._runs, self._looks, self._watch):
            pool.shutdown(wait=False, cancel_futures=True)
        wait(running, timeout=_END_SECONDS)


_LONGEST = 500
_LONGEST_PIECE = 65_536
#: Between two notifications at least this long: clients draw each.
_PAUSE_SECONDS = 0.05


class RunProgress:
    """Heard in the run's thread, told in the loop's."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._rest = b""
        self._latest = ""
        self._lines = 0
        self._heard = asyncio.Event()

    def hear(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-_LONGEST_PIECE:]
        said = [text for text in (clean(line.decode("utf-8", "replace"), _LONGEST) for line in lines[-20:]) if text]
        if said:
            with self._lock:
                self._latest = said[-1]
                self._lines += len(lines)
            self._loop.call_soon_threadsafe(self._heard.set)

    async def tell(self) -> None:
        """Until cancelled; the last word is told by `finish`."""
        while True:
            await self._heard.wait()
            await self.finish()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def finish(self) -> None:
        self._heard.clear()
        with self._lock:
            said, self._latest = self._latest, ""
        if said:
            await self._session.report_progress(float(self._lines), None, said)


_KEY = "params"


def can_ask(ctx: ServerRequestContext[Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    asks = capabilities.elicitation if capabilities else None
    return asks is not None and (asks.form is not None or asks.url is None)


def question(message: str, form: Signature, before: Mapping[str, Json]) -> types.InputRequiredResult:
    asked = types.ElicitRequestFormParams(message=message, requested_schema=dict(form.schema))
    return types.InputRequiredResult(
        input_requests={_KEY: types.ElicitRequest(params=asked)}, request_state=json.dumps(before)
    )


def said_before(params: types.CallToolRequestParams) -> dict[str, Json]:
    """The answers of earlier rounds, which the client brings back."""
    try:
        before = json.loads(params.request_state or "{}")
    except (ValueError, RecursionError):
        return {}
    return before if isinstance(before, dict) else {}


async def ask(ctx: ServerRequestContext[Any], message: str, form: Signature) -> types.ElicitResult | None:
    """None where the client has the form but cannot show it now."""
    try:
        return await ctx.session.elicit_form(message, dict(form.schema), ctx.request_id)
    except MCPError:
        return None


#: An action, then its params, then one that only the skill knows of; more is a skill that never has enough.
_MOST_QUESTIONS = 5
_ASKS = Message("The skill {name} needs: {names}")

Context = ServerRequestContext[Any]
ToolAnswer = types.CallToolResult | types.InputRequiredResult


class Answering:
    def __init__(self, threads: Threads, options: Options) -> None:
        self._threads = threads
        self._options = options
        self._takes: Mapping[str, Mapping[str, Any]] = {
            tool.name: tool.input_schema["properties"] for tool in own_tools(options.allowed)
        }

    async def answer(self, ctx: Context, params: types.CallToolRequestParams, shown: Shown | None) -> ToolAnswer:
        """`shown` is the skill that the tool stands for, where it is not one of ours."""
        given = calls.Arguments(params.name, params.arguments or {})
        try:
            if shown is not None:
                return await self._converse(ctx, params, await self._exposed(shown, given))
            if params.name not in self._takes:
                raise MCPError(types.INVALID_PARAMS, f"no tool {params.name[:100]!r} here")
            given.check(self._takes[params.name])
            if params.name in calls.RUNS:
                return await self._converse(ctx, params, calls.RUNS[params.name](given, self._options))
            lang = self._options.lang
            return as_answer(await self._threads.look(lambda project: calls.look(project, given, lang)))
        except SkillError as error:
            return as_answer(error_result(error, AGENT, self._options.lang, Clock().meta(AGENT)))

    async def _exposed(self, shown: Shown, given: calls.Arguments) -> calls.Asked:
        """A skill's own tool: its properties are its params."""
        signature, kind = await self._threads.look(lambda project: _signature(project, shown))
        known = {**signature.params, **({"action": "action"} if kind.has_actions else {})}
        if kind.takes_only_declared or set(given.values) - set(known):
            given.check(known if kind.takes_only_declared else {**known, **given.values})
        named = {known.get(key, key): value for key, value in given.values.items()}
        action = named.pop("action", None) if kind.has_actions else None
        if action is not None and not isinstance(action, str):
            raise InvalidArgs(Message("action must be a text"))
        return calls.run_skill(Request(name=shown.address, params=named, action=action, lang=self._options.lang))

    # -- runs

    async def _converse(self, ctx: Context, params: types.CallToolRequestParams, asked: calls.Asked) -> ToolAnswer:
        """Run it; where the client can ask, ask for what is missing and go on with the answers."""
        said = said_before(params)
        brought = (params.input_responses or {}).get(_KEY)
        for _ in range(_MOST_QUESTIONS):
            result = await self._once(ctx, asked.answered(said) if said and asked.answered else asked)
            if result.state is not State.PENDING or not can_ask(ctx):
                break
            form = await self._threads.look(partial(_form, asked.name, result))
            if form is None:
                break
            answer, brought = brought if isinstance(brought, types.ElicitResult) else None, None
            if answer is None:
                message = _ASKS.render(self._options.lang, name=clean(asked.name, 80), names=", ".join(form.params))
                if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    return question(message, form, said)
                answer = await ask(ctx, message, form)
            content = (answer.content if answer else None) or {}
            values = {form.params[key]: value for key, value in content.items() if key in form.params}
            values = {name: value for name, value in values.items() if value is not None}
            if not values:
                refused = answer.action if answer else "unavailable"
                result = result._replace(meta={**result.meta, "elicitation": refused})
                break
            said |= values
        return as_answer(result)

    async def _once(self, ctx: Context, asked: calls.Asked) -> Result:
        progress = RunProgress(ctx.session)
        telling = asyncio.create_task(progress.tell())

        def run(project: Project, stop: CancelToken) -> Result:
            return calls.attempt(asked.agent, self._options.lang, lambda _: asked.run(project, progress.hear, stop))

        try:
            result = await self._threads.run(run)
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
        await progress.finish()
        return result


def as_answer(result: Result) -> types.CallToolResult:
    """Two lines for the model, the same as JSON for programs."""
    return types.CallToolResult(
        content=[types.TextContent(text=as_text(result))],
        structured_content=_plain(result.as_dict()),
        is_error=result.state in {State.ERROR, State.TIMEOUT},
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _signature(project: Project, shown: Shown) -> tuple[Signature, Kind]:
    project.catalog.sync()
    skill = project.catalog.resolve(shown.address)
    return signature_of(skill), skill.kind


def _form(name: str, result: Result, project: Project) -> Signature | None:
    required, prompts = result.data.get("required"), result.data.get("prompts")
    if not name or not isinstance(required, list):
        return None
    skill = project.catalog.resolve(name)
    return form_of(skill, [str(each) for each in required], prompts if isinstance(prompts, Mapping) else {})
