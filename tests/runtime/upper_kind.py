"""A toy kind of skill, `protocol: upper`: prints its `text` in capital letters. AGENTS.md says how to add a kind."""

from collections.abc import Iterator
from pathlib import Path

from skillyard.core.result import Call, Outcome
from skillyard.core.skill import Skill
from skillyard.runners.interpreters import find_program as find_installed
from skillyard.runners.kind import Prepared, check_exit, environment
from skillyard.runners.probes import Probe, Trial, failed, passed
from skillyard.sandbox.launch import Launch, Sandbox


def plan(call: Call) -> Launch:
    argv = (find_installed("tr"), "a-z", "A-Z")
    return Launch(argv=argv, cwd=call.root, env=environment(call), stdin=str(call.params["text"]).encode())


def run(prepared: Prepared, sandbox: Sandbox) -> Outcome:
    ended = sandbox(prepared.program)
    check_exit(prepared.call, ended)
    name = prepared.call.asked_as
    return Outcome(data={"skill": name, "content": ended.stdout.decode()}, words={"label": name})


def find_program(skill: Skill, script: str) -> Path | None:
    del skill, script
    return None


def probe(skill: Skill, trial: Trial) -> Iterator[Probe]:
    call = trial.check(skill, {"text": "abc"})
    ended = trial.start(call, plan(call))
    says = ended.stdout.decode()
    yield passed("capitals", says) if says == "ABC" else failed("capitals", says, "print capital letters")
