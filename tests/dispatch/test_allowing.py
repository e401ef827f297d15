"""What an agent may do unasked, what it is refused, and what becomes of its turn then."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillyard import Result, dispatch_task
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.backends.driver import only_reads
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.child_process import DEPTH, PROFILE
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import PermissionDenied
from skillyard.core.messages import Lang
from skillyard.core.states import State
from skillyard.dispatch.request import choose_profile
from tests.conftest import Skillyard
from tests.dispatch.test_conversations import configure, envelope
from tests.faces.test_terminal import Terminal

Hand = Callable[..., Result]


@pytest.fixture(autouse=True)
def small(places: ProjectPaths) -> None:
    configure(places.own_home, names=("small", "other"))


@pytest.fixture
def hand(yard: Project, project: Path) -> Hand:
    def dispatch(task: str, **options: Any) -> Result:
        return dispatch_task(task, **{"to": "small", "cwd": project, "lang": Lang.EN, "project": yard, **options})

    return dispatch


def test_a_turn_in_which_something_was_refused_is_partial_and_names_it(hand: Hand) -> None:
    result = hand("ask")

    assert (result.state, result.exit_code, result.data["content"]) == (State.PARTIAL, 3, "no")
    assert result.summary == "small is done, but not all of it was allowed: edit (write a file)"
    assert (result.data["succeeded"], result.data["failed"]) == ([], ["edit: write a file"])


def test_a_turn_that_came_to_nothing_because_of_a_refusal_is_no_success(hand: Hand) -> None:
    result = hand("need", session="talk")

    assert (result.state, result.data["type"], result.data["recoverable"]) == (State.ERROR, "NotGranted", True)
    assert "edit (write a file)" in result.summary
    assert "--to small --session talk --permissions full" in str(result.meta["hint"])


def test_one_call_is_asked_about_once(hand: Hand) -> None:
    asked: list[Permission] = []

    def ask(permission: Permission) -> bool:
        asked.append(permission)
        return True

    assert hand("ask twice about one call", ask=ask).data["content"] == "True True"
    assert len(asked) == 1
    assert hand("two calls", ask=ask).data["content"] == "True True"
    assert len(asked) == 3


def test_a_person_can_allow_a_tool_for_the_whole_turn(places: ProjectPaths) -> None:
    with Terminal(places, "dispatch", "two calls", "--to", "small", "--json") as terminal:
        terminal.expect("[y/N/a]")
        terminal.say("a")
        _, out = terminal.finish()

    assert json.loads(out)["data"]["content"] == "True True"
    assert "write another" not in terminal.seen


def test_a_question_stands_on_a_line_of_its_own(places: ProjectPaths) -> None:
    with Terminal(places, "dispatch", "ask", "--to", "small", "--json") as terminal:
        terminal.expect("[y/N/a]")
        terminal.say("n")
        terminal.finish()

    line = terminal.seen[: terminal.seen.index("edit asks")].rpartition("\n")[2]
    assert line.endswith("\r\x1b[K"), line  # the status line was wiped before


@pytest.mark.parametrize(
    ("profile", "task", "allowed"),
    [
        ("read", "ask", False),
        ("edit", "ask", True),
        ("edit", "run touch x", False),
        ("full", "run touch x", True),
        ("read", "run ls -la src | head -3", True),
        ("read", "run cat a > b", False),
    ],
)
def test_a_profile_says_what_needs_no_question(hand: Hand, profile: str, task: str, allowed: bool) -> None:
    result = hand(task, permissions=PermissionProfile(profile))

    assert (result.state is State.SUCCESS) is allowed
    assert result.data["permissions"] == profile


def test_the_profile_is_the_settings_unless_it_is_said_and_is_shown_before_the_start(
    places: ProjectPaths, skillyard: Skillyard
) -> None:
    configure(places.own_home, '[dispatch]\npermissions = "edit"\n')

    usual = skillyard("dispatch", "profile", "--to", "small")
    said = envelope(skillyard("dispatch", "profile", "--to", "small", "--permissions", "read", "--json"))
    wrong = skillyard("dispatch", "profile", "--permissions", "all")

    assert usual.stderr.splitlines()[0] == "→ the agent may do unasked: edit (read, and change files)"
    assert 'content: "edit"' in usual.stdout
    assert said["data"]["content"] == said["data"]["permissions"] == "read"
    assert wrong.returncode == 2


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    ("mine", "theirs", "holds"),
    [("", "full", "read"), ("edit", "full", "edit"), ("full", "edit", "edit"), ("full", "", "full"), ("", "", "read")],
)
def test_a_projects_file_narrows_the_profile_and_never_widens_it(
    places: ProjectPaths, project: Path, skillyard: Skillyard, mine: str, theirs: str, holds: str, trusted: bool
) -> None:
    configure(places.own_home, f'[dispatch]\npermissions = "{mine}"\n' if mine else "")
    if theirs:
        (project / "skillyard.toml").write_text(f'[dispatch]\npermissions = "{theirs}"\n', "utf-8")
    if trusted:
        skillyard("trust", "--accept")

    assert envelope(skillyard("dispatch", "profile", "--to", "small", "--json"))["data"]["content"] == holds


def test_an_agent_gives_another_one_no_more_than_it_has(yard: Project) -> None:
    settings = yard.dispatching._replace(profile=PermissionProfile.FULL)
    inside = {DEPTH: "1", PROFILE: "read"}

    assert choose_profile(settings, None, {}) is PermissionProfile.FULL
    assert choose_profile(settings, None, inside) is PermissionProfile.READ
    assert choose_profile(settings, PermissionProfile.READ, inside) is PermissionProfile.READ
    with pytest.raises(PermissionDenied):
        choose_profile(settings, PermissionProfile.EDIT, inside)
    with pytest.raises(PermissionDenied):
        choose_profile(yard.dispatching, PermissionProfile.FULL, {DEPTH: "1"})


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la 'a b' 中文.md",
        "cat src/a.py | head -20 && wc -l src/a.py; pwd",
        "grep -rn TODO .",
        "cat /work/site/README.md",
    ],
)
def test_a_command_that_only_reads_below_the_folder_is_known(command: str) -> None:
    assert only_reads(command, Path("/work/site"))


@pytest.mark.parametrize(
    "command",
    [
        "",
        "rm a",
        "ls; rm a",
        "ls & rm a",
        "ls\nrm a",
        "ls || rm a",
        "cat a > b",
        "cat < /etc/passwd",
        "ls $(rm a)",
        "ls `rm a`",
        "ls ${x}",
        "cat /etc/passwd",
        "cat '/etc/passwd'",
        "cat ../secret",
        "cat /work/site/../secret",
        "cat /work/site2/x",
        "cat ~/.ssh/id_rsa",
        "grep --file=/etc/passwd x",
        "grep -f/etc/passwd x",
        "grep x ''/etc/passwd",
        "./ls",
        "PATH=. ls",
        "find . -delete",
        "sort -o a b",
        "git diff --output=a",
        "xargs rm",
        "ls \\\nrm",
        "(ls)",
        "ls #\u2028rm",
        "!ls",
    ],
)
def test_anything_else_is_asked_about(command: str) -> None:
    assert not only_reads(command, Path("/work/site"))


def test_a_cancel_by_a_person_is_cancelled(places: ProjectPaths) -> None:
    with Terminal(places, "dispatch", "hang", "--to", "small", "--json") as terminal:
        terminal.expect("hanging")
        terminal.interrupt()
        _, out = terminal.finish()

    told = json.loads(out)
    assert (told["data"]["type"], told["data"]["stop"]) == ("Cancelled", "cancelled")
    assert told["summary"].startswith("Cancelled: ")


def test_another_backend_is_told_the_earlier_turns_of_the_conversation(hand: Hand) -> None:
    told: list[Event] = []
    hand("The first thing.", session="talk")
    hand("cut", session="talk")

    result = hand("Go on.", session="talk", to="other", tell=told.append)
    again = hand("And on.", session="talk", to="other")
    back = hand("Back.", session="talk", to="small")

    sent = str(result.data["text"])
    assert sent.startswith("---\n\n# Earlier Turns\n\n")
    assert "## Asked of small\n\nThe first thing.\n\n## Answer\n\nThe first thing.\n" in sent
    assert sent.endswith("---\n\n# Task\n\nGo on.")
    (note,) = [event.text for event in told if event.kind is EventKind.NOTE]
    assert note == "other knows nothing of the 2 turns with small in talk: it is told 2 of them"
    assert again.data["text"] == "And on."
    assert "## Asked of other\n\nGo on.\n" in str(back.data["text"])
    assert "The first thing." not in str(back.data["text"]).partition("## Answer")[0]


OLD = """#!{python}
import sys
if "--version" in sys.argv:
    print({version!r})
else:
    print("error: unknown option '--include-partial-messages'", file=sys.stderr)
    sys.exit(1)
"""


@pytest.mark.parametrize(
    ("name", "variable", "version", "needed"),
    [
        ("claude-code", "SKILLYARD_CLAUDE_CODE", "1.0.60 (Claude Code)", "2.1"),
        ("codex", "SKILLYARD_CODEX", "codex-cli 0.34.0", "0.100"),
        ("opencode", "SKILLYARD_OPENCODE", "0.9.1", "1.0"),
    ],
)
def test_an_old_agent_is_refused_with_the_version_that_is_needed(
    skillyard: Skillyard, tmp_path: Path, name: str, variable: str, version: str, needed: str
) -> None:
    program = tmp_path / "old agent"
    program.write_text(OLD.format(python=sys.executable, version=version), "utf-8")
    program.chmod(0o755)

    told = envelope(skillyard("dispatch", "x", "--to", name, "--json", **{variable: str(program)}))

    assert told["data"]["type"] == "AgentNotInstalled"
    assert told["data"]["minimum"] == needed
    assert f"{needed} is needed" in told["summary"]
    assert "npm install -g" in told["meta"]["hint"]


def test_an_answer_that_was_streamed_on_the_terminal_is_not_printed_again(places: ProjectPaths) -> None:
    with Terminal(places, "dispatch", "Nothing was deleted.", "--to", "small", "--stream", stdout_too=True) as terminal:
        terminal.expect("small is done")
        terminal.finish()

    assert terminal.seen.count("Nothing was deleted.") == 1
    assert os.environ.get(DEPTH) is None
