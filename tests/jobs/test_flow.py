"""Flows through the real pipeline, in memory and on DBOS: what they give, what they refuse, and what a crash leaves."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project, new_run_id
from skillyard.core.errors import InvalidArgs, InvalidParam, ParamMissing, WorkflowInvalid
from skillyard.core.values import Json
from skillyard.jobs.dbos_engine import DurableEngine
from skillyard.jobs.flow import MAX_ITEMS, FlowProgress
from skillyard.jobs.jobs import Job, Jobs
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.databases import postgres
from tests.jobs.memory_engine import MemoryEngine
from tests.jobs.test_jobs import env_of, said, wait_until

SECONDS = 120.0
ECHO = "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n"
FAIL = (
    "---\nname: fail\ndescription: Fails every time.\ncommand: sh fail.sh {text}\nparams: {text: {default: x}}\n---\n"
)
FLAKY = "---\nname: flaky\ndescription: Works the second time.\ncommand: sh flaky.sh {text}\n---\n"
COUNT = "---\nname: count\ndescription: Names files.\ncommand: python3 count.py {n}\nparams: {n: {type: int}}\n---\n"
PICKY = "---\nname: picky\ndescription: Takes all but one.\ncommand: sh picky.sh {text}\n---\n"
NOTE = """\
---
name: note
description: Writes down that it ran, and waits for somebody where it is told to.
command: sh note.sh {text} {wait}
params: {text: {required: true}, wait: {default: "no"}}
---
"""
NOTE_SH = """\
echo "$1" >> mybox/notes
if test "$2" = "yes"; then until test -e mybox/go; do sleep 0.05; done; fi
echo "$1"
"""


@pytest.fixture
def skills(write_skill: WriteSkill) -> None:
    write_skill("echo", ECHO)
    write_skill("fail", FAIL, {"fail.sh": "echo no >&2\nexit 1\n"})
    write_skill("flaky", FLAKY, {"flaky.sh": 'test -e mybox/was && echo "$1" && exit 0\ntouch mybox/was\nexit 1\n'})
    write_skill(
        "count", COUNT, {"count.py": "import json, sys\nprint(json.dumps({'files': list(range(int(sys.argv[1])))}))\n"}
    )
    write_skill("picky", PICKY, {"picky.sh": 'test "$1" = 2 && exit 1\necho "$1"\n'})
    write_skill("note", NOTE, {"note.sh": NOTE_SH})


class Place:
    """A project whose flows are done here."""

    def __init__(self, yard: Project, engine: DurableEngine) -> None:
        self.yard, self.engine = yard, engine
        self.told: list[FlowProgress] = []
        self.jobs = Jobs(engine, yard.history, new_run_id)
        self.attempts = yard.jobs.attempts(watch=self.told.append)

    def write(self, text: str, name: str = "test") -> Path:
        file = self.yard.root / "workflows" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def job(self, text: str, **inputs: Json) -> Job:
        self.write(text)
        return self.yard.jobs.workflows.make_job(
            self.yard.jobs.workflows.find("test", self.yard.root), inputs, Job(skill="")
        )

    def run(self, text: str, **inputs: Json) -> Any:
        flow_id = self.jobs.start(self.job(text, **inputs), self.attempts)
        known = self.jobs.wait(flow_id, SECONDS)
        assert known is not None
        assert known.id == flow_id
        return known.result


def keep_in(places: ProjectPaths, kind: str) -> None:
    """Where the engine of these places is."""
    database = f'database = "{postgres()}"\n' if kind == "postgres" else ""
    (places.own_home / "config.toml").write_text(f"[engine]\npoll_seconds = 0.05\n{database}")


@contextmanager
def opened(yard: Project, kind: str) -> Iterator[Place]:
    keep_in(yard.paths, kind)
    engine: DurableEngine = MemoryEngine() if kind == "memory" else yard.jobs.open_engine()
    try:
        yield Place(yard, engine)
    finally:
        engine.close(SECONDS)


def test_steps_run_in_order_and_take_what_the_earlier_ones_gave(place: Place) -> None:
    result = place.run(
        """
name: 周报
inputs: {n: {type: integer, default: 2}, who: {}}
steps:
  - {id: collect, skill: "@count", params: {n: "${inputs.n}"}}
  - id: 说
    skill: echo
    for_each: "${collect.data.files}"
    at_once: 2
    params: {text: "你好 ${inputs.who} ${item}/${index} 😀 $${x}"}
  - {id: all, skill: echo, params: {text: "${说.data.content}"}}
  - {id: first, skill: echo, params: {text: "<${说.data[0].content}> ${collect.state}"}}
""".replace("name: 周报", "name: test"),
        who="世界",
    )

    assert (result["state"], result["summary"]) == ("success", "workflow done: test, 4 steps")
    assert result["data"]["result"]["content"] == "<你好 世界 0/0 😀 ${x}> success"
    steps = result["data"]["steps"]
    assert [(step["id"], step["state"]) for step in steps] == [
        ("collect", "success"),
        ("说", "success"),
        ("all", "success"),
        ("first", "success"),
    ]
    everything = place.yard.history.find(steps[2]["run"])
    assert everything is not None
    data: Any = everything.result["data"]
    assert data["content"] == "你好 世界 0/0 😀 ${x}\n你好 世界 1/1 😀 ${x}"


def test_the_flow_and_each_of_its_runs_have_a_row(place: Place) -> None:
    result = place.run(
        "steps: [{skill: count, params: {n: 2}},"
        '{skill: echo, for_each: "${count.data.files}", params: {text: "${item}"}}]'
    )
    flow_id = result["meta"]["run"]

    flow = place.yard.history.find(flow_id)
    assert flow is not None
    assert (flow.kind, flow.skill, flow.state, flow.job) == ("flow", "flow:test", "success", "test")
    runs = place.yard.history.list_of(flow_id)
    assert [run.id for run in runs] == [f"{flow_id}.1", f"{flow_id}.2.0", f"{flow_id}.2.1"]
    assert [run.request["job"]["step"] for run in runs] == ["count", "echo[0]", "echo[1]"]  # type: ignore[call-overload,index]
    assert "2/2 echo: 2/2 items success" in place.yard.logs.read(flow_id)
    assert [known.id for known in place.jobs.list(10)] == [flow_id], "its runs are no jobs of their own"


def test_a_failure_stops_the_flow_and_the_error_names_the_step(place: Place) -> None:
    result = place.run(
        "steps: [{skill: note, params: {text: a}}, {id: bad, skill: fail}, {id: c, skill: note, params: {text: c}}]"
    )

    assert result["state"] == "error"
    assert result["summary"].startswith("RuntimeFailed: step bad: ")
    data = result["data"]
    assert (data["type"], data["step"], data["succeeded"]) == ("RuntimeFailed", "bad", ["note"])
    assert [step["id"] for step in data["steps"]] == ["note", "bad"]
    assert (place.yard.root / "mybox" / "notes").read_text() == "a\n"


def test_a_failure_that_may_be_is_part_of_a_partial_result(place: Place) -> None:
    result = place.run("""
steps:
  - {skill: picky, for_each: [1, 2, 3], params: {text: "${item}"}, on_failure: continue}
  - {skill: echo, params: {text: "${picky.data.content}"}}
""")

    assert result["state"] == "partial"
    assert result["data"]["succeeded"] == ["picky[0]", "picky[2]", "echo"]
    (failed,) = result["data"]["failed"]
    assert (failed["step"], failed["type"]) == ("picky[1]", "RuntimeFailed")
    last = place.yard.history.find(result["data"]["steps"][1]["run"])
    assert last is not None
    assert last.result["data"]["content"] == "1\n3"  # type: ignore[call-overload,index]


def test_items_after_one_that_failed_are_not_started(place: Place) -> None:
    result = place.run('steps: [{skill: picky, for_each: [1, 2, 3], params: {text: "${item}"}}]')

    assert (result["state"], result["data"]["step"]) == ("error", "picky[1]")
    assert len(place.yard.history.list_of(result["meta"]["run"])) == 2


def test_all_failed_is_an_error(place: Place) -> None:
    result = place.run('steps: [{skill: fail, for_each: [1, 2], on_failure: continue, params: {text: "${item}"}}]')

    assert (result["state"], result["data"]["type"]) == ("error", "RuntimeFailed")
    assert len(result["data"]["failed"]) == 2


def test_a_step_is_tried_again_as_often_as_it_says(place: Place) -> None:
    result = place.run("steps: [{skill: flaky, params: {text: a}, retries: 3}]")

    assert result["state"] == "success"
    flow_id = result["meta"]["run"]
    assert [(run.id, run.state) for run in place.yard.history.list_of(flow_id)] == [
        (f"{flow_id}.1", "error"),
        (f"{flow_id}.1-2", "success"),
    ]


def test_a_time_limit_is_a_failure_of_its_step(memory: Place, write_skill: WriteSkill) -> None:
    write_skill("slow", "---\nname: slow\ndescription: Takes its time.\ncommand: sleep {n}\n---\n")
    result = memory.run("steps: [{skill: slow, params: {n: 60}, timeout: 0.2}]")

    assert (result["state"], result["data"]["type"], result["data"]["step"]) == ("error", "Timeout", "slow")


def test_an_empty_list_is_done_at_once_and_gives_an_empty_list(memory: Place) -> None:
    result = memory.run('steps: [{skill: echo, for_each: [], params: {text: "${item}"}}]')

    assert (result["state"], result["data"]["result"]) == ("success", [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{skill: echo, for_each: "${count.data.files[0]}", params: {text: x}}', "for_each takes a list"),
        ('{skill: echo, params: {text: "${count.data.fils}"}}', "did you mean `files`?"),
        ('{skill: echo, params: {text: "${count.data.files[9]}"}}', "no [9] in a list of 3"),
        (f"{{skill: echo, for_each: {list(range(MAX_ITEMS + 1))}, params: {{text: x}}}}", "at most 10000 items"),
    ],
)
def test_what_only_a_run_can_tell_is_an_error_of_the_step_with_a_row(memory: Place, text: str, says: str) -> None:
    result = memory.run(f"steps: [{{skill: count, params: {{n: 3}}}}, {text}]")

    assert (result["state"], result["data"]["type"], result["data"]["step"]) == ("error", "InvalidParam", "echo")
    assert says in result["data"]["msg"]
    row = memory.yard.history.find(f"{result['meta']['run']}.2")
    assert row is not None
    assert row.state == "error"


def test_a_step_that_needs_a_failed_one_fails_too_and_the_others_go_on(memory: Place) -> None:
    result = memory.run("""
steps:
  - {skill: fail, on_failure: continue}
  - {id: needs, skill: echo, params: {text: "${fail.data.content}"}, on_failure: continue}
  - {id: asks, skill: echo, params: {text: "it was: ${fail.state}"}}
""")

    assert result["state"] == "partial"
    assert [failed["step"] for failed in result["data"]["failed"]] == ["fail", "needs"]
    assert result["data"]["succeeded"] == ["asks"]


def test_a_file_outside_the_project_is_not_read_whoever_names_it(
    memory: Place, write_skill: WriteSkill, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    write_skill("show", "---\nname: show\ndescription: Shows a file.\ncommand: cat {file}\n---\n")

    literal = f"{{id: a, skill: show, params: {{file: '{secret}'}}, on_failure: continue}}"
    given = "{id: b, skill: show, params: {file: '${inputs.f}'}}"
    result = memory.run(f"inputs: {{f: {{}}}}\nsteps: [{literal}, {given}]", f=str(secret))

    assert result["state"] == "error"
    assert "hunter2" not in json.dumps(result)


def test_what_a_step_gave_is_a_value_and_never_a_reference_an_option_or_a_second_word(memory: Place) -> None:
    result = memory.run("""
steps:
  - {id: a, skill: echo, params: {text: "$${inputs.x} ; rm -rf ~ $(id)"}}
  - {id: b, skill: echo, params: {text: "${a.data.content}"}}
""")

    assert result["data"]["result"]["content"] == "${inputs.x} ; rm -rf ~ $(id)"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("steps:\n- {skill: ecko, params: {text: a}}", 2, "nearest: echo"),
        ("steps:\n- skill: echo\n  params: {text: a, txt: a}", 3, "`steps[0].params.txt` is no param of echo"),
        ("steps:\n- skill: echo\n", 2, "lacks `text`"),
        ("steps:\n- skill: count\n  params:\n    n: many", 4, "'n' takes a whole number"),
        ("inputs: {n: {default: x}}\nsteps:\n- skill: count\n  params: {n: '${inputs.n}'}", 4, "takes a whole number"),
        ("steps:\n- skill: echo\n  action: go\n  params: {text: a}", 3, "has none"),
        ("steps:\n- skill: echo\n  args: [a, b]", 3, "nothing takes 'b'"),
    ],
)
def test_nothing_starts_where_something_is_wrong(memory: Place, text: str, line: int, says: str) -> None:
    with pytest.raises(WorkflowInvalid) as raised:
        memory.run(text)

    assert raised.value.msg.startswith(f"workflows/test.yaml:{line}: ")
    assert says in raised.value.msg
    assert memory.yard.runs(10) == ()


@pytest.fixture
def analyst(project: Path) -> None:
    """A role with a JSON skill that says what it got."""
    folder = project / "agents" / "analyst"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text("skills: [{name: report, entry: report.py, actions: [daily, weekly]}]")
    (folder / "report.py").write_text(
        "import json, sys\n"
        "asked = json.load(sys.stdin)\n"
        "data = {'got': asked['params'], 'asked_by': asked['context']['request_id']}\n"
        "print(json.dumps({'success': True, 'action': asked['action'], 'data': data}))\n"
    )


def test_a_json_skill_of_a_role_gets_lists_and_numbers_as_they_are_and_its_run_id(place: Place, analyst: None) -> None:
    result = place.run("""
steps:
  - {id: c, skill: count, params: {n: 2}}
  - {id: r, skill: analyst/report, action: weekly, params: {files: "${c.data.files}", all: {x: ["${c.data.files[1]}"]}}}
""")

    assert result["state"] == "success", result
    assert result["data"]["result"]["got"] == {"files": [0, 1], "all": {"x": [1]}}
    assert result["data"]["result"]["asked_by"] == f"{result['meta']['run']}.2"


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("{skill: analyst/report, action: weakly}", "did you mean `weekly`?"),
        ("{skill: analyst/report}", "one of daily, weekly"),
        ("{skill: analyst/reprot, action: daily}", "is not installed"),
    ],
)
def test_an_action_that_is_not_there_is_found_before_anything_starts(
    memory: Place, analyst: None, step: str, says: str
) -> None:
    memory.write(f"steps: [{step}]")

    (finding,) = memory.yard.jobs.workflows.find("test", memory.yard.root).findings

    assert says in finding.message + finding.advice


def test_inputs_are_typed_and_named(memory: Place) -> None:
    inputs = "inputs: {n: {type: integer}, list: {type: array, default: [1]}}\n"
    text = inputs + "steps: [{skill: count, params: {n: '${inputs.n}'}}]"

    assert memory.run(text, n="2")["data"]["result"]["files"] == [0, 1]
    with pytest.raises(ParamMissing, match="'n'"):
        memory.run(text)
    with pytest.raises(InvalidParam, match="a whole number"):
        memory.run(text, n="two")
    with pytest.raises(InvalidParam, match="did you mean `list`"):
        memory.run(text, n=1, lst="[]")
    with pytest.raises(InvalidParam, match="a list"):
        memory.run(text, n=1, list="x")


def test_a_workflow_is_found_by_name_or_by_a_path_inside_the_project(memory: Place, tmp_path: Path) -> None:
    file = memory.write("steps: [{skill: echo, params: {text: a}}]")
    root = memory.yard.root

    assert (
        memory.yard.jobs.workflows.find("test", root).path
        == memory.yard.jobs.workflows.find("workflows/test.yaml", root).path
    )
    assert memory.yard.jobs.workflows.find("./test.yaml", file.parent).name == "test"
    with pytest.raises(InvalidArgs, match="did you mean `test`"):
        memory.yard.jobs.workflows.find("tset", root)
    outside = tmp_path / "workflow.yaml"
    outside.write_text("steps: [{skill: echo}]")
    with pytest.raises(InvalidArgs, match="a workflow runs where its skills are"):
        memory.yard.jobs.workflows.find(str(outside), root)
    (root / "workflows" / "again.yaml").write_text("name: test\nsteps: [{skill: echo}]")
    with pytest.raises(InvalidArgs, match=r"again\.yaml, workflows/test\.yaml"):
        memory.yard.jobs.workflows.find("test", root)


def test_a_file_or_a_skill_that_changed_is_refused(place: Place, write_skill: WriteSkill) -> None:
    text = "steps: [{skill: echo, params: {text: a}}]"
    job = place.job(text)
    place.write(text + "\n# another\n")
    known = place.jobs.wait(place.jobs.start(job, place.attempts), SECONDS)

    assert known is not None
    data: Any = known.result["data"]
    assert "workflows/test.yaml is not as it was" in data["msg"]
    place.write(text)
    write_skill("echo", ECHO.replace("echo {text}", "echo hacked {text}"))
    known = place.jobs.wait(place.jobs.start(job, place.attempts), SECONDS)
    assert known is not None
    data = known.result["data"]
    assert (
        data["step"],
        "is not as it was when the job was queued" in data["msg"] or "cannot be restored" in data["msg"],
    ) == ("echo", True)


@pytest.mark.ci("a thousand runs")
def test_a_thousand_items_are_each_done_once(memory: Place) -> None:
    many = '{skill: note, for_each: "${count.data.files}", at_once: 4, params: {text: "${item}"}}'
    result = memory.run(f"steps: [{{skill: count, params: {{n: 1000}}}}, {many}]")

    assert result["state"] == "success"
    notes = (memory.yard.root / "mybox" / "notes").read_text().split()
    assert sorted(map(int, notes)) == list(range(1000))
    assert [item["content"] for item in result["data"]["result"]] == [str(number) for number in range(1000)]
    memory.run("steps: [{skill: echo, params: {text: a}}]")
    assert memory.yard.history.find(result["meta"]["run"]) is not None, "a flow is not forgotten over its own items"


def test_a_flow_can_be_a_job_by_its_name(memory: Place) -> None:
    memory.write("inputs: {t: {}}\nsteps: [{skill: echo, params: {text: '${inputs.t}'}}]")
    job = memory.yard.jobs.prepare(Job("flow:test", args=("t=你好",)))
    memory.engine.serve(memory.attempts, {"default": 1}, lambda: None)

    known = memory.jobs.wait(memory.jobs.enqueue(job), SECONDS)

    assert known is not None
    assert known.result["data"]["result"]["content"] == "你好"  # type: ignore[call-overload,index]


def test_a_flow_that_failed_is_retried_as_its_skills_are_now(place: Place, write_skill: WriteSkill) -> None:
    job = place.job("steps: [{skill: note, params: {text: a}}, {skill: fail}]")
    place.engine.serve(place.attempts, {"default": 1}, lambda: None)
    failed = place.jobs.wait(place.jobs.enqueue(job), SECONDS)
    assert failed is not None
    assert failed.state == "error"
    write_skill("fail", FAIL, {"fail.sh": "echo mended\n"})

    again = place.jobs.wait(place.jobs.retry(failed.id).run, SECONDS)

    assert again is not None
    assert (again.id, again.run, again.state) == (failed.id, f"{failed.id}-2", "success")
    assert [run.id for run in place.yard.history.list_of(again.run)] == [f"{again.run}.2"], "the first is not repeated"


def test_a_retried_flow_keeps_what_succeeded_before_the_step_that_failed_and_nothing_after_it(
    place: Place, write_skill: WriteSkill
) -> None:
    job = place.job(
        """
        steps:
          - {id: a, skill: note, params: {text: a}}
          - {id: b, skill: picky, for_each: ["1", "2", "3"], params: {text: "${item}"}, on_failure: continue}
          - {id: c, skill: note, params: {text: "c ${b.data}"}}
          - {id: d, skill: fail}
        """
    )
    place.engine.serve(place.attempts, {"default": 1}, lambda: None)
    failed = place.jobs.wait(place.jobs.enqueue(job), SECONDS)
    assert failed is not None
    write_skill("fail", FAIL, {"fail.sh": "echo mended\n"})
    write_skill("picky", PICKY, {"picky.sh": "echo now $1\n"})

    again = place.jobs.wait(place.jobs.retry(failed.id).run, SECONDS)

    assert again is not None
    assert again.state == "success", again.result
    assert [run.id.removeprefix(again.run) for run in place.yard.history.list_of(again.run)] == [".2.1", ".3", ".4"]
    steps: Any = again.result["data"]
    assert [step["state"] for step in steps["steps"]] == ["success"] * 4
    assert steps["steps"][0]["run"] == f"{failed.id}.1"
    assert [told.kept for told in place.told if told.flow == again.run and told.state] == [True, False, False, False]


def test_a_retry_from_the_start_repeats_every_step(place: Place, write_skill: WriteSkill) -> None:
    job = place.job("steps: [{skill: note, params: {text: a}}, {skill: fail}]")
    place.engine.serve(place.attempts, {"default": 1}, lambda: None)
    failed = place.jobs.wait(place.jobs.enqueue(job), SECONDS)
    assert failed is not None
    first = place.jobs.retry(failed.id).run
    assert place.jobs.wait(first, SECONDS) is not None
    write_skill("fail", FAIL, {"fail.sh": "echo mended\n"})

    again = place.jobs.wait(place.jobs.retry(failed.id, from_start=True).run, SECONDS)

    assert again is not None
    assert [run.id for run in place.yard.history.list_of(first)] == [f"{first}.2"]
    assert [run.id for run in place.yard.history.list_of(again.run)] == [f"{again.run}.1", f"{again.run}.2"]


def test_a_flow_that_tries_again_by_itself_goes_on_with_the_step_that_failed(
    place: Place, write_skill: WriteSkill
) -> None:
    job = place.job("steps: [{skill: note, params: {text: a}}, {skill: fail}]")._replace(retries=1)
    place.engine.serve(place.attempts, {"default": 1}, lambda: None)

    failed = place.jobs.wait(place.jobs.enqueue(job), SECONDS)

    assert failed is not None
    assert (failed.state, failed.run) == ("error", f"{failed.id}-2")
    assert [run.id for run in place.yard.history.list_of(failed.run)] == [f"{failed.run}.2"]


def test_cancelling_stops_the_run_under_way_and_starts_no_other(place: Place) -> None:
    job = place.job("steps: [{skill: note, params: {text: a, wait: 'yes'}}, {id: b, skill: note, params: {text: b}}]")
    flow_id = place.jobs.start(job, place.attempts)
    notes = place.yard.root / "mybox" / "notes"
    wait_until(notes.exists)

    place.jobs.cancel(flow_id)
    place.attempts.underway.stop(flow_id)
    wait_until(lambda: not place.attempts.underway.list())

    assert notes.read_text() == "a\n"
    row = place.yard.history.find(flow_id)
    assert row is not None
    assert row.state == "cancelled"
    assert "cancelled" in str(row.result["summary"])


# -- crashes, with the real command


FIVE = "steps:\n" + "".join(
    f"  - {{id: s{n}, skill: note, params: {{text: '{n}', wait: '{'yes' if n == 3 else 'no'}'}}}}\n"
    for n in range(1, 6)
)
ITEMS = """
steps:
  - {id: s, skill: note, for_each: [a, b, c, d], at_once: AT_ONCE, params: {text: "${item}", wait: "${item}"}}
"""


def killed(places: ProjectPaths, text: str, until: Callable[[Path], bool]) -> Path:
    """A project whose `flow run` was killed with SIGKILL in the middle."""
    assert places.project is not None
    (places.project / "workflows").mkdir()
    (places.project / "workflows" / "test.yaml").write_text(text)
    notes = places.project / "mybox" / "notes"
    child = subprocess.Popen(
        [sys.executable, "-m", "skillyard", "flow", "run", "test"],
        cwd=places.project,
        env=env_of(places),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: until(notes) or child.poll() is not None)
    assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    return notes


def lines(notes: Path) -> list[str]:
    return notes.read_text().split() if notes.exists() else []


@pytest.mark.parametrize(("by", "kind"), [("resume", "sqlite"), ("worker", "sqlite"), ("worker", "postgres")])
def test_a_flow_killed_in_its_third_step_repeats_that_step_and_no_other(
    places: ProjectPaths, skillyard: Skillyard, skills: None, by: str, kind: str
) -> None:
    keep_in(places, kind)
    notes = killed(places, FIVE, lambda notes: lines(notes) == ["1", "2", "3"])
    (flow,) = said(skillyard("flow", "--json"))["data"]["workflows"]
    flow_id = flow["latest"]["id"]
    (notes.parent / "go").touch()

    done = skillyard("flow", "resume", flow_id, "--json") if by == "resume" else skillyard("worker", "--drain")

    assert done.returncode == 0, done.stdout + done.stderr
    assert lines(notes) == ["1", "2", "3", "3", "4", "5"]
    (shown,) = said(skillyard("flow", "show", flow_id, "--json"))["data"]["flows"]
    assert shown["state"] == "success"
    assert [(step["step"], step["state"], step["run"]) for step in shown["steps"]] == [
        (f"s{n}", "success", f"{flow_id}.{n}") for n in range(1, 6)
    ]


@pytest.mark.parametrize(("at_once", "kind"), [(1, "sqlite"), (2, "sqlite"), (2, "postgres")])
def test_a_flow_killed_among_items_repeats_only_those_under_way(
    places: ProjectPaths, skillyard: Skillyard, skills: None, at_once: int, kind: str, project: Path
) -> None:
    """Each item waits until it may go on, so what ended and what was under way is known."""
    keep_in(places, kind)
    text = ITEMS.replace("AT_ONCE", str(at_once))
    script = project / ".claude" / "skills" / "note" / "note.sh"
    script.write_text(
        'echo "$1" >> mybox/notes\nif test "$2" != a; then until test -e mybox/go; do sleep 0.05; done; fi\necho "$1"\n'
    )
    under_way = {1: ["b"], 2: ["b", "c"]}[at_once]
    notes = killed(places, text, lambda notes: sorted(lines(notes)) == ["a", *under_way])
    (notes.parent / "go").touch()
    flow_id = said(skillyard("flow", "--json"))["data"]["workflows"][0]["latest"]["id"]

    resumed = skillyard("flow", "resume", flow_id, "--json")

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert sorted(lines(notes)) == sorted(["a", "b", "c", "d", *under_way])
    assert [item["content"] for item in said(resumed)["data"]["result"]] == ["a", "b", "c", "d"]


def test_a_flow_whose_file_changed_after_the_crash_is_refused(
    places: ProjectPaths, skillyard: Skillyard, skills: None
) -> None:
    notes = killed(places, FIVE, lambda notes: lines(notes) == ["1", "2", "3"])
    assert places.project is not None
    (places.project / "workflows" / "test.yaml").write_text(FIVE.replace("'4'", "'other'"))
    (notes.parent / "go").touch()
    flow_id = said(skillyard("flow", "--json"))["data"]["workflows"][0]["latest"]["id"]

    resumed = skillyard("flow", "resume", flow_id, "--json")

    assert resumed.returncode == 1
    assert "is not as it was when the flow was started" in said(resumed)["data"]["msg"]
    assert lines(notes) == ["1", "2", "3"]
