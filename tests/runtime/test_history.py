"""What ran is kept: the row, the log, the use; nothing of it is lost, half-written or secret."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.envelope import from_json
from skillyard.core.result import Request
from skillyard.core.secrets import MASK, Redactor
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.runtime.record import Recorder
from skillyard.store.database import open_database
from skillyard.store.runs import Run, Runs
from skillyard.trust.permissions import grant
from tests.conftest import Skillyard, WriteSkill

SAY = "---\nname: say\ndescription: x\ncommand: sh say.sh {text}\n---\n"


def variables(places: ProjectPaths) -> dict[str, str]:
    return {**os.environ, "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home), "SKILLYARD_LANG": "en"}


def test_a_run_is_kept_with_what_was_asked_started_and_answered(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("say", SAY, {"say.sh": 'echo "$1"; echo working >&2\n'})

    result = yard.runtime.run(Request(name="say", args=("你好",)))

    run = yard.history.find(str(result.meta["run"]))
    assert run is not None
    assert run.request["params"] == {"text": "你好"}
    argv = run.launch["argv"]
    assert isinstance(argv, list)
    assert argv[-1] == "你好"
    assert (run.launch["exit"], run.launch["stdout_bytes"], run.launch["timed_out"]) == (0, 7, False)
    assert run.result["data"] == {"skill": "say", "content": "你好"}
    assert (run.state, yard.logs.read(run.id)) == ("success", "working\n")
    assert run.seconds is not None


def test_of_too_much_output_the_start_and_the_end_are_kept_without_secrets(
    yard: Project, write_skill: WriteSkill
) -> None:
    program = "import sys; sys.stdout.write('first sk-' + 'a' * 30 + '\\n' + 'y' * 12_000_000 + '\\nlast')"
    write_skill("big", "---\nname: big\ndescription: x\ncommand: python3 big.py\n---\n", {"big.py": program})

    result = yard.runtime.run(Request(name="big"))

    run = str(result.meta["run"])
    log = yard.logs.read(run)
    assert result.data["type"] == "OutputTooLarge"
    assert f"kept in skillyard runs show {run}" in str(result.meta["hint"])
    assert f"\nfirst {MASK}\ny" in log
    assert "bytes left out ...]\ny" in log
    assert len(log) < 10_000


def test_a_failed_run_is_kept_too(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("say", SAY, {"say.sh": "echo broken >&2; exit 3\n"})

    result = yard.runtime.run(Request(name="say", args=("x",)))

    run = yard.history.find(str(result.meta["run"]))
    assert run is not None
    assert (run.state, run.launch["exit"]) == ("error", 3)


def test_what_never_started_is_no_run(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("say", SAY, {"say.sh": "echo x\n"})

    assert yard.runtime.run(Request(name="say")).state is State.PENDING
    assert yard.history.list() == ()
    assert yard.history.uses() == {}


def test_a_runtime_that_is_killed_leaves_no_program_and_its_run_gets_an_end(
    skillyard: Skillyard, places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("say", SAY, {"say.sh": "echo started >&2\nsleep 300\n"})
    runtime = subprocess.Popen(
        [sys.executable, "-m", "skillyard", "run", "@say", "x"],
        cwd=project,
        env=variables(places),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    assert runtime.stderr is not None
    assert runtime.stderr.readline() == b"| started\n"
    runs = from_json(skillyard("runs", "--json").stdout).data["runs"]
    assert isinstance(runs, list)
    assert [run["state"] for run in runs] == ["running"]
    marker = str(runs[0]["id"])

    runtime.send_signal(signal.SIGKILL)
    runtime.wait()
    runtime.stderr.close()

    await_no_process(marker)
    after = from_json(skillyard("runs", "--json").stdout).data["runs"]
    assert isinstance(after, list)
    assert [run["state"] for run in after] == ["error"]


def await_no_process(marker: str) -> None:
    """Until no process has the run's id in its environment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not any(marker.encode() in environment(pid) for pid in process_ids()):
            return
        time.sleep(0.02)  # between two looks at the process list, which sends no events
    pytest.fail("the program outlived its runtime")


def process_ids() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def environment(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""


def test_tail_follows_a_run_until_it_ends(
    skillyard: Skillyard, places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("say", SAY, {"say.sh": "echo first >&2\nwhile [ ! -e mybox/go ]; do sleep 0.05; done\necho last >&2\n"})
    command = [sys.executable, "-m", "skillyard"]
    env = variables(places)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen([*command, "run", "@say", "x"], cwd=project, env=env, **pipes) as run:  # type: ignore[call-overload]
        assert run.stderr.readline() == b"| first\n"
        runs = from_json(skillyard("runs", "--json").stdout).data["runs"]
        assert isinstance(runs, list)
        with subprocess.Popen([*command, "runs", "tail", runs[0]["id"]], cwd=project, env=env, **pipes) as tail:  # type: ignore[call-overload]
            assert tail.stdout.readline() == b"first\n"
            (project / "mybox" / "go").touch()
            assert tail.communicate(timeout=60)[0] == b"last\n"
        run.communicate(timeout=60)


def test_uses_are_counted_once_for_each_run_under_concurrency(
    yard: Project, places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("say", SAY, {"say.sh": "echo x\n"})
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "skillyard", "run", "@say", "x"],
            cwd=project,
            env=variables(places),
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        for _ in range(8)
    ]

    assert [racer.wait(120) for racer in racers] == [0] * 8
    assert yard.history.uses() == {"say": 8}
    assert len(yard.history.list(100)) == 8


def test_only_successful_runs_of_programs_are_uses_and_a_prompt_is_loaded(
    yard: Project, write_skill: WriteSkill
) -> None:
    text = "---\nname: {0}\ndescription: x\n{1}\n---\n"
    write_skill(
        "命令",
        text.format("命令", "command: python3 go.py {code}"),
        {"go.py": "import sys\nsys.exit(int(sys.argv[1]))"},
    )
    answer = "import json, sys\nprint(json.dumps({'success': json.load(sys.stdin)['action'] == 'good', 'data': {}}))\n"
    write_skill("接口", text.format("接口", "protocol: json\nentry: go.py"), {"go.py": answer})
    write_skill("提示", text.format("提示", "license: MIT"))

    for code in ("0", "0", "1"):
        yard.runtime.run(Request(name="命令", args=(code,)))
    for action in ("good", "bad"):
        yard.runtime.run(Request(name="接口", action=action))
    for _ in range(3):
        yard.runtime.run(Request(name="提示"))

    assert yard.history.uses() == {"命令": 2, "接口": 1}
    assert yard.history.loads() == {"提示": 3}


def test_only_so_many_runs_are_kept_and_their_logs_go_with_them(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("say", SAY, {"say.sh": "echo x >&2\n"})
    runtime = yard.runtime._replace(recorder=Recorder(yard.history, yard.logs, keep=2))

    ids = [str(runtime.run(Request(name="say", args=(str(number),))).meta["run"]) for number in range(4)]

    assert [run.id for run in yard.history.list()] == [ids[3], ids[2]]
    assert [yard.logs.path(run_id).exists() for run_id in ids] == [False, False, True, True]
    assert yard.history.uses() == {"say": 4}


def test_the_history_of_jobs_is_kept_apart_from_other_runs(yard: Project, write_skill: WriteSkill) -> None:
    def put(name: str, hours: float, *, state: str = "success", job: str = "", schedule: str = "") -> None:
        about: dict[str, Json] = {"job": {"label": job, "schedule": schedule} if schedule else {"label": job}}
        yard.history.put(Run(name, "skills", "s", "command", state, now - hours * 3600, 1.0, job, about if job else {}))

    write_skill("say", SAY, {"say.sh": "echo x\n"})
    now = time.time()
    for number in range(105):
        put(f"tick{number:03}", 40 * 24 + number, job="nightly", schedule="nightly")
        put(f"job{number:03}", 1 + number / 100, job="by-hand")
    put("failed", 29 * 24, state="error", job="by-hand")
    put("failed-long-ago", 31 * 24, state="error", job="by-hand")
    runtime = yard.runtime._replace(recorder=Recorder(yard.history, yard.logs, keep=2))

    def ids(start: str) -> list[str]:
        return [run.id for run in yard.history.list(1000) if run.id.startswith(start)]

    for number in range(4):
        assert runtime.run(Request(name="say", args=(str(number),))).ok
    assert (len(ids("tick")), len(ids("job")), len(yard.history.list(1000))) == (105, 105, 214)

    assert runtime.run(Request(name="say", args=("x",), job={"label": "by-hand"})).ok
    assert ids("tick") == [f"tick{number:03}" for number in range(100)]
    assert ids("job") == ["job000"]
    assert ids("failed") == ["failed"]
    assert len([run for run in yard.history.list(1000) if not run.job]) == 2


def test_a_secret_that_was_passed_is_masked_wherever_it_is_kept(
    yard: Project, write_skill: WriteSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill("say", SAY, {"say.sh": 'echo "got $API_TOKEN" >&2; echo "$API_TOKEN"\n'})
    yard.catalog.sync()
    grant(yard.grants, yard.catalog.resolve("say"), ("env:API_TOKEN",))
    monkeypatch.setenv("API_TOKEN", "very-secret-value")

    result = yard.runtime.run(Request(name="say", args=("x",)))

    run_id = str(result.meta["run"])
    run = yard.history.find(run_id)
    assert run is not None
    assert "very-secret-value" not in str(run)
    assert yard.logs.read(run_id) == f"got {MASK}\n"
    assert "very-secret-value" not in str(result)


def test_an_environment_variable_that_nobody_granted_does_not_reach_the_program(
    yard: Project, write_skill: WriteSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill("say", SAY, {"say.sh": 'echo "[$API_TOKEN]"\n'})
    monkeypatch.setenv("API_TOKEN", "very-secret-value")

    assert yard.runtime.run(Request(name="say", args=("x",))).data["content"] == "[]"


@pytest.mark.parametrize(
    "text",
    [
        "key sk-ant-api03-0123456789abcdefghij",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "Authorization: Bearer abcdefghijklmnopqrstuvwxyz",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_key_is_masked(text: str) -> None:
    assert MASK in Redactor().text(text)


@given(st.text())
def test_ordinary_text_without_keys_stays_as_it_is(text: str) -> None:
    masked = Redactor().text(text)

    assert masked == text or MASK in masked


def test_a_database_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    open_database(path).close()
    again = open_database(path)

    assert Runs(again, "p").list() == ()
    again.close()


def test_a_database_that_is_none_is_said_plainly_and_kept(
    skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("say", SAY, {"say.sh": "echo x\n"})
    places.database.write_bytes(b"this is not a database" * 100)

    shown = skillyard("run", "@say", "x")

    assert shown.returncode == 0
    assert "not a database" in shown.stderr
    assert "Traceback" not in shown.stderr
    (kept,) = places.own_home.glob("state.db.damaged-*Z")
    assert kept.read_bytes() == b"this is not a database" * 100
