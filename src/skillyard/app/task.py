"""Kernel and its Task (docs/spec/task.md), and the calls of JSON skills by role (docs/spec/json-skills.md)."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING

from skillyard.app.project import Project, as_lang, expect
from skillyard.catalog.files import is_utf8
from skillyard.core.errors import InvalidArgs, InvalidParam, SkillError
from skillyard.core.messages import CACHE_HIT, Lang, Message
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.core.states import State
from skillyard.core.values import Json, check_text, check_value
from skillyard.scripts.prompt_grammar import parse_prompt

if TYPE_CHECKING:
    from skillyard.core.cancel_token import CancelToken
    from skillyard.runtime.record import OnProgress
    from skillyard.scripts.interrupt import Decider

#: The limit of a Task to the skills agent, over everything.
DEADLINE_SECONDS = 90.0
SKILLS, WORKER = "skills", "worker_agent"
_AGENTS: Mapping[str, str] = {"skills": SKILLS, "skills_agent": SKILLS, "worker": WORKER, "worker_agent": WORKER}


class Kernel:
    """Dispatches a Task to the skills agent or the worker. Synchronous: the result is the return value."""

    def __init__(
        self, project: Project | None = None, lang: Lang | str | None = None, decide: "Decider | None" = None
    ) -> None:
        self._project = project or Project()
        self._lang = as_lang(lang)
        self._decide = decide

    def task(
        self,
        agent: str,
        description: str,
        prompt: str,
        *,
        idempotency_key: str | None = None,
        model: str | None = None,
        timeout_seconds: float | None = None,
        interactive: bool = True,
        on_progress: "OnProgress" = None,
        stop: "CancelToken | None" = None,
    ) -> Result:
        """Run what the prompt says. A call that cannot be read is a result too; only a wrong type raises TypeError.

        The description is for people: it is kept with the run, and so is the model. `interactive`: a missing param
        leaves the result pending, because somebody can answer; else it is ParamMissing.
        """
        for name, text in {"agent": agent, "description": description, "prompt": prompt}.items():
            expect(name, text, str)
        expect("idempotency_key", idempotency_key, str, NoneType)
        expect("model", model, str, NoneType)
        expect("timeout_seconds", timeout_seconds, int, float, NoneType)
        expect("interactive", interactive, bool)
        clock, named = Clock(), _AGENTS.get(agent, SKILLS)
        told = {"description": description, "model": model}
        request = Request(
            prompt,
            timeout_seconds=timeout_seconds,
            deadline_seconds=DEADLINE_SECONDS,
            interactive=interactive,
            lang=self._lang,
            task={name: text for name, text in told.items() if text},
        )
        execute = partial(self._execute, named, request, on_progress, stop)
        try:
            for text in filter(None, (agent, description, prompt, idempotency_key, model)):
                try:
                    check_text(text)
                except ValueError as error:
                    raise InvalidArgs(Message("the task is no text: {error}", error=error)) from None
            if agent not in _AGENTS:
                agents = ", ".join(_AGENTS)
                raise InvalidArgs(Message("no agent {agent!r}; there are {agents}", agent=agent, agents=agents))
            key = idempotency_key
            result = execute() if key is None else self._execute_with_key(named, key, prompt, execute)
        except SkillError as error:
            result = error_result(error, named, self._lang, clock.meta(named))
        return result._replace(meta={**result.meta, "model": model}) if model and is_utf8(model) else result

    def _execute(self, agent: str, asked: Request, on_progress: "OnProgress", stop: "CancelToken | None") -> Result:
        """Run what the prompt, which stands in `asked.name`, says."""
        if agent == WORKER:
            worker = self._project.worker(self._lang, self._decide or self._project.decider)
            worker = worker._replace(stop=stop, task=asked.task)
            if asked.timeout_seconds is not None:
                worker = worker._replace(limit_seconds=asked.timeout_seconds)
            return worker.run(asked.name, on_progress)
        catalog = self._project.catalog
        catalog.sync()
        found = parse_prompt(asked.name, catalog.knows)
        request = asked._replace(name=found.name, args=found.args, shell_words=found.shell_words, script=found.script)
        return self._project.runtime.run(request, on_progress, stop)

    def _execute_with_key(self, agent: str, key: str, prompt: str, execute: Callable[[], Result]) -> Result:
        """Return the result of the key's first run if that was within the last seconds, marked as cached."""
        if not key.strip():
            raise InvalidArgs(Message("an idempotency key is a text that is not empty"))
        from skillyard.scripts.idempotency import Key

        clock = Clock()
        answer = self._project.idempotency(Key(f"{self._project.root}\0{agent}", key, prompt), execute)
        if not answer.shared or answer.result.state is not State.SUCCESS:
            return answer.result
        summary = CACHE_HIT.render(self._lang, seconds=self._project.settings.key_seconds)
        data: dict[str, Json] = {"cached": True, "original_result": answer.result.data}
        return Result(agent, State.SUCCESS, summary, data, clock.meta(agent, {"run": answer.result.meta.get("run")}))


class JobExecutor:
    """`execute_skill` for a project of your choice."""

    def __init__(self, project: Project | None = None) -> None:
        self._project = project

    def execute_skill(
        self,
        agent_role: str,
        skill_name: str,
        action: str,
        params: Mapping[str, Json] | None = None,
        context: Mapping[str, Json] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, Json]:
        for name, text in {"agent_role": agent_role, "skill_name": skill_name, "action": action}.items():
            expect(name, text, str)
        try:
            request = Request(
                name=f"{agent_role}/{skill_name}",
                role=agent_role,
                action=action,
                params=_checked("params", params),
                context=_checked("context", context),
                timeout_seconds=timeout_seconds,
                interactive=False,
            )
        except InvalidParam as error:
            from skillyard.runners.json_skill import as_response

            return dict(as_response(error, action).fields)
        with nullcontext(self._project) if self._project else Project() as opened:
            return opened.runtime.respond(request)


def execute_skill(
    *,
    agent_role: str,
    skill_name: str,
    action: str,
    params: Mapping[str, Json] | None = None,
    context: Mapping[str, Json] | None = None,
    timeout_seconds: float | None = None,
    project: Project | None = None,
) -> dict[str, Json]:
    """Run a JSON skill of agents/<role>/agent.yaml and return its response, also for a call that cannot be made."""
    return JobExecutor(project).execute_skill(agent_role, skill_name, action, params, context, timeout_seconds)


def _checked(name: str, values: Mapping[str, Json] | None) -> Mapping[str, Json]:
    if not isinstance(values, Mapping | None):
        raise InvalidParam(Message("{name} must be an object, not {type}", name=name, type=type(values).__name__))
    try:
        check_value(values)
    except ValueError as error:
        raise InvalidParam(Message("{place}: {reason}", place=name, reason=error)) from None
    return values or {}
