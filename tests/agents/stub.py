"""A model on loopback that says what it was told to say, and keeps what it was asked.

One server speaks all three APIs (`wire`), so it knows by the path which agent asks. Each request of an agent takes the
next turn of the script (`turns`). What agents ask on the side, a title say, is answered but takes no turn.
"""

import json
import select
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.agents.turns import Break, Turn, answer, broken, call, error, hang
from tests.agents.wire import WIRES, Body, Event, Wire, failure

__all__ = ["Break", "Received", "Stub", "Turn", "answer", "broken", "call", "error", "hang", "open_stub"]

CEILING_SECONDS = 180
#: What agents ask on the side, by words of the instructions that they send with it.
ASIDES = (
    "You are a title generator",  # opencode, for each new session
    "Generate a concise, sentence-case title",  # claude
)


class Received:
    """One request: all of it, and what was played."""

    def __init__(self, wire: Wire, headers: Mapping[str, str], body: Body) -> None:
        self.wire, self.headers, self.body = wire, dict(headers), body
        self.agent = wire.agent
        self.turn: Turn | None = None
        #: True while a `hang()` is held; the other when the agent went away before its answer was complete.
        self.held = self.hung_up = False

    def __repr__(self) -> str:
        return f"<{self.agent} asked {self.user_text[:80]!r}, {len(self.results)} results, got {self.turn}>"

    @property
    def aside(self) -> bool:
        """Something that the agent wants for itself, not the conversation."""
        return self.body.get("max_tokens") == 1 or any(words in self.system for words in ASIDES)

    @property
    def system(self) -> str:
        """The instructions: the system prompt, and what codex says as the developer."""
        return self.wire.system(self.body)

    @property
    def user_texts(self) -> list[str]:
        """Every text that came in the place of the user, the agent's own reminders among them."""
        return [text for message in self.wire.users(self.body) for text in message]

    @property
    def user_text(self) -> str:
        """The last of them: what was asked."""
        return self.user_texts[-1] if self.user_texts else ""

    @property
    def results(self) -> list[str]:
        """The results of the tools that were called so far."""
        return self.wire.results(self.body)

    @property
    def tools(self) -> list[str]:
        return [tool.whole for tool in self.wire.tools(self.body)]

    @property
    def text(self) -> str:
        """The whole request as one text, to look for something anywhere in it."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def conversation(self) -> list[Any]:
        return self.wire.conversation(self.body)


class Stub:
    """The server. `url` is its address; clients add `/v1/…`."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.mistakes: list[BaseException | None] = []
        self._scripts: list[tuple[str, list[Turn]]] = []
        self._failed: tuple[list[Any], Turn, int] | None = None
        self._change = threading.Condition()
        self._released = threading.Event()
        self._servers: list[_Server] = []
        self._folder = Path(tempfile.mkdtemp(prefix="stub-"))  # a short path: a socket's name has 108 bytes
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._serve(listener)
        #: Where a process in a network of its own hands in a listening socket, to be served as well (`offline`).
        self.door = self._folder / "door"
        self._porter = socket.socket(socket.AF_UNIX)
        self._porter.bind(str(self.door))
        self._porter.listen()
        threading.Thread(target=self._open_the_door, daemon=True).start()

    # What it will say.

    def play(self, *turns: Turn, when: str = "") -> None:
        """Adds turns to the script; with `when`, a script of their own for requests that have this text in them."""
        with self._change:
            self._scripts.append((when, list(turns)))

    def replay(self, *turns: Turn) -> None:
        """Forget the script and what failed, and play this one."""
        with self._change:
            self._scripts, self._failed = [], None
        self.play(*turns)

    def release(self) -> None:
        """Lets every `hang()` go on, those that come later too."""
        self._released.set()

    @property
    def left(self) -> list[Turn]:
        """The turns that nobody has asked for yet."""
        return [turn for _, turns in self._scripts for turn in turns]

    # What it was asked.

    def asked(self, agent: str | None = None) -> list[Received]:
        """The requests of a conversation, in order; not what was asked on the side."""
        return [r for r in list(self.requests) if not r.aside and agent in {None, r.agent}]

    def last(self, agent: str | None = None) -> Received:
        asked = self.asked(agent)
        assert asked, f"{agent or 'no agent'} asked anything"
        return asked[-1]

    def last_user_text(self, agent: str | None = None) -> str:
        return self.last(agent).user_text

    def wait_for(self, condition: Callable[[], object], seconds: float = CEILING_SECONDS) -> None:
        """Until it is so. It is looked at whenever a request comes, is held, or is given up."""
        deadline = time.monotonic() + seconds
        with self._change:
            while not condition():
                assert time.monotonic() < deadline, f"not within {seconds} s; asked so far: {self.requests}"
                self._change.wait(0.1)  # what is waited for may be somebody else's doing

    def wait_until_held(self, seconds: float = CEILING_SECONDS) -> Received:
        """Until a `hang()` holds a request."""
        self.wait_for(lambda: any(r.held for r in self.requests), seconds)
        return next(r for r in self.requests if r.held)

    def wait_until_hung_up(self, seconds: float = CEILING_SECONDS) -> Received:
        """Until an agent goes away while it is held."""
        self.wait_for(lambda: any(r.hung_up for r in self.requests), seconds)
        return next(r for r in self.requests if r.hung_up)

    # How it serves.

    def close(self) -> None:
        self.release()
        self._porter.close()
        for server in list(self._servers):
            server.shutdown()
            server.server_close()
        shutil.rmtree(self._folder)

    def _serve(self, listener: socket.socket) -> None:
        server = _Server(listener, self)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def _open_the_door(self) -> None:
        while True:
            try:
                visitor, _ = self._porter.accept()
            except OSError:
                return  # closed
            with visitor:
                _, handed, _, _ = socket.recv_fds(visitor, 1, 1)
                for descriptor in handed:
                    self._serve(socket.socket(fileno=descriptor))
                visitor.sendall(b"!")

    def _receive(self, received: Received) -> Turn:
        with self._change:
            turn = self._choose(received)
            received.turn = turn
            self.requests.append(received)
            self._change.notify_all()
        return turn

    def _choose(self, received: Received) -> Turn:
        if received.aside:
            return answer("A title")
        conversation = received.conversation
        if self._failed is not None:
            failed, turn, times = self._failed
            if failed == conversation and (turn.times is None or times < turn.times):
                self._failed = (failed, turn, times + 1)
                return turn
        self._failed = None
        for when, turns in self._scripts:
            if turns and when in received.text:
                turn = turns.pop(0)
                if turn.status != 200:
                    self._failed = (conversation, turn, 1)
                return turn
        return answer("The stub has nothing more to say.")

    def _hold(self, received: Received, connection: socket.socket) -> bool:
        """False when the agent goes away before the release."""
        self._mark(received, held=True)
        while not self._released.wait(0.02):
            readable, _, _ = select.select([connection], [], [], 0)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                self._mark(received, held=False)
                return False
        self._mark(received, held=False)
        return True

    def _mark(self, received: Received, **flags: bool) -> None:
        with self._change:
            for name, value in flags.items():
                setattr(received, name, value)
            self._change.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, stub: Stub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.stub = listener, stub

    def handle_error(self, *_request: Any) -> None:
        """An agent may go away at any time; anything else is a mistake of the stub, and fails its test."""
        if not isinstance(found := sys.exception(), ConnectionError):
            self.stub.mistakes.append(found)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the library
        pass

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/v1/models":
            models = [{"id": "m", "object": "model", "type": "model", "created": 1, "owned_by": "stub"}]
            self._json(200, {"object": "list", "data": models, "models": [], "has_more": False})
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": f"the stub has no {self.path}"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            self._json(200, {"input_tokens": 1})
        elif path in WIRES:
            self._model(WIRES[path](), body)
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": f"the stub has no {self.path}"}})

    def _model(self, wire: Wire, body: Body) -> None:
        received = Received(wire, dict(self.headers.items()), body)
        turn = self.server.stub._receive(received)
        try:
            if turn.status != 200:
                self._json(turn.status, failure(wire, turn))
            elif body.get("stream"):
                self._stream(received, turn)
            elif not turn.holds or self.server.stub._hold(received, self.connection):
                self._json(200, wire.whole(body, turn))
            else:
                raise ConnectionAbortedError
        except ConnectionError:
            self.server.stub._mark(received, hung_up=True)
            self.close_connection = True

    def _stream(self, received: Received, turn: Turn) -> None:
        wire, body = received.wire, received.body
        wire.message_id = turn.message_id or wire.message_id
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if turn.breaks is Break.EMPTY:
            return
        self._events(wire.begin(body))
        self._events(wire.say(turn.text))
        if turn.holds:
            if not self.server.stub._hold(received, self.connection):
                raise ConnectionAbortedError
            self._events(wire.say(turn.then))
        end = list(wire.end(body, turn))
        match turn.breaks:
            case Break.CLOSED:
                return
            case Break.RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            case Break.IN_A_LINE:
                self.wfile.write(b'data: {"type": "content_bl')
                return
            case Break.NO_END:
                end.pop()
            case Break.ERROR:
                end = [wire.error("the stub is overloaded")]
            case Break.TWO_ENDS:
                end += end
        self._events(iter(end))

    def _events(self, events: Iterator[Event]) -> None:
        for name, data in events:
            line = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            self.wfile.write((f"event: {name}\n" if name else "").encode() + f"data: {line}\n\n".encode())
            self.wfile.flush()

    def _json(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def open_stub() -> Iterator[Stub]:
    stub = Stub()
    try:
        yield stub
    finally:
        stub.close()
    assert stub.mistakes == []
