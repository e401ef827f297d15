"""Flows change the project once, at their end: what the steps see, what becomes of it, and what a crash leaves."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.catalog.fingerprint import hash_folder
from skillyard.core.result import Request
from skillyard.store.grants import Grant
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.test_flow import SECONDS, Place, keep_in
from tests.jobs.test_jobs import env_of, said, wait_until

SH = "---\nname: sh\ndescription: Runs a line.\ncommand: sh sh.sh {line}\nparams: {line: {required: true}}\n---\n"
#: A line that waits where it is told to, after it has written something.
WAITS = "echo torn > c.txt; until test -e mybox/go; do sleep 0.05; done; cat a.txt > c.txt"


@pytest.fixture
def skills(write_skill: WriteSkill, project: Path) -> None:
    write_skill("sh", SH, {"sh.sh": 'eval "$1"\n'})
    for name in ("a.txt", "gone.txt"):
        (project / name).write_text(f"{name}\n")


def step(step_id: str, line: str, more: str = "") -> str:
    return f"  - {{id: {step_id}, skill: sh, params: {{line: '{line}'}}{more}}}\n"


def changed(result: Any) -> dict[str, str]:
    return {change["path"]: change["kind"] for change in result["data"].get("changes", [])}


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*.txt"))


def apply(place: Place) -> None:
    (kept,) = place.yard.changes.list(place.yard.root)
    place.yard.changes.apply(kept, place.yard.read_changes(kept).changes)


THREE = "steps:\n" + "".join(
    (
        step("one", "echo more >> a.txt; echo n > n.txt; rm gone.txt"),
        step("two", "cat a.txt; ls gone.txt; mv n.txt m.txt"),
        step("three", "cat a.txt m.txt > all.txt; cat all.txt"),
    )
)


def test_each_step_sees_what_came_before_and_the_project_changes_once(place: Place) -> None:
    result = place.run(THREE.replace("ls gone.txt", "test ! -e gone.txt"))

    assert result["state"] == "success", result
    assert result["data"]["result"]["content"] == "a.txt\nmore\nn"
    assert result["meta"]["changes"] == "pending"
    assert changed(result) == {
        "a.txt": "modified",
        "all.txt": "added",
        "gone.txt": "deleted",
        "m.txt": "added",
    }
    assert files(place.yard.root) == ["a.txt", "gone.txt"]
    (kept,) = place.yard.changes.list(place.yard.root)
    assert (kept.run, kept.skill, str(kept.state)) == (result["meta"]["run"], "flow:test", "pending")

    apply(place)

    assert files(place.yard.root) == ["a.txt", "all.txt", "m.txt"]
    assert (place.yard.root / "all.txt").read_text() == "a.txt\nmore\nn\n"
    assert list((place.yard.paths.own_home / "changes").iterdir()) == []


@pytest.mark.parametrize(("name", "state"), [("n.txt", "success"), ("none.txt", "error")])
def test_a_param_may_name_a_file_of_an_earlier_step(
    memory: Place, write_skill: WriteSkill, name: str, state: str
) -> None:
    params = "params: [{name: file, required: true, validation: file_exists}]"
    write_skill("show", f"---\nname: show\ndescription: x\ncommand: cat {{file}}\n{params}\n---\n")
    shows = f"  - {{id: two, skill: show, params: {{file: {name}}}}}\n"

    result = memory.run("steps:\n" + step("one", "echo n > n.txt") + shows)

    assert result["state"] == state, result


def test_a_flow_that_changes_nothing_leaves_nothing(memory: Place) -> None:
    result = memory.run("steps:\n" + step("one", "echo n > n.txt") + step("two", "rm n.txt"))

    assert result["state"] == "success"
    assert "changes" not in result["meta"]
    assert memory.yard.changes.list(memory.yard.root) == ()
    assert list((memory.yard.paths.own_home / "changes").iterdir()) == []


def test_a_failed_flow_changes_nothing_and_its_set_is_kept(place: Place, write_skill: WriteSkill) -> None:
    job = place.job("steps:\n" + step("one", "echo more >> a.txt") + step("two", "echo bad >> a.txt; sh mybox/do.sh"))
    place.engine.serve(place.attempts, {"default": 1}, lambda: None)
    failed = place.jobs.wait(place.jobs.enqueue(job), SECONDS)
    assert failed is not None
    result: Any = failed.result

    assert (result["state"], result["meta"]["changes"]) == ("error", "failed")
    assert changed(result) == {"a.txt": "modified"}
    assert (place.yard.root / "a.txt").read_text() == "a.txt\n"
    (kept,) = place.yard.changes.list(place.yard.root)
    assert str(kept.state) == "failed"
    assert "+more" in place.yard.diff_changes(kept, place.yard.read_changes(kept).changes)

    (place.yard.root / "mybox/do.sh").write_text("cat a.txt\n")
    again = place.jobs.wait(place.jobs.retry(failed.id).run, SECONDS)

    assert again is not None
    assert (again.state, again.result["data"]["result"]["content"]) == ("success", "a.txt\nmore\nbad")  # type: ignore[call-overload,index]
    (kept,) = place.yard.changes.list(place.yard.root)
    assert (kept.run, str(kept.state)) == (again.run, "pending"), "it took over what the first attempt had changed"
    apply(place)
    assert (place.yard.root / "a.txt").read_text() == "a.txt\nmore\nbad\n"


def test_a_retry_of_a_flow_whose_set_was_discarded_starts_anew(memory: Place) -> None:
    job = memory.job("steps:\n" + step("one", "echo more >> a.txt; echo x >> mybox/n") + step("two", "sh mybox/do.sh"))
    memory.engine.serve(memory.attempts, {"default": 1}, lambda: None)
    failed = memory.jobs.wait(memory.jobs.enqueue(job), SECONDS)
    assert failed is not None
    memory.yard.changes.discard(memory.yard.changes.list(memory.yard.root)[0])
    (memory.yard.root / "mybox/do.sh").write_text("cat a.txt\n")

    again = memory.jobs.wait(memory.jobs.retry(failed.id).run, SECONDS)

    assert again is not None
    assert again.result["data"]["result"]["content"] == "a.txt\nmore"  # type: ignore[call-overload,index]
    assert (memory.yard.root / "mybox/n").read_text() == "x\nx\n"


ITEMS = """
steps:
  - {id: each, skill: sh, for_each: [1, 2, 3], at_once: 2, params: {line: "LINE"}, on_failure: FAILURE}
  - {id: all, skill: sh, params: {line: "cat out/* a.txt"}}
"""


def test_items_start_from_the_state_before_their_step_and_fill_one_folder(place: Place) -> None:
    line = "test ! -e out && mkdir out && echo ${item} > out/${item}.txt"
    result = place.run(ITEMS.replace("LINE", line).replace("FAILURE", "stop"))

    assert result["state"] == "success", result
    assert result["data"]["result"]["content"] == "1\n2\n3\na.txt"
    assert set(changed(result)) == {"out", "out/1.txt", "out/2.txt", "out/3.txt"}


@pytest.mark.parametrize("failure", ["stop", "continue"])
def test_items_that_change_the_same_file_conflict(memory: Place, failure: str) -> None:
    line = "mkdir -p out && echo ${item} > out/${item}.txt; test ${item} = 2 || echo ${item} >> a.txt"
    result = memory.run(ITEMS.replace("LINE", line).replace("FAILURE", failure))

    (told,) = [each for each in result["data"]["failed"] if each["step"] == "each"]
    assert told["msg"] == "a.txt (each[0], each[2])"
    assert (memory.yard.root / "a.txt").read_text() == "a.txt\n"
    assert changed(result) == {}
    if failure == "stop":
        assert result["summary"].startswith("RuntimeFailed: step each: ")
        assert "let each item write files of its own" in result["meta"]["hint"]


def test_the_set_is_applied_where_every_step_may_change_what_it_changed(place: Place, write_skill: WriteSkill) -> None:
    write_skill("other", SH.replace("name: sh", "name: other"), {"sh.sh": 'eval "$1"\n'})
    grant(place.yard, "sh", "write:*.txt")
    text = "steps:\n" + step("one", "echo more >> a.txt") + step("two", "echo n > n.txt")

    result = place.run(text)
    assert (result["meta"]["changes"], files(place.yard.root)) == ("applied", ["a.txt", "gone.txt", "n.txt"])
    assert place.yard.changes.list(place.yard.root) == ()

    result = place.run(text + step("three", "echo o > o.txt").replace("skill: sh", "skill: other"))
    assert (result["meta"]["changes"], files(place.yard.root)) == ("pending", ["a.txt", "gone.txt", "n.txt"])


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(memory: Place) -> None:
    grant(memory.yard, "sh", "write:*.txt")
    job = memory.job("steps:\n" + step("one", WAITS))
    (memory.yard.root / "c.txt").write_text("old\n")
    flow_id = memory.jobs.start(job, memory.attempts)
    wait_until((memory.yard.paths.own_home / "changes" / flow_id / "steps/1/upper/c.txt").exists)
    (memory.yard.root / "c.txt").write_text("by hand\n")
    (memory.yard.root / "mybox/go").touch()

    known = memory.jobs.wait(flow_id, SECONDS)

    assert known is not None
    result: Any = known.result
    assert (result["state"], result["meta"]["changes"], result["data"]["conflicts"]) == ("error", "pending", ["c.txt"])
    assert (memory.yard.root / "c.txt").read_text() == "by hand\n"


def grant(yard: Project, skill: str, capability: str) -> None:
    found = yard.runtime.resolve(Request(skill))
    yard.grants.add(Grant(str(found.folder), hash_folder(found.folder).approved, capability, time.time()))


# -- crashes, with the real command


CRASH = "steps:\n" + "".join(
    (
        step("one", "echo more >> a.txt; echo 1 >> mybox/ran"),
        step("two", "rm gone.txt; echo b > b.txt; echo 2 >> mybox/ran"),
        step("three", f"echo 3 >> mybox/ran; echo x >> b.txt; {WAITS}"),
        step("four", "cat b.txt c.txt > d.txt; ls; echo 4 >> mybox/ran"),
    )
)


@pytest.mark.parametrize(("by", "kind"), [("resume", "sqlite"), ("worker", "sqlite"), ("worker", "postgres")])
def test_a_flow_killed_in_its_third_step_ends_as_if_it_had_not_been(
    places: ProjectPaths, skillyard: Skillyard, skills: None, by: str, kind: str
) -> None:
    keep_in(places, kind)
    root = places.project
    assert root is not None
    (root / "workflows").mkdir()
    (root / "workflows" / "test.yaml").write_text(CRASH)
    child = subprocess.Popen(
        [sys.executable, "-m", "skillyard", "flow", "run", "test"],
        cwd=root,
        env=env_of(places),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    torn = places.own_home / "changes"
    wait_until(lambda: bool([*torn.glob("*/steps/3/upper/c.txt")]) or child.poll() is not None)
    assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert files(root) == ["a.txt", "gone.txt"]
    assert said(skillyard("changes", "--json"))["data"]["change_sets"] == []
    (root / "mybox" / "go").touch()
    flow_id = said(skillyard("flow", "--json"))["data"]["workflows"][0]["latest"]["id"]

    done = skillyard("flow", "resume", flow_id, "--json") if by == "resume" else skillyard("worker", "--drain")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "mybox/ran").read_text().split() == ["1", "2", "3", "3", "4"]
    assert files(root) == ["a.txt", "gone.txt"]
    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert (job["state"], job["changes"]) == ("success", "pending")
    applied = skillyard("changes", flow_id, "apply", "--json")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert {path.name: path.read_text() for path in root.glob("*.txt")} == {
        "a.txt": "a.txt\nmore\n",
        "b.txt": "b\nx\n",
        "c.txt": "a.txt\nmore\n",
        "d.txt": "b\nx\na.txt\nmore\n",
    }
    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert "changes" not in job


def test_a_person_applies_the_changes_of_a_flow_beforehand_and_an_agent_does_not(
    skillyard: Skillyard, places: ProjectPaths, skills: None, project: Path
) -> None:
    (project / "workflows").mkdir()
    (project / "workflows" / "test.yaml").write_text("steps:\n" + step("one", "echo more >> a.txt"))

    inside = skillyard("flow", "run", "test", "--apply", "--json", SKILLYARD_DEPTH="1")
    detached = skillyard("flow", "run", "test", "--apply", "--detach", "--json")
    applied = skillyard("flow", "run", "test", "--apply", "--json")

    assert (said(inside)["data"]["type"], said(detached)["data"]["type"]) == ("PermissionDenied", "InvalidArgs")
    assert said(applied)["meta"]["changes"] == "applied"
    assert (project / "a.txt").read_text() == "a.txt\nmore\n"


def test_a_job_without_a_grant_waits_and_the_list_says_so(skillyard: Skillyard, skills: None, project: Path) -> None:
    skillyard("jobs", "enqueue", "@sh", "echo more >> a.txt")
    assert skillyard("worker", "--drain").returncode == 0

    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    (shown,) = said(skillyard("jobs", "show", job["id"], "--json"))["data"]["jobs"]
    assert (job["state"], job["changes"], shown["changes"]) == ("success", "pending", "pending")
    assert shown["apply"] == f"skillyard changes {job['run']} apply"
    assert "pending" in skillyard("jobs").stdout
    assert (project / "a.txt").read_text() == "a.txt\n"

    skillyard("changes", job["run"], "discard")
    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert "changes" not in job
