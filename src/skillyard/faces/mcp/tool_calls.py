"""A tool call: from the client's arguments to one result, with progress, questions and cancellation in between."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillyard.app.project import Project
from skillyard.core.envelope import as_text
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.core.result import Result
from skillyard.core.skill import Kind
from skillyard.core.states import State
from skillyard.core.values import Json, check_value
from skillyard.faces.mcp import calls
from skillyard.faces.mcp.listing import WORKER, Options, Shown, clean
from skillyard.faces.mcp.tools import Signature, form_of, own_tools, signature_of
from skillyard.sandbox.cancel_token import CancelToken
from skillyard.scripts.prompt_grammar import split_name

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

    def __init__(self, yard: Project) -> None:
        self._yard = yard
        self._runs = ThreadPoolExecutor(_MOST_RUNS, "run")
        self._looks = ThreadPoolExecutor(_MOST_LOOKS, "look")
        self._watch = ThreadPoolExecutor(1, "watch")
        self._running: dict[Future[Any], CancelToken] = {}

    async def look(self, work: Callable[[Project], T]) -> T:
        """Something short: what the catalog or the history knows."""
        return await asyncio.get_running_loop().run_in_executor(self._looks, lambda: work(self._yard))

    async def watch(self, work: Callable[[Project], T]) -> T:
        """The same, always in the one thread: what it saw last time is what it compares with.

        The hourly backup of our database is made here too, where nobody waits for it."""

        def watch() -> T:
            self._yard.back_up_if_due()
            return work(self._yard)

        return await asyncio.get_running_loop().run_in_executor(self._watch, watch)

    async def run(self, work: Callable[[Project, CancelToken], T]) -> T:
        """A run. Whoever is cancelled here takes the run with it."""
        stop = CancelToken()
        future = self._runs.submit(lambda: work(self._yard, stop))
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


class Arguments(NamedTuple):
    tool: str
    values: Mapping[str, Any]

    def check(self, known: Mapping[str, Any]) -> None:
        """Nothing that nobody reads, and nothing that cannot be written down."""
        unknown = sorted(set(self.values) - set(known))
        if unknown:
            raise InvalidArgs(
                Message(
                    "{tool} takes no {unknown}; it takes {known}",
                    tool=self.tool,
                    unknown=", ".join(unknown),
                    known=", ".join(known),
                )
            )
        try:
            check_value(self.values)
        except ValueError as error:
            raise InvalidArgs(str(error)) from None

    def text(self, name: str) -> str:
        value = self.find_text(name)
        if value is None or not value.strip():
            raise InvalidArgs(Message("{tool} needs {name}, a text", tool=self.tool, name=name))
        return value

    def find_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArgs(Message("{name} must be a text", name=name))
        return value

    def whole(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgs(Message("{name} must be a whole number above zero", name=name))
        return value

    def mapping(self, name: str) -> Mapping[str, Json]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict):
            raise InvalidArgs(Message("{name} must be an object", name=name))
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InvalidArgs(Message("{name} must be a list of texts", name=name))
        return tuple(value)


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


class FormAnswer(NamedTuple):
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


def answer_in(params: types.CallToolRequestParams, form: Signature) -> FormAnswer | None:
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


async def ask(ctx: ServerRequestContext[Any], message: str, form: Signature) -> FormAnswer | None:
    """None where the client has the form but cannot show it now."""
    try:
        given = await ctx.session.elicit_form(message, dict(form.schema), ctx.request_id)
    except MCPError:
        return None
    return _as_answer(given, form)


def _as_answer(given: types.ElicitResult, form: Signature) -> FormAnswer:
    content = given.content or {}
    values: dict[str, Json] = {
        form.params[key]: value for key, value in content.items() if key in form.params and value is not None
    }
    return FormAnswer(given.action, values)


#: An action, then its params, then one that only the skill knows of; more is a skill that never has enough.
_MOST_QUESTIONS = 5
_ASKS = Message("The skill {name} needs: {names}")

Context = ServerRequestContext[Any]
ToolAnswer = types.CallToolResult | types.InputRequiredResult


class Answering:
    def __init__(self, threads: Threads, options: Options) -> None:
        self._threads = threads
        self._lang: Lang = options.lang
        self._may_work = WORKER in options.allowed
        self._takes: Mapping[str, Mapping[str, Any]] = {
            tool.name: tool.input_schema["properties"] for tool in own_tools(options.allowed)
        }

    async def answer(self, ctx: Context, params: types.CallToolRequestParams, shown: Shown | None) -> ToolAnswer:
        """`shown` is the skill that the tool stands for, where it is not one of ours."""
        given = Arguments(params.name, params.arguments or {})
        try:
            if shown is not None:
                return await self._converse(ctx, params, await self._exposed(shown, given))
            if params.name not in self._takes:
                raise MCPError(types.INVALID_PARAMS, f"no tool {params.name[:100]!r} here")
            given.check(self._takes[params.name])
            return await self._own(ctx, params, given)
        except SkillError as error:
            failure = error
        return as_answer(calls.told(lambda: _raise(failure), self._lang))

    async def _own(self, ctx: Context, params: types.CallToolRequestParams, given: Arguments) -> ToolAnswer:
        if params.name == "skill_run":
            return await self._converse(ctx, params, self._run(given))
        if params.name == "Task":
            return await self._converse(ctx, params, self._task(given))
        if params.name == "agent_dispatch":
            return await self._converse(ctx, params, self._dispatch(given))
        if params.name == "job_run":
            return await self._converse(ctx, params, self._job(given))
        look = self._looked(given)
        return as_answer(await self._threads.look(look))

    def _looked(self, given: Arguments) -> Callable[[Project], Result]:
        lang = self._lang
        if given.tool == "skill_search":
            query, limit = given.text("query"), given.whole("limit", 20)
            return lambda yard: calls.search(yard, query, limit, lang)
        if given.tool == "skill_show":
            name = given.text("name")
            return lambda yard: calls.show(yard, name, lang)
        run_id, most = given.find_text("run_id") or "", given.whole("limit", 20)
        return lambda yard: calls.runs(yard, run_id, most, lang)

    def _run(self, given: Arguments) -> calls.SkillRun:
        name, script = split_name(given.text("name"))
        return calls.SkillRun(
            Request(
                name=name,
                script=script,
                args=given.words("args"),
                params=given.mapping("params"),
                action=given.find_text("action"),
                lang=self._lang,
            )
        )

    def _task(self, given: Arguments) -> calls.Task:
        return calls.Task(
            agent=given.text("subagent_type"),
            description=given.find_text("description") or "",
            prompt=given.text("prompt"),
            model=given.find_text("model"),
            key=given.find_text("idempotency_key"),
            lang=self._lang,
            may_work=self._may_work,
        )

    def _dispatch(self, given: Arguments) -> calls.Dispatch:
        return calls.Dispatch(
            task=given.text("task"),
            to=given.find_text("to"),
            session=given.find_text("session"),
            model=given.find_text("model"),
            cwd=given.find_text("cwd"),
            lang=self._lang,
        )

    def _job(self, given: Arguments) -> calls.JobRun:
        return calls.JobRun(
            schedule=given.find_text("name") or "",
            skill=given.find_text("skill") or "",
            params=given.mapping("params"),
            action=given.find_text("action") or "",
            wait_seconds=given.whole("wait", 1) if "wait" in given.values else 0,
            lang=self._lang,
        )

    async def _exposed(self, shown: Shown, given: Arguments) -> calls.SkillRun:
        """A skill's own tool: its properties are its params."""
        signature, kind = await self._threads.look(lambda yard: _signature(yard, shown))
        known = {**signature.params, **({"action": "action"} if kind.has_actions else {})}
        if kind.takes_only_declared or set(given.values) - set(known):
            given.check(known if kind.takes_only_declared else {**known, **given.values})
        named = {known.get(key, key): value for key, value in given.values.items()}
        action = named.pop("action", None) if kind.has_actions else None
        if action is not None and not isinstance(action, str):
            raise InvalidArgs(Message("action must be a text"))
        return calls.SkillRun(Request(name=shown.address, params=named, action=action, lang=self._lang))

    # -- runs

    async def _converse(self, ctx: Context, params: types.CallToolRequestParams, asked: calls.Asked) -> ToolAnswer:
        """Run it; where the client can ask, ask for what is missing and go on with the answers."""
        said: dict[str, Json] = dict(said_before(params))
        brought = params.input_responses is not None
        for _ in range(_MOST_QUESTIONS):
            result = await self._once(ctx, asked.answered(said) if said else asked)
            if result.state is not State.PENDING or not can_ask(ctx):
                break
            form = await self._threads.look(partial(_form, asked.name, result))
            if form is None:
                break
            answer = answer_in(params, form) if brought else None
            brought = False
            if answer is None:
                message = _ASKS.render(self._lang, name=clean(asked.name, 80), names=", ".join(form.params))
                if takes_questions_as_results(ctx):
                    return question(message, form, said)
                answer = await ask(ctx, message, form)
            if answer is None or not answer.values:
                refused = answer.action if answer else "unavailable"
                result = result._replace(meta={**result.meta, "elicitation": refused})
                break
            said |= answer.values
        return as_answer(result)

    async def _once(self, ctx: Context, asked: calls.Asked) -> Result:
        progress = RunProgress(ctx.session)
        telling = asyncio.create_task(progress.tell())
        try:
            result = await self._threads.run(lambda yard, stop: calls.run(asked, yard, progress.hear, stop, self._lang))
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


def _signature(yard: Project, shown: Shown) -> tuple[Signature, Kind]:
    yard.catalog.sync()
    skill = yard.catalog.resolve(shown.address)
    return signature_of(skill), skill.kind


def _form(name: str, result: Result, yard: Project) -> Signature | None:
    required, prompts = result.data.get("required"), result.data.get("prompts")
    if not name or not isinstance(required, list):
        return None
    skill = yard.catalog.resolve(name)
    return form_of(skill, [str(each) for each in required], prompts if isinstance(prompts, Mapping) else {})


def _raise(error: SkillError) -> Any:
    raise error
