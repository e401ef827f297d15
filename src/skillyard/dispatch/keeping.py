"""Agents that are kept warm: each by a process of its own, which outlives the command and ends by itself.

`start` is what that process runs. It has no terminal, and tells whoever started it one line.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

from skillyard.app.project import Project, new_run_id, open_project
from skillyard.backends.driver import Start
from skillyard.backends.json_access import items, mapping, text
from skillyard.backends.wire import error_as_json, error_from
from skillyard.core.depth import DEPTH
from skillyard.core.errors import BackendFailed, InvalidArgs, PermissionDenied, RuntimeFailed, SkillError
from skillyard.core.own_process import own_function
from skillyard.core.values import Json
from skillyard.dispatch.activation import as_conversation
from skillyard.dispatch.dispatcher import working_folder
from skillyard.dispatch.warm import Fit, Kept
from skillyard.store.conversations import Conversation, ConversationState, Telling

IDLE_SECONDS = 900.0
#: How the history calls it.
WARM = "warm"
_LOOK_SECONDS = 0.1
#: More than an agent may take to say hello.
_START_SECONDS = 180.0


class Warmed(NamedTuple):
    conversation: Conversation
    kept: Kept
    #: Whether it was warm before.
    already: bool


def start_warm(
    yard: Project,
    backend: str,
    *,
    session: str | None = None,
    model: str | None = None,
    cwd: Path | None = None,
    idle_seconds: float = IDLE_SECONDS,
    env: Mapping[str, str] = os.environ,
) -> Warmed:
    """Keep an agent warm for a conversation; one that is already is left alone, if it is the same.

    Raises InvalidArgs, PermissionDenied inside an agent, and whatever keeps the agent from starting.
    """
    if env.get(DEPTH):
        raise PermissionDenied("an agent cannot keep another one warm: a person must do it, outside")
    driver = yard.drivers.get(backend)
    if driver is None:
        raise InvalidArgs(f"no backend {backend!r}; there are {', '.join(yard.drivers)}")
    name = as_conversation(session) or new_run_id()
    start = Start(working_folder(cwd), None, model, yard.dispatching.allowed_tools.get(backend, ()))
    fit = yard.warmth.fit(driver, start, yard.dispatching.commands.get(backend, ()), env)
    conversation = yard.conversations.open(backend, str(start.folder), name, time.time())
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        kept = yard.warmth.look(conversation.id, fit)
        if kept is None:
            if _spawn(yard, conversation, fit, idle_seconds, env):
                return Warmed(conversation, yard.warmth.look(conversation.id) or Kept(), already=False)
        elif kept.state is ConversationState.STARTING:
            time.sleep(_LOOK_SECONDS)
        elif not kept.other:
            return Warmed(conversation, kept, already=True)
        elif not yard.warmth.end(conversation.id, only_idle=True):
            raise BackendFailed(backend, f"a task runs in the conversation {name}, with another {kept.other}")
    raise BackendFailed(backend, f"it did not start within {_START_SECONDS:g} s")


def _spawn(yard: Project, conversation: Conversation, fit: Fit, idle_seconds: float, env: Mapping[str, str]) -> bool:
    """False where another keeper is at it. Nothing of the folder that we stand in is imported."""
    order: Json = {
        "conversation": conversation.id,
        "session": conversation.name,
        "idle": idle_seconds,
        "fit": dict(fit),
    }
    log = yard.places.own_home / "conversations" / f"{conversation.id}.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    ready, told = os.pipe()
    try:
        with os.fdopen(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as sink:
            subprocess.run(
                own_function(__name__, "start", str(told), json.dumps(order)),
                cwd=yard.places.project,
                env={**env, "SKILLYARD_HOME": str(yard.places.own_home)},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                pass_fds=(told,),
                check=False,
            )
    finally:
        os.close(told)
    with os.fdopen(ready, "rb") as lines:
        line = lines.readline()
    answer: dict[str, Json] = json.loads(line) if line else {}
    if "error" in answer:
        raise error_from(answer, conversation.backend)
    if not answer:
        raise BackendFailed(conversation.backend, f"the process that was to keep it warm ended; {log} may say why")
    return bool(answer.get("ready"))


# -- the process


def main(told: int, order: dict[str, Json]) -> None:
    """Forked once more, so that nobody has to wait for its end."""
    if os.fork():
        os._exit(0)
    os.set_inheritable(told, False)
    with open_project() as yard, os.fdopen(told, "w", encoding="ascii") as answer:
        try:
            _keep(yard, order, answer)
        except SkillError as error:
            _tell(answer, error_as_json(error))
        except (OSError, sqlite3.Error) as error:
            _tell(answer, error_as_json(RuntimeFailed(str(error))))


def _tell(answer: IO[str], message: Mapping[str, Json]) -> bool:
    """Whether anybody heard it."""
    if answer.closed:
        return False
    try:
        answer.write(json.dumps(message) + "\n")
        answer.close()
    except BrokenPipeError:
        return False
    return True


def _keep(yard: Project, order: dict[str, Json], answer: IO[str]) -> None:
    from skillyard.dispatch.warm_server import Keeper

    number, fit, idle_seconds = int(str(order["conversation"])), mapping(order["fit"]), float(str(order["idle"]))
    with ExitStack() as held:
        lock = yard.warmth.holds.take(number)
        if lock is None:
            _tell(answer, {"taken": True})
            return
        held.enter_context(lock)
        conversation = yard.conversations.get(number)
        busy = yard.conversations.hold(conversation) if conversation else None
        if conversation is None or busy is None:
            raise BackendFailed("skillyard", f"a task runs in the conversation {order['session']}")
        with busy:  # the agent's session stands still until the agent has read it
            conversation = yard.conversations.get(number) or conversation
            place = yard.slots.take()
            if place is None:
                raise BackendFailed(conversation.backend, f"{yard.slots.count} agents run already")
            held.enter_context(place)
            tools = tuple(text(tool) for tool in items(fit.get("allowed_tools")))
            start = Start(
                Path(conversation.folder), conversation.session or None, text(fit.get("model")) or None, tools
            )
            keeper = Keeper(yard.drivers[conversation.backend], start, fit, idle_seconds, yard.warmth.socket(number))
            held.callback(keeper.close)
            signal.signal(signal.SIGTERM, lambda *_: keeper.end("it was told to by a signal"))
            keeper.open()
            _note(yard, conversation, "an agent is kept warm")
        if not _tell(answer, {"ready": True}):
            keeper.end("whoever started it went away")
        _note(yard, conversation, f"the warm agent ends: {keeper.wait()}")


def _note(yard: Project, conversation: Conversation, words: str) -> None:
    yard.conversations.record(conversation, Telling("", time.time(), WARM, words))


def start() -> None:
    """What the new process runs."""
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
