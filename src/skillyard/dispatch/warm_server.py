"""Keeps one agent warm, for one conversation, and lets whoever has its next task talk to it.

Covered: one turn at a time; whoever hangs up in the middle of one cancels it; a process of another user, and one that
talks nonsense, is hung up on. The keeper ends with its agent, whatever ended that: a cancelled turn, an error, a crash.
"""

import os
import socket
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from skillyard.backends.driver import Driver, Event, Permission, Running, Start, Told, Turn
from skillyard.backends.wire import Gone, Wire, error_as_json, event_as_json, is_ours, listen
from skillyard.core.errors import SkillError, Stopped
from skillyard.core.values import Json
from skillyard.dispatch.warm import Fit
from skillyard.store.conversations import ConversationState

_HELLO_SECONDS = 120.0
#: How long whoever connected may take to say what it wants, in how many bytes; and then to give its task.
_ASK_SECONDS, _ASK_BYTES = 10.0, 1 << 18
_TASK_SECONDS = 60.0
_MOST_CONNECTIONS = 32
#: How often it looks whether its agent is still there, and its socket.
_LOOK_SECONDS = 0.5
#: What a turn has to end in, when the keeper is told to.
_END_SECONDS = 8.0


class Keeper:
    """One agent from `open` to the end of `wait`; both are called by one thread, tasks come in others."""

    def __init__(self, driver: Driver, start: Start, fit: Fit, idle_seconds: float, path: Path) -> None:
        """Hold the lock that stands for `path`."""
        self._driver, self._start, self._fit = driver, start, fit
        self._idle_seconds, self._path = idle_seconds, path
        self._since = self._idle_since = time.time()
        self._deadline = float("inf")
        self._changed = threading.Condition()
        self._running: Running | None = None
        #: Whose turn it is.
        self._turn: Wire | None = None
        self._state = ConversationState.STARTING
        self._why = ""
        self._room = threading.Semaphore(_MOST_CONNECTIONS)
        self._listener = listen(path)
        self._inode = path.stat().st_ino
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self) -> None:
        """Start the agent. Raises as a turn does, and Stopped."""
        running = self._driver.start(self._start)
        with self._changed:
            self._running = running
        try:
            if not self._why:
                running.hello(_HELLO_SECONDS)
        except SkillError:
            if not self._why:
                raise
        with self._changed:
            if self._why:
                raise Stopped(f"{self._driver.name} was stopped while it started")
            self._rest()

    def wait(self) -> str:
        """Until it is over: then the agent is gone. Why it is."""
        with self._changed:
            while not self._over():
                self._changed.wait(min(_LOOK_SECONDS, max(0.0, self._deadline - time.monotonic())))
            if self._turn and self._running:
                self._running.cancel()
                self._changed.wait_for(lambda: self._turn is None, _END_SECONDS)
        return self._why

    def end(self, why: str) -> None:
        """From any thread."""
        with self._changed:
            self._why = self._why or why
            starting = self._running if self._state is ConversationState.STARTING else None
            self._changed.notify_all()
        if starting:
            starting.close()

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        if self._running:
            self._running.close()

    def _over(self) -> bool:
        if not self._why and self._state is ConversationState.IDLE:
            if self._running is None or not self._running.alive():
                self._why = "the agent ended"
            elif time.monotonic() >= self._deadline:
                self._why = f"nothing was to do for {self._idle_seconds:g} s"
            elif not self._is_there():
                self._why = "its socket was removed"
        return bool(self._why)

    def _is_there(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def _rest(self) -> None:
        """Hold the condition."""
        self._state, self._turn = ConversationState.IDLE, None
        self._idle_since = time.time()
        self._deadline = time.monotonic() + self._idle_seconds
        self._changed.notify_all()

    # -- those who come

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # it was closed
            if is_ours(connection) and self._room.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        wire = Wire(connection)
        try:
            asked = wire.receive(_ASK_SECONDS, _ASK_BYTES) or {}
            match asked.get("do"):
                case "look":
                    wire.send(self._look(asked.get("fit")))
                case "end":
                    wire.send(self._asked_to_end(only_idle=bool(asked.get("only_idle"))))
                case "turn":
                    self._take_turn(wire, asked.get("fit"))
        except Gone:
            return  # whoever it was wants nothing more
        finally:
            wire.close()
            self._room.release()

    def _look(self, fit: Json) -> dict[str, Json]:
        with self._changed:
            return {
                "state": self._state.value,
                "since": self._since,
                "idle_since": self._idle_since,
                "idle_seconds": self._idle_seconds,
                "pid": os.getpid(),
                "model": self._start.model,
                "other": self._other(fit) if isinstance(fit, dict) else "",
            }

    def _asked_to_end(self, *, only_idle: bool) -> dict[str, Json]:
        with self._changed:
            if only_idle and self._state is not ConversationState.IDLE:
                return {"no": "it is busy"}
            self._why = self._why or "it was stopped"
        self.end(self._why)
        return {"ends": True}

    def _take_turn(self, wire: Wire, fit: Json) -> None:
        with self._changed:
            no = self._refusal(fit)
            if not no:
                self._state, self._turn = ConversationState.RUNNING, wire
        if no:
            wire.send({"no": no})
            return
        try:
            wire.send({"ready": True, "session": self._running.session if self._running else None})
            self._play(wire, _turn_from(wire.receive(_TASK_SECONDS)))
        finally:
            self._release(wire)

    def _refusal(self, fit: Json) -> str:
        """Why it is not for this task; nothing where it is."""
        if self._why or self._state is not ConversationState.IDLE:
            return "it is ending, or busy"
        if not isinstance(fit, dict):
            return "nobody said what the task needs"
        other = self._other(fit)
        return f"it was started with another {other}" if other else ""

    def _other(self, fit: Fit) -> str:
        """What of it differs, by name."""
        return ", ".join(name.replace("_", " ") for name in self._fit if self._fit[name] != fit.get(name))

    def _play(self, wire: Wire, turn: Turn) -> None:
        """The last word is told when the next turn may come."""
        running = self._running
        if running is None:
            raise Gone
        answers: SimpleQueue[bool] = SimpleQueue()

        def ask(permission: Permission) -> bool:
            wire.send({"ask": permission._asdict()})
            return answers.get()

        threading.Thread(target=self._hear, args=(wire, answers), daemon=True).start()
        last: Event | None = None
        try:
            for event in running.turn(turn, ask):
                if event.told is Told.DONE:
                    last = event
                else:
                    wire.send({"event": event_as_json(event)})
        except Gone:
            running.close()
            raise
        except SkillError as error:
            self._release(wire)
            wire.send(error_as_json(error))
            return
        self._release(wire)
        if last:
            wire.send({"event": event_as_json(last)})

    def _hear(self, wire: Wire, answers: "SimpleQueue[bool]") -> None:
        try:
            while message := wire.receive():
                if message.get("cancel"):
                    self._cancel(wire)
                elif isinstance(allowed := message.get("allowed"), bool):
                    answers.put(allowed)
                else:
                    break
        except Gone:
            pass  # the same as a cancel
        self._cancel(wire)
        answers.put(False)

    def _cancel(self, wire: Wire) -> None:
        """Never the turn of another."""
        with self._changed:
            if self._turn is wire and self._running:
                self._running.cancel()

    def _release(self, wire: Wire) -> None:
        with self._changed:
            if self._turn is wire:
                self._rest()
                if self._running and not self._running.alive():
                    self._why = self._why or "the agent ended with its turn"


def _turn_from(told: dict[str, Json] | None) -> Turn:
    """Raises Gone."""
    given = [told.get(name) for name in Turn._fields] if told else []
    match given:
        case [str(text), int() | float() as silent_seconds, int() | float() as limit_seconds]:
            return Turn(text, silent_seconds, limit_seconds)
    raise Gone
