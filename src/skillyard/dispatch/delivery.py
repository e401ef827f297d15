"""Brings a task to an agent and waits: one conversation for each agent, folder and name of ours.

Covered: two tasks in one conversation come one after the other; at most so many agents run at once, in all processes
together; whatever ends a turn, the agent is gone and the conversation says how it ended; what was told before stays.
The agent's own session is gone on with, also after we were killed in the middle of a turn.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from skillyard.backends.distant import Distant
from skillyard.backends.driver import Ask, Driver, Event, Start, Told, Turn, refuse
from skillyard.backends.driver import Stop as TurnStop
from skillyard.core.errors import AgentTooOld, BackendFailed, SkillError, Stopped
from skillyard.core.phrases import RAN, Text
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.dispatch.choose import choose
from skillyard.dispatch.order import Order, Tell, tell_nobody
from skillyard.dispatch.transcript import TASK, Hearing, Log
from skillyard.dispatch.warm import Warmth
from skillyard.runtime.record import Recorder
from skillyard.runtime.redact import Redactor
from skillyard.sandbox.cancel_token import Stop
from skillyard.store.cancel_pipe import Bells
from skillyard.store.conversation_locks import Hold, Slots
from skillyard.store.conversations import Conversation, Conversations, ConversationState
from skillyard.store.runs import RUNNING, Run

#: Whose result it is: a task runs no skill and no script; a prompt skill is one.
AGENT, SKILLS = "skillyard", "skills"
KIND = "dispatch"
_DAY = 86_400
_LOOK_SECONDS = 0.1
_DONE = Text("{backend} 已完成任务", "{backend} is done")
_SAID_STOP = Text("需要时用 skillyard backend stop 停止", "`skillyard backend stop` ends what is running")
_GOES_ON = Text(
    "会话可以继续: --session {session} --to {backend}",
    "the conversation can be gone on with: --session {session} --to {backend}",
)


class Terms(NamedTuple):
    """What holds for every task: the user's settings."""

    #: Where nobody says which; empty for the order in which we know them.
    order: tuple[str, ...] = ()
    #: How many agents run at once, in all processes together.
    at_once: int = 4
    limit_seconds: float = 3600.0
    #: An agent that says nothing for so long hangs.
    silent_seconds: float = 300.0
    #: By backend: what needs no asking.
    allowed_tools: Mapping[str, tuple[str, ...]] = {}
    #: The command lines of agents that the user named.
    commands: Mapping[str, tuple[str, ...]] = {}
    keep_days: float = 30.0


class Conversing(NamedTuple):
    """A `Dispatcher`."""

    drivers: Mapping[str, Driver]
    conversations: Conversations
    recorder: Recorder
    slots: Slots
    bells: Bells
    warmth: Warmth
    terms: Terms
    new_id: Callable[[], str]

    def __call__(self, order: Order, tell: Tell = tell_nobody, ask: Ask = refuse, stop: Stop | None = None) -> Result:
        stop = stop or Stop()
        started, moment = time.monotonic(), datetime.now(UTC)
        try:
            drivers = choose(self.drivers, order.to, self._latest(order), self.terms.order)
        except SkillError as error:
            agent = _agent_of(order)
            return error_result(error, agent, order.lang, make_meta(agent, time.monotonic() - started, moment))
        for driver in drivers[:-1]:
            result, cause = self._bring(order, driver, tell, ask, stop)
            if not isinstance(cause, AgentTooOld):  # the next one may be newer
                return result
        return self._bring(order, drivers[-1], tell, ask, stop)[0]

    def _latest(self, order: Order) -> str:
        """Whom the conversation was with."""
        if order.conversation is None:
            return ""
        found = self.conversations.list(1, name=order.conversation, folder=str(order.folder))
        return found[0].backend if found else ""

    def _bring(
        self, order: Order, driver: Driver, tell: Tell, ask: Ask, stop: Stop
    ) -> tuple[Result, SkillError | None]:
        """One task to one agent, as a result and as the error that it came from."""
        run = order.run or self.new_id()
        bringing = _Bringing(self, order, driver, run, tell, stop)
        try:
            with bringing.place() as conversation:
                row = _as_run(order, driver, conversation, run, bringing.moment)
                with self.recorder.recording(row, order.lang) as record:
                    try:
                        bringing.turn(conversation, ask, record.hear)
                    except SkillError as error:
                        record.settle(bringing.failed(error))
                        raise
                    result = bringing.done()
                    record.settle(result)
            self.conversations.forget_before(time.time() - self.terms.keep_days * _DAY)
        except SkillError as error:
            return bringing.failed(error), error
        return result, None


class _Bringing:
    """One task on its way to one agent."""

    def __init__(self, parts: Conversing, order: Order, driver: Driver, run: str, tell: Tell, stop: Stop) -> None:
        self._parts, self._order, self._driver, self._run = parts, order, driver, run
        self._tell, self._stop = tell, stop
        self._name = order.conversation or run
        self._limit = order.limit_seconds or parts.terms.limit_seconds
        self._started, self.moment = time.monotonic(), datetime.now(UTC)
        self._hearing: Hearing | None = None
        self._warm: Distant | None = None

    @contextmanager
    def place(self) -> Iterator[Conversation]:
        """The conversation, ours alone, and its warm agent or room for one more; waits for both."""
        folder = str(self._order.folder)
        conversations = self._parts.conversations
        opened = conversations.open(self._driver.name, folder, self._name, self.moment.timestamp())
        busy = f"another task runs in the conversation {self._name}"
        with ExitStack() as held:
            held.enter_context(self._wait(lambda: conversations.hold(opened), busy))
            # Again: whoever was waited for has gone on with the agent's session, or begun one.
            conversation = conversations.open(self._driver.name, folder, self._name, self.moment.timestamp())
            self._warm = self._reach(conversation)
            if self._warm:
                held.callback(self._warm.close)
            else:
                held.enter_context(self._wait(self._room, f"{self._parts.slots.count} agents run already"))
            yield conversation

    def _reach(self, conversation: Conversation) -> Distant | None:
        """The agent that is warm for exactly this; one that is for something else is gone then."""
        warmth, command = self._parts.warmth, self._parts.terms.commands.get(self._driver.name, ())
        if not warmth.holds.is_held(conversation.id):
            return None
        fit = warmth.fit(self._driver, self._start(conversation), command)
        reached, why = warmth.reach(conversation.id, self._driver.name, fit)
        if why:
            self._tell(Event(Told.WAITING, f"the warm agent was ended: {why}"))
        return reached

    def _room(self) -> Hold | None:
        """A warm agent that has nothing to do gives its place away."""
        slots = self._parts.slots
        return slots.take() or (slots.take() if self._parts.warmth.give_way() else None)

    def _start(self, conversation: Conversation) -> Start:
        order = self._order
        usual = self._parts.terms.allowed_tools.get(self._driver.name, ())
        allowed = () if order.alone else (*usual, *order.allowed_tools)
        return Start(order.folder, conversation.session or None, order.model, allowed, order.max_turns)

    def _wait(self, take: Callable[[], Hold | None], why: str) -> Hold:
        deadline = self._started + self._limit
        told = False
        while (hold := take()) is None:
            if self._stop.asked:
                raise Stopped("it was taken back while it waited")
            if time.monotonic() > deadline:
                error = BackendFailed(self._driver.name, f"{why}, for more than {self._limit:g} s")
                error.also_advises = _SAID_STOP
                raise error
            if not told:
                self._tell(Event(Told.WAITING, why))
                told = True
            time.sleep(_LOOK_SECONDS)
        return hold

    def turn(self, conversation: Conversation, ask: Ask, log: Log) -> None:
        """Whatever happens inside, the agent is gone and the conversation has its end."""
        conversations = self._parts.conversations
        hearing = self._hearing = Hearing(conversations, conversation, self._run, self._tell, log)
        conversations.begin(conversation, self._run, time.time())
        state = ConversationState.STOPPED  # what an interrupt leaves
        try:
            hearing.note(TASK, self._order.enhanced.text)
            self._hear_all(conversation, hearing, ask)
            state = ConversationState.STOPPED if hearing.cancelled else ConversationState.IDLE
        except SkillError as error:
            hearing.flush()
            hearing.note(Told.ERROR, error.msg, {"type": error.type})
            state = ConversationState.CRASHED if "ended" in error.details else ConversationState.FAILED
            raise
        finally:
            hearing.flush()
            conversations.move(conversation, state, time.time(), hearing.session)
        self._check(hearing)

    def _hear_all(self, conversation: Conversation, hearing: Hearing, ask: Ask) -> None:
        if self._stop.asked:
            raise Stopped("it was taken back before it began")
        order = self._order
        running = self._warm or self._driver.start(self._start(conversation))
        turn = Turn(order.enhanced.text, self._parts.terms.silent_seconds, self._limit)
        try:
            with (
                self._stop.acting(running.cancel),
                self._parts.bells.listening(conversation.id, self._run, running.cancel),
            ):
                for event in running.turn(turn, hearing.asking(refuse if order.alone else ask)):
                    hearing.hear(event)
                    if order.alone and event.told is Told.TOOL_CALL:
                        raise BackendFailed(self._driver.name, f"it used {event.text}, and was to use no tools")
        finally:
            running.close()

    def _check(self, hearing: Hearing) -> None:
        if hearing.cancelled:
            stopped = Stopped(f"{self._driver.name} was stopped", details={"stop": hearing.stop})
            stopped.also_advises = _GOES_ON
            stopped.words = {**stopped.words, "session": self._name, "backend": self._driver.name}
            raise stopped
        if hearing.done is None or hearing.stop == TurnStop.CUT:
            reason = str(hearing.done.data.get("reason")) if hearing.done else "no end"
            raise BackendFailed(
                self._driver.name, f"it gave up: {reason}", details={"stop": hearing.stop, "reason": reason}
            )

    def done(self) -> Result:
        order, agent = self._order, _agent_of(self._order)
        if order.prompt:
            summary = RAN.fill(order.lang, label=order.prompt.label)
            data = {"skill": order.prompt.asked_as, "type": "prompt", "name": order.prompt.name, **self._told()}
        else:
            summary = _DONE.fill(order.lang, backend=self._driver.name)
            data = {**order.as_data(), **self._told()}
        return Result(agent=agent, state=State.SUCCESS, summary=summary, data=data, meta=self._meta(agent))

    def failed(self, error: SkillError) -> Result:
        """With what was sent and what had come of it."""
        agent = _agent_of(self._order)
        result = error_result(error, agent, self._order.lang, self._meta(agent))
        return result._replace(data={**result.data, **self._told()})

    def _told(self) -> dict[str, Json]:
        hearing = self._hearing
        told: dict[str, Json] = {
            "content": hearing.content if hearing else "",
            "backend": self._driver.name,
            "session": self._name,
            "text": self._order.enhanced.text,
            "agent_session": (hearing.session if hearing else "") or None,
            "usage": dict(hearing.usage) if hearing else {},
            "warm": self._warm is not None,
            "refused": [asked._asdict() for asked in hearing.refused] if hearing else [],
        }
        if self._order.max_turns and not self._driver.bounds_turns:
            told["not_supported"] = ["max_turns"]
        return told

    def _meta(self, agent: str) -> Mapping[str, Json]:
        seconds = time.monotonic() - self._started
        model = (self._hearing.model if self._hearing else None) or self._order.model
        return make_meta(agent, seconds, self.moment, run=self._run if self._hearing else None, model=model)


def _agent_of(order: Order) -> str:
    return SKILLS if order.prompt else AGENT


def _as_run(order: Order, driver: Driver, conversation: Conversation, run: str, moment: datetime) -> Run:
    """The row of a task before it is handed over; the agent that it goes to is the one that runs it."""
    request: dict[str, Json] = {
        "task": order.task,
        "text": order.enhanced.text,
        "session": conversation.name,
        "agent_session": conversation.session,
        "model": order.model,
        "cwd": str(order.folder),
        "limit_seconds": order.limit_seconds,
        "max_turns": order.max_turns,
        "job": dict(order.job),
    }
    return Run(
        id=run,
        agent=driver.name,
        skill=order.prompt.name if order.prompt else "",
        kind="prompt" if order.prompt else KIND,
        state=RUNNING,
        started=moment.timestamp(),
        job=str(order.job.get("label", "")),
        request=Redactor().mapping({key: value for key, value in request.items() if value}),
    )
