"""What every driver offers, how a backend's program is found on this machine, and how a turn is played with it.

Finding a program is cheap; asking it for its version is not (opencode takes seconds), so that is a step of its own.
"""

import json
import os
import platform
import re
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple

from skillyard.backends.json_messages import mapping, shortened, text
from skillyard.backends.process import Process, ProcessEnded
from skillyard.core.backend_events import Ask, Event, EventKind, Permission, TurnEnd, refuse
from skillyard.core.child_process import DEPTH, PROFILE, absolute_entries, deeper
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import AgentNotInstalled, AgentSilent, AgentTooOld, BackendFailed, SkillError, Timeout
from skillyard.core.messages import Message
from skillyard.core.secrets import mask_keys
from skillyard.core.values import Json

_VERSION_SECONDS: Final = 60.0
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
_CPU: Final = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
#: How npm names this machine.
NPM_PLATFORM: Final = f"{platform.system().lower()}-{_CPU}"
#: How long a backend has to end a cancelled turn by itself.
_CANCEL_SECONDS: Final = 3.0
_MOST_WORDS: Final = 500

#: Programs that write nothing and start nothing, whatever their arguments.
_READERS: Final = frozenset(
    (
        "basename",
        "cat",
        "cmp",
        "cut",
        "diff",
        "dirname",
        "du",
        "echo",
        "false",
        "grep",
        "head",
        "ls",
        "nl",
        "pwd",
        "readlink",
        "realpath",
        "stat",
        "tail",
        "test",
        "tr",
        "true",
        "wc",
        "which",
    )
)
#: Nothing that a shell expands, redirects or runs, but for what joins two commands.
_PLAIN: Final = re.compile(r"[\w \t./:,=@%+*?'\"-]+")
_UNSURE: Final = re.compile("[='\"]")
_JOINED: Final = re.compile(r"\|\||&&|\||;")
_CREDENTIALS: Final = re.compile(
    r"log ?in\b|api.?key|credential|unauthori[sz]ed|authenticat|missing environment", re.IGNORECASE
)
_MODEL: Final = re.compile(
    r"\bmodel\b.*(not (found|exist|supported|available)|invalid|unknown)|issue with the selected model", re.IGNORECASE
)


class Start(NamedTuple):
    """Options for the whole life of a backend process. `session` is the backend's own, to resume; None for a new one.

    `profile` is what it may do unasked; None leaves that to its own configuration, and what it asks to `ask`.
    `allowed_tools` need no permission: names as the backend's requests have them; claude also takes its patterns.
    """

    folder: Path
    session: str | None = None
    model: str | None = None
    allowed_tools: tuple[str, ...] = ()
    #: How often it may call its model; only for a driver that `bounds_turns`.
    max_turns: int | None = None
    profile: PermissionProfile | None = None


class Turn(NamedTuple):
    """One task. A backend that sends nothing for `silent_seconds`, while none of its tools runs, hangs."""

    text: str
    silent_seconds: float = 300.0
    limit_seconds: float = 3600.0


class InstalledProgram(NamedTuple):
    program: Path
    version: str


class VisibleSkill(NamedTuple):
    """One skill that a backend lists. Claude Code gives no path, but the owner: "user" or "project"."""

    name: str
    path: str = ""
    owner: str = ""


class SkillsQuestion(NamedTuple):
    """How to make a backend list its skills without calling a model."""

    argv: tuple[str, ...]
    #: Read stdout. Raise ValueError, KeyError, TypeError or AttributeError if it has another form.
    read: Callable[[str], list[VisibleSkill]]
    stdin: str = ""
    env: Mapping[str, str] = {}


class Driver(ABC):
    """Knows one backend: where its program is, how it is started and what its messages mean. Never prints.

    Each module of this room that has a subclass as its `BACKEND` adds one; see `registry`.
    """

    name: str
    #: The program on the PATH, and the environment variable that names another one.
    command: str
    variable = ""
    #: The npm package, and the glob of its binary below a `node_modules`, for this machine.
    package = ""
    native = ""
    #: The oldest version that speaks our protocol; empty if any will do.
    minimum = ""
    login = "start it by hand"
    #: Whether the backend accepts a limit on its calls to the model.
    bounds_turns = False

    def __init__(self, env: Mapping[str, str]) -> None:
        """`env` is the user's: configuration and credentials are the backend's own matter."""
        self._env = env

    @abstractmethod
    def start(self, start: Start) -> "Running":
        """Raise AgentNotInstalled, TooDeep or BackendFailed."""

    def skills_question(self, url: str) -> SkillsQuestion:
        """`url` is that of a port where nobody listens, for a backend that needs an address of a model."""
        raise NotImplementedError

    def as_message(self, line: str) -> Mapping[str, Json] | None:
        """Return the message that a line of stderr stands for, if the backend reports some things only there."""
        del line
        return None

    def locate(self) -> Path:
        """Return the binary without starting it. Raise AgentNotInstalled, with the command that installs it."""
        named = self._env.get(self.variable)
        found = which(named or self.command, path=absolute_entries(self._env))
        if found is None:
            where = f"{self.variable}={named} is no program"
            if not named:
                where = Message("no `{command}` on the PATH", command=self.command)
            raise self._not_installed(Message("{backend} is not installed: {where}", backend=self.name, where=where))
        return self._find_native(Path(found)) or Path(found)

    def _find_native(self, found: Path) -> Path | None:
        """Return the binary that npm's wrapper would start: a wrapper that is killed leaves the backend running."""
        try:
            with found.open("rb") as file:
                if file.read(2) != b"#!" or not self.native:
                    return None
            real = found.resolve()
        except OSError:
            return None
        for folder in real.parents:
            modules = folder if folder.name == "node_modules" else folder / "node_modules"
            for binary in sorted(modules.glob(self.native)):
                if os.access(binary, os.X_OK):
                    return binary
        return None

    def find(self) -> InstalledProgram:
        """Return the program with the version that it prints. Raise AgentNotInstalled or AgentTooOld."""
        path = self.locate()
        if not self.minimum:
            return InstalledProgram(path, "")
        try:
            answer = subprocess.run(
                [path, "--version"],
                env={**self._env, "DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_VERSION_SECONDS,
                check=False,
            ).stdout.decode(errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = Message("{path} does not say its version: {error}", path=path, error=error)
            raise self._not_installed(msg) from None
        version = self.check_version(answer)
        if not version:
            raise self._not_installed(Message("{path} does not say its version", path=path))
        return InstalledProgram(path, version)

    def packaged_version(self) -> str:
        """Return the version that the program's npm package names, without starting it; empty if there is none."""
        try:
            real = self.locate().resolve()
            file = next(found for folder in real.parents if (found := folder / "package.json").is_file())
            return text(mapping(json.loads(file.read_bytes())).get("version"))
        except (AgentNotInstalled, OSError, ValueError, StopIteration):
            return ""

    def check_version(self, text: str) -> str:
        """Return the first version in `text`, or an empty string. Raise AgentTooOld."""
        found = _VERSION.search(text)
        version = found[0] if found else ""
        if version and self.minimum:
            given, least = (tuple(map(int, each.split("."))) for each in (version, self.minimum))
            if given < least:
                raise AgentTooOld(self.name, version, self.minimum, self._install)
        return version

    def _not_installed(self, msg: str) -> AgentNotInstalled:
        return AgentNotInstalled(msg, agent=self.name, command=self._install)

    @property
    def _install(self) -> str:
        return f"npm install -g {self.package}" if self.package else self.command


class _Cancelled(Exception):
    """A cancelled turn did not end by itself in time."""


class Running(ABC):
    """A backend process in one folder and one session: one turn at a time.

    A driver adds `_open` (the handshake), `_play` (one turn) and `_interrupt`. All but the last run in the thread that
    iterates, so only `cancel` and `close` can come from another thread.
    """

    def __init__(self, driver: Driver, start: Start, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the program, one level deeper than we are. Raise TooDeep or BackendFailed."""
        #: The backend's own session, once it is known.
        self.session = start.session
        self._driver, self._start = driver, start
        told = {**env, "PWD": str(start.folder), DEPTH: deeper(env)}
        if start.profile:
            told[PROFILE] = start.profile
        try:
            self._process = Process(tuple(argv), start.folder, told, driver.as_message)
        except (OSError, ValueError) as error:
            raise BackendFailed(driver.name, Message("it could not start: {strerror}", strerror=error)) from None
        self._ask: Ask = refuse
        self._turn = Turn("")
        self._began = self._deadline = 0.0
        self._cancelled_at: float | None = None
        self._opened = self._closed = False
        self._busy = threading.Lock()
        #: The tools that run; meanwhile a silent backend is fine.
        self._tools: set[Json] = set()
        #: The text of the latest message as it came, and its id.
        self._said: list[str] = []
        self._message: Json = None
        #: The final message as the backend itself tells it, once it does; it counts more than what came in pieces.
        self._answer: str | None = None
        #: The backend's own word for a turn that did not end well.
        self._cut = ""
        #: What it refused by itself, without asking.
        self._denied: list[Permission] = []
        #: Whether it has begun a turn, and why it last tried again.
        self._spoke, self._trouble = False, ""

    @abstractmethod
    def _open(self) -> None:
        """Do the handshake, within the first turn and its limits."""

    @abstractmethod
    def _play(self, task: str) -> Iterator[Event]: ...

    @abstractmethod
    def _interrupt(self) -> None:
        """Ask the backend to stop its turn. Called from any thread; must not block."""

    def _greet(self) -> None:
        """Do the handshake if no turn follows. Differs from `_open` for a backend that is silent in that."""
        self._open()

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        """Yield STARTED first and DONE last. Raise BackendFailed, Timeout or AgentTooOld.

        `ask` is called between two events, in the thread that iterates. An error, and a caller that stops iterating
        early, ends the process.
        """
        if not self._busy.acquire(blocking=False):
            raise BackendFailed(self._driver.name, Message("it is still busy with another turn"))
        try:
            yield from self._run(turn, ask)
        finally:
            self._busy.release()

    def hello(self, limit_seconds: float) -> None:
        """Do only the handshake, without calling a model. Raise the same errors as `turn`."""
        self._begin(Turn("", limit_seconds, limit_seconds))
        try:
            self._greet()
            self._opened = True
        except (SkillError, ProcessEnded, _Cancelled) as error:
            raise self._as_error(error) from None

    def alive(self) -> bool:
        """Whether another turn is possible: the process runs and nobody closed it. Thread-safe."""
        return not (self._stopped or self._process.ended)

    def cancel(self) -> None:
        """End the turn with DONE (`cancelled`), and the process with it. Return at once. Thread-safe."""
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
            self._interrupt()
            self._process.wake()

    def close(self) -> None:
        """End the whole process tree. Thread-safe, and may be called again."""
        self._closed = True
        self._process.close()

    @property
    def _stopped(self) -> bool:
        """Stopped by the caller: an error that follows from that is not reported."""
        return self._closed or self._cancelled_at is not None

    def _begin(self, turn: Turn, ask: Ask = refuse) -> None:
        self._turn, self._ask, self._began = turn, ask, time.monotonic()
        self._deadline = self._began + turn.limit_seconds
        self._tools.clear()
        self._said, self._message, self._answer, self._cut = [], None, None, ""
        self._denied, self._trouble = [], ""

    def _run(self, turn: Turn, ask: Ask) -> Iterator[Event]:
        if self._closed and self._cancelled_at is None:
            raise BackendFailed(self._driver.name, Message("it was stopped; start it again with its session"))
        self._begin(turn, ask)
        whole = False
        try:
            if not self._opened:
                self._open()
                self._opened = True
            if self._cancelled_at is None:
                yield from map(self._noted, self._play(turn.text))
            whole = not self._stopped
        except (SkillError, ProcessEnded, _Cancelled) as error:
            if not self._stopped:
                raise self._as_error(error) from None
        finally:
            if not whole:
                self.close()
        data: dict[str, Json] = {"stop": TurnEnd.END if whole else TurnEnd.CANCELLED, "session": self.session}
        if whole and self._cut:
            data |= {"stop": TurnEnd.CUT, "reason": self._cut}
        if self._denied:
            data["denied"] = [list(permission) for permission in self._denied]
        yield Event(EventKind.DONE, "".join(self._said) if self._answer is None else self._answer, data)

    def _noted(self, event: Event) -> Event:
        if event.kind is EventKind.TEXT:
            if event.data.get("message") != self._message:
                self._said, self._message = [], event.data.get("message")
            self._said.append(event.text)
        elif event.kind is EventKind.TOOL_CALL:
            self._tools.add(event.data.get("id"))
        elif event.kind is EventKind.TOOL_RESULT:
            self._tools.discard(event.data.get("id"))
        elif event.kind is EventKind.ERROR:
            self._said, self._message, self._answer = [], None, None  # it tries again: what came before is void
            self._trouble = _on_one_line(event.text)
            return event._replace(text=self._trouble)
        elif event.kind is EventKind.STARTED:
            self._spoke = True
        return event

    def _next(self) -> Mapping[str, Json]:
        """Return the next message. Raise ProcessEnded, Timeout, AgentSilent or _Cancelled."""
        since = time.monotonic()
        while True:
            end = self._deadline if self._tools else min(self._deadline, since + self._turn.silent_seconds)
            if self._cancelled_at is not None:
                end = self._cancelled_at + _CANCEL_SECONDS
            now = time.monotonic()
            if now >= end:
                break
            if message := self._process.receive(end - now):
                return message
        elapsed = round(now - self._began, 3)
        if self._cancelled_at is not None:
            raise _Cancelled
        if now >= self._deadline:
            raise Timeout(self._driver.name, elapsed, self._turn.limit_seconds, "backend", self._trouble)
        raise AgentSilent(self._driver.name, elapsed, self._turn.silent_seconds, self._trouble or self._last_words())

    def _allows(self, permission: Permission) -> bool:
        """Whether the settings or the person allow it. The time to answer does not count against the limit."""
        if permission.tool in self._start.allowed_tools or self._start.profile is PermissionProfile.FULL:
            return True
        asked = time.monotonic()
        allowed = self._ask(permission)
        self._deadline += time.monotonic() - asked
        return allowed and self._cancelled_at is None

    def _failed(self, reason: str, status: int | None = None, ended: str = "") -> BackendFailed:
        """Return an error with the backend's own words."""
        words = _on_one_line(reason) or "it gave no reason"
        advice = None
        if status in {401, 403} or _CREDENTIALS.search(words):
            advice = Message("log in: {login}", login=self._driver.login)
        elif status == 429:
            advice = Message("try again later, or with another model")
        elif status == 404 or _MODEL.search(words):
            advice = Message("name another model with --model")
        known = {"status": status, "ended": ended}
        details = {"session": self.session, **{name: value for name, value in known.items() if value}}
        return BackendFailed(self._driver.name, words, details=details, advice=advice)

    def _as_error(self, error: Exception) -> SkillError:
        """Return it as an error of ours. One that never spoke with us may be too old for that."""
        if not self._spoke and not isinstance(error, AgentTooOld | Timeout):
            self._process.close()
            try:
                self._driver.find()
            except AgentTooOld as old:
                return old
            except SkillError:
                pass  # the error that we have says more
        if isinstance(error, SkillError):
            return error
        ended = self._process.close()
        words = self._last_words()
        return self._failed(f"it ended without an answer ({ended})" + (f": {words}" if words else ""), ended=ended)

    def _last_words(self) -> str:
        said = mask_keys(self._process.words()).splitlines()
        return shortened(" / ".join(line.strip() for line in said[-5:] if line.strip()), _MOST_WORDS)


def only_reads(command: str, folder: Path) -> bool:
    """Whether a command line certainly changes nothing and reads only below the folder.

    That is: known programs, no syntax that could start another one, and no path that leads elsewhere.
    """
    parts = [part.split() for part in _JOINED.split(command)]
    if not (_PLAIN.fullmatch(_JOINED.sub(" ", command)) and all(part and part[0] in _READERS for part in parts)):
        return False
    inside = f"{folder}/"
    words = (word.strip("'\"") for part in parts for word in part[1:])
    paths = [word.removeprefix(inside) for word in words if "/" in word or ".." in word]
    return not any(
        ".." in path or path[:1] in {"/", "-"} or "=" in path or "'" in path or '"' in path for path in paths
    )


def _on_one_line(words: str) -> str:
    """Put it on one line and mask secrets."""
    return shortened(" ".join(mask_keys(words).split()), _MOST_WORDS)
