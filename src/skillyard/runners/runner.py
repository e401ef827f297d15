"""The seam between the pipeline and the kinds of skill."""

from collections.abc import Mapping
from typing import Protocol

from skillyard.core.request import Call, Outcome
from skillyard.core.skill import Kind
from skillyard.runners import command, jsonskill, prompt, script
from skillyard.sandbox.launch import Launch, Sandbox


class Runner(Protocol):
    """Runs a checked call. Never prints, never looks skills up, never touches the database."""

    def __call__(self, call: Call, sandbox: Sandbox) -> Outcome: ...


class Planner(Protocol):
    """What a runner would start; None where nothing is started."""

    def __call__(self, call: Call) -> Launch | None: ...


RUNNERS: Mapping[Kind, Runner] = {
    Kind.COMMAND: command.run,
    Kind.PROMPT: prompt.run,
    Kind.JSON: jsonskill.run,
}
PLANNERS: Mapping[Kind, Planner] = {
    Kind.COMMAND: command.plan,
    Kind.PROMPT: prompt.plan,
    Kind.JSON: jsonskill.plan,
}


def runner_of(call: Call) -> Runner:
    return script.run if call.script else RUNNERS[call.skill.kind]


def plan_of(call: Call) -> Planner:
    return script.plan if call.script else PLANNERS[call.skill.kind]
