"""The agents that are kept warm: which there are, what they do, and whether one fits a task.

A warm agent serves only what fits it exactly. Whatever else comes to its conversation ends it first: two agents in one
session would not know of each other.
"""

import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.backends.distant import Distant
from skillyard.backends.driver import Driver, Start
from skillyard.backends.json_access import number, text
from skillyard.backends.wire import Gone, Wire, connect
from skillyard.core.depth import DEPTH
from skillyard.core.errors import BackendFailed
from skillyard.core.values import Json
from skillyard.store.conversation_locks import Holds
from skillyard.store.conversations import ConversationState

#: Between the lock and the socket of a keeper lies an instant; and it answers at once.
_ANSWER_SECONDS = 5.0
#: An agent may take a few seconds to end its turn and to write its session down.
_END_SECONDS = 30.0
_LOOK_SECONDS = 0.05
#: Variables that say which account, which model, which configuration; the rest differs from window to window.
_TELLING = re.compile(
    rf"^(HOME|{DEPTH}|(ANTHROPIC|CLAUDE|CODEX|GEMINI|GOOGLE|OPENAI|OPENCODE)_.*|.*_(KEY|TOKEN|URL|PROXY|PROFILE|HOME))$",
    re.IGNORECASE,
)

Fit = Mapping[str, Json]


class Kept(NamedTuple):
    """A warm agent as its keeper tells it."""

    state: ConversationState = ConversationState.STARTING
    #: When it was started, and since when it has nothing to do.
    since: float = 0.0
    idle_since: float = 0.0
    idle_seconds: float = 0.0
    pid: int = 0
    model: str = ""
    #: What of it differs from what was asked for.
    other: str = ""


class Warmth:
    """All of this user, in all processes."""

    def __init__(self, folder: Path, version: str) -> None:
        """`version` is ours: a keeper of another one may speak otherwise."""
        self._folder, self._version = folder, version
        self.holds = Holds(folder).warm()

    def fit(self, driver: Driver, start: Start, command: tuple[str, ...], env: Mapping[str, str] = os.environ) -> Fit:
        """Everything that an agent is started with, but the session. Raises AgentNotInstalled."""
        told = "\0".join(f"{name}={env[name]}" for name in sorted(env) if _TELLING.match(name))
        return {
            "version": self._version,
            "program": str(driver.locate()),
            "command": list(command),
            "folder": str(start.folder),
            "model": start.model,
            "allowed_tools": list(start.allowed_tools),
            "max_turns": start.max_turns,
            "environment": hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest(),
        }

    def socket(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}.sock"

    def list(self) -> dict[int, Kept]:
        return {each: kept for each in self.holds.list() if (kept := self.look(each))}

    def look(self, conversation_id: int, fit: Fit | None = None) -> Kept | None:
        """None where no agent is warm. A keeper that does not answer is told as one that starts."""
        wire = self._connect(conversation_id)
        if wire is None:
            return Kept() if self.holds.is_held(conversation_id) else None
        try:
            wire.send({"do": "look", "fit": fit})
            told = wire.receive(_ANSWER_SECONDS) or {}
            return _kept(told)
        except (Gone, ValueError):
            return Kept() if self.holds.is_held(conversation_id) else None
        finally:
            wire.close()

    def reach(self, conversation_id: int, backend: str, fit: Fit) -> tuple[Distant | None, str]:
        """The warm agent, ours for one turn; else none, and it is gone: the text says why. Hold the conversation."""
        wire = self._connect(conversation_id)
        if wire is None:
            self.end(conversation_id)
            return None, ""
        why = "it does not answer"
        try:
            wire.send({"do": "turn", "fit": fit})
            answer = wire.receive(_ANSWER_SECONDS) or {}
            if answer.get("ready"):
                return Distant(backend, wire, text(answer.get("session")) or None), ""
            why = text(answer.get("no")) or why
        except Gone:
            why = "it is gone"
        wire.close()
        self.end(conversation_id)
        return None, why

    def end(self, conversation_id: int, *, only_idle: bool = False) -> bool:
        """Whether there was one; it is gone then. Raises BackendFailed where it does not go."""
        wire = self._connect(conversation_id)
        if wire is None and not self.holds.is_held(conversation_id):
            return False
        if wire:
            try:
                wire.send({"do": "end", "only_idle": only_idle})
                if (wire.receive(_ANSWER_SECONDS) or {}).get("no"):
                    return False
            except Gone:
                pass  # then it ends already
            finally:
                wire.close()
        self._wait_until_gone(conversation_id)
        return True

    def give_way(self) -> bool:
        """End the one that has had nothing to do for the longest: a task needs its place. Whether there was one."""
        idle = [(kept.idle_since, each) for each, kept in self.list().items() if kept.state is ConversationState.IDLE]
        return any(self.end(each, only_idle=True) for _, each in sorted(idle))

    def _wait_until_gone(self, conversation_id: int) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while self.holds.is_held(conversation_id):
            if time.monotonic() > deadline:
                raise BackendFailed(
                    "skillyard", "a process that keeps an agent warm (skillyard.dispatch.keeping) hangs"
                )
            time.sleep(_LOOK_SECONDS)

    def _connect(self, conversation_id: int) -> Wire | None:
        """None where nobody keeps one, or nobody answers for a while."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while self.holds.is_held(conversation_id):
            if wire := connect(self.socket(conversation_id)):
                return wire
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        return None


def _kept(told: Mapping[str, Json]) -> Kept:
    """Raises ValueError."""
    state = ConversationState(text(told.get("state")))
    moments = [told.get(name) for name in ("since", "idle_since", "idle_seconds")]
    since, idle_since, idle_seconds = (float(each) if isinstance(each, int | float) else 0.0 for each in moments)
    who = number(told.get("pid")) or 0, text(told.get("model")), text(told.get("other"))
    return Kept(state, since, idle_since, idle_seconds, *who)
