"""A call of a tool: from the client's arguments to the one result, with progress, questions and an end in between."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from skillyard.app.project import Project
from skillyard.core.envelope import as_text
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.phrases import Lang, Text
from skillyard.core.request import Request
from skillyard.core.result import Result
from skillyard.core.skill import Kind
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.mcp import ask, calls
from skillyard.faces.mcp.arguments import Arguments
from skillyard.faces.mcp.options import WORKER, Options
from skillyard.faces.mcp.progress import Progress
from skillyard.faces.mcp.schema import Signature, form_of, signature_of
from skillyard.faces.mcp.surface import Shown
from skillyard.faces.mcp.text import clean
from skillyard.faces.mcp.threads import Threads
from skillyard.faces.mcp.tools import own_tools
from skillyard.scripts.prompt_grammar import split_name

#: An action, then its params, then one that only the skill knows of; more is a skill that never has enough.
_MOST_QUESTIONS = 5
_ASKS = Text("技能 {name} 需要: {names}", "The skill {name} needs: {names}")

Context = ServerRequestContext[Any]
Answer = types.CallToolResult | types.InputRequiredResult


class Answering:
    def __init__(self, threads: Threads, options: Options) -> None:
        self._threads = threads
        self._lang: Lang = options.lang
        self._may_work = WORKER in options.allowed
        self._takes: Mapping[str, Mapping[str, Any]] = {
            tool.name: tool.input_schema["properties"] for tool in own_tools(options.allowed)
        }

    async def answer(self, ctx: Context, params: types.CallToolRequestParams, shown: Shown | None) -> Answer:
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

    async def _own(self, ctx: Context, params: types.CallToolRequestParams, given: Arguments) -> Answer:
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

    def _run(self, given: Arguments) -> calls.Run:
        name, script = split_name(given.text("name"))
        return calls.Run(
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

    async def _exposed(self, shown: Shown, given: Arguments) -> calls.Run:
        """A skill's own tool: its properties are its params."""
        signature, kind = await self._threads.look(lambda yard: _signature(yard, shown))
        known = {**signature.params, **({"action": "action"} if kind is Kind.JSON else {})}
        if kind is Kind.COMMAND or set(given.values) - set(known):
            given.check(known if kind is Kind.COMMAND else {**known, **given.values})
        named = {known.get(key, key): value for key, value in given.values.items()}
        action = named.pop("action", None) if kind is Kind.JSON else None
        if action is not None and not isinstance(action, str):
            raise InvalidArgs("action must be a text")
        return calls.Run(Request(name=shown.address, params=named, action=action, lang=self._lang))

    # -- runs

    async def _converse(self, ctx: Context, params: types.CallToolRequestParams, asked: calls.Asked) -> Answer:
        """Run it; where the client can ask, ask for what is missing and go on with the answers."""
        said: dict[str, Json] = dict(ask.said_before(params))
        brought = params.input_responses is not None
        for _ in range(_MOST_QUESTIONS):
            result = await self._once(ctx, asked.answered(said) if said else asked)
            if result.state is not State.PENDING or not ask.can_ask(ctx):
                break
            form = await self._threads.look(partial(_form, asked.name, result))
            if form is None:
                break
            answer = ask.answer_in(params, form) if brought else None
            brought = False
            if answer is None:
                message = _ASKS.fill(self._lang, name=clean(asked.name, 80), names=", ".join(form.params))
                if ask.takes_questions_as_results(ctx):
                    return ask.question(message, form, said)
                answer = await ask.ask(ctx, message, form)
            if answer is None or not answer.values:
                refused = answer.action if answer else "unavailable"
                result = result._replace(meta={**result.meta, "elicitation": refused})
                break
            said |= answer.values
        return as_answer(result)

    async def _once(self, ctx: Context, asked: calls.Asked) -> Result:
        progress = Progress(ctx.session)
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
