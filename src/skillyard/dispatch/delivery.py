"""One task on its way to one backend: it waits for its place, plays its turn and becomes a result.

Covered: two tasks in one conversation run one after the other; the number of backends that run at once is limited, over
all processes; whatever ends a turn, the backend has ended too and the conversation says how; its history is kept. The
backend's own session is resumed, also after we were killed during a turn.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from skillyard.backends.driver import Driver, Start, Turn
from skillyard.backends.json_messages import items, shortened
from skillyard.core.backend_events import Ask, Event, EventKind, Permission, Tell, TurnEnd, refuse
from skillyard.core.cancel_token import CancelToken
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import BackendFailed, NotGranted, SkillError, TurnCancelled
from skillyard.core.messages import RAN, Message
from skillyard.core.result import Clock, Result, error_result
from skillyard.core.secrets import Redactor
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.dispatch.request import DispatchRequest
from skillyard.dispatch.text import EarlierTurn
from skillyard.dispatch.warm import WarmTurn
from skillyard.store.conversations import Conversation, ConversationEvent, Conversations, ConversationState
from skillyard.store.locks import LockedFile
from skillyard.store.runs import RUNNING, Run

if TYPE_CHECKING:
    from skillyard.dispatch.dispatcher import Dispatcher

_DAY = 86_400
_POLL_SECONDS = 0.1
#: The history's word for what was sent, beside the kinds of events.
_TASK: Final = "task"
#: Whole lines wait this long, so that not every word is written to the disk.
_KEEP_SECONDS = 0.5
_LONGEST_LINE = 10_000
#: Of what was refused a summary has so many, and so much of each.
_MOST_TOLD, _MOST_SAID = 3, 60


def earlier_turns(conversations: Conversations, folder: str, name: str, backend: str) -> tuple[EarlierTurn, ...]:
    """Return the turns that other backends had in the conversation since this one had its last, the oldest first."""
    own = conversations.find(backend, folder, name)
    since = own.last if own and own.session else 0.0
    found: list[tuple[float, EarlierTurn]] = []
    for talk in conversations.list(name=name, folder=folder):
        if talk.backend == backend or talk.last <= since:
            continue
        for _, event in conversations.history(talk):
            if event.told == _TASK and event.at > since:
                asked = event.data.get("task")
                found.append((event.at, EarlierTurn(talk.backend, asked if isinstance(asked, str) else event.text, "")))
            elif event.told == EventKind.DONE and event.at > since and found and found[-1][1].backend == talk.backend:
                found[-1] = (found[-1][0], found[-1][1]._replace(answer=event.text))
    return tuple(turn for _, turn in sorted(found))


class Transcript:
    """The events of one turn: passed on at once, kept as history, and joined to the answer.

    Text comes in pieces that may cut a secret in two. It is kept in whole lines, with what looks like a secret masked.
    """

    def __init__(
        self,
        conversations: Conversations,
        conversation: Conversation,
        run: str,
        tell: Tell,
        log: Callable[[bytes], object],
    ) -> None:
        """`log` is the run's own: it gets the text, and the names of the tools."""
        self._conversations, self._conversation, self._run = conversations, conversation, run
        self._tell, self._log = tell, log
        self._redact = Redactor()
        self._pending, self._kept_at = "", 0.0
        self._message: Json = None
        #: The backend's own session and model, once it reported them.
        self.session = conversation.session
        self.model: Json = None
        self._pieces: list[str] = []
        self.usage: Mapping[str, Json] = NOTHING
        self.refused: list[Permission] = []
        #: The names of the tools that succeeded.
        self.succeeded: list[str] = []
        self._tools: dict[Json, str] = {}
        #: A `TurnEnd` once the turn is over, and the backend's own word for it.
        self.stop, self.reason = "", "no end"

    @property
    def content(self) -> str:
        """The answer, or the part of it that came."""
        return "".join(self._pieces)

    def note(self, kind: str, text: str, data: Mapping[str, Json] = NOTHING) -> None:
        """Add to the history."""
        event = ConversationEvent(self._run, time.time(), kind, self._redact.text(text), self._redact.mapping(data))
        self._conversations.record(self._conversation, event)

    def add(self, event: Event) -> None:
        match event.kind:
            case EventKind.TEXT:
                self._add_text(event)
                self._log(event.text.encode("utf-8", "replace"))
            case EventKind.TOOL_RESULT if event.data.get("ok"):
                self.succeeded.append(self._tools.get(event.data.get("id"), ""))
            case EventKind.TOOL_CALL:
                self._tools[event.data.get("id")] = event.text
                self._log(f"\n→ {event.text}\n".encode("utf-8", "replace"))
            case EventKind.STARTED:
                self.session = str(event.data.get("session") or self.session)
                self.model = event.data.get("model")
                self._conversations.move(self._conversation, ConversationState.RUNNING, time.time(), self.session)
            case EventKind.USAGE:
                self.usage = event.data
            case EventKind.ERROR:
                self._pieces, self._message = [], None  # it tries again: what came before is void
                self._log(f"\n→ {event.text}\n".encode("utf-8", "replace"))
            case EventKind.DONE:
                self._pieces = [event.text]
                self.stop, self.reason = str(event.data.get("stop")), str(event.data.get("reason"))
                self.session = str(event.data.get("session") or self.session)
                denied = [Permission(*map(str, items(each))) for each in items(event.data.get("denied"))]
                self.refused += [each for each in denied if each not in self.refused]
        if event.kind is not EventKind.TEXT:
            self.flush()
            self.note(event.kind, event.text, event.data)
        self._tell(event)

    def flush(self) -> None:
        if self._pending:
            self.note(EventKind.TEXT, self._pending)
            self._pending = ""
        self._kept_at = time.monotonic()

    def asking(self, ask: Ask) -> Ask:
        """Wrap `ask` so that its answers are recorded."""

        def asked(permission: Permission) -> bool:
            allowed = ask(permission)
            if not allowed:
                self.refused.append(permission)
            self.note("permission", permission.says, {"tool": permission.tool, "allowed": allowed})
            return allowed

        return asked

    def _add_text(self, event: Event) -> None:
        if event.data.get("message") != self._message:
            self.flush()
            self._pieces, self._message = [], event.data.get("message")
        self._pieces.append(event.text)
        self._pending += event.text
        if time.monotonic() - self._kept_at > _KEEP_SECONDS:
            lines, end, rest = self._pending.rpartition("\n")
            if end:
                self._pending = lines + end
                self.flush()
                self._pending = rest
            elif len(rest) > _LONGEST_LINE:
                self.flush()


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
        self._clock = Clock()
        self._transcript: Transcript | None = None
        self._warm: WarmTurn | None = None

    def run(self, ask: Ask) -> Result:
        """Play the turn as a run."""
        try:
            with (
                self._place() as conversation,
                self._dispatcher.recorder.recording(self._as_run(conversation)) as record,
            ):
                try:
                    self._play(conversation, ask, record.hear)
                    result = self._done()
                except SkillError as error:
                    result = self._failed(error)
                result = record.settle(result)
            self._conversations.forget_before(time.time() - self._dispatcher.keep_days * _DAY)
        except SkillError as error:
            return self._failed(error)
        return result

    @contextmanager
    def _place(self) -> Iterator[Conversation]:
        """Wait for the conversation, and for its warm backend or a slot. Both are held inside."""
        key = self._driver.name, str(self._request.folder), self._name, self._clock.moment.timestamp()
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

    def _take_slot(self) -> LockedFile | None:
        """An idle warm backend gives its slot away."""
        slots, warm = self._dispatcher.slots, self._dispatcher.warm
        return slots.take() or (slots.take() if warm.make_room() else None)

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

    def _start(self, conversation: Conversation) -> Start:
        request = self._request
        usual = self._settings.allowed_tools.get(self._driver.name, ())
        allowed = () if request.without_tools else (*usual, *request.allowed_tools)
        profile = PermissionProfile.READ if request.without_tools else request.profile
        session = conversation.session or None
        return Start(request.folder, session, request.model, allowed, request.max_turns, profile)

    def _wait(self, take: Callable[[], LockedFile | None], why: str) -> LockedFile:
        waiting = False
        while (hold := take()) is None:
            if self._stop.cancelled:
                raise TurnCancelled(Message("it was taken back while it waited"))
            if self._clock.seconds > self._limit:
                msg = Message("{why}, for more than {limit:g} s", why=why, limit=self._limit)
                advice = Message("`skillyard backend stop` ends what is running")
                raise BackendFailed(self._driver.name, msg, advice=advice)
            if not waiting:
                self._tell(Event(EventKind.WAITING, why))
                waiting = True
            time.sleep(_POLL_SECONDS)
        return hold

    def _play(self, conversation: Conversation, ask: Ask, log: Callable[[bytes], object]) -> None:
        """Whatever happens inside, the backend has ended and the conversation has its final state."""
        transcript = self._transcript = Transcript(self._conversations, conversation, self._run, self._tell, log)
        self._conversations.begin(conversation, self._run, time.time())
        state = ConversationState.STOPPED  # after an interrupt
        try:
            task, whole = self._request.task, self._request.enhanced.text
            transcript.note(_TASK, whole, NOTHING if task == whole else {"task": task})
            self._follow(conversation, transcript, ask)
            state = ConversationState.STOPPED if transcript.stop == TurnEnd.CANCELLED else ConversationState.IDLE
        except SkillError as error:
            transcript.flush()
            transcript.note(EventKind.ERROR, error.msg, {"type": error.type})
            state = ConversationState.CRASHED if "ended" in error.details else ConversationState.FAILED
            raise
        finally:
            transcript.flush()
            self._conversations.move(conversation, state, time.time(), transcript.session)
        name = self._driver.name
        if transcript.stop == TurnEnd.CANCELLED:
            resume = {"session": self._name, "backend": name}
            advice = Message("resume the conversation with --session {session} --to {backend}", **resume)
            msg = Message("{name} was stopped", name=name)
            raise TurnCancelled(msg, details={"stop": transcript.stop}, advice=advice)
        if transcript.refused and not transcript.content.strip():
            raise self._not_granted(transcript)
        if transcript.refused and transcript.stop == TurnEnd.CUT:  # opencode ends its turn at the first refusal
            return
        if transcript.stop in {"", TurnEnd.CUT}:
            details: dict[str, Json] = {"stop": transcript.stop, "reason": transcript.reason}
            raise BackendFailed(name, Message("it gave up: {reason}", reason=transcript.reason), details=details)

    def _follow(self, conversation: Conversation, transcript: Transcript, ask: Ask) -> None:
        if self._stop.cancelled:
            raise TurnCancelled(Message("it was taken back before it began"))
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

    def _not_granted(self, transcript: Transcript) -> NotGranted:
        """The turn came to nothing because of what was refused."""
        command = f"skillyard dispatch TASK --to {self._driver.name} --session {self._name} --permissions full"
        return NotGranted(_told(transcript.refused), command, details={"stop": transcript.stop})

    def _done(self) -> Result:
        request, prompt = self._request, self._request.prompt
        if prompt:
            summary = RAN.render(request.lang, label=prompt.label)
            data: dict[str, Json] = {"skill": prompt.asked_as, "type": "prompt", "name": prompt.name}
        else:
            summary = Message("{backend} is done").render(request.lang, backend=self._driver.name)
            data = request.as_data()
        state, facts = State.SUCCESS, self._facts()
        if self._transcript and self._transcript.refused:
            refused = _told(self._transcript.refused)
            template = Message("{summary}, but not all of it was allowed: {refused}")
            summary = template.render(request.lang, summary=summary, refused=refused)
            state = State.PARTIAL
            failed: list[Json] = [f"{each.tool}: {each.says}" for each in self._transcript.refused]
            facts |= {"succeeded": list[Json](self._transcript.succeeded), "failed": failed}
        return Result(request.agent, state, summary, {**data, **facts}, self._meta())

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
            "permissions": self._request.profile,
            "refused": [permission._asdict() for permission in transcript.refused] if transcript else [],
        }
        if self._request.max_turns and not self._driver.bounds_turns:
            facts["not_supported"] = ["max_turns"]
        return facts

    def _meta(self) -> Mapping[str, Json]:
        model = (self._transcript.model if self._transcript else None) or self._request.model
        return self._clock.meta(self._request.agent, {"run": self._run if self._transcript else None, "model": model})

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
            "permissions": request.profile,
            "job": dict(request.job),
        }
        return Run(
            id=self._run,
            agent=conversation.backend,
            skill=request.prompt.name if request.prompt else "",
            kind="prompt" if request.prompt else "dispatch",
            state=RUNNING,
            started=self._clock.moment.timestamp(),
            job=str(request.job.get("label", "")),
            request=Redactor().mapping({key: value for key, value in facts.items() if value}),
        )


def _told(refused: list[Permission]) -> str:
    told = list(dict.fromkeys(f"{each.tool} ({shortened(each.says, _MOST_SAID)})" for each in refused))
    return ", ".join(told[:_MOST_TOLD]) + (" …" if len(told) > _MOST_TOLD else "")
