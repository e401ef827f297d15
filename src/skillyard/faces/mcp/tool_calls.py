"""A tool call: from the client's arguments to one result, with progress, questions and cancellation in between."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillyard.app.project import Project
from skillyard.core.cancel_token import CancelToken
from skillyard.core.child_process import DEPTH
from skillyard.core.envelope import as_json, as_text
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import AGENT
from skillyard.faces.mcp import tools
from skillyard.faces.mcp.listing import Options, Shown, clean
from skillyard.faces.mcp.tools import Signature, form_of, signature_of

#: Programs that run at once; more wait for their turn.
_MOST_RUNS = 32
_MOST_LOOKS = 4
#: As long as a stopped run may take to be gone, and more.
_END_SECONDS = 10.0
#: Of a line of a run's output, and of one that has no end.
_LONGEST, _LONGEST_PIECE = 500, 65_536
#: Between two notifications at least this long: clients draw each.
_PAUSE_SECONDS = 0.05
_KEY, _CHANGES_KEY = "params", "changes"
_DECISION = {"type": "string", "enum": [tools.APPLY, tools.DISCARD, "later"]}
_CHANGES_FORM = Signature({"type": "object", "properties": {_CHANGES_KEY: _DECISION}, "required": [_CHANGES_KEY]}, {})
_MOST_UNDECIDED = 100
#: An action, then its params, then one that only the skill knows of; more is a skill that never has enough.
_MOST_QUESTIONS = 5

T = TypeVar("T")
Context = ServerRequestContext[Any]
ToolAnswer = types.CallToolResult | types.InputRequiredResult


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


class RunProgress:
    """Sends the latest line that a run printed to the client. `add` is called in the run's thread."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._latest, self._lines = "", 0
        self._changed = asyncio.Event()

    def add(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-_LONGEST_PIECE:]
        shown = (clean(line.decode("utf-8", "replace"), _LONGEST) for line in reversed(lines[-20:]))
        if latest := next(filter(None, shown), ""):
            self._loop.call_soon_threadsafe(self._set, latest, len(lines))

    def _set(self, latest: str, lines: int) -> None:
        self._latest = latest
        self._lines += lines
        self._changed.set()

    async def send_all(self) -> None:
        """Until cancelled; the last line is sent by `send`."""
        while True:
            await self._changed.wait()
            await self.send()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def send(self) -> None:
        self._changed.clear()
        latest, self._latest = self._latest, ""
        if latest:
            await self._session.report_progress(float(self._lines), None, latest)


def can_ask(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    asks = capabilities.elicitation if capabilities else None
    return asks is not None and (asks.form is not None or asks.url is None)


async def ask(
    ctx: Context, key: str, message: str, form: Signature, state: Json
) -> types.InputRequiredResult | types.ElicitResult | None:
    """The person's answer; None where the client cannot show the form now.

    Clients of 2026-07-28 get the question as the result, and answer in a call of their own, with `state`.
    """
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        asked = types.ElicitRequestFormParams(message=message, requested_schema=dict(form.schema))
        return types.InputRequiredResult(
            input_requests={key: types.ElicitRequest(params=asked)}, request_state=json.dumps(state)
        )
    try:
        return await ctx.session.elicit_form(message, dict(form.schema), ctx.request_id)
    except MCPError:
        return None


class Answering:
    def __init__(self, threads: Threads, options: Options) -> None:
        self._threads, self._options, self._lang = threads, options, options.lang
        #: Results with changes that a client was asked about, by their runs, where it answers in a call of its own.
        self._undecided: dict[str, Result] = {}

    async def answer(self, ctx: Context, params: types.CallToolRequestParams, shown: Shown | None) -> ToolAnswer:
        """`shown` is the skill that the tool stands for, where it is not one of ours."""
        given = tools.Arguments(params.name, params.arguments or {})
        try:
            if shown is not None:
                return await self._converse(ctx, params, await self._exposed(shown, given))
            ours = {tool.name: tool for tool in tools.own_tools(self._options.allowed)}
            if params.name not in ours:
                raise MCPError(types.INVALID_PARAMS, f"no tool {params.name[:100]!r} here")
            given.check(ours[params.name].input_schema["properties"])
            if run := tools.RUNNING.get(params.name):
                return await self._converse(ctx, params, run(given, self._options))
            return as_answer(await self._threads.look(lambda project: tools.look(project, given, self._lang)))
        except SkillError as error:
            return as_answer(error_result(error, AGENT, self._lang, Clock().meta(AGENT)))

    async def _exposed(self, shown: Shown, given: tools.Arguments) -> tools.Asked:
        """A skill's own tool: its properties are its params."""

        def find(project: Project) -> Skill:
            project.catalog.sync()
            return project.catalog.resolve(shown.address)

        skill = await self._threads.look(find)
        known = {**signature_of(skill).params, **({"action": "action"} if skill.kind.has_actions else {})}
        if skill.kind.takes_only_declared or set(given.values) - set(known):
            given.check(known if skill.kind.takes_only_declared else {**known, **given.values})
        named = {known.get(key, key): value for key, value in given.values.items()}
        action = named.pop("action", None) if skill.kind.has_actions else None
        if action is not None and not isinstance(action, str):
            raise InvalidArgs(Message("action must be a text"))
        return tools.run_skill(Request(name=shown.address, params=named, action=action, lang=self._lang))

    async def _converse(self, ctx: Context, params: types.CallToolRequestParams, asked: tools.Asked) -> ToolAnswer:
        """Run it; where the client can ask, ask for what is missing and go on with the answers."""
        responses = params.input_responses or {}
        if (decision := responses.get(_CHANGES_KEY)) is not None:
            run_id = (params.request_state or "").strip('"')
            if run_id not in self._undecided:  # only what was asked here is decided here
                raise InvalidArgs(Message("nothing was asked about the run {run}", run=run_id[:100]))
            return await self._decided(self._undecided.pop(run_id), decision)
        said, brought = _said_before(params), responses.get(_KEY)
        for _ in range(_MOST_QUESTIONS):
            result = await self._once(ctx, asked.answered(said) if said and asked.answered else asked)
            form = await self._form(asked, result) if can_ask(ctx) else None
            if form is None:
                break
            answer, brought = brought if isinstance(brought, types.ElicitResult) else None, None
            if answer is None:
                about = {"name": clean(asked.name, 80), "names": ", ".join(form.params)}
                message = Message("The skill {name} needs: {names}", **about).render(self._lang)
                told = await ask(ctx, _KEY, message, form, said)
                if isinstance(told, types.InputRequiredResult):
                    return told
                answer = told
            content = (answer.content if answer else None) or {}
            values = {form.params[key]: content[key] for key in content if key in form.params}
            values = {name: value for name, value in values.items() if value is not None}
            if not values:
                refused = answer.action if answer else "unavailable"
                result = result._replace(meta={**result.meta, "elicitation": refused})
                break
            said |= values
        if result.meta.get("changes") != "pending":
            return as_answer(result)
        return await self._ask_about_changes(ctx, result)

    async def _form(self, asked: tools.Asked, result: Result) -> Signature | None:
        """What to ask for, where the run waits for it and its skill is known."""
        required, prompts = result.data.get("required"), result.data.get("prompts")
        if result.state is not State.PENDING or not asked.name or not isinstance(required, list):
            return None
        skill = await self._threads.look(lambda project: project.catalog.resolve(asked.name))
        return form_of(skill, [str(each) for each in required], prompts if isinstance(prompts, Mapping) else {})

    async def _ask_about_changes(self, ctx: Context, result: Result) -> ToolAnswer:
        """Tell what the run changed; where the client can ask the person, they decide now, else by the command."""
        result = await self._threads.look(lambda project: tools.with_diff(project, result, self._lang))
        if not can_ask(ctx) or DEPTH in os.environ:
            return as_answer(result)
        run_id = str(result.meta["run"])
        answer = await ask(ctx, _CHANGES_KEY, tools.changes_question(result, self._lang), _CHANGES_FORM, run_id)
        if not isinstance(answer, types.InputRequiredResult):
            return await self._decided(result, answer)
        self._undecided[run_id] = result
        if len(self._undecided) > _MOST_UNDECIDED:
            self._undecided.pop(next(iter(self._undecided)))
        return answer

    async def _decided(self, result: Result, answer: object) -> ToolAnswer:
        action = answer.action if isinstance(answer, types.ElicitResult) else "unavailable"
        content = (answer.content if isinstance(answer, types.ElicitResult) else None) or {}
        said = str(content.get(_CHANGES_KEY)) if action == "accept" else ""
        if said not in {tools.APPLY, tools.DISCARD}:
            return as_answer(result._replace(meta={**result.meta, "elicitation": action}))
        return as_answer(await self._threads.look(lambda project: tools.decide(project, result, said, self._lang)))

    async def _once(self, ctx: Context, asked: tools.Asked) -> Result:
        progress = RunProgress(ctx.session)
        sending = asyncio.create_task(progress.send_all())

        def run(project: Project, stop: CancelToken) -> Result:
            return tools.attempt(asked.agent, self._lang, lambda _: asked.run(project, progress.add, stop))

        try:
            result = await self._threads.run(run)
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
        await progress.send()
        return result


def _said_before(params: types.CallToolRequestParams) -> dict[str, Json]:
    """The answers of earlier rounds, which the client brings back."""
    try:
        before = json.loads(params.request_state or "{}")
    except (ValueError, RecursionError):
        return {}
    return before if isinstance(before, dict) else {}


def as_answer(result: Result) -> types.CallToolResult:
    """Two lines for the model, the same as JSON for programs."""
    return types.CallToolResult(
        content=[types.TextContent(text=as_text(result))],
        structured_content=json.loads(as_json(result)),
        is_error=result.state in {State.ERROR, State.TIMEOUT},
    )
