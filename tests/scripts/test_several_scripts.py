"""Several scripts in one prompt of the worker: each one's own result, and one state for all (docs/spec/worker.md)."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.result import Result
from skillyard.trust.consent import trust

DONE = "print('fertig')\n"
BROKEN = "raise ValueError('the 表 is empty')\n"
PARTIAL = "print('⚠️ worker_agent half of it\\n  state: partial | data: {done: [1]} | meta: {agent: worker_agent}')\n"
PENDING = (
    'print(\'⏸️ worker_agent needs a city\\n  state: pending | data: {required: ["city"], optional: []} '
    "| meta: {agent: worker_agent}')\n"
)
SLOW = "import time\ntime.sleep(60)\n"
ANALYSIS = "print('rows: 3')\nprint('【LLM 二次分析任务】')\nprint('Which of them is odd?')\n"


def interrupt(skill: str, thread: str) -> str:
    told = json.dumps({"interrupted_skills": [skill], "resume_command": f"python bin/flow.py resume {thread}"})
    return f"open('mybox/temp/langgraph_interrupt.json', 'w').write({told!r})\nprint('[INTERRUPT]')\n"


SCRIPTS = {
    "done": DONE,
    "broken": BROKEN,
    "partial": PARTIAL,
    "pending": PENDING,
    "slow": SLOW,
    "analysis": ANALYSIS,
    "ask": interrupt("alpha", "t1"),
    "ask_too": interrupt("贝塔", "t2"),
}


@pytest.fixture
def kernel(yard: Project, project: Path) -> Kernel:
    (project / "bin").mkdir()
    for name, code in SCRIPTS.items():
        (project / "bin" / f"{name}.py").write_text(code, "utf-8")
    trust(yard.grants, project)
    return Kernel(yard, "en")


def own_results(result: Result) -> list[Any]:
    return list(cast("list[Any]", result.data["results"]))


def run(kernel: Kernel, *names: str, timeout: float | None = None) -> Result:
    prompt = "\n".join(f"执行 python bin/{name}.py" for name in names)
    return kernel.task("worker", "several scripts", prompt, timeout_seconds=timeout)


@pytest.mark.parametrize(
    ("names", "state"),
    [
        ("done done", "success"),
        ("done broken", "partial"),
        ("done partial", "partial"),
        ("partial broken", "partial"),
        ("partial partial", "partial"),
        ("broken broken", "error"),
        ("done pending", "pending"),
        ("broken pending", "pending"),
        ("done ask", "interrupted"),
        ("ask broken", "interrupted"),
        ("pending ask partial", "interrupted"),
    ],
)
def test_the_state_of_several_is_the_one_of_the_table(kernel: Kernel, names: str, state: str) -> None:
    result = run(kernel, *names.split())

    assert str(result.state) == state
    assert [each["script"] for each in own_results(result)] == [f"bin/{name}.py" for name in names.split()]


def test_every_script_of_several_has_its_own_result(kernel: Kernel, yard: Project) -> None:
    result = run(kernel, "done", "broken", "analysis")

    done, broken, analysis = own_results(result)
    assert (done["state"], done["data"], "reason" in done) == ("success", {"content": "fertig"}, False)
    assert broken["reason"] == "RuntimeError: failed: ValueError: the 表 is empty"
    assert broken["data"]["type"] == "RuntimeError"
    assert analysis["analysis_prompt"] == "【LLM 二次分析任务】\nWhich of them is odd?"
    for each in (done, broken, analysis):
        kept = yard.find_run(str(each["run"]))
        assert kept is not None
        assert kept.skill == each["script"]
    assert (result.data["succeeded"], result.data["failed"]) == (["done.py", "analysis.py"], ["broken.py"])


def test_an_interrupt_among_several_can_be_resumed(kernel: Kernel) -> None:
    result = run(kernel, "ask", "broken", "done")

    assert result.exit_code == 5
    assert result.data["interrupted_skills"] == ["alpha"]
    assert result.data["resume_command"] == "python bin/flow.py resume t1"
    assert (result.data["succeeded"], result.data["failed"]) == (["done.py"], ["broken.py"])


def test_of_two_interrupts_each_keeps_its_command_and_the_file_belongs_to_the_one_that_is_told(
    kernel: Kernel, project: Path
) -> None:
    result = run(kernel, "ask", "ask_too")

    first, second = (each["data"]["resume_command"] for each in own_results(result))
    assert (first, second) == ("python bin/flow.py resume t1", "python bin/flow.py resume t2")
    waiting = json.loads((project / "mybox/temp/langgraph_interrupt.json").read_text("utf-8"))
    assert result.data["interrupted_skills"] == waiting["interrupted_skills"] == ["贝塔"]
    assert result.data["resume_command"] == waiting["resume_command"]


@pytest.mark.alone
def test_several_that_all_ran_too_long_are_a_timeout_with_its_figures(kernel: Kernel) -> None:
    result = run(kernel, "slow", "slow", timeout=0.5)

    assert (str(result.state), result.data["script"], result.data["limit"]) == ("timeout", "bin/slow.py", 0.5)
    assert run(kernel, "slow", "broken", timeout=0.5).data["type"] == "RuntimeError"


def test_a_partial_result_is_never_repeated_as_a_success(kernel: Kernel) -> None:
    def again(*names: str) -> Result:
        prompt = "\n".join(f"执行 python bin/{name}.py" for name in names)
        return kernel.task("worker", "again", prompt, idempotency_key="-".join(names))

    for names in (("partial",), ("done", "broken")):
        first, second = again(*names), again(*names)
        assert (str(first.state), str(second.state), second.cached) == ("partial", "partial", False)
        assert first.meta != second.meta
