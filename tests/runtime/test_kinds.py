"""A kind of skill is added in one place: its declaration, and one module that it names."""

import os
import subprocess
import sys

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.core.result import Request
from skillyard.core.skill import Kind, Severity
from skillyard.core.states import State
from skillyard.runners.probes import ProbeVerdict
from skillyard.runtime.trial import find_target, open_trial, probe
from tests.conftest import WriteSkill

UPPER = Kind.declare("upper", "tests.runtime.upper_kind", by_protocol=True)
SHOUT = """---
name: shout
description: Prints a text in capital letters. Use it when a text must be loud.
protocol: upper
params:
  - name: text
    required: true
    description: the text
---
# Shout
"""


@pytest.fixture
def opened(places: ProjectPaths, write_skill: WriteSkill) -> Project:
    write_skill("shout", SHOUT)
    return Project(places)


def test_a_new_kind_is_listed(opened: Project) -> None:
    with opened:
        opened.catalog.sync()

        assert [(entry.name, entry.kind) for entry in opened.catalog.list()] == [("shout", UPPER)]


def test_a_new_kind_is_validated(opened: Project) -> None:
    with opened:
        reading = lint(read_skill(opened.root / ".claude/skills/shout/SKILL.md"))

    assert reading.skill is not None
    assert reading.skill.kind is UPPER
    assert {finding.severity for finding in reading.findings} <= {Severity.NOTE}


def test_a_new_kind_runs(opened: Project) -> None:
    with opened:
        result = opened.runtime.run(Request("shout", args=("hello",)))
        plan = opened.runtime.plan(Request("shout", args=("hello",)))
        unknown = opened.runtime.run(Request("shout", args=("hello", "--loud", "yes")))

    assert (result.state, result.data["content"]) == (State.SUCCESS, "HELLO")
    assert plan.data["starts"] is True
    assert unknown.data["type"] == "InvalidParam"


def test_a_missing_param_of_a_new_kind_leaves_the_run_pending(opened: Project) -> None:
    with opened:
        assert opened.runtime.run(Request("shout")).state is State.PENDING


def test_a_new_kind_is_checked(opened: Project) -> None:
    with opened:
        skill = find_target("@shout", opened.catalog, opened.root)
        with open_trial(opened.sandbox, opened.paths.own_home, 20.0) as trial:
            found = {done.name: done.verdict for done in probe(skill, trial)}

    assert found["capitals"] is ProbeVerdict.PASSED


def test_a_kind_is_declared_once() -> None:
    assert Kind.declare("upper", "tests.runtime.upper_kind") is UPPER is Kind("upper")
    with pytest.raises(ValueError, match="upper"):
        Kind.declare("upper", "somewhere.else")
    with pytest.raises(ValueError, match="lower"):
        Kind("lower")


#: Counts the modules of ours in which a function is called between the start of the command and its end. What runs
#: while a module is imported does not count: its body, and functions that its body calls.
_COUNT = """
import sys
passed = set()
def is_import(frame):
    while frame and not (frame.f_code.co_name == "<module>" and "/skillyard/" in frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None
def note(frame, event, arg):
    name = frame.f_code.co_filename.rpartition("/skillyard/")[2]
    if event == "call" and "/skillyard/" in frame.f_code.co_filename and name not in passed and not is_import(frame):
        passed.add(name)
from skillyard.faces.cli.main import main
sys.argv = ["skillyard", "run", "@hello", "world"]
sys.setprofile(note)
try:
    main()
finally:
    sys.setprofile(None)
    sys.stderr.write("passed " + " ".join(sorted(passed)))
"""
_MOST_MODULES = 40


def test_a_run_passes_through_few_modules(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("hello", "---\nname: hello\ndescription: d\ncommand: echo {who}\nparams: [{name: who}]\n---\n")
    env = {**os.environ, "SKILLYARD_HOME": str(places.own_home), "HOME": str(places.user_home)}

    def run() -> str:
        argv = [sys.executable, "-c", _COUNT]
        return subprocess.run(argv, cwd=places.project, env=env, capture_output=True, text=True, timeout=120).stderr

    run()  # the first run reads the skills and looks at the machine
    passed = run().partition("passed ")[2].split()

    assert "runtime/pipeline.py" in passed
    assert len(passed) <= _MOST_MODULES, "\n".join(passed)
