"""Agents that are kept warm, with the small ACP agent of ours: every way in which one is used, and in which it ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard import Result, dispatch_task
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.backends.driver import Start
from skillyard.backends.process import open_name
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.cancel_token import CancelToken
from skillyard.core.child_process import DEPTH
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import (
    AgentNotInstalled,
    AgentSilent,
    AgentTooOld,
    BackendFailed,
    RuntimeFailed,
    SkillError,
    Stopped,
    Timeout,
    TooDeep,
    error_as_json,
    error_from,
)
from skillyard.core.messages import Lang, Message
from skillyard.dispatch.dispatcher import StartedWarm
from skillyard.store.conversations import ConversationState
from tests.conftest import Skillyard
from tests.dispatch.test_conversations import (
    AGENT,
    KEY,
    StartCommand,
    agents_of,
    begin,
    configure,
    envelope,
    hand,
    history,
    small,
    the_talk,
    until,
    until_running,
)

__all__ = ["begin", "hand", "small"]
Hand = Callable[..., Result]
Warm = Callable[..., StartedWarm]


@pytest.fixture(autouse=True)
def no_keeper_stays(places: ProjectPaths) -> Iterator[None]:
    yield
    if places.own_home.exists():
        with Project(places) as yard:
            for number in yard.dispatcher.warm.holds.list():
                yard.dispatcher.warm.end(number)


@pytest.fixture
def warm(yard: Project, project: Path) -> Warm:
    """For whoever dispatches in this process."""

    def start(session: str = "talk", **options: Any) -> StartedWarm:
        return yard.dispatcher.start_warm("small", session=session, cwd=project, **options)

    return start


def agents(home: Path) -> list[str]:
    """Without their keepers, which have an agent's command line among their words."""
    return [words for words in agents_of(home) if "skillyard.dispatch.warm" not in words]


def is_warm(yard: Project) -> bool:
    return bool(yard.dispatcher.warm.holds.list())


def said_of_warmth(yard: Project) -> list[str]:
    return [text for told, text in history(yard) if told == "warm"]


def test_one_agent_answers_one_task_after_the_other(skillyard: Skillyard, places: ProjectPaths) -> None:
    cold = envelope(skillyard("dispatch", "who", "--to", "small", "--session", "talk", "--json"))["data"]
    started = skillyard("backend", "start", "small", "--session", "talk")
    first, second = (envelope(skillyard("dispatch", "who", "--session", "talk", "--json"))["data"] for _ in range(2))

    assert started.stdout == "small is warm for --session talk, until it rests for 900 s\n"
    assert (cold["warm"], first["warm"], second["warm"]) == (False, True, True)
    assert cold["content"] != first["content"] == second["content"]
    assert first["agent_session"] == cold["agent_session"] == "s1"
    assert len(agents(places.own_home)) == 1


def test_it_is_listed_told_in_the_log_and_stopped(skillyard: Skillyard, places: ProjectPaths, yard: Project) -> None:
    started = envelope(skillyard("backend", "start", "small", "--session", "talk", "--idle", "60", "--json"))["data"]
    (listed,) = [
        backend["conversations"]
        for backend in envelope(skillyard("backend", "--json"))["data"]["backends"]
        if backend["name"] == "small"
    ]
    table = skillyard("backend", "list").stdout

    assert (started["already"], started["warm"]["state"], started["warm"]["idle_seconds"]) == (False, "idle", 60)
    assert listed[0]["warm"]["pid"] == started["warm"]["pid"]
    assert f"idle since {started['warm']['since']}" in table
    stopped = skillyard("backend", "stop", "--session", "talk", "--lang", "zh")
    assert stopped.stdout == "已停止：talk (small)\n"
    assert agents(places.own_home) == []
    assert not is_warm(yard)
    assert "the warm agent ends: it was stopped" in skillyard("backend", "log", "--session", "talk").stdout
    assert envelope(skillyard("dispatch", "x", "--session", "talk", "--json"))["data"]["warm"] is False
    assert skillyard("backend", "stop").stdout == "nothing is running\n"


def test_a_session_that_nobody_named_can_be_gone_on_with(skillyard: Skillyard) -> None:
    started = envelope(skillyard("backend", "start", "small", "--json"))["data"]

    gone_on = envelope(skillyard("dispatch", "x", "--session", started["session"], "--json"))["data"]
    assert (gone_on["backend"], gone_on["warm"]) == ("small", True)


def test_it_ends_when_nothing_was_to_do_for_long_enough(warm: Warm, yard: Project, places: ProjectPaths) -> None:
    warm(idle_seconds=0.5)

    until(lambda: not is_warm(yard))
    assert agents(places.own_home) == []
    assert said_of_warmth(yard)[-1] == "the warm agent ends: nothing was to do for 0.5 s"


def test_it_ends_with_its_agent_and_with_its_socket(
    warm: Warm, hand: Hand, yard: Project, places: ProjectPaths
) -> None:
    warm()
    os.kill(int(str(hand("who", session="talk").data["content"])), signal.SIGKILL)
    until(lambda: not is_warm(yard))
    assert said_of_warmth(yard)[-1] == "the warm agent ends: the agent ended"

    yard.dispatcher.warm.socket(warm().conversation.id).unlink()
    until(lambda: not is_warm(yard))
    assert said_of_warmth(yard)[-1] == "the warm agent ends: its socket was removed"
    assert agents(places.own_home) == []


def test_a_keeper_that_is_killed_leaves_no_agent_and_the_next_task_starts_one(
    warm: Warm, hand: Hand, yard: Project, places: ProjectPaths
) -> None:
    warmed = warm()
    os.kill(warmed.backend.pid, signal.SIGKILL)

    until(lambda: not agents(places.own_home))
    until(lambda: yard.dispatcher.warm.list() == {})  # the kernel may take the lock away after the agent is gone
    assert yard.dispatcher.warm.socket(warmed.conversation.id).exists()
    cold = hand("x", session="talk")
    assert (cold.data["content"], cold.data["warm"]) == ("x", False)
    assert not warm().already
    assert hand("y", session="talk").data["warm"] is True


def test_a_keeper_that_is_killed_in_the_middle_of_a_turn_is_a_crash(
    warm: Warm, hand: Hand, yard: Project, places: ProjectPaths
) -> None:
    warmed = warm()

    def tell(event: Any) -> None:
        if event.text == "hanging":
            os.kill(warmed.backend.pid, signal.SIGKILL)

    result = hand("hang", session="talk", tell=tell)

    assert (result.data["type"], result.data["content"]) == ("BackendFailed", "hanging")
    assert "its keeper is gone" in str(result.data["msg"])
    assert the_talk(yard).state is ConversationState.CRASHED
    until(lambda: not agents(places.own_home))
    assert ("text", "hanging") in history(yard)
    assert hand("more", session="talk").ok


def test_whoever_dies_in_the_middle_of_a_turn_cancels_it(
    begin: StartCommand, skillyard: Skillyard, yard: Project, places: ProjectPaths
) -> None:
    skillyard("backend", "start", "small", "--session", "talk")
    process = begin("dispatch", "hang", "--session", "talk")
    until_running(yard)
    process.kill()
    process.wait()

    after = envelope(skillyard("dispatch", "more", "--session", "talk", "--json"))["data"]
    assert (after["content"], after["agent_session"], after["warm"]) == ("more", "s1", False)
    assert not is_warm(yard)
    assert agents(places.own_home) == []


def test_a_turn_that_is_stopped_ends_the_warm_agent_too(
    begin: StartCommand, skillyard: Skillyard, yard: Project, places: ProjectPaths
) -> None:
    skillyard("backend", "start", "small", "--session", "talk")
    process = begin("dispatch", "hang", "--session", "talk", "--json")
    until_running(yard)
    (kept,) = yard.dispatcher.warm.list().values()
    assert kept.state is ConversationState.RUNNING

    stopped = envelope(skillyard("backend", "stop", "small", "--json"))["data"]["conversations"]

    assert [talk["session"] for talk in stopped] == ["talk"]
    told = envelope(process)["data"]
    assert (told["stop"], told["warm"]) == ("cancelled", True)
    assert the_talk(yard).state is ConversationState.STOPPED
    assert not is_warm(yard)
    assert agents(places.own_home) == []


def test_a_forced_stop_is_no_crash_of_the_warm_agent(warm: Warm, hand: Hand, yard: Project) -> None:
    warm()
    stop = CancelToken()

    def tell(event: Event) -> None:
        if event.kind is EventKind.TEXT:
            threading.Thread(target=stop.force).start()

    result = hand("hang", session="talk", tell=tell, stop=stop)

    assert (result.data["stop"], result.data["warm"]) == ("cancelled", True)
    assert the_talk(yard).state is ConversationState.STOPPED
    until(lambda: not is_warm(yard))


@pytest.mark.parametrize(("allowed", "said"), [(True, "yes"), (False, "no")])
def test_what_a_warm_agent_asks_for_is_asked_where_the_task_came_from(
    warm: Warm, hand: Hand, allowed: bool, said: str
) -> None:
    asked: list[Permission] = []

    def ask(permission: Permission) -> bool:
        asked.append(permission)
        return allowed

    warm()
    result = hand("ask", session="talk", ask=ask)

    assert (result.data["content"], result.data["warm"]) == (said, True)
    assert asked == [Permission("edit", "write a file")]
    assert result.data["refused"] == ([] if allowed else [{"tool": "edit", "says": "write a file"}])
    assert hand("who", session="talk").data["warm"] is True


@pytest.mark.parametrize("other", ["model", "allowed tools", "command", "environment"])
def test_a_task_that_it_was_not_started_for_ends_it_and_says_why(
    skillyard: Skillyard, places: ProjectPaths, yard: Project, other: str
) -> None:
    skillyard("backend", "start", "small", "--session", "talk")
    more, env = ["--model", "huge"] if other == "model" else [], {}
    match other:
        case "allowed tools":
            configure(places.own_home, 'allowed_tools = ["edit"]\n')
        case "command":
            file = places.own_home / "config.toml"
            file.write_text(
                file.read_text("utf-8").replace("]\n", ', "--other"]\n').replace('small, "--other"]', "small]")
            )
        case "environment":
            env = {"OPENAI_API_KEY": "another"}

    done = skillyard("dispatch", "x", "--session", "talk", "--json", *more, **env)

    assert (envelope(done)["data"]["content"], envelope(done)["data"]["warm"]) == ("x", False)
    assert f"the warm agent was ended: it was started with another {other}" in done.stderr
    assert not is_warm(yard)


def test_another_start_is_the_same_unless_it_is_for_something_else(warm: Warm, hand: Hand) -> None:
    first, again = warm(), warm()
    other = warm(model="huge")

    assert (first.already, again.already, other.already) == (False, True, False)
    assert first.backend.pid == again.backend.pid != other.backend.pid
    assert hand("x", session="talk", model="huge").data["warm"] is True


def test_of_two_starts_at_once_one_keeps_it(begin: StartCommand, yard: Project, places: ProjectPaths) -> None:
    commands = [begin("backend", "start", "small", "--session", "talk", "--json") for _ in range(3)]
    told = [envelope(command)["data"] for command in commands]

    assert sorted(each["already"] for each in told) == [False, True, True]
    assert len({each["warm"]["pid"] for each in told}) == 1
    assert len(agents(places.own_home)) == 1


def test_no_agent_is_started_beside_a_task_that_runs(begin: StartCommand, skillyard: Skillyard, yard: Project) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk")
    talk = until_running(yard)

    told = envelope(skillyard("backend", "start", "small", "--session", "talk", "--json"))

    assert "a task runs in the conversation talk" in told["data"]["msg"]
    assert not is_warm(yard)
    yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)
    process.communicate()


def test_it_takes_a_place_of_its_own_and_gives_it_away_while_it_rests(
    begin: StartCommand, skillyard: Skillyard, places: ProjectPaths, yard: Project
) -> None:
    configure(places.own_home, "[dispatch]\nat_once = 1\n")
    assert skillyard("backend", "start", "small", "--session", "talk").returncode == 0
    second = envelope(skillyard("backend", "start", "small", "--session", "other", "--json"))
    same = envelope(skillyard("dispatch", "x", "--session", "talk", "--json"))
    elsewhere = envelope(skillyard("dispatch", "x", "--to", "small", "--json"))

    assert "1 agents run already" in second["data"]["msg"]
    assert same["data"]["warm"] is True
    assert (elsewhere["state"], elsewhere["data"]["warm"]) == ("success", False)
    assert not is_warm(yard)


def test_an_agent_keeps_no_other_warm_and_has_no_part_in_one(skillyard: Skillyard, yard: Project) -> None:
    refused = envelope(skillyard("backend", "start", "small", "--session", "talk", "--json", **{DEPTH: "1"}))
    assert (refused["data"]["type"], is_warm(yard)) == ("PermissionDenied", False)

    skillyard("backend", "start", "small", "--session", "talk")
    inside = envelope(skillyard("dispatch", "x", "--session", "talk", "--json", **{DEPTH: "1"}))
    assert (inside["state"], inside["data"]["warm"]) == ("success", False)


def test_a_failed_turn_says_what_it_would_say_without_and_keeps_no_secret(
    warm: Warm, hand: Hand, yard: Project
) -> None:
    warm()
    crashed = hand("crash", session="talk")
    assert (crashed.data["type"], crashed.data["warm"]) == ("BackendFailed", True)
    assert "(exit code 9): I cannot go on" in str(crashed.data["msg"])
    assert KEY not in str(crashed)
    assert the_talk(yard).state is ConversationState.CRASHED
    until(lambda: not is_warm(yard))

    warm()
    late = hand("hang", session="talk", limit_seconds=5)
    assert (late.exit_code, late.data["limit"], late.data["content"], late.data["warm"]) == (124, 5, "hanging", True)
    until(lambda: not is_warm(yard))

    warm()
    cut = hand("cut", session="talk")
    assert "it gave up: max_tokens" in str(cut.data["msg"])
    hand(f"use {KEY}", session="talk")
    assert KEY not in json.dumps(history(yard))
    assert is_warm(yard)


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\xff\xfe\0\n",
        b"[1]\n",
        b'{"do": 5}\n',
        b'{"text": "x"}\n',
        b'{"text": "x", "silent_seconds": null, "limit_seconds": 1}\n',
        b'{"allowed": true}\n',
        b"[" * 100_000 + b"\n",
        b"x" * (1 << 20),
    ],
)
def test_whoever_talks_nonsense_to_it_changes_nothing(warm: Warm, hand: Hand, yard: Project, words: bytes) -> None:
    path = yard.dispatcher.warm.socket(warm().conversation.id)
    with socket.socket(socket.AF_UNIX) as stranger:
        with open_name(path) as name:
            stranger.connect(name)
        try:
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1000):
                pass
        except OSError:
            pass  # it hung up before it heard everything

    assert hand("x", session="talk").data["warm"] is True


def test_whoever_takes_a_turn_and_gives_no_task_gives_it_back(
    warm: Warm, hand: Hand, yard: Project, project: Path
) -> None:
    warmed = warm()
    fit = start_fit(yard, project)
    wrong: list[dict[str, Any] | None] = [None, {"text": 5}, {"text": "x", "silent_seconds": "y", "limit_seconds": 1}]
    for words in wrong:
        reached, why = yard.dispatcher.warm.reach(warmed.conversation.id, "small", fit)
        assert (reached is not None, why) == (True, "")
        assert reached is not None
        if words:
            reached._connection.send(words)
        reached.close()
        until(lambda: [kept.state for kept in yard.dispatcher.warm.list().values()] == ["idle"])

    assert hand("x", session="talk").data["warm"] is True


def start_fit(yard: Project, project: Path) -> Any:
    start = Start(project.resolve(), profile=PermissionProfile.READ)
    return yard.dispatcher.warm.fit(yard.drivers["small"], start, yard.dispatching.commands["small"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_hung_up_on(warm: Warm, yard: Project) -> None:
    path = yard.dispatcher.warm.socket(warm().conversation.id)
    path.parent.chmod(0o711)
    path.chmod(0o666)

    assert b'"session"' in _greeted(0, path)
    assert _greeted(65534, path) == b""


_CONNECT = """\
import os, socket, sys
os.setuid(int(sys.argv[1]))
asking = socket.socket(socket.AF_UNIX)
asking.connect(sys.argv[2])
try:
    sys.stdout.buffer.write(asking.recv(1000))
except ConnectionError:
    pass
"""


def _greeted(user: int, path: Path) -> bytes:
    command = [sys.executable, "-c", _CONNECT, str(user), path.name]
    return subprocess.run(command, cwd=path.parent, capture_output=True, check=True, timeout=60).stdout


def test_a_home_with_a_long_name_has_warm_agents_too(tmp_path: Path, project: Path, places: ProjectPaths) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name-长"] * 8)
    deep.mkdir(parents=True)
    configure(deep)
    with Project(places._replace(own_home=deep)) as yard:
        warmed = yard.dispatcher.start_warm("small", session="talk", cwd=project)
        try:
            result = dispatch_task("x", to="small", session="talk", cwd=project, project=yard)
            assert result.data["warm"] is True
        finally:
            assert yard.dispatcher.warm.end(warmed.conversation.id)


def test_an_agent_that_does_not_start_is_told_and_nothing_is_left(
    skillyard: Skillyard, places: ProjectPaths, yard: Project
) -> None:
    failing = json.dumps([sys.executable, "-c", "exit(3)"])
    gone_too = '[backends.gone]\ncommand = ["/nowhere/agent"]\n'
    configure(places.own_home, f"{gone_too}[backends.fails]\ncommand = {failing}\n")
    gone = envelope(skillyard("backend", "start", "gone", "--json"))
    fails = envelope(skillyard("backend", "start", "fails", "--json", "--lang", "zh"))
    unknown = envelope(skillyard("backend", "start", "nobody", "--json"))

    assert gone["data"]["type"] == "AgentNotInstalled"
    assert fails["data"]["type"] == "BackendFailed"
    assert "智能体执行失败: fails" in fails["summary"]
    assert "exit code 3" in fails["data"]["msg"]
    assert "no backend 'nobody'" in unknown["data"]["msg"]
    assert not is_warm(yard)
    assert skillyard("backend", "start").returncode == 2
    assert skillyard("backend", "start", "small", "--idle", "0").returncode == 2


def test_one_that_never_says_hello_can_be_stopped(
    begin: StartCommand, skillyard: Skillyard, places: ProjectPaths, yard: Project
) -> None:
    mute = json.dumps([sys.executable, "-c", "import sys; [None for line in sys.stdin]"])
    configure(places.own_home, f"[backends.mute]\ncommand = {mute}\n")
    command = begin("backend", "start", "mute", "--session", "talk", "--json")
    until(lambda: [kept.state for kept in yard.dispatcher.warm.list().values()] == ["starting"])

    assert skillyard("backend", "stop", "mute").stdout == "stopped talk with mute\n"
    assert "was stopped while it started" in envelope(command)["data"]["msg"]
    assert not is_warm(yard)


def test_a_start_that_is_given_up_leaves_nothing(
    begin: StartCommand, places: ProjectPaths, yard: Project, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    slow = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    slow += f"os.execv({sys.executable!r}, [{sys.executable!r}, {str(AGENT)!r}])"
    configure(places.own_home, f"[backends.slow]\ncommand = {json.dumps([sys.executable, '-c', slow])}\n")
    command = begin("backend", "start", "slow", "--session", "talk")
    until(lambda: [kept.state for kept in yard.dispatcher.warm.list().values()] == ["starting"])
    command.kill()
    command.wait()
    go.touch()

    until(lambda: not is_warm(yard))
    assert said_of_warmth(yard)[-1] == "the warm agent ends: whoever started it went away"
    assert agents(places.own_home) == []


def test_nothing_of_the_project_is_imported_by_the_keeper(skillyard: Skillyard, project: Path) -> None:
    for name in ("json.py", "skillyard.py", "sqlite3.py"):
        (project / name).write_text("raise SystemExit('the project ran')\n", "utf-8")

    warmed = skillyard("backend", "start", "small", "--session", "talk", cwd=project, PYTHONSAFEPATH="1")

    assert (warmed.returncode, warmed.stderr) == (0, "")


def test_a_conversation_with_a_warm_agent_is_not_forgotten(warm: Warm, yard: Project) -> None:
    warmed = warm()

    assert yard.conversations.forget_before(time.time() + 100) == 0
    yard.dispatcher.warm.end(warmed.conversation.id)
    assert yard.conversations.forget_before(time.time() + 100) == 1
    left = [file.name for file in (yard.paths.own_home / "conversations").iterdir()]
    assert left == ["slot-0.lock"]


def test_many_who_come_at_once_are_served_or_hung_up_on(warm: Warm, hand: Hand, yard: Project) -> None:
    number = warm().conversation.id
    path = yard.dispatcher.warm.socket(number)
    before = threading.active_count()
    idle = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    try:
        for stranger in idle:
            stranger.settimeout(10)
            with open_name(path) as name, contextlib.suppress(OSError):  # hung up on, or no room
                stranger.connect(name)
    finally:
        for stranger in idle:
            stranger.close()
    until(lambda: [kept.state for kept in yard.dispatcher.warm.list().values()] == ["idle"])

    assert hand("x", session="talk").data["warm"] is True
    assert threading.active_count() < before + 20


def _advised(error: SkillError) -> SkillError:
    error.extra_hint = Message("log in: {login}", login="small login")
    return error


@pytest.mark.parametrize(
    "error",
    [
        _advised(BackendFailed("small", "no 钥匙 🔑", details={"status": 401, "ended": "exit code 1"})),
        AgentSilent("small", 3.5, 3.0, "last words"),
        Timeout("small", 3.5, 3.0, "backend"),
        AgentTooOld("small", "0.1", "1.0", "npm install"),
        AgentNotInstalled("gone", agent="small", command="npm install"),
        RuntimeFailed("disk full"),
        Stopped("taken back"),
        TooDeep(2, 2),
    ],
)
def test_an_error_says_the_same_on_the_other_side(error: SkillError) -> None:
    other = error_from(json.loads(json.dumps(error_as_json(error))))

    assert type(other) is type(error)
    assert (other.data(), other.msg) == (error.data(), error.msg)
    for lang in Lang:
        assert (other.summary(lang), other.hint(lang)) == (error.summary(lang), error.hint(lang))
