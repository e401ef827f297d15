"""Warm backends: each is kept running between tasks, for one conversation, by a server process of its own.

The server outlives the command that started it. It describes itself in a file and gets the next task of the
conversation through a socket. It serves only a task that needs exactly what the backend was started with. Any other
task in its conversation ends it first: two processes in one session would not know of each other.

Covered: one turn at a time; a client that disconnects during its turn cancels it; a process of another user, and one
that sends anything but our messages, is disconnected. The server ends with its backend, whatever ended that.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from skillyard.backends.driver import Driver, Running, Start, Turn
from skillyard.backends.json_messages import items, mapping, text
from skillyard.backends.process import Disconnected, JsonConnection, connect, is_ours, open_name
from skillyard.backends.registry import make_drivers
from skillyard.core.backend_events import Ask, Event, EventKind, Permission, TurnEnd, refuse
from skillyard.core.child_process import DEPTH, own_function
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import BackendFailed, RuntimeFailed, SkillError, Stopped, error_as_json, error_from
from skillyard.core.messages import Message
from skillyard.core.values import NOTHING, Json
from skillyard.store.conversations import (
    AgentSlots,
    CancelPipes,
    Conversation,
    ConversationEvent,
    ConversationLocks,
    Conversations,
    ConversationState,
)
from skillyard.store.database import open_database

#: What is written to the pipe `.end` of a server.
_END: Final = "end"
_HELLO_SECONDS: Final = 120.0
_START_SECONDS: Final = 180.0
_ANSWER_SECONDS: Final = 5.0
#: A backend may take a few seconds to end its turn and to save its session; after that its server hangs.
_GRACE_SECONDS: Final = 30.0
_TASK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
#: How often a server checks that its backend and its socket are still there.
_CHECK_SECONDS: Final = 0.2
#: Variables that select an account, a model or a configuration; the others differ from window to window.
_TELLING: Final = re.compile(
    rf"^(HOME|{DEPTH}|(ANTHROPIC|CLAUDE|CODEX|GEMINI|GOOGLE|OPENAI|OPENCODE)_.*|.*_(KEY|TOKEN|URL|PROXY|PROFILE|HOME))$",
    re.IGNORECASE,
)

#: Everything that a backend is started with, except its session.
Fit = Mapping[str, Json]


class WarmBackend(NamedTuple):
    """A warm backend as its server describes it."""

    state: ConversationState = ConversationState.STARTING
    since: float = 0.0
    idle_since: float = 0.0
    idle_seconds: float = 0.0
    pid: int = 0
    model: str = ""
    fit: Fit = NOTHING

    def difference(self, fit: Fit) -> str:
        return ", ".join(name.replace("_", " ") for name in self.fit if self.fit[name] != fit.get(name))


class WarmBackends:
    """All warm backends of this user, in all processes. `folder` has their locks, files and sockets."""

    def __init__(self, folder: Path, version: str, database: Path, lock_seconds: float, slots: int) -> None:
        """`version` is ours: a server of another version may speak otherwise."""
        self._folder, self._version, self._ends = folder, version, CancelPipes(folder, ".end")
        self._turns = ConversationLocks(folder)
        self.holds = self._turns.warm()
        self._for_server: dict[str, Json] = {"database": str(database), "lock_seconds": lock_seconds, "slots": slots}

    def fit(self, driver: Driver, start: Start, command: tuple[str, ...], env: Mapping[str, str] = os.environ) -> Fit:
        """Raise AgentNotInstalled."""
        telling = "\0".join(f"{name}={env[name]}" for name in sorted(env) if _TELLING.match(name))
        return {
            "version": self._version,
            "program": str(driver.locate()),
            "command": list(command),
            "folder": str(start.folder),
            "model": start.model,
            "allowed_tools": list(start.allowed_tools),
            "permissions": start.profile,
            "max_turns": start.max_turns,
            "environment": hashlib.sha256(telling.encode("utf-8", "surrogateescape")).hexdigest(),
        }

    def socket(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}.sock"

    def list(self) -> dict[int, WarmBackend]:
        return {each: warm for each in self.holds.list() if (warm := self.find(each))}

    def find(self, conversation_id: int) -> WarmBackend | None:
        if not self.holds.is_held(conversation_id):
            return None
        try:
            found = json.loads((self._folder / f"{conversation_id}.state").read_bytes())
        except (OSError, ValueError):
            return WarmBackend()
        return WarmBackend(**{**found, "state": ConversationState(found["state"])})

    def start(
        self, conversation: Conversation, fit: Fit, idle_seconds: float, env: Mapping[str, str]
    ) -> tuple[WarmBackend, bool]:
        """Return the warm backend, and whether it was running before. Raise what keeps it from starting."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            warm = self.find(conversation.id)
            if warm is None:
                if self._spawn(conversation, fit, idle_seconds, env):
                    return self.find(conversation.id) or WarmBackend(), False
            elif warm.state is ConversationState.STARTING:
                time.sleep(_POLL_SECONDS)
            elif not (other := warm.difference(fit)):
                return warm, True
            elif not self._end_idle(conversation.id):
                name = conversation.name
                msg = Message("a task runs in the conversation {name}, with another {other}", name=name, other=other)
                raise BackendFailed(conversation.backend, msg)
        msg = Message("it did not start within {start_seconds:g} s", start_seconds=_START_SECONDS)
        raise BackendFailed(conversation.backend, msg)

    def _spawn(self, conversation: Conversation, fit: Fit, idle_seconds: float, env: Mapping[str, str]) -> bool:
        """Return False if another process starts one already."""
        request = {**self._for_server, "folder": str(self._folder), "conversation": conversation.id}
        words = json.dumps({**request, "idle_seconds": idle_seconds, "fit": dict(fit)})
        log = self._folder / f"{conversation.id}.log"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            os.fdopen(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as sink,
            subprocess.Popen(
                own_function(__name__, "serve", words),
                env={**env, "SKILLYARD_HOME": str(self._folder.parent)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            ) as process,
        ):
            line = process.stdout.readline() if process.stdout else b""
        if not line:
            msg = Message("the process that was to keep it warm ended; {log} may say why", log=log)
            raise BackendFailed(conversation.backend, msg)
        answer = json.loads(line)
        if "error" in answer:
            raise error_from(answer)
        return bool(answer["ready"])

    def reach(self, conversation_id: int, backend: str, fit: Fit) -> "tuple[WarmTurn | None, str]":
        """Reserve the next turn. If that fails the backend is ended, and the text says why. Hold the conversation."""
        warm = self.find(conversation_id)
        if warm is None:
            return None, ""
        why = ""
        if other := warm.difference(fit):
            why = f"it was started with another {other}"
        elif warm.state is not ConversationState.STARTING and (client := connect(self.socket(conversation_id))):
            with contextlib.suppress(Disconnected):
                return WarmTurn(backend, client, client.receive(_ANSWER_SECONDS).get("session")), ""
            client.close()
            why = "it does not answer"
        self.end(conversation_id)
        return None, why

    def end(self, conversation_id: int) -> bool:
        """Return whether there was one. Raise BackendFailed if it does not end."""
        was_there = self.holds.is_held(conversation_id)
        deadline = time.monotonic() + _GRACE_SECONDS
        while self.holds.is_held(conversation_id):
            self._ends.cancel(conversation_id, _END)
            if time.monotonic() > deadline:
                raise BackendFailed("skillyard", Message("the process that keeps an agent warm hangs"))
            time.sleep(_POLL_SECONDS)
        return was_there

    def make_room(self) -> bool:
        """End the one that has been idle for the longest: a task needs its slot. Return whether there was one."""
        idle = [(warm.idle_since, each) for each, warm in self.list().items() if warm.state is ConversationState.IDLE]
        return any(self._end_idle(each) for _, each in sorted(idle))

    def _end_idle(self, conversation_id: int) -> bool:
        """Whoever plays a turn holds the conversation: a backend with a turn is left alone."""
        hold = self._turns.take(conversation_id)
        if hold is None:
            return False
        with hold:
            return self.end(conversation_id)


class WarmTurn:
    """The next turn of a warm backend, and only that. To disconnect, in whatever way, cancels it."""

    def __init__(self, backend: str, connection: JsonConnection, session: Json) -> None:
        self._backend, self._connection, self._session = backend, connection, session
        self._stopped = False
        self._give_up = threading.Timer(_GRACE_SECONDS, connection.close)
        self._give_up.daemon = True

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        try:
            self._connection.send(turn._asdict())
            while True:
                message = self._connection.receive(turn.limit_seconds + _GRACE_SECONDS)
                if "error" in message:
                    raise error_from(message)
                if "ask" in message:
                    self._connection.send({"allowed": ask(Permission(*map(text, items(message["ask"]))))})
                    continue
                kind = EventKind(text(message.get("kind")))
                yield Event(kind, text(message.get("text")), mapping(message.get("data")))
                if kind is EventKind.DONE:
                    return
        except (Disconnected, ValueError):
            if not self._stopped:
                reason, why = "the warm agent ended without an answer: its keeper is gone", "its keeper is gone"
                details: dict[str, Json] = {"session": self._session, "ended": why}
                raise BackendFailed(self._backend, reason, details=details) from None
            yield Event(EventKind.DONE, data={"stop": TurnEnd.CANCELLED.value, "session": self._session})
        finally:
            self.close()

    def cancel(self) -> None:
        """The server learns of it from our end of the connection, and sends the rest of the turn."""
        self._stopped = True
        with contextlib.suppress(RuntimeError):  # it was called before
            self._give_up.start()
        self._connection.finish()

    def close(self) -> None:
        self._stopped = True
        self._give_up.cancel()
        self._connection.close()


def serve() -> None:
    """Run the server process: `sys.argv` has the request, and stdout gets an answer of one line."""
    if os.fork():
        os._exit(0)  # so that nobody has to wait for the server's end
    try:
        _serve(json.loads(sys.argv[1]))
    except SkillError as error:
        _answer(error_as_json(error))
    except (OSError, sqlite3.Error) as error:
        _answer(error_as_json(RuntimeFailed(str(error))))


def _answer(message: Mapping[str, Json]) -> bool:
    """Return whether anybody reads it. Later answers go to the log."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        return False
    finally:
        os.dup2(2, 1)
    return True


def _serve(request: Mapping[str, Any]) -> None:
    folder, conversation_id = Path(request["folder"]), int(request["conversation"])
    holds, slots = ConversationLocks(folder), AgentSlots(folder, request["slots"])
    with contextlib.ExitStack() as held:
        lock = holds.warm().take(conversation_id)
        if lock is None:
            _answer({"ready": False})
            return
        held.enter_context(lock)
        (folder / f"{conversation_id}.state").unlink(missing_ok=True)  # of a server that was killed
        conversations = Conversations(open_database(Path(request["database"]), request["lock_seconds"]), holds)
        conversation = conversations.get(conversation_id)
        turn_lock = conversations.hold(conversation) if conversation else None
        if conversation is None or turn_lock is None:
            msg = Message("a task runs in the conversation {session}", session=conversation and conversation.name)
            raise BackendFailed("skillyard", msg)
        with turn_lock:  # the backend's session must not change while the backend reads it
            slot = slots.take()
            if slot is None:
                raise BackendFailed(conversation.backend, Message("{count} agents run already", count=slots.count))
            held.enter_context(slot)
            server = _WarmServer(folder, conversation_id, mapping(request["fit"]), request["idle_seconds"])
            held.callback(server.close)
            stop = partial(server.end, Message("it was stopped"))
            held.enter_context(CancelPipes(folder, ".end").listening(conversation_id, _END, stop))
            signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop).start())
            server.open(conversations.get(conversation_id) or conversation)
            conversations.record(conversation, ConversationEvent("", time.time(), "warm", "an agent is kept warm"))
        if not _answer({"ready": True}):
            server.end("whoever started it went away")
        why = f"the warm agent ends: {server.run()}"
        conversations.record(conversation, ConversationEvent("", time.time(), "warm", why))


class _WarmServer:
    """Keeps one backend. Its main thread calls `open` and `run`, any thread calls `end`."""

    def __init__(self, folder: Path, conversation_id: int, fit: Fit, idle_seconds: float) -> None:
        self._path, self._state_file = folder / f"{conversation_id}.sock", folder / f"{conversation_id}.state"
        now, model = time.time(), text(fit.get("model"))
        self._warm = WarmBackend(ConversationState.STARTING, now, now, idle_seconds, os.getpid(), model, fit)
        self._lock = threading.Lock()
        #: Whoever is being served, and why the server ends.
        self._client: JsonConnection | None = None
        self._why = ""
        self._running: Running | None = None
        self._move(ConversationState.STARTING)
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(_CHECK_SECONDS)
        with open_name(self._path) as name:
            self._listener.bind(name)
        self._path.chmod(0o600)
        self._listener.listen()
        self._inode = self._path.stat().st_ino

    def _move(self, state: ConversationState) -> None:
        now = time.time() if state is ConversationState.IDLE else self._warm.idle_since
        self._warm = self._warm._replace(state=state, idle_since=now)
        fresh = self._state_file.with_suffix(".new")
        fresh.write_text(json.dumps(self._warm._asdict(), default=dict), "ascii")
        fresh.replace(self._state_file)

    def open(self, conversation: Conversation) -> None:
        """Start the backend. Raise the errors of a turn, and Stopped."""
        backend, fit = conversation.backend, self._warm.fit
        command, tools = (tuple(map(text, items(fit.get(name)))) for name in ("command", "allowed_tools"))
        driver = make_drivers(os.environ, {backend: command} if command else {})[backend]
        profile = PermissionProfile(told) if (told := text(fit.get("permissions"))) else None
        start = Start(
            Path(conversation.folder),
            conversation.session or None,
            self._warm.model or None,
            tools,
            profile=profile,
        )
        with self._lock:
            running = self._running = driver.start(start)
        try:
            if not self._why:
                running.hello(_HELLO_SECONDS)
        except SkillError:
            if not self._why:
                raise
        if self._why:
            raise Stopped(Message("{name} was stopped while it started", name=backend))
        self._move(ConversationState.IDLE)

    def run(self) -> str:
        """Serve one client after the other. Return why the server ends."""
        while self._running and not self._why:
            try:
                inode = self._path.stat().st_ino
            except OSError:
                inode = 0
            if not self._running.alive():
                return "the agent ended"
            if time.time() >= self._warm.idle_since + self._warm.idle_seconds:
                return f"nothing was to do for {self._warm.idle_seconds:g} s"
            if inode != self._inode:
                return "its socket was removed"
            with contextlib.suppress(TimeoutError):
                accepted, _ = self._listener.accept()
                if is_ours(accepted):
                    self._serve(JsonConnection(accepted), self._running)
                accepted.close()
        return self._why

    def end(self, why: str) -> None:
        with self._lock:
            self._why = self._why or why
            if self._warm.state is ConversationState.RUNNING and self._running:
                self._running.cancel()
            elif self._client:
                self._client.close()
            elif self._warm.state is ConversationState.STARTING and self._running:
                self._running.close()

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        self._state_file.unlink(missing_ok=True)
        if self._running:
            self._running.close()

    def _serve(self, client: JsonConnection, running: Running) -> None:
        with self._lock:
            self._client = client
        last: dict[str, Json] = {}
        with contextlib.suppress(Disconnected):
            client.send({"session": running.session})
            message = client.receive(_TASK_SECONDS)
            match [message.get(name) for name in Turn._fields]:
                case [str(task), int() | float() as silent_seconds, int() | float() as limit_seconds]:
                    self._move(ConversationState.RUNNING)
                    last = self._play(client, running, Turn(task, silent_seconds, limit_seconds))
        with self._lock:
            self._client = None
            self._move(ConversationState.IDLE)
        if last:  # only now: then the next task may come
            with contextlib.suppress(Disconnected):
                client.send(last)
        client.close()

    def _play(self, client: JsonConnection, running: Running, turn: Turn) -> dict[str, Json]:
        """Return the last message. Raise Disconnected."""
        answers: SimpleQueue[bool] = SimpleQueue()

        def ask(permission: Permission) -> bool:
            client.send({"ask": list(permission)})
            return answers.get()

        def hear() -> None:
            """A client that disconnects cancels its turn, and never the turn of another."""
            with contextlib.suppress(Disconnected):
                while isinstance(allowed := client.receive().get("allowed"), bool):
                    answers.put(allowed)
            with self._lock:
                if self._client is client:
                    running.cancel()
            answers.put(False)

        threading.Thread(target=hear, daemon=True).start()
        last: dict[str, Json] = {}
        try:
            for event in running.turn(turn, ask):
                last = {"kind": event.kind.value, "text": event.text, "data": dict(event.data)}
                if event.kind is not EventKind.DONE:
                    client.send(last)
        except Disconnected:
            running.close()
            raise
        except SkillError as error:
            return error_as_json(error)
        return last
