"""One task on its way to one backend: it waits for its place, plays its turn and becomes a result.

Covered: two tasks in one conversation run one after the other; the number of backends that run at once is limited, over
all processes; whatever ends a turn, the backend has ended too and the conversation says how; its history is kept. The
backend's own session is resumed, also after we were killed during a turn.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from skillyard.backends.driver import Driver, Start, Turn
from skillyard.core.backend_events import Ask, Event, EventKind, Tell, TurnEnd, refuse
from skillyard.core.errors import BackendFailed, SkillError, Stopped
from skillyard.core.messages import RAN, Message
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.secrets import Redactor
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.dispatch.request import DispatchRequest
from skillyard.dispatch.transcript import TASK, Log, Transcript
from skillyard.dispatch.warm import WarmTurn
from skillyard.sandbox.cancel_token import CancelToken
from skillyard.store.conversations import Conversation, ConversationState
from skillyard.store.locks import LockedFile
from skillyard.store.runs import RUNNING, Run

if TYPE_CHECKING:
    from skillyard.dispatch.dispatcher import Dispatcher

_DAY = 86_400
_POLL_SECONDS = 0.1


class DispatchSettings(NamedTuple):
    """The user's settings for every task."""

    #: The order in which backends are tried if nobody names one; empty for all, in our order.
    order: tuple[str, ...] = ()
    limit_seconds: float = 3600.0
    #: A backend that sends nothing for so long hangs.
    silent_seconds: float = 300.0
    #: By backend: tools that need no permission.
    allowed_tools: Mapping[str, tuple[str, ...]] = {}
    #: The command lines of backends that the user named.
    commands: Mapping[str, tuple[str, ...]] = {}
    keep_days: float = 30.0


class Delivery:
    """One task for one backend."""

    def __init__(
        self, dispatcher: "Dispatcher", request: DispatchRequest, driver: Driver, tell: Tell, stop: CancelToken
    ) -> None:
        self._dispatcher, self._request, self._driver, self._tell, self._stop = dispatcher, request, driver, tell, stop
        self._settings, self._conversations = dispatcher.settings, dispatcher.conversations
        self._run = request.run or dispatcher.new_id()
        self._name = request.conversation or self._run
        self._limit = request.limit_seconds or self._settings.limit_seconds
        self._started, self._moment = time.monotonic(), datetime.now(UTC)
        self._transcript: Transcript | None = None
        self._warm: WarmTurn | None = None

    def run(self, ask: Ask) -> tuple[Result, SkillError | None]:
        """Play the turn as a run. Return its result, and the error if it failed."""
        cause: SkillError | None = None
        try:
            with (
                self._place() as conversation,
                self._dispatcher.recorder.recording(self._as_run(conversation)) as record,
            ):
                try:
                    self._play(conversation, ask, record.hear)
                    result = self._done()
                except SkillError as error:
                    result, cause = self._failed(error), error
                record.settle(result)
            self._conversations.forget_before(time.time() - self._settings.keep_days * _DAY)
        except SkillError as error:
            return self._failed(error), error
        return result, cause

    @contextmanager
    def _place(self) -> Iterator[Conversation]:
        """Wait for the conversation, and for its warm backend or a slot. Both are held inside."""
        key = self._driver.name, str(self._request.folder), self._name, self._moment.timestamp()
        opened = self._conversations.open(*key)
        busy = f"another task runs in the conversation {self._name}"
        with ExitStack() as held:
            held.enter_context(self._wait(lambda: self._conversations.hold(opened), busy))
            # Again: the task before this one has changed the backend's session, or begun one.
            conversation = self._conversations.open(*key)
            self._warm = self._reach(conversation)
            if self._warm:
                held.callback(self._warm.close)
            else:
                busy = Message("{count} agents run already", count=self._dispatcher.slots.count)
                held.enter_context(self._wait(self._take_slot, busy))
            yield conversation

    def _reach(self, conversation: Conversation) -> WarmTurn | None:
        """Return the backend that is warm for exactly this task; any other of the conversation is ended."""
        warm, name = self._dispatcher.warm, self._driver.name
        if not warm.holds.is_held(conversation.id):
            return None
        fit = warm.fit(self._driver, self._start(conversation), self._settings.commands.get(name, ()))
        reached, why = warm.reach(conversation.id, name, fit)
        if why:
            self._tell(Event(EventKind.WAITING, f"the warm agent was ended: {why}"))
        return reached

    def _take_slot(self) -> LockedFile | None:
        """An idle warm backend gives its slot away."""
        slots = self._dispatcher.slots
        return slots.take() or (slots.take() if self._dispatcher.warm.make_room() else None)

    def _start(self, conversation: Conversation) -> Start:
        request = self._request
        usual = self._settings.allowed_tools.get(self._driver.name, ())
        allowed = () if request.without_tools else (*usual, *request.allowed_tools)
        return Start(request.folder, conversation.session or None, request.model, allowed, request.max_turns)

    def _wait(self, take: Callable[[], LockedFile | None], why: str) -> LockedFile:
        deadline = self._started + self._limit
        told = False
        while (hold := take()) is None:
            if self._stop.cancelled:
                raise Stopped(Message("it was taken back while it waited"))
            if time.monotonic() > deadline:
                msg = Message("{why}, for more than {limit:g} s", why=why, limit=self._limit)
                error = BackendFailed(self._driver.name, msg)
                error.extra_hint = Message("`skillyard backend stop` ends what is running")
                raise error
            if not told:
                self._tell(Event(EventKind.WAITING, why))
                told = True
            time.sleep(_POLL_SECONDS)
        return hold

    def _play(self, conversation: Conversation, ask: Ask, log: Log) -> None:
        """Whatever happens inside, the backend has ended and the conversation has its final state."""
        transcript = self._transcript = Transcript(self._conversations, conversation, self._run, self._tell, log)
        self._conversations.begin(conversation, self._run, time.time())
        state = ConversationState.STOPPED  # after an interrupt
        try:
            transcript.note(TASK, self._request.enhanced.text)
            self._follow(conversation, transcript, ask)
            state = ConversationState.STOPPED if transcript.cancelled else ConversationState.IDLE
        except SkillError as error:
            transcript.flush()
            transcript.note(EventKind.ERROR, error.msg, {"type": error.type})
            state = ConversationState.CRASHED if "ended" in error.details else ConversationState.FAILED
            raise
        finally:
            transcript.flush()
            self._conversations.move(conversation, state, time.time(), transcript.session)
        self._check_end(transcript)

    def _follow(self, conversation: Conversation, transcript: Transcript, ask: Ask) -> None:
        if self._stop.cancelled:
            raise Stopped(Message("it was taken back before it began"))
        request = self._request
        running = self._warm or self._driver.start(self._start(conversation))
        turn = Turn(request.enhanced.text, self._settings.silent_seconds, self._limit)
        try:
            with (
                self._stop.on_cancel(running.cancel, running.close),
                self._dispatcher.cancel_pipes.listening(conversation.id, self._run, running.cancel),
            ):
                for event in running.turn(turn, transcript.asking(refuse if request.without_tools else ask)):
                    transcript.add(event)
                    if request.without_tools and event.kind is EventKind.TOOL_CALL:
                        msg = Message("it used {text}, and was to use no tools", text=event.text)
                        raise BackendFailed(self._driver.name, msg)
        finally:
            running.close()

    def _check_end(self, transcript: Transcript) -> None:
        name, done = self._driver.name, transcript.done
        if transcript.cancelled:
            stopped = Stopped(Message("{name} was stopped", name=name), details={"stop": transcript.stop})
            stopped.extra_hint = Message(
                "resume the conversation with --session {session} --to {backend}", session=self._name, backend=name
            )
            raise stopped
        if done is None or transcript.stop == TurnEnd.CUT:
            reason = str(done.data.get("reason")) if done else "no end"
            details: dict[str, Json] = {"stop": transcript.stop, "reason": reason}
            raise BackendFailed(name, Message("it gave up: {reason}", reason=reason), details=details)

    def _done(self) -> Result:
        request, prompt = self._request, self._request.prompt
        if prompt:
            summary = RAN.render(request.lang, label=prompt.label)
            data: dict[str, Json] = {"skill": prompt.asked_as, "type": "prompt", "name": prompt.name}
        else:
            summary = Message("{backend} is done").render(request.lang, backend=self._driver.name)
            data = request.as_data()
        return Result(request.agent, State.SUCCESS, summary, {**data, **self._facts()}, self._meta())

    def _failed(self, error: SkillError) -> Result:
        """Return the error as a result, with what was sent and what came before it."""
        result = error_result(error, self._request.agent, self._request.lang, self._meta())
        return result._replace(data={**result.data, **self._facts()})

    def _facts(self) -> dict[str, Json]:
        transcript = self._transcript
        facts: dict[str, Json] = {
            "content": transcript.content if transcript else "",
            "backend": self._driver.name,
            "session": self._name,
            "text": self._request.enhanced.text,
            "agent_session": (transcript.session if transcript else "") or None,
            "usage": dict(transcript.usage) if transcript else {},
            "warm": self._warm is not None,
            "refused": [permission._asdict() for permission in transcript.refused] if transcript else [],
        }
        if self._request.max_turns and not self._driver.bounds_turns:
            facts["not_supported"] = ["max_turns"]
        return facts

    def _meta(self) -> Mapping[str, Json]:
        seconds = time.monotonic() - self._started
        model = (self._transcript.model if self._transcript else None) or self._request.model
        run = self._run if self._transcript else None
        return make_meta(self._request.agent, seconds, self._moment, run=run, model=model)

    def _as_run(self, conversation: Conversation) -> Run:
        """Return the row of the task before it is sent; its agent is the backend."""
        request = self._request
        facts: dict[str, Json] = {
            "task": request.task,
            "text": request.enhanced.text,
            "session": conversation.name,
            "agent_session": conversation.session,
            "model": request.model,
            "cwd": str(request.folder),
            "limit_seconds": request.limit_seconds,
            "max_turns": request.max_turns,
            "job": dict(request.job),
        }
        return Run(
            id=self._run,
            agent=conversation.backend,
            skill=request.prompt.name if request.prompt else "",
            kind="prompt" if request.prompt else "dispatch",
            state=RUNNING,
            started=self._moment.timestamp(),
            job=str(request.job.get("label", "")),
            request=Redactor().mapping({key: value for key, value in facts.items() if value}),
        )
