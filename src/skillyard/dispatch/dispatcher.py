"""Sends tasks to backends, and looks after the conversations with them."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from skillyard.backends.driver import Driver, Start, Turn
from skillyard.core.backend_events import Ask, Event, EventKind, Tell, ignore, refuse
from skillyard.core.cancel_token import CancelToken
from skillyard.core.child_process import DEPTH
from skillyard.core.dispatch_settings import DispatchSettings, PermissionProfile
from skillyard.core.errors import (
    AgentNotInstalled,
    AgentTooOld,
    BackendFailed,
    InvalidArgs,
    PermissionDenied,
    RuntimeFailed,
    SkillError,
)
from skillyard.core.messages import Message, join_messages
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.dispatch.activation import as_conversation
from skillyard.dispatch.delivery import Delivery, earlier_turns
from skillyard.dispatch.request import DispatchRequest, PromptSkill, choose_profile, working_folder
from skillyard.dispatch.text import EnhancedTask, enhance
from skillyard.dispatch.warm import WarmBackend, WarmBackends
from skillyard.runners.prompt import as_task
from skillyard.runtime.check import check
from skillyard.runtime.pipeline import Runtime, as_result
from skillyard.runtime.record import Recorder
from skillyard.store.conversations import AgentSlots, CancelPipes, Conversation, Conversations, ConversationState

_POLL_SECONDS = 0.1
_HELLO_SECONDS = 120.0
_ANSWER_SECONDS = 300.0
#: How long a turn that was told to stop may take for that.
_STOP_SECONDS = 30.0
_CHECK_QUESTION = "Answer with the one word: ok"
AT_WORK = (ConversationState.STARTING, ConversationState.RUNNING)


class StartedWarm(NamedTuple):
    """`already`: it was warm before."""

    conversation: Conversation
    backend: WarmBackend
    already: bool


class Dispatcher(NamedTuple):
    """Expected failures of a task come back as results; the other methods raise them."""

    drivers: Mapping[str, Driver]
    conversations: Conversations
    recorder: Recorder
    slots: AgentSlots
    cancel_pipes: CancelPipes
    warm: WarmBackends
    settings: DispatchSettings
    keep_days: float
    new_id: Callable[[], str]

    def dispatch(
        self, request: DispatchRequest, tell: Tell = ignore, ask: Ask = refuse, stop: CancelToken | None = None
    ) -> Result:
        """Send the task and wait for its end.

        `tell` gets every event as it comes, `ask` answers what the backend wants to be allowed, `stop` ends the turn
        from another thread.
        """
        clock = Clock()
        try:
            name, folder = request.conversation, str(request.folder)
            latest = self.conversations.list(1, name=name, folder=folder) if name is not None else ()
            request = request._replace(profile=choose_profile(self.settings, request.profile))
            drivers = choose(self.drivers, request.to, latest[0].backend if latest else "", self.settings.order)
        except SkillError as error:
            return error_result(error, request.agent, request.lang, clock.meta(request.agent))
        for driver in drivers:
            asked = self._handed_over(request, driver, tell)
            result = Delivery(self, asked, driver, tell, stop or CancelToken()).run(ask)
            if result.meta.get("code") != AgentTooOld.code:  # the next one may be newer
                break
        return result

    def _handed_over(self, request: DispatchRequest, driver: Driver, tell: Tell) -> DispatchRequest:
        """Return the task with what other backends were told and answered in its conversation."""
        if request.conversation is None:
            return request
        folder, name = str(request.folder), request.conversation
        earlier = earlier_turns(self.conversations, folder, name, driver.name)
        if not earlier:
            return request
        known = (*request.enhanced.skills, *request.enhanced.omitted)
        enhanced = enhance(request.task, known, earlier)
        others = ", ".join(dict.fromkeys(turn.backend for turn in earlier))
        note = Message(
            "{backend} knows nothing of the {total} turns with {others} in {name}: it is told {count} of them",
            backend=driver.name,
            total=len(earlier),
            others=others,
            name=name,
            count=len(enhanced.earlier),
        )
        tell(Event(EventKind.NOTE, note))
        return request._replace(enhanced=enhanced)

    def run_prompt(
        self,
        runtime: Runtime,
        request: Request,
        *,
        to: str,
        model: str | None = None,
        profile: PermissionProfile | None = None,
        tell: Tell = ignore,
        ask: Ask = refuse,
        stop: CancelToken | None = None,
    ) -> Result:
        """Run a prompt skill by a backend: its text, with the arguments filled in, is the task."""
        clock = Clock()
        try:
            skill = runtime.resolve(request)
            call = check(skill, request, runtime.root, "")
            if skill.kind.starts_program or call.script:
                msg = Message("{name} runs by itself: only a prompt skill is run by an agent", name=request.name)
                raise InvalidArgs(msg)
            text = as_task(call)
            asked = DispatchRequest(
                task=text,
                enhanced=enhance(text, ()),
                folder=working_folder(None),
                to=to,
                model=model,
                profile=profile,
                limit_seconds=request.timeout_seconds,
                lang=request.lang,
                prompt=PromptSkill(skill.name, call.asked_as, skill.title or call.asked_as),
            )
        except SkillError as error:
            return as_result(error, request, clock.meta(request.agent))
        return self.dispatch(asked, tell, ask, stop)

    def ask(self, backend: str, question: str) -> str:
        """Return a backend's answer to a question, asked in an empty folder and without tools. Raise BackendFailed."""
        with TemporaryDirectory(prefix="skillyard-") as folder:
            asked = DispatchRequest(question, EnhancedTask(question), Path(folder).resolve(), to=backend)
            result = self.dispatch(asked._replace(limit_seconds=_ANSWER_SECONDS, without_tools=True))
        if not result.ok:
            raise BackendFailed(backend, result.summary)
        return str(result.data["content"])

    def list_conversations(
        self, limit: int = 100, *, backend: str = "", name: str = ""
    ) -> tuple[tuple[Conversation, ...], dict[int, WarmBackend]]:
        """Return the latest, then older ones with a warm backend; and the warm backends by a conversation's id."""
        if backend:
            find_driver(self.drivers, backend)
        latest = self.conversations.list(limit, backend=backend, name=name)
        warm = self.warm.list()
        ids = {each.id for each in latest}
        others = [found for each in warm if each not in ids and (found := self.conversations.get(each))]
        return (*latest, *(o for o in others if backend in {"", o.backend} and name in {"", o.name})), warm

    def stop_conversations(self, *, backend: str = "", name: str = "") -> tuple[Conversation, ...]:
        """Stop the turns and end the warm backends; return the conversations that had one. Raise RuntimeFailed."""
        found, _ = self.list_conversations(backend=backend, name=name)
        told = [each for each in found if each.state in AT_WORK and self.cancel_pipes.cancel(each.id, each.run)]
        deadline = time.monotonic() + _STOP_SECONDS

        def runs_still(conversation: Conversation) -> bool:
            now = self.conversations.get(conversation.id)
            return now is not None and now.run == conversation.run and now.state in AT_WORK

        while still := list(filter(runs_still, told)):
            if time.monotonic() > deadline:
                name, backend = still[0].name, still[0].backend
                msg = Message("{name} with {backend} was told to stop and still runs", name=name, backend=backend)
                raise RuntimeFailed(msg)
            time.sleep(_POLL_SECONDS)
        ended = {each.id for each in found if self.warm.end(each.id)}
        return tuple(each for each in found if each in told or each.id in ended)

    def start_warm(
        self,
        backend: str,
        *,
        session: str | None = None,
        model: str | None = None,
        cwd: Path | None = None,
        profile: PermissionProfile | None = None,
        idle_seconds: float = 900.0,
        env: Mapping[str, str] = os.environ,
    ) -> StartedWarm:
        """Keep a backend warm for a conversation, unless one is that fits.

        Raise InvalidArgs, PermissionDenied inside an agent, and whatever keeps the backend from starting.
        """
        if env.get(DEPTH):
            raise PermissionDenied(Message("an agent cannot keep another one warm: a person must do it, outside"))
        driver = find_driver(self.drivers, backend)
        name = as_conversation(session) or self.new_id()
        usual = self.settings.allowed_tools.get(backend, ())
        start = Start(working_folder(cwd), None, model, usual, profile=choose_profile(self.settings, profile, env))
        fit = self.warm.fit(driver, start, self.settings.commands.get(backend, ()), env)
        conversation = self.conversations.open(backend, str(start.folder), name, time.time())
        return StartedWarm(conversation, *self.warm.start(conversation, fit, idle_seconds, env))


def find_driver(drivers: Mapping[str, Driver], name: str) -> Driver:
    """Raise InvalidArgs if no backend has this name."""
    if name not in drivers:
        raise InvalidArgs(Message("no backend {name!r}; there are {drivers}", name=name, drivers=", ".join(drivers)))
    return drivers[name]


def choose(drivers: Mapping[str, Driver], asked: str | None, latest: str, order: Sequence[str]) -> list[Driver]:
    """Return the backend that was asked for, else the conversation's (`latest`), else all that are installed.

    A conversation stays with its backend: another one would know nothing of it.
    """
    if asked is not None or latest in drivers:
        return [find_driver(drivers, latest if asked is None else asked)]
    if unknown := [name for name in order if name not in drivers]:
        known = ", ".join(drivers)
        raise InvalidArgs(Message("[dispatch] order names {name!r}; there are {known}", name=unknown[0], known=known))
    found: list[Driver] = []
    missing: dict[str, AgentNotInstalled] = {}
    for name in order or drivers:
        try:
            drivers[name].locate()
        except AgentNotInstalled as error:
            missing[name] = error
        else:
            found.append(drivers[name])
    if found:
        return found
    raise AgentNotInstalled(
        join_messages("; ", (error.msg for error in missing.values())),
        details={"backends": list(missing)},
        agent=", ".join(missing),
        command=" / ".join(str(error.values.get("command")) for error in missing.values()),
    )


def check_backend(driver: Driver, folder: Path, *, ask: bool = False) -> str:
    """Start a backend and do its handshake; with `ask` return its model's answer. Raise as a turn does."""
    running = driver.start(Start(folder))
    try:
        if not ask:
            running.hello(_HELLO_SECONDS)
            return ""
        *_, done = running.turn(Turn(_CHECK_QUESTION, _HELLO_SECONDS, _HELLO_SECONDS))
        return done.text
    finally:
        running.close()
