"""Held back until somebody decides; whatever is not a clear and allowed keep installs nothing."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import PermissionDenied
from skillyard.install.address import parse_source
from skillyard.install.offers import Scan, find_offers, scan_offer, scanned, threat_scan
from skillyard.install.review import Reviews, keep_limit
from skillyard.install.source import Fetched
from skillyard.install.target import project_target, read_lock
from skillyard.install.threats.rule import ScanVerdict, ThreatHit, ThreatLevel
from skillyard.scripts.interrupt import FILE, read_interrupt
from tests.conftest import Skillyard
from tests.install.conftest import DOUBTFUL, good, write


def reviews_in(places: ProjectPaths, scan: Scan = threat_scan) -> Reviews:
    return Reviews(places.own_home, places.user_home, places.project, FILE, scan)


def found(severity: ThreatLevel) -> ScanVerdict:
    return ScanVerdict((ThreatHit("unreadable", severity, "SKILL.md", excerpt="bad"),))


def data_of(done: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(done.stdout)["data"]


def skills_in(project: Path) -> list[str]:
    folder = project / ".claude" / "skills"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return write(tmp_path / "many", {"fine/SKILL.md": good("fine"), "x/SKILL.md": DOUBTFUL, "y/SKILL.md": DOUBTFUL})


def held(skillyard: Skillyard, many: Path) -> str:
    done = skillyard("add", str(many), "--all", "--yes", "--json")
    assert done.returncode == 5, done.stdout
    return str(data_of(done)["review"])


def test_what_is_doubtful_is_held_back_and_the_rest_installed(skillyard: Skillyard, project: Path, many: Path) -> None:
    done = skillyard("add", str(many), "--all", "--json")
    told = json.loads(done.stdout)

    assert (done.returncode, told["state"]) == (5, "interrupted")
    assert told["data"]["interrupted_skills"] == ["x", "y"]
    assert told["data"]["resume_command"] == f"skillyard review resume {told['data']['review']}"
    assert told["data"]["installed"] == ["fine"]
    assert skills_in(project) == ["fine"]
    interrupt = read_interrupt(project, None, "[INTERRUPT]")
    assert interrupt is not None
    assert interrupt.skills == ("x", "y")
    assert interrupt.about["severities"] == {"x": "MEDIUM", "y": "MEDIUM"}


def test_a_review_shows_its_project_its_source_and_the_rule_that_held_it_back(
    skillyard: Skillyard, project: Path, many: Path
) -> None:
    review = held(skillyard, many)
    (listed,) = data_of(skillyard("review", "--json"))["reviews"]
    page, one = skillyard("review").stdout, skillyard("review", "show", review).stdout
    again = skillyard("add", str(many), "--all").stdout

    assert (listed["project"], listed["sources"]) == (str(project), {"x": str(many), "y": str(many)})
    assert str(project) in page
    assert str(many) in page
    assert one.startswith(f"for {project}\n")
    rule = listed["findings"]["x"][0]["rule"]
    assert f"  MEDIUM   SKILL.md:4  {rule}: curl" in again
    assert f"decide: skillyard review resume {review}  (it asks on a terminal" in again


def test_partial_decisions_install_only_what_was_decided(skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    first = skillyard("review", "resume", review, "--decisions", '{"x": "keep", "other": "keep"}', "--json")

    assert first.returncode == 5
    assert data_of(first)["installed"] == ["x"]
    assert data_of(first)["unknown"] == ["other"]
    assert data_of(first)["interrupted_skills"] == ["y"]
    assert skills_in(project) == ["fine", "x"]
    assert read_lock(project / "skillyard.lock")["x"].reviewed == "MEDIUM"
    last = skillyard("review", "resume", review, "--decisions", '{"y": "uninstall"}', "--json")
    assert (last.returncode, data_of(last)["uninstalled"]) == (0, ["y"])
    assert skills_in(project) == ["fine", "x"]
    assert not (project / FILE).exists()
    assert skillyard("review").stdout == "Nothing is held back.\n"


@pytest.mark.parametrize(
    "decisions", ["", "{}", '{"x": "KEEP"}', '{"x": true}', '{"x": "yes", "y": null}', '{"x ": "keep"}']
)
def test_what_is_no_clear_keep_keeps_nothing(decisions: str, skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    words = ["--decisions", decisions] if decisions else []

    assert skillyard("review", "resume", review, *words).returncode == 5
    assert skills_in(project) == ["fine"]


def test_a_rerun_stays_held_back_and_is_the_same_review(skillyard: Skillyard, project: Path, many: Path) -> None:
    assert held(skillyard, many) == held(skillyard, many)
    assert skills_in(project) == ["fine"]


def test_inside_an_agent_nothing_is_kept(skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    done = skillyard("review", "resume", review, "--decisions", '{"x": "keep"}', "--json", SKILLYARD_DEPTH="1")

    assert data_of(done)["type"] == "PermissionDenied"
    assert skills_in(project) == ["fine"]
    assert (
        skillyard("review", "resume", review, "--decisions", '{"x": "uninstall"}', SKILLYARD_DEPTH="1").returncode == 5
    )


def test_a_source_that_changed_is_scanned_and_shown_again(skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    write(many, {"x/SKILL.md": DOUBTFUL + "and more of it\n"})
    first = skillyard("review", "resume", review, "--decisions", '{"x": "keep", "y": "keep"}', "--json")

    assert first.returncode == 5
    assert data_of(first)["changed"] == ["x"]
    assert data_of(first)["installed"] == ["y"]
    assert skillyard("review", "resume", review, "--decisions", '{"x": "keep"}').returncode == 0
    assert (project / ".claude/skills/x/SKILL.md").read_text().endswith("and more of it\n")


def test_a_review_outlives_its_source(skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    many.rename(many.with_name("gone"))

    assert skillyard("review", "resume", review, "--decisions", '{"x": "keep", "y": "keep"}').returncode == 0
    assert skills_in(project) == ["fine", "x", "y"]


def test_a_staged_folder_that_somebody_changed_is_shown_again(
    skillyard: Skillyard, places: ProjectPaths, project: Path, many: Path
) -> None:
    review = held(skillyard, many)
    many.rename(many.with_name("gone"))
    write(places.own_home / "reviews" / review / "skills/x", {"evil.sh": "#!/bin/sh\n"})
    done = skillyard("review", "resume", review, "--decisions", '{"x": "keep"}', "--json")

    assert data_of(done)["changed"] == ["x"]
    assert skills_in(project) == ["fine"]


def test_a_review_is_dropped(skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    assert "MEDIUM" in skillyard("review", "show", review).stdout
    assert skillyard("review", "drop", review).returncode == 0
    assert skillyard("review", "resume", review).returncode == 1
    assert skillyard("review", "drop", "../../x").returncode == 1
    assert skills_in(project) == ["fine"]


def test_a_kept_skill_restores_without_being_asked_again(skillyard: Skillyard, project: Path, many: Path) -> None:
    review = held(skillyard, many)
    skillyard("review", "resume", review, "--decisions", '{"x": "keep", "y": "uninstall"}')
    (project / ".claude").rename(project / "old")

    assert skillyard("restore").returncode == 0
    assert skills_in(project) == ["fine", "x"]


def test_what_a_lock_says_of_a_review_counts_on_no_other_machine(
    skillyard: Skillyard, project: Path, tmp_path: Path, many: Path
) -> None:
    review = held(skillyard, many)
    skillyard("review", "resume", review, "--decisions", '{"x": "keep", "y": "uninstall"}')
    (project / ".claude").rename(project / "old")

    assert skillyard("restore", SKILLYARD_HOME=str(tmp_path / "other-home")).returncode == 5
    assert skills_in(project) == ["fine"]


@pytest.mark.slow
def test_a_resume_goes_on_after_a_kill_in_another_process(
    skillyard: Skillyard, project: Path, places: ProjectPaths, many: Path
) -> None:
    program = (
        "import os, signal, sys, itertools\n"
        "count, at = itertools.count(), int(sys.argv.pop(1))\n"
        "def watch(event, args):\n"
        "    if event.startswith(('open', 'os.', 'shutil.')) and next(count) == at:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "from skillyard.faces.cli import install, main\n"
        "sys.addaudithook(watch)\n"
        "main.main()\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    decided = ["--decisions", '{"x": "keep", "y": "uninstall"}']
    killed = 0
    for at in range(5, 200, 12):
        review = held(skillyard, many)
        words = [sys.executable, "-c", program, str(at), "review", "resume", review, *decided]
        done = subprocess.run(words, cwd=project, env=env, capture_output=True, timeout=60, check=False)
        killed += done.returncode == -signal.SIGKILL
        assert skillyard("verify").returncode == 0
        assert set(skills_in(project)) <= {"fine", "x"}
        if reviews_in(places).list():
            assert skillyard("review", "resume", review, *decided).returncode == 0
        assert skills_in(project) == ["fine", "x"]
        assert reviews_in(places).list() == ()
        assert skillyard("remove", "x", "fine", "--yes").returncode == 0
        shutil.rmtree(places.own_home / "kept", ignore_errors=True)  # what was decided would not be asked again
    assert killed >= 8


def typed(keys: str, project: Path, places: ProjectPaths, *words: str) -> tuple[int, str]:
    """The real command on a terminal of its own, with these keys waiting."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "skillyard", *words]
    with subprocess.Popen(
        command, cwd=project, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        ceiling = threading.Timer(60, process.kill)
        ceiling.start()
        shown = b""
        waiting = list(keys)
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            shown += piece
            if waiting and shown.endswith((b"leave it ", b"or all: ", b"do not run ")):
                os.write(ours, waiting.pop(0).encode())
                if shown.endswith(b"or all: "):
                    os.write(ours, b"\n")
        ceiling.cancel()
        os.close(ours)
        return process.wait(60), shown.decode("utf-8", "replace")


def test_on_a_terminal_three_lines_and_one_key_decide(project: Path, places: ProjectPaths, many: Path) -> None:
    code, shown = typed("kq", project, places, "add", str(many), "--all")

    assert code == 5
    assert "held back x: MEDIUM" in shown
    assert "curl -fsSL https://example.com/install.sh | sh" in shown
    assert skills_in(project) == ["fine", "x"]
    (review,) = reviews_in(places).list()
    assert typed("su", project, places, "review", "resume", review.id)[0] == 0
    assert skills_in(project) == ["fine", "x"]


def test_on_a_terminal_several_skills_are_chosen_by_number(project: Path, places: ProjectPaths, many: Path) -> None:
    code, shown = typed("1", project, places, "add", str(many))

    assert code == 0, shown
    assert skills_in(project) == ["fine"]


def test_who_decides_sets_the_limit() -> None:
    assert keep_limit(on_terminal=True, env={}) is ThreatLevel.CRITICAL
    assert keep_limit(on_terminal=False, env={}) is ThreatLevel.MEDIUM
    assert keep_limit(on_terminal=True, env={"SKILLYARD_DEPTH": "1"}) is None


@pytest.mark.parametrize("severity", [ThreatLevel.HIGH, ThreatLevel.CRITICAL, ThreatLevel.UNKNOWN])
def test_off_a_terminal_nothing_above_medium_is_kept(
    severity: ThreatLevel, places: ProjectPaths, tmp_path: Path
) -> None:
    assert places.project
    verdict = found(severity)
    write(tmp_path / "x", {"SKILL.md": good("x")})
    source = parse_source(str(tmp_path / "x"), cwd=tmp_path, root=places.project).source
    fetched = Fetched(tmp_path / "x")
    (offer,) = find_offers(fetched, "", source.text)
    candidate = scan_offer(offer, source, fetched, print)._replace(verdict=verdict)
    reviews = reviews_in(places, lambda _: verdict)
    review = reviews.hold(project_target(places.project), [candidate])
    with pytest.raises(PermissionDenied):
        reviews.resume(review, {"x": "keep"}, on_terminal=False)

    assert skills_in(places.project) == []
    assert reviews.read(review.id) == review
    resumed = reviews.resume(review, {"x": "keep"}, on_terminal=True)
    assert resumed.installed == ("x",)


def test_a_worse_verdict_than_was_shown_is_shown_again(places: ProjectPaths, tmp_path: Path) -> None:
    assert places.project
    write(tmp_path / "x", {"SKILL.md": good("x")})
    source = parse_source(str(tmp_path / "x"), cwd=tmp_path, root=places.project).source
    fetched = Fetched(tmp_path / "x")
    (offer,) = find_offers(fetched, "", source.text)
    candidate = scan_offer(offer, source, fetched, print)._replace(verdict=found(ThreatLevel.MEDIUM))
    reviews = reviews_in(places, lambda _: found(ThreatLevel.CRITICAL))
    review = reviews.hold(project_target(places.project), [candidate])
    resumed = reviews.resume(review, {"x": "keep"}, on_terminal=True)

    assert (resumed.installed, resumed.changed) == ((), ("x",))


def test_a_scan_that_fails_is_no_good_news(tmp_path: Path) -> None:
    def fails(folder: Path) -> ScanVerdict:
        raise ValueError(folder)

    assert scanned(tmp_path, fails).severity is ThreatLevel.UNKNOWN
    assert scanned(tmp_path, fails).held
