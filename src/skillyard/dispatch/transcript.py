"""What an agent says during one turn: told on at once, kept as history, and put together to the answer.

Text comes in pieces that may cut a secret in two. It is kept in whole lines, with what looks like a secret taken out.
"""

import time
from collections.abc import Callable, Mapping

from skillyard.backends.driver import Ask, Event, Permission, Stop, Told
from skillyard.core.secrets import Redactor
from skillyard.core.values import NOTHING, Json
from skillyard.dispatch.order import Tell
from skillyard.store.conversations import Conversation, ConversationEvent, Conversations, ConversationState

Log = Callable[[bytes], object]
#: How what was sent is called in the history, beside the drivers' own words.
TASK = "task"
#: Whole lines wait this long, so that an agent that talks fast does not write to the disk for every word.
_KEEP_SECONDS = 0.5
_LONGEST_LINE = 10_000


class Hearing:
    """One turn of one conversation."""

    def __init__(
        self, conversations: Conversations, conversation: Conversation, run: str, tell: Tell, log: Log
    ) -> None:
        """`log` is the run's own: what is said, and the tools by name, for whoever follows the run."""
        self._conversations, self._conversation, self._run = conversations, conversation, run
        self._tell, self._log = tell, log
        self._redact = Redactor()
        self._pending, self._kept_at = "", 0.0
        self._message: Json = None
        #: The agent's own session and model, once it told them.
        self.session = conversation.session
        self.model: Json = None
        self.said: list[str] = []
        self.usage: Mapping[str, Json] = NOTHING
        self.refused: list[Permission] = []
        self.done: Event | None = None

    @property
    def content(self) -> str:
        """The answer, or as much of it as came."""
        return self.done.text if self.done else "".join(self.said)

    @property
    def stop(self) -> str:
        return str(self.done.data.get("stop")) if self.done else ""

    @property
    def cancelled(self) -> bool:
        return self.stop == Stop.CANCELLED

    def note(self, told: str, text: str, data: Mapping[str, Json] = NOTHING) -> None:
        """Into the history."""
        telling = ConversationEvent(self._run, time.time(), told, self._redact.text(text), self._redact.mapping(data))
        self._conversations.record(self._conversation, telling)

    def hear(self, event: Event) -> None:
        if event.told is Told.TEXT:
            self._add(event)
            self._log(event.text.encode("utf-8", "replace"))
        else:
            if event.told is Told.TOOL_CALL:
                self._log(f"\n→ {event.text}\n".encode("utf-8", "replace"))
            self.flush()
            self._take(event)
            self.note(event.told, "" if event.told is Told.DONE else event.text, event.data)
        self._tell(event)

    def flush(self) -> None:
        if self._pending:
            self.note(Told.TEXT, self._pending)
            self._pending = ""
        self._kept_at = time.monotonic()

    def asking(self, ask: Ask) -> Ask:
        """The same, and what was refused is remembered."""

        def asked(permission: Permission) -> bool:
            allowed = ask(permission)
            if not allowed:
                self.refused.append(permission)
            self.note("permission", permission.says, {"tool": permission.tool, "allowed": allowed})
            return allowed

        return asked

    def _take(self, event: Event) -> None:
        match event.told:
            case Told.STARTED:
                self.session = str(event.data.get("session") or self.session)
                self.model = event.data.get("model")
                now = time.time()
                self._conversations.move(self._conversation, ConversationState.RUNNING, now, self.session)
            case Told.USAGE:
                self.usage = event.data
            case Told.DONE:
                self.done = event
                self.session = str(event.data.get("session") or self.session)

    def _add(self, event: Event) -> None:
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
