"""The seam between the pipeline and the kinds of skill."""

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from skillyard.core.kinds import Kind
from skillyard.core.request import Call, Outcome
from skillyard.sandbox.launch import Launch, Sandbox


class Runner(Protocol):
    """Runs a checked call. Never prints, never looks skills up, never touches the database."""

    def __call__(self, call: Call, sandbox: Sandbox) -> Outcome: ...


class Planner(Protocol):
    """What a runner would start; None where nothing is started."""

    def __call__(self, call: Call) -> Launch | None: ...


class Kindred(Protocol):
    """What the module of each kind has."""

    run: Runner
    plan: Planner


#: The module of each kind; a run loads only its own.
MODULES: Mapping[Kind, str] = {Kind.COMMAND: "command", Kind.PROMPT: "prompt", Kind.JSON: "json_skill"}


def runner_of(call: Call) -> Runner:
    return _module(call).run


def plan_of(call: Call) -> Planner:
    return _module(call).plan


def _module(call: Call) -> Kindred:
    name = "script" if call.script else MODULES[call.skill.kind]
    return cast("Kindred", import_module(f"skillyard.runners.{name}"))
