"""What the module of a skill kind offers, and the values that it works on.

A kind is declared in `core/kinds.py` and is otherwise one module, with the four functions of `KindModule`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from skillyard.catalog.bounds import Secret
from skillyard.core.request import Call, Outcome
from skillyard.core.skill import Skill
from skillyard.sandbox.launch import Launch, Sandbox
from skillyard.sandbox.policy import Policy

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial
    from skillyard.runners.requirements import Packages

_SCRIPT = "skillyard.runners.script"
_NOTHING_PASSED: Mapping[str, str] = {}


class Permit(NamedTuple):
    """What a run may touch, and which capabilities it still lacks."""

    policy: Policy = Policy()
    #: Names of our own environment variables to pass on.
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    #: Outputs outside mybox/: a file must exist before the sandbox can open it alone.
    outputs: tuple[Path, ...] = ()
    #: What a role declares; read when it runs.
    secrets: tuple[Secret, ...] = ()
    #: Folders that must exist for the sandbox to open or to cover.
    folders: tuple[Path, ...] = ()


class Prepared(NamedTuple):
    """A call with everything decided: what is started, what it may touch, which environment it runs in."""

    call: Call
    #: None for a kind that starts nothing.
    launch: Launch | None = None
    permit: Permit = Permit()
    #: None if the standard library is enough.
    packages: "Packages | None" = None
    #: Granted variables and a role's secrets, by name: their values are never shown or kept.
    passed: Mapping[str, str] = _NOTHING_PASSED

    @property
    def program(self) -> Launch:
        """The launch of a kind that starts a program."""
        assert self.launch is not None  # noqa: S101
        return self.launch


class Runner(Protocol):
    """Run a prepared call. Never prints, never looks skills up, never touches the database."""

    def __call__(self, prepared: Prepared, sandbox: Sandbox) -> Outcome: ...


class KindModule(Protocol):
    """The functions of a kind's module."""

    run: Runner

    def plan(self, call: Call) -> Launch | None:
        """Return what would be started; None if nothing is."""

    def find_program(self, skill: Skill, script: str) -> Path | None:
        """Return the file of the skill that would run, or its folder if only that is known; None if it is another's."""

    def probe(self, skill: Skill, trial: "Trial") -> "Iterator[Probe]":
        """Try the skill out for `skillyard check`."""


def load_kind(skill: Skill, script: str = "") -> KindModule:
    """The module of the skill's kind, or the one for scripts that a skill of any kind ships."""
    return cast("KindModule", import_module(_SCRIPT if script else skill.kind.module))
