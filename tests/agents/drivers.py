"""What the tests of the drivers share: a driver that finds its agent, a turn of it, and who is still running."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from skillyard.backends.driver import Driver, Running, Start
from skillyard.backends.registry import list_backends, make_drivers
from skillyard.core.backend_events import Event, EventKind
from tests.agents.agent import Agent

CEILING_SECONDS = 120.0
#: Stands in the environment of an agent and so in that of everything that it starts.
MARK = "SKILLYARD_TEST_MARK"


class Tools(NamedTuple):
    """The same deeds in each agent's own words: what the model calls, and what the agent asks a person about it."""

    shell: str
    command: Callable[[str], Mapping[str, object]]
    permission: str


TOOLS = {
    "claude-code": Tools("Bash", lambda line: {"command": line, "description": "a test"}, "Bash"),
    "codex": Tools(
        "exec_command",
        lambda line: {"cmd": line, "sandbox_permissions": "require_escalated", "justification": "a test"},
        "shell",
    ),
    "opencode": Tools("bash", lambda line: {"command": line, "description": "a test"}, "execute"),
}


def environment(agent: Agent, mark: str = "") -> dict[str, str]:
    return {
        **agent.env,
        list_backends()[agent.name].variable: str(agent.program),
        **({MARK: mark} if mark else {}),
    }


def driver_of(agent: Agent, mark: str = "") -> Driver:
    return make_drivers(environment(agent, mark))[agent.name]


@contextmanager
def open_agent(
    agent: Agent,
    *,
    mark: str = "",
    session: str | None = None,
    model: str | None = None,
    allowed_tools: tuple[str, ...] = (),
) -> Iterator[Running]:
    start = Start(agent.cwd, session, model or agent.model, allowed_tools)
    running = driver_of(agent, mark).start(start)
    try:
        yield running
    finally:
        running.close()


def texts(events: Iterable[Event]) -> list[str]:
    return [event.text for event in events if event.kind is EventKind.TEXT]


def kinds(events: Iterable[Event]) -> list[str]:
    """Each kind once, in the order in which it came first."""
    return list(dict.fromkeys(event.kind.value for event in events))


def first(events: Iterable[Event], kind: EventKind) -> Event:
    return next(event for event in events if event.kind is kind)


def alive(mark: str) -> list[str]:
    """The processes that carry the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text(errors="replace").replace("\0", " "))
        except OSError:
            continue
    return found


def until(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + CEILING_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below it, with its bytes; folders too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"/" for path in folder.rglob("*")}


def new_mark() -> str:
    return os.urandom(8).hex()
