"""`skillyard flow` as people and programs use it: a real process, a real project, a real engine."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.test_jobs import env_of, said, wait_until

ECHO = "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n"
HELLO = """\
name: hello
description: 问候
inputs: {who: {default: 世界}}
steps:
  - {id: one, skill: "@echo", params: {text: "你好 ${inputs.who}"}}
  - {id: two, skill: "@echo", for_each: ["${one.data.content}", b], params: {text: "${item} 😀"}}
"""


@pytest.fixture
def hello(project: Path, places: ProjectPaths, write_skill: WriteSkill) -> Path:
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.05\n")
    write_skill("echo", ECHO)
    file = project / "workflows" / "hello.yaml"
    file.parent.mkdir()
    file.write_text(HELLO, "utf-8")
    return file


def test_a_flow_gives_one_result_and_tells_each_step_on_stderr(skillyard: Skillyard, hello: Path) -> None:
    done = skillyard("flow", "run", "hello", "--json", "--input", "who=Ann")

    assert done.returncode == 0
    result = said(done)
    assert [item["content"] for item in result["data"]["result"]] == ["你好 Ann 😀", "b 😀"]
    flow_id = result["meta"]["run"]
    told = done.stderr.splitlines()
    assert told[0] == f"flow {flow_id}"
    assert re.fullmatch(r"1/2 one: success \(\d+\.\d\ds\)", told[1])
    assert re.fullmatch(r"2/2 two: 2/2 items success \(\d+\.\d\ds\)", told[2])


def test_it_is_listed_shown_and_among_the_runs_and_jobs(skillyard: Skillyard, hello: Path) -> None:
    flow_id = said(skillyard("flow", "run", str(hello), "--json"))["meta"]["run"]

    (listed,) = said(skillyard("flow", "--json"))["data"]["workflows"]
    assert (listed["name"], listed["steps"], listed["latest"]) == (
        "hello",
        ["one", "two"],
        {"id": flow_id, "state": "success"},
    )
    (shown,) = said(skillyard("flow", "show", flow_id[:20], "--json"))["data"]["flows"]
    assert (shown["inputs"], shown["state"]) == ({"who": "世界"}, "success")
    assert [(step["step"], step["run"]) for step in shown["steps"]] == [
        ("one", f"{flow_id}.1"),
        ("two[0]", f"{flow_id}.2.0"),
        ("two[1]", f"{flow_id}.2.1"),
    ]
    table = skillyard("flow", "show", flow_id).stdout
    assert "two[1]" in table
    assert f"{flow_id}.2.1" in skillyard("runs").stdout
    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert (job["id"], job["name"], job["skill"]) == (flow_id, "hello", "flow:hello")
    assert said(skillyard("runs", "show", f"{flow_id}.1", "--json"))["data"]["runs"][0]["state"] == "success"


def test_what_is_wrong_stands_with_its_line_and_nothing_starts(skillyard: Skillyard, hello: Path) -> None:
    hello.write_text("steps:\n  - skill: ecko\n    params: {text: '${nobody.data}'}\n")

    checked = skillyard("flow", "validate", "--json")
    ran = skillyard("flow", "run", "hello", "--json")

    assert (checked.returncode, ran.returncode) == (1, 1)
    (workflow,) = said(checked)["data"]["workflows"]
    assert [finding["line"] for finding in workflow["findings"]] == [2, 3]
    assert said(ran)["data"]["type"] == "InvalidArgs"
    assert "workflows/hello.yaml:2" in said(ran)["data"]["msg"]
    assert said(skillyard("runs", "--json"))["data"]["runs"] == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "helo"), 1, "did you mean `hello`?"),
        (("run", "nowhere/workflow.yaml"), 1, "there is no nowhere/workflow.yaml"),
        (("run", "/etc/hostname/x.yaml"), 1, "/etc/hostname/x.yaml is outside "),
        (("run", "hello", "--input", "who"), 1, "NAME=VALUE"),
        (("run", "hello", "--input", "whom=x"), 1, "did you mean `who`?"),
        (("show", "123"), 1, "no flow '123' here"),
        (("show", ""), 1, "no flow '' here"),
        (("resume", "123"), 1, "no flow '123' here"),
        (("run",), 2, "required"),
    ],
)
def test_a_call_that_cannot_be_read_says_what_would_have_been_right(
    skillyard: Skillyard, hello: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    done = skillyard("flow", *words, "--json")

    assert done.returncode == code
    assert says in json.dumps(said(done), ensure_ascii=False)
    assert "Traceback" not in done.stderr


def test_a_missing_input_is_an_error_and_never_a_question(skillyard: Skillyard, hello: Path) -> None:
    hello.write_text(
        "inputs: {who: {description: whom to greet}}\nsteps: [{skill: echo, params: {text: '${inputs.who}'}}]"
    )

    done = skillyard("flow", "run", "hello", "--json")

    assert (done.returncode, said(done)["state"], said(done)["data"]["type"]) == (1, "error", "ParamMissing")


def test_in_chinese(skillyard: Skillyard, hello: Path) -> None:
    done = skillyard("flow", "run", "hello", "--lang", "zh")

    assert done.stdout.startswith("✅ skills 工作流完成：hello (2 步)\n")


@pytest.mark.parametrize("words", ["flow run nope", "flow resume nope", "jobs run nope", "jobs enqueue @nope --wait"])
def test_an_error_is_in_the_language_that_was_asked_for_with_a_next_step(
    skillyard: Skillyard, hello: Path, words: str
) -> None:
    told = said(skillyard(*words.split(), "--lang", "zh", "--json"))

    assert re.search("参数错误|未安装技能", told["summary"])
    assert re.search("skillyard (flow|jobs|list)", told["meta"]["hint"])


def test_a_detached_flow_waits_for_a_worker(skillyard: Skillyard, hello: Path) -> None:
    (queued,) = said(skillyard("flow", "run", "hello", "--detach", "--json"))["data"]["flows"]
    assert said(skillyard("jobs", "--json"))["data"]["jobs"][0]["state"] == "queued"

    drained = skillyard("worker", "--drain")

    assert drained.returncode == 0, drained.stderr
    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert (job["id"], job["state"], job["summary"]) == (queued["id"], "success", "workflow done: hello, 2 steps")
    over = skillyard("flow", "resume", queued["id"], "--json")
    assert "is over" in said(over)["data"]["msg"]


def test_ctrl_c_cancels_and_a_living_flow_is_not_resumed(
    skillyard: Skillyard, hello: Path, places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    write_skill(
        "wait",
        "---\nname: wait\ndescription: Waits.\ncommand: sh wait.sh\ntimeout: 600\n---\n",
        {"wait.sh": "touch mybox/began\nwhile true; do sleep 0.1; done\n"},
    )
    hello.write_text("steps: [{skill: wait}, {skill: echo, params: {text: never}}]")
    child = subprocess.Popen(
        [sys.executable, "-m", "skillyard", "flow", "run", "hello", "--json"],
        cwd=project,
        env=env_of(places),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in its background with Ctrl-C ignored, and so would be everything below it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    wait_until((project / "mybox" / "began").exists)
    flow_id = said(skillyard("flow", "--json"))["data"]["workflows"][0]["latest"]["id"]
    alive = skillyard("flow", "resume", flow_id, "--json")
    assert "is alive" in said(alive)["data"]["msg"]

    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)

    assert child.returncode == 130, err
    result: Any = json.loads(out)
    assert (result["state"], result["data"]["type"]) == ("error", "Cancelled")
    (shown,) = said(skillyard("flow", "show", flow_id, "--json"))["data"]["flows"]
    assert shown["state"] == "cancelled"
    assert [(step["step"], step["state"]) for step in shown["steps"]] == [("wait", "cancelled"), ("echo", "waiting")]
    assert said(skillyard("jobs", "--json"))["data"]["jobs"][0]["state"] == "cancelled"


def test_the_workflow_of_a_prompt_with_several_steps_runs_as_it_is_written(
    skillyard: Skillyard, hello: Path, project: Path
) -> None:
    refused = said(skillyard("task", "skills", "two", "执行 @echo '第一 ${x}' 然后 执行 @echo 第二", "--json"))
    assert refused["data"]["type"] == "MultiStep"
    assert "skillyard flow run workflow.yaml" in refused["meta"]["hint"]

    (project / "workflow.yaml").write_text(refused["data"]["workflow"], "utf-8")
    done = said(skillyard("flow", "run", "workflow.yaml", "--json"))

    assert (done["state"], done["data"]["result"]["content"]) == ("success", "第二")
    first = said(skillyard("runs", "show", f"{done['meta']['run']}.1", "--json"))["data"]["runs"][0]
    assert first["result"]["data"]["content"] == "第一 ${x}"


def test_a_scheduled_flow_runs_and_one_that_is_gone_says_so(skillyard: Skillyard, hello: Path) -> None:
    added = skillyard("jobs", "add", "@daily", "flow:hello", "who=Bo", "--name", "greet", "--json")
    assert added.returncode == 0, added.stdout

    ran = said(skillyard("jobs", "run", "greet", "--json"))
    hello.unlink()
    gone = said(skillyard("jobs", "run", "greet", "--json"))

    assert (ran["state"], ran["data"]["result"][0]["content"]) == ("success", "你好 Bo 😀")
    assert gone["state"] == "error"
    assert "no workflow 'hello'" in gone["data"]["msg"], gone


def test_names_and_texts_of_a_file_cannot_move_the_cursor(skillyard: Skillyard, hello: Path) -> None:
    hello.write_text('description: "a\\e[2J"\nsteps: [{id: "x\\e[2J", skill: "y\\e[2J", params: {t: "${a\\e[2J}"}}]')

    for words in (("flow",), ("flow", "validate"), ("flow", "run", "hello")):
        done = skillyard(*words)
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_the_schema_is_printed_for_editors(skillyard: Skillyard) -> None:
    assert json.loads(skillyard("flow", "schema").stdout)["title"] == "workflow.yaml"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_is_said_plainly(skillyard: Skillyard, hello: Path, places: ProjectPaths) -> None:
    places.own_home.chmod(0o500)
    done = skillyard("flow", "run", "hello", "--json")
    places.own_home.chmod(0o700)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
