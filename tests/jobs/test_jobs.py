"""Jobs through the real pipeline: attempts, retries, dead letters, cancelling, content, and the commands."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project, new_run_id
from skillyard.core.errors import InvalidArgs, ParamMissing, SkillNotFound
from skillyard.core.values import Json
from skillyard.jobs.engine import Ticket
from skillyard.jobs.jobs import (
    Job,
    JobFilter,
    Jobs,
    JobStatus,
    may_pass,
    next_attempt,
    parse_since,
    pause_seconds,
)
from skillyard.jobs.project_jobs import WorkerLoop
from skillyard.jobs.schedule import ProjectSchedules
from skillyard.trust.consent import trust
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.memory_engine import MemoryEngine

SECONDS = 60.0
ECHO = "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n"
FAIL = "---\nname: fail\ndescription: Fails every time.\ncommand: false\n---\n"
SLOW = "---\nname: slow\ndescription: Takes its time.\ncommand: sleep {n}\n---\n"


class Place:
    """A project with an engine in memory and somebody who serves it."""

    def __init__(self, yard: Project) -> None:
        self.yard = yard
        self.engine = MemoryEngine()
        self.jobs = Jobs(self.engine, yard.history, new_run_id)
        self.attempts = yard.jobs.attempts()
        self.told: list[str] = []

    def serve(self, count: int = 1) -> None:
        self.engine.serve(self.attempts, {"default": count}, lambda: None)

    def done(self, job: Job) -> JobStatus:
        known = self.jobs.wait(self.jobs.enqueue(self.yard.jobs.prepare(job)), SECONDS)
        assert known is not None
        return known


@pytest.fixture
def place(yard: Project, write_skill: WriteSkill) -> Iterator[Place]:
    for name, text in (("echo", ECHO), ("fail", FAIL), ("slow", SLOW)):
        write_skill(name, text)
    made = Place(yard)
    yield made
    made.engine.close(SECONDS)


def data_of(known: JobStatus) -> Any:
    return known.result["data"]


def test_a_job_is_a_run_under_the_same_id_with_the_host_that_did_it(place: Place) -> None:
    place.serve()
    known = place.done(Job("echo", args=("你好 😀",)))

    assert (known.state, data_of(known)["content"]) == ("success", "你好 😀")
    meta: Any = known.result["meta"]
    assert meta["run"] == known.id
    assert meta["host"]
    run = place.yard.history.find(known.id)
    assert run is not None
    assert (run.state, run.job, run.skill) == ("success", "echo", "echo")


def test_the_skill_is_handed_the_run_id(place: Place, write_skill: WriteSkill) -> None:
    write_skill("who", "---\nname: who\ndescription: Says its run.\ncommand: printenv SKILLYARD_RUN\n---\n")
    place.serve()
    known = place.done(Job("who"))

    assert data_of(known)["content"] == known.id


def test_what_cannot_run_is_refused_before_it_is_queued(place: Place) -> None:
    with pytest.raises(ParamMissing):
        place.yard.jobs.prepare(Job("echo"))
    with pytest.raises(SkillNotFound):
        place.yard.jobs.prepare(Job("nobody"))


def test_nobody_can_answer_so_a_missing_param_is_an_error_in_a_job(place: Place) -> None:
    place.serve()
    known = place.jobs.wait(place.jobs.enqueue(Job("echo")), SECONDS)

    assert known is not None
    assert (known.state, data_of(known)["type"]) == ("error", "ParamMissing")
    row = place.yard.history.find(known.id)
    assert row is not None
    assert row.state == "error", "history knows it, though no program was started"


def test_a_param_names_no_path_outside_the_project(place: Place, write_skill: WriteSkill, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    write_skill("show", "---\nname: show\ndescription: Shows a file.\ncommand: cat {file}\n---\n")
    place.serve()
    known = place.done(Job("show", args=(str(secret),)))

    assert known.state == "error"
    assert "hunter2" not in json.dumps(known.result)


def test_a_failure_that_may_pass_is_tried_again_and_then_lies_there_to_be_retried(place: Place) -> None:
    place.attempts._tell = place.told.append
    job = place.yard.jobs.prepare(Job("fail", retries=1))
    place.serve()
    known = place.jobs.wait(place.jobs.enqueue(job), SECONDS)

    assert known is not None
    assert (known.state, known.job.attempt) == ("error", 2)
    assert known.run == f"{known.id}-2"
    assert [run.id for run in place.yard.history.list_jobs(10)] == [known.run, known.id]
    (listed,) = place.jobs.list(10)
    assert (listed.id, listed.state, listed.job.attempt) == (known.id, "error", 2)

    again = place.jobs.retry(known.id)
    assert (again.state, again.run) == ("queued", f"{known.id}-3")
    assert place.jobs.wait(again.run, SECONDS) is not None
    with pytest.raises(InvalidArgs, match="no job"):
        place.jobs.retry("zzz")


def test_a_failure_that_is_the_same_the_next_time_is_not_tried_again() -> None:
    failed: dict[str, Json] = {"state": "error", "data": {"type": "RuntimeFailed"}}
    assert may_pass(failed)
    assert may_pass({"state": "timeout", "data": {}})
    for kind in ("ParamMissing", "InvalidParam", "SkillNotFound", "NotGranted", "Cancelled", "PermissionDenied"):
        assert not may_pass({"state": "error", "data": {"type": kind}})
    assert not may_pass({"state": "success", "data": {}})
    job = Job("x", retries=2)
    again = next_attempt("id", job, failed)
    assert again is not None
    assert again.id == "id-2"
    assert next_attempt("id-3", job._replace(attempt=3, first="id"), failed) is None


def test_pauses_grow_by_themselves_and_by_chance_up_to_an_hour() -> None:
    pauses = [pause_seconds("id", attempt) for attempt in range(1, 30)]

    assert pauses == [pause_seconds("id", attempt) for attempt in range(1, 30)]
    assert all(2.0 * 2**number <= pause <= 3.0 * 2**number for number, pause in enumerate(pauses[:8]))
    assert max(pauses) <= 5400
    assert pause_seconds("other", 1) != pauses[0]


def test_a_queued_job_that_is_cancelled_never_runs_and_history_says_so(place: Place) -> None:
    job_id = place.jobs.enqueue(place.yard.jobs.prepare(Job("echo", args=("x",))))
    cancelled = place.jobs.cancel(job_id)
    place.serve()
    place.done(Job("echo", args=("y",)))

    assert (cancelled.state, data_of(cancelled)["type"]) == ("cancelled", "Cancelled")
    row = place.yard.history.find(job_id)
    assert row is not None
    assert "cancelled" in str(row.result["summary"])
    with pytest.raises(InvalidArgs, match="is over"):
        place.jobs.cancel(job_id)


def test_a_job_that_is_cancelled_while_it_runs_is_stopped_with_everything_it_started(place: Place) -> None:
    place.serve()
    job_id = place.jobs.enqueue(place.yard.jobs.prepare(Job("slow", args=("600",), retries=5)))
    shift = make_worker_loop(place)
    wait_until(lambda: bool(place.attempts.underway.list()) and running(place, job_id))
    place.jobs.cancel(job_id)
    shift.watch()
    wait_until(lambda: not place.attempts.underway.list())

    def row() -> tuple[str, object]:
        found = place.yard.history.find(job_id)
        return (found.state, found.result.get("summary")) if found else ("", "")

    wait_until(lambda: row() == ("cancelled", "Cancelled: the job was cancelled: slow"))
    assert f"{job_id}: cancelled" in place.told
    assert len(place.jobs.list(10)) == 1, "and it is not tried again"


def running(place: Place, job_id: str) -> bool:
    row = place.yard.history.find(job_id)
    return row is not None and row.state == "running"


def make_worker_loop(place: Place) -> WorkerLoop:
    return WorkerLoop(
        jobs=place.jobs,
        attempts=place.attempts,
        schedules=place.yard.jobs.schedules(place.told.append),
        job_of=place.yard.jobs.for_schedule,
        project="p",
        tell=place.told.append,
    )


def wait_until(claim: Callable[[], bool], seconds: float = SECONDS) -> None:
    pause = threading.Event()
    for _ in range(int(seconds * 100)):
        if claim():
            return
        pause.wait(0.01)
    pytest.fail("it never came true")


def test_a_skill_that_changed_since_it_was_queued_is_not_run(place: Place, write_skill: WriteSkill) -> None:
    job = place.yard.jobs.prepare(Job("echo", args=("x",)))
    write_skill("echo", ECHO.replace("echo {text}", "echo changed {text}"))
    job_id = place.jobs.enqueue(job)
    place.serve()
    known = place.jobs.wait(job_id, SECONDS)

    assert known is not None
    assert "the skill changed" in str(known.result["summary"])

    again = place.jobs.wait(place.jobs.retry(known.id).run, SECONDS)
    assert again is not None
    assert data_of(again)["content"] == "changed x", "a person who retries means the skill as it is now"


def test_a_worker_without_the_skill_restores_it_from_the_lock(
    place: Place, skillyard: Skillyard, tmp_path: Path, project: Path
) -> None:
    source = tmp_path / "source" / "far"
    source.mkdir(parents=True)
    (source / "SKILL.md").write_text("---\nname: far\ndescription: Says where it is from.\ncommand: echo far\n---\n")
    added = skillyard("add", str(source))
    assert added.returncode == 0, added.stdout
    job = place.yard.jobs.prepare(Job("far"))
    (project / ".claude" / "skills" / "far" / "SKILL.md").unlink()
    place.yard.catalog.sync()
    job_id = place.jobs.enqueue(job)
    place.serve()
    known = place.jobs.wait(job_id, SECONDS)

    assert known is not None
    assert (known.state, data_of(known).get("content")) == ("success", "far")


def test_a_command_is_told_of_a_failure_for_good_and_its_own_failure_is_kept(place: Place, project: Path) -> None:
    place.serve()
    told = place.done(Job("fail", on_failure="cp /dev/stdin mybox/told.json"))
    untold = place.done(Job("fail", on_failure="no-such-program-here"))

    assert told.told["ok"] is True
    letter = json.loads((project / "mybox" / "told.json").read_text())
    assert (letter["job"], letter["id"], letter["result"]["state"]) == ("fail", told.id, "error")
    assert untold.told["ok"] is False
    assert "no-such-program-here" in str(untold.told["msg"])


AGENT = """\
metadata: {{name: Dev}}
skills:
  - {{name: echo, entry: .claude/skills/echo.py, actions: [say]}}
schedule:
  - cron: "{cron}"
    skill: echo
    action: say
    params: {{text: hello}}
"""


def test_a_notice_that_fails_is_logged_and_sent_again(place: Place, project: Path) -> None:
    place.attempts._tell = place.told.append
    (project / "flaky.sh").write_text(
        "#!/bin/sh\nif [ -e mybox/once ]; then exec cp /dev/stdin mybox/told.json; fi\ntouch mybox/once; exit 3\n"
    )
    (project / "flaky.sh").chmod(0o755)
    place.serve()
    known = place.done(Job("fail", on_failure="./flaky.sh"))
    wait_until((project / "mybox" / "told.json").exists)
    wait_until(lambda: place.jobs.find(known.id).told["ok"] is True)

    assert known.told["ok"] is False
    assert json.loads((project / "mybox" / "told.json").read_text())["id"] == known.id
    assert any("the notice failed and is sent again: " in text for text in place.told)
    assert [each.id for each in place.jobs.list(10)] == [known.id], "a notice is no job"


def test_a_schedule_that_fails_in_the_same_way_is_told_of_once(place: Place, project: Path) -> None:
    count = "python3 -c \"import sys; open('mybox/told', 'a').write(sys.stdin.read() + chr(10))\""
    place.serve()
    first, again = (place.done(Job("fail", schedule="s", on_failure=count)) for _ in range(2))
    place.done(Job("echo", args=("x",), schedule="s", name="fail"))
    after = place.done(Job("fail", schedule="s", on_failure=count))
    adhoc = [place.done(Job("fail", on_failure=count)) for _ in range(2)]

    told = [json.loads(line)["id"] for line in (project / "mybox" / "told").read_text().splitlines()]
    assert told == [first.id, after.id, *(each.id for each in adhoc)]
    assert (again.told["ok"], again.told["repeats"]) == (True, 1)


def test_who_names_nobody_to_tell_gets_the_notifier_of_the_settings(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("fail", FAIL)
    yard.paths.own_home.mkdir(exist_ok=True)
    (yard.paths.own_home / "config.toml").write_text('[jobs]\nnotify = "cp /dev/stdin mybox/told.json"\n')
    place = Place(yard)
    place.serve()
    known = place.done(Job("fail"))
    place.engine.close(SECONDS)

    assert known.told["ok"] is True
    assert json.loads((yard.root / "mybox" / "told.json").read_text())["id"] == known.id


def test_a_schedule_that_waits_for_trust_is_told_once(place: Place, project: Path) -> None:
    file = project / "agents" / "dev" / "agent.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(AGENT.format(cron="0 9 * * *"))
    notices: list[Any] = []

    def work() -> WorkerLoop:
        schedules = place.yard.jobs.schedules(place.told.append)
        made = make_worker_loop(place)._replace(schedules=schedules, untrusted=schedules.untrusted)
        return made._replace(notify=notices.append)

    for _ in range(2):
        shift = work()
        shift.tick()
        shift.tell_waiting()
        shift.tell_waiting()
    assert [each["schedules"] for each in notices] == [["dev/echo"]]

    trust(place.yard.grants, project)
    work().tick()
    assert place.engine.timetable.list()[0].when.startswith("0 9 * * * ")
    (file.parent / "more.py").write_text("x")
    work().tell_waiting()
    assert len(notices) == 2


def test_jobs_and_doctor_say_which_schedules_wait_for_trust(skillyard: Skillyard, project: Path) -> None:
    file = project / "agents" / "dev" / "agent.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(AGENT.format(cron="0 9 * * *"))

    assert "wait for `skillyard trust`: dev/echo" in skillyard("jobs").stdout
    assert json.loads(skillyard("jobs", "--json").stdout)["data"]["waiting"] == ["dev/echo"]
    assert "wait for `skillyard trust`: dev/echo" in skillyard("doctor").stdout
    assert skillyard("trust", "--accept").returncode == 0
    assert "waiting" not in json.loads(skillyard("jobs", "--json").stdout)["data"]
    assert "skillyard trust" not in skillyard("doctor").stdout


def test_a_replaced_run_is_replaced_and_no_failure(place: Place, project: Path) -> None:
    told = project / "mybox" / "told"
    place.serve(2)
    old = place.jobs.enqueue(place.yard.jobs.prepare(Job("slow", args=("600",), on_failure=f"touch {told}")))
    wait_until(lambda: bool(place.attempts.underway.list()) and running(place, old))
    new = place.jobs.enqueue(place.yard.jobs.prepare(Job("echo", args=("x",)))._replace(replaces=old))
    place.jobs.replace(place.jobs.find(old))
    make_worker_loop(place).watch()
    wait_until(lambda: not place.attempts.underway.list())

    def row() -> tuple[str, object]:
        found = place.yard.history.find(old)
        return (found.state, found.result.get("summary")) if found else ("", "")

    wait_until(lambda: row() == ("replaced", "Cancelled: replaced by the next run: slow"))
    assert {each.id: each.state for each in place.jobs.list(10)}[old] == "replaced"
    assert place.jobs.wait(new, SECONDS) is not None
    assert not told.exists()


def test_schedules_of_a_role_wait_for_trust_in_exactly_its_bytes(place: Place, project: Path) -> None:
    file = project / "agents" / "dev" / "agent.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(AGENT.format(cron="0 9 * * *"))
    schedules = place.yard.jobs.schedules(place.told.append)
    assert schedules(()) == ()
    assert [each.name for each in schedules.untrusted()] == ["dev/echo"]

    trust(place.yard.grants, project)
    assert [each.when for each in place.yard.jobs.schedules(place.told.append)(())] == ["0 9 * * *"]
    file.write_text(AGENT.format(cron="0 10 * * *"))
    changed = place.yard.jobs.schedules(place.told.append)
    assert (changed(()), [each.when for each in changed.untrusted()]) == ((), ["0 10 * * *"])


def test_a_role_that_changed_since_the_worker_looked_fires_nothing(place: Place, project: Path) -> None:
    file = project / "agents" / "dev" / "agent.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(AGENT.format(cron="* * * * *"))
    trust(place.yard.grants, project)
    shift = make_worker_loop(place)
    shift.tick()
    (line,) = place.engine.timetable.list()
    place.engine.timetable.put(line._replace(until=line.until - 120))
    (file.parent / "more.py").write_text("another program")
    shift.tick()

    assert place.jobs.list(10) == ()
    assert place.told[-1] == "dev/echo: Not granted: the schedule dev/echo"


def test_a_roles_file_is_read_again_when_it_changes_and_a_mistake_keeps_what_it_said(project: Path) -> None:
    file = project / "agents" / "dev" / "agent.yaml"
    file.parent.mkdir(parents=True)
    told: list[str] = []
    schedules = ProjectSchedules(project, lambda *_: True, told.append)
    file.write_text(AGENT.format(cron="0 9 * * *"))
    assert [each.when for each in schedules(())] == ["0 9 * * *"]
    file.write_text(AGENT.format(cron="0 0 31 2 *"))
    assert [each.when for each in schedules(())] == ["0 9 * * *"], "what it said before"
    assert "schedule[0].cron" in told[0]
    assert "skillyard role validate dev" in told[0]
    file.write_text("skills: [\n")
    assert [each.when for each in schedules(())] == ["0 9 * * *"], "half of a file is none"
    assert len(told) == 2
    file.write_text(AGENT.format(cron="0 10 * * *"))
    assert [each.when for each in schedules(())] == ["0 10 * * *"]
    file.unlink()
    assert schedules(()) == ()


# -- the commands, with the real engine


@pytest.fixture
def quick(places: ProjectPaths, write_skill: WriteSkill) -> ProjectPaths:
    """Workers that look often."""
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.05\n")
    for name, text in (("echo", ECHO), ("fail", FAIL), ("slow", SLOW)):
        write_skill(name, text)
    return places


def said(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_from_enqueue_to_history_by_commands_alone(quick: ProjectPaths, skillyard: Skillyard) -> None:
    queued = said(skillyard("jobs", "enqueue", "@echo", "hi", "--json", "--name", "问候"))["data"]["jobs"][0]
    assert (queued["name"], queued["state"], queued["args"]) == ("问候", "queued", ["hi"])
    refused = skillyard("jobs", "enqueue", "@echo", "--json")
    assert (refused.returncode, said(refused)["data"]["type"]) == (1, "ParamMissing")

    worked = skillyard("worker", "--drain", "--json")
    assert (worked.returncode, said(worked)["state"]) == (0, "success")
    assert "DBOS" not in worked.stderr

    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert (job["id"], job["state"]) == (queued["id"], "success")
    shown = said(skillyard("jobs", "show", job["id"][:16], "--json"))["data"]
    assert shown["jobs"][0]["result"]["data"]["content"] == "hi"
    assert shown["runs"][0]["id"] == job["id"]
    (run,) = said(skillyard("jobs", "history", "--json"))["data"]["runs"]
    assert run["id"] == job["id"]
    assert skillyard("jobs", "retry", job["id"]).returncode == 1


def test_the_list_takes_its_options_with_and_without_its_word(quick: ProjectPaths, skillyard: Skillyard) -> None:
    for name in ("one", "two"):
        skillyard("jobs", "enqueue", "@fail", "--name", name)
    skillyard("worker", "--drain")

    (latest,) = said(skillyard("jobs", "--limit", "1", "--failed", "--json"))["data"]["jobs"]
    assert latest["name"] == "two"
    assert len(said(skillyard("jobs", "list", "--failed", "--json"))["data"]["jobs"]) == 2
    assert "at least 0" in skillyard("jobs", "enqueue", "@fail", "--retries", "-1").stderr


def test_add_shows_the_next_three_runs_and_run_does_it_now(quick: ProjectPaths, skillyard: Skillyard) -> None:
    added = skillyard(
        "jobs", "add", "0 9 * * 1-5", "@echo", "morning", "--name", "m", "--timezone", "Europe/Berlin", "--json"
    )
    (schedule,) = said(added)["data"]["schedules"]
    assert len(schedule["next"]) == 3
    assert all("T09:00+0" in tick for tick in schedule["next"])
    assert skillyard("jobs", "add", "@daily", "@echo", "x", "--name", "m").returncode == 1, "one name, one schedule"
    assert skillyard("jobs", "add", "61 * * * *", "@echo", "x").returncode == 1

    now = said(skillyard("jobs", "run", "m", "--json"))
    assert (now["agent"], now["state"], now["data"]["content"]) == ("skills", "success", "morning")
    assert said(skillyard("jobs", "pause", "m", "--json"))["data"]["schedules"][0]["next"] == []
    assert said(skillyard("jobs", "schedules", "--json"))["data"]["schedules"][0]["paused"] is True
    assert said(skillyard("jobs", "resume", "m", "--json"))["data"]["schedules"][0]["paused"] is False
    assert skillyard("jobs", "remove", "m").returncode == 0
    assert said(skillyard("jobs", "schedules", "--json"))["data"]["schedules"] == []


def test_a_database_of_the_projects_own_choice_waits_for_trust(
    quick: ProjectPaths, skillyard: Skillyard, project: Path
) -> None:
    (project / "skillyard.toml").write_text('[engine]\ndatabase = "postgresql://me:hunter2@127.0.0.1:1/x"\n')
    refused = skillyard("jobs", "--json")
    assert said(refused)["data"]["grant"] == "skillyard trust"
    wanted = skillyard("trust", "--check", "--json").stdout
    assert "postgresql://me:•••@127.0.0.1:1/x" in wanted
    assert "hunter2" not in wanted

    assert skillyard("trust", "--accept").returncode == 0
    tried = skillyard("jobs", "--json")
    assert "postgresql://me:***@127.0.0.1:1/x" in said(tried)["data"]["msg"]
    assert "skillyard.toml" in said(tried)["meta"]["hint"]
    assert "hunter2" not in tried.stdout + tried.stderr


def test_a_limit_of_a_queue_stands_in_the_settings_and_the_users_word_is_the_last(
    places: ProjectPaths, project: Path, skillyard: Skillyard
) -> None:
    (project / "skillyard.toml").write_text("[engine.queues.reports]\nlimit = 4\n[engine.queues.slow]\nlimit = 1\n")
    (places.own_home / "config.toml").write_text("[engine.queues.reports]\nlimit = 2\n")
    with Project(places) as yard:
        assert yard.engine_config().limits == {"reports": 2, "slow": 1}

    for wrong in ("0", "-1", "1.5", "true", '"2"'):
        (project / "skillyard.toml").write_text(f"[engine.queues.reports]\nlimit = {wrong}\n")
        refused = said(skillyard("jobs", "--json"))["data"]["msg"]
        assert "[engine.queues.reports] limit must be a whole number from 1 on" in refused


def test_inside_an_agent_nobody_names_whom_to_tell(quick: ProjectPaths, skillyard: Skillyard) -> None:
    words = ("jobs", "enqueue", "@fail", "--on-failure", "https://example.org/x", "--json")
    refused = skillyard(*words, SKILLYARD_DEPTH="1")

    assert said(refused)["data"]["type"] == "PermissionDenied"
    assert said(skillyard("jobs", "--json"))["data"]["jobs"] == []


def env_of(places: ProjectPaths) -> dict[str, str]:
    return {**os.environ, "SKILLYARD_HOME": str(places.own_home), "HOME": str(places.user_home), "SKILLYARD_LANG": "en"}


def test_where_the_extra_is_missing_the_command_says_how_to_get_it(quick: ProjectPaths, tmp_path: Path) -> None:
    """As on a machine without it: a module of that name that cannot be imported stands first on the path."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sqlalchemy.py").write_text("raise ModuleNotFoundError('gone', name='sqlalchemy')\n")
    env = {**env_of(quick), "PYTHONPATH": str(blocked)}
    command = [sys.executable, "-m", "skillyard", "jobs", "--json"]
    done = subprocess.run(command, env=env, cwd=quick.project, capture_output=True, text=True)

    assert "pip install 'skillyard[jobs]'" in json.loads(done.stdout)["meta"]["hint"]


LOOK = """
import atexit, sys
atexit.register(lambda: print(sorted({"dbos", "sqlalchemy", "asyncio"} & set(sys.modules)), file=sys.stderr))
from skillyard.faces.cli.main import main
main()
"""


@pytest.mark.parametrize("words", ["list", "search echo", "run @echo x", "task skills d @echo"])
def test_commands_of_every_day_import_nothing_of_the_engine(quick: ProjectPaths, words: str) -> None:
    command = [sys.executable, "-c", LOOK, *words.split()]
    done = subprocess.run(command, env=env_of(quick), cwd=quick.project, capture_output=True, text=True)

    assert "[]\n" in done.stderr, done.stdout + done.stderr


def test_a_job_cancelled_after_its_worker_died_is_cancelled_everywhere(
    quick: ProjectPaths, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("slow", SLOW)
    job_id = said(skillyard("jobs", "enqueue", "@slow", "600", "--json"))["data"]["jobs"][0]["id"]
    command = [sys.executable, "-m", "skillyard", "worker"]
    worker = subprocess.Popen(command, env=env_of(quick), cwd=quick.project, stderr=subprocess.DEVNULL)
    with Project(quick) as project:

        def runs() -> bool:
            row = project.history.find(job_id)
            return row is not None and row.state == "running"

        wait_until(runs)
        worker.kill()
        worker.wait()
        assert skillyard("jobs", "cancel", job_id).returncode == 0
        row = project.find_run(job_id)

    assert row is not None
    assert (row.state, row.result["summary"]) == ("cancelled", "Cancelled: the job was cancelled: slow")
    assert said(skillyard("jobs", "--json"))["data"]["jobs"][0]["state"] == "cancelled"
    assert said(skillyard("jobs", "show", job_id, "--json"))["data"]["jobs"][0]["state"] == "cancelled"
    assert said(skillyard("jobs", "history", "--json"))["data"]["runs"][0]["state"] == "cancelled"
    assert skillyard("worker", "--drain").returncode == 0
    assert said(skillyard("jobs", "--json"))["data"]["jobs"][0]["state"] == "cancelled"


def test_the_list_is_filtered_and_paged_and_every_id_is_found(place: Place) -> None:
    place.serve()
    failed = place.done(Job("fail", schedule="nightly", name="nightly"))
    place.engine.enqueue(Ticket("other", "far", Job("dev/echo", queue="far", first="other").as_body()))
    ids = [place.done(Job("echo", args=(str(number),))).id for number in range(3)]

    def ids_of(offset: int = 0, limit: int = 20, **wanted: Any) -> list[str]:
        return [each.id for each in place.jobs.select(JobFilter(**wanted), offset, limit)[0]]

    assert ids_of(states=("error", "timeout")) == ids_of(schedule="nightly") == [failed.id]
    assert ids_of(skill="echo", queue="default") == ids[::-1]
    assert ids_of(role="dev") == ids_of(queue="far") == ids_of(skill="dev/echo") == ["other"]
    assert ids_of(1, 2, skill="echo", queue="default") == ids[1::-1]
    assert ids_of(since=time.time() + 60) == []
    assert [place.jobs.select(JobFilter(), 0, count)[1] for count in (4, 5)] == [True, False]


def test_a_moment_is_named_by_its_distance_or_its_date() -> None:
    assert parse_since("2h", 10_000.0) == 2800.0
    assert parse_since("2026-11-18T09:00+00:00", 0.0) == datetime(2026, 11, 18, 9, tzinfo=UTC).timestamp()
    with pytest.raises(InvalidArgs):
        parse_since("yesterday", 0.0)


def test_jobs_are_listed_by_filter_on_the_command_line(quick: ProjectPaths, skillyard: Skillyard) -> None:
    made = [said(skillyard("jobs", "enqueue", "@echo", text, "--json"))["data"]["jobs"][0]["id"] for text in "abc"]
    skillyard("jobs", "cancel", made[0])

    assert [each["id"] for each in said(skillyard("jobs", "--state", "cancelled", "--json"))["data"]["jobs"]] == made[
        :1
    ]
    page = said(skillyard("jobs", "--state", "queued,running", "--since", "1h", "--limit", "1", "--json"))["data"]
    assert ([each["id"] for each in page["jobs"]], page["more"]) == ([made[2]], True)
    assert "more follow: --offset 1" in skillyard("jobs", "list", "--state", "queued", "--limit", "1").stdout
    assert "there is no state done" in skillyard("jobs", "--state", "done").stdout
