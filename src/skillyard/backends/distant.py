"""An agent that another process keeps warm, as one that runs here: its next turn, and only that."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final

from skillyard.backends.driver import Ask, Event, Permission, Stop, Told, Turn, refuse
from skillyard.backends.json_access import mapping, text
from skillyard.backends.wire import Gone, Wire, error_from, event_from
from skillyard.core.errors import BackendFailed
from skillyard.core.values import Json

#: The keeper's own clock ends the turn; if nothing comes so long after that, the keeper itself hangs.
_GRACE_SECONDS: Final = 30.0
_CANCEL: Final[Mapping[str, Json]] = {"cancel": True}


class Distant:
    """A `Running`. Hanging up, however it happens, cancels the turn."""

    def __init__(self, backend: str, wire: Wire, session: str | None) -> None:
        self.backend, self.session = backend, session
        self._wire = wire
        self._telling = threading.Lock()
        self._begun = self._closed = False
        self._cancelled_at: float | None = None

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        deadline = time.monotonic() + turn.limit_seconds + _GRACE_SECONDS
        try:
            with self._telling:
                self._wire.send(turn._asdict())
                self._begun = True
                if self._cancelled_at is not None:
                    self._wire.send(_CANCEL)
            while True:
                message = self._receive(deadline)
                if "error" in message:
                    raise error_from(message, self.backend)
                if "ask" in message:
                    asked = time.monotonic()
                    permission = mapping(message["ask"])
                    allowed = ask(Permission(text(permission.get("tool")), text(permission.get("says"))))
                    deadline += time.monotonic() - asked
                    self._wire.send({"allowed": allowed})
                    continue
                event = event_from(message.get("event"))
                yield event
                if event.told is Told.DONE:
                    return
        except Gone:
            if not self._closed:
                raise self._crashed("its keeper is gone") from None
            # Somebody forced the end: what the other side makes of it is no error.
            yield Event(Told.DONE, data={"stop": Stop.CANCELLED.value, "session": self.session})
        finally:
            self.close()

    def _receive(self, deadline: float) -> dict[str, Json]:
        while True:
            end = deadline if self._cancelled_at is None else min(deadline, self._cancelled_at + _GRACE_SECONDS)
            left = end - time.monotonic()
            if left <= 0:
                raise self._crashed("its keeper does not answer")
            message = self._wire.receive(min(left, 1.0))
            if message is not None:
                return message

    def _crashed(self, why: str) -> BackendFailed:
        reason = f"the warm agent ended without an answer: {why}"
        return BackendFailed(self.backend, reason, details={"session": self.session, "ended": why})

    def hello(self, limit_seconds: float) -> None:
        """Said long ago, by its keeper."""

    def alive(self) -> bool:
        return not self._closed

    def cancel(self) -> None:
        """Before the turn began it is told with it."""
        with self._telling:
            if self._cancelled_at is None:
                self._cancelled_at = time.monotonic()
                if self._begun:
                    with contextlib.suppress(Gone):
                        self._wire.send(_CANCEL)

    def close(self) -> None:
        self._closed = True
        self._wire.close()
