"""The events of one turn: passed on at once, kept as history, and joined to the answer.

Text comes in pieces that may cut a secret in two. It is kept in whole lines, with what looks like a secret masked.
"""

import time
from collections.abc import Callable, Mapping

from skillyard.core.backend_events import Ask, Event, EventKind, Permission, Tell, TurnEnd
from skillyard.core.secrets import Redactor
from skillyard.core.values import NOTHING, Json
from skillyard.store.conversations import Conversation, ConversationEvent, Conversations, ConversationState

Log = Callable[[bytes], object]
#: The history's word for what was sent, beside the kinds of events.
TASK = "task"
#: Whole lines wait this long, so that not every word is written to the disk.
_KEEP_SECONDS = 0.5
_LONGEST_LINE = 10_000


class Transcript:
    """One turn of one conversation."""

    def __init__(
        self, conversations: Conversations, conversation: Conversation, run: str, tell: Tell, log: Log
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
        self.said: list[str] = []
        self.usage: Mapping[str, Json] = NOTHING
        self.refused: list[Permission] = []
        self.done: Event | None = None

    @property
    def content(self) -> str:
        """The answer, or the part of it that came."""
        return self.done.text if self.done else "".join(self.said)

    @property
    def stop(self) -> str:
        return str(self.done.data.get("stop")) if self.done else ""

    @property
    def cancelled(self) -> bool:
        return self.stop == TurnEnd.CANCELLED

    def note(self, told: str, text: str, data: Mapping[str, Json] = NOTHING) -> None:
        """Add to the history."""
        telling = ConversationEvent(self._run, time.time(), told, self._redact.text(text), self._redact.mapping(data))
        self._conversations.record(self._conversation, telling)

    def add(self, event: Event) -> None:
        if event.kind is EventKind.TEXT:
            self._add_text(event)
            self._log(event.text.encode("utf-8", "replace"))
        else:
            if event.kind is EventKind.TOOL_CALL:
                self._log(f"\n→ {event.text}\n".encode("utf-8", "replace"))
            self.flush()
            self._take(event)
            self.note(event.kind, "" if event.kind is EventKind.DONE else event.text, event.data)
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

    def _take(self, event: Event) -> None:
        match event.kind:
            case EventKind.STARTED:
                self.session = str(event.data.get("session") or self.session)
                self.model = event.data.get("model")
                now = time.time()
                self._conversations.move(self._conversation, ConversationState.RUNNING, now, self.session)
            case EventKind.USAGE:
                self.usage = event.data
            case EventKind.DONE:
                self.done = event
                self.session = str(event.data.get("session") or self.session)

    def _add_text(self, event: Event) -> None:
        message = event.data.get("message")
        if message != self._message:
            self.flush()
            self.said.clear()
            self._message = message
        self.said.append(event.text)
        self._pending += event.text
        if time.monotonic() - self._kept_at > _KEEP_SECONDS:
            lines, end, rest = self._pending.rpartition("\n")
            if end or len(rest) > _LONGEST_LINE:
                self._pending = lines + end or rest
                left = rest if end else ""
                self.flush()
                self._pending = left
