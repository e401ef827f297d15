"""What a job does that runs no skill: a task for a backend agent, or scripts of bin/ for the worker."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from skillyard.core.values import Json

_LABEL_CHARACTERS = 40


class AgentTask(NamedTuple):
    """In plain JSON values: it travels with the job."""

    #: As it was written, to the letter.
    text: str
    #: Whether it names scripts of bin/; else it is for an agent, and the rest counts.
    scripts: bool = False
    #: The role whose CLAUDE.md goes before it, and in whose folder the agent works; nothing for the project's.
    role: str = ""
    #: A backend; nothing for the first that is installed.
    to: str = ""
    #: The conversation that every run goes on with; nothing for one of its own.
    session: str = ""
    model: str = ""

    @property
    def label(self) -> str:
        words = " ".join(self.text.split())
        return words if len(words) <= _LABEL_CHARACTERS else words[: _LABEL_CHARACTERS - 1] + "…"

    def as_mapping(self) -> dict[str, Json]:
        return {name: value for name, value in self._asdict().items() if value}

    @classmethod
    def from_mapping(cls, said: Mapping[str, Any]) -> "AgentTask":
        return cls(**{"text": "", **{name: value for name, value in said.items() if name in cls._fields}})
