"""Tasks that are handed over, with a small ACP agent of ours: every way in which a conversation can go on and end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from skillyard import Result, dispatch_task
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.cancel_token import CancelToken
from skillyard.core.child_process import DEPTH
from skillyard.core.messages import Lang
from skillyard.core.states import State
from skillyard.store.conversations import Conversation, ConversationState
from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_terminal import Terminal

AGENT = Path(__file__).parent.parent / "backends" / "acp_agent.py"
CEILING_SECONDS = 60.0
KEY = "sk-abcdefghijklmnopqrstuvwxyz"


def configure(own_home: Path, more: str = "", names: tuple[str, ...] = ("small",)) -> None:
    agents = "".join(f"[backends.{name}]\ncommand = {json.dumps([sys.executable, str(AGENT)])}\n" for name in names)
    (own_home / "config.toml").write_text(agents + more, "utf-8")


@pytest.fixture(autouse=True)
def small(places: ProjectPaths) -> None:
    configure(places.own_home)


@pytest.fixture
def hand(yard: Project, project: Path) -> Callable[..., Result]:
    def dispatch(task: str, **options: Any) -> Result:
        return dispatch_task(task, **{"to": "small", "cwd": project, "lang": Lang.EN, "project": yard, **options})

    return dispatch


Popen = subprocess.Popen[str]
StartCommand = Callable[..., Popen]


@pytest.fixture
def begin(places: ProjectPaths) -> Iterator[StartCommand]:
    """The real command, while it runs."""
    started: list[Popen] = []

    def start(*args: str, **env: str) -> Popen:
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
            "SKILLYARD_LANG": "en",
            **env,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "skillyard", *args],
            cwd=places.project,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + CEILING_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return value


def the_talk(yard: Project, name: str = "talk") -> Conversation:
    (found,) = yard.conversations.list(name=name)
    return found


def until_running(yard: Project, name: str = "talk") -> Conversation:
    def running() -> Conversation | None:
        found = yard.conversations.list(name=name)
        return found[0] if found and found[0].state is ConversationState.RUNNING else None

    talk: Conversation = until(running)
    return talk


def history(yard: Project, name: str = "talk") -> list[tuple[str, str]]:
    return [(telling.told, telling.text) for _, telling in yard.conversations.history(the_talk(yard, name))]


def envelope(done: "subprocess.CompletedProcess[str] | Popen") -> Any:
    out = done.communicate(timeout=CEILING_SECONDS)[0] if isinstance(done, subprocess.Popen) else done.stdout
    return json.loads(out)


def agents_of(home: Path) -> list[str]:
    """The small agents that still run for this home: each carries it in its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text(
                errors="replace"
            )  # of anybody: other tests pass bytes that are no text
            if str(AGENT) in words and f"SKILLYARD_HOME={home}".encode() in (folder / "environ").read_bytes():
                found.append(words)
        except OSError:
            continue
    return found


def test_the_answer_comes_with_everything_that_led_to_it(hand: Callable[..., Result], yard: Project) -> None:
    result = hand("你好 🎉", session="talk")

    assert (result.agent, result.state, result.summary) == ("skillyard", State.SUCCESS, "small is done")
    told = {name: result.data[name] for name in ("content", "text", "backend", "session", "agent_session", "refused")}
    assert told == {
        "content": "你好 🎉",
        "text": "你好 🎉",
        "backend": "small",
        "session": "talk",
        "agent_session": "s1",
        "refused": [],
    }
    run = yard.find_run(str(result.meta["run"]))
    assert run is not None
    assert (run.agent, run.kind, run.skill, run.state) == ("small", "dispatch", "", "success")
    assert run.request["text"] == yard.logs.read(run.id) == "你好 🎉"
    assert run.result["data"] == json.loads(json.dumps(result.data, default=dict))
    assert [told for told, _ in history(yard)] == ["task", "started", "text", "usage", "done"]
    assert history(yard)[2] == ("text", "你好 🎉")
    assert the_talk(yard).state is ConversationState.IDLE
    assert yard.history.uses() == {}


def test_a_task_without_a_session_can_be_gone_on_with_by_its_run(hand: Callable[..., Result], yard: Project) -> None:
    first = hand("one")

    again = hand("two", session=first.data["session"], to=None)

    assert first.data["session"] == first.meta["run"]
    assert again.data["session"] == first.data["session"]
    assert [text for told, text in history(yard, str(first.data["session"])) if told == "task"] == ["one", "two"]


def test_a_conversation_goes_on_with_its_own_agent_and_others_with_the_first(
    places: ProjectPaths, project: Path
) -> None:
    configure(places.own_home, '[dispatch]\norder = ["other", "small"]\n', ("small", "other"))
    with Project(places) as yard:
        chosen = [
            dispatch_task("x", project=yard, cwd=project, to=to, session=session).data["backend"]
            for to, session in (("small", "talk"), (None, "talk"), (None, None), (None, "new"))
        ]

    assert chosen == ["small", "small", "other", "other"]


def test_without_a_name_the_first_that_is_installed_is_taken(places: ProjectPaths, project: Path) -> None:
    gone = '[backends.gone]\ncommand = ["/nowhere/agent"]\n[dispatch]\norder = ["gone", "small"]\n'
    configure(places.own_home, gone)
    with Project(places) as yard:
        assert dispatch_task("x", project=yard, cwd=project).data["backend"] == "small"
    configure(places.own_home, gone.replace(', "small"', ""))
    with Project(places) as yard:
        result = dispatch_task("x", project=yard, cwd=project)
    assert (result.data["type"], result.data["backends"]) == ("AgentNotInstalled", ["gone"])


OLD_CODEX = """\
#!{python}
import json, sys
asked = json.loads(sys.stdin.readline())
print(json.dumps({{"id": asked["id"], "result": {{"userAgent": "codex/0.1.0"}}}}), flush=True)
sys.stdin.readline()
"""


def test_an_agent_that_is_too_old_is_passed_over_unless_it_was_asked_for(
    skillyard: Skillyard, places: ProjectPaths, yard: Project, tmp_path: Path
) -> None:
    configure(places.own_home, '[dispatch]\norder = ["codex", "small"]\n')
    old = tmp_path / "codex"
    old.write_text(OLD_CODEX.format(python=sys.executable), "utf-8")
    old.chmod(0o755)

    passed = envelope(skillyard("dispatch", "x", "--json", SKILLYARD_CODEX=str(old)))
    asked = envelope(skillyard("dispatch", "x", "--to", "codex", "--json", SKILLYARD_CODEX=str(old)))

    assert (passed["state"], passed["data"]["backend"]) == ("success", "small")
    assert (asked["data"]["type"], asked["data"]["version"]) == ("AgentNotInstalled", "0.1.0")
    assert sorted((run.agent, run.state) for run in yard.runs(9)) == [
        ("codex", "error"),
        ("codex", "error"),
        ("small", "success"),
    ]


@pytest.mark.parametrize(
    ("task", "type_", "msg", "state"),
    [
        ("crash", "BackendFailed", "exit code 9", ConversationState.CRASHED),
        ("cut", "BackendFailed", "it gave up: max_tokens", ConversationState.IDLE),
    ],
)
def test_an_end_that_is_none_is_told_and_the_next_task_goes_on(
    hand: Callable[..., Result], yard: Project, task: str, type_: str, msg: str, state: ConversationState
) -> None:
    result = hand(task, session="talk")

    assert (result.state, result.data["type"], result.data["text"]) == (State.ERROR, type_, task)
    assert msg in str(result.data["msg"])
    assert the_talk(yard).state is state
    run = yard.find_run(str(result.meta["run"]))
    assert run is not None
    assert run.state == "error"
    assert hand("more", session="talk").data["content"] == "more"
    assert ("task", task) in history(yard)


@pytest.mark.alone  # the agent must start within the limit that it is ended at
def test_the_limit_of_a_task_is_a_timeout_with_what_came_before(hand: Callable[..., Result], yard: Project) -> None:
    result = hand("hang", session="talk", limit_seconds=2)

    assert (result.state, result.exit_code) == (State.TIMEOUT, 124)
    assert (result.data["backend"], result.data["limit"], result.data["content"]) == ("small", 2, "hanging")
    assert the_talk(yard).state is ConversationState.FAILED


def test_an_agent_that_says_nothing_for_too_long_hangs(places: ProjectPaths, project: Path) -> None:
    configure(places.own_home, "[dispatch]\nsilent = 2\n")
    with Project(places) as yard:
        result = dispatch_task("hang", to="small", project=yard, cwd=project, session="talk", lang=Lang.ZH)

    assert (result.state, result.summary) == (State.TIMEOUT, "Timeout: 智能体无响应 (>2秒)")


@pytest.mark.parametrize(("allowed", "said"), [(True, "yes"), (False, "no")])
def test_what_an_agent_asks_for_is_somebodys_to_allow_and_a_refusal_is_in_the_result(
    hand: Callable[..., Result], yard: Project, allowed: bool, said: str
) -> None:
    asked: list[Permission] = []

    def ask(permission: Permission) -> bool:
        asked.append(permission)
        return allowed

    result = hand("ask", session="talk", ask=ask)

    assert result.data["content"] == said
    assert asked == [Permission("edit", "write a file")]
    assert result.data["refused"] == ([] if allowed else [{"tool": "edit", "says": "write a file"}])
    assert ("permission", "write a file") in history(yard)


def test_where_nobody_can_be_asked_it_is_refused_unless_the_user_allowed_it_beforehand(
    skillyard: Skillyard, places: ProjectPaths
) -> None:
    refused = envelope(skillyard("dispatch", "ask", "--to", "small", "--json"))
    configure(places.own_home, 'allowed_tools = ["edit"]\n')
    allowed = envelope(skillyard("dispatch", "ask", "--to", "small", "--json"))

    assert (refused["data"]["content"], len(refused["data"]["refused"])) == ("no", 1)
    assert (allowed["data"]["content"], allowed["data"]["refused"]) == ("yes", [])


def test_a_stop_from_another_thread_ends_it_and_the_conversation_goes_on(
    hand: Callable[..., Result], yard: Project
) -> None:
    stop = CancelToken()

    def tell(event: Event) -> None:
        if event.kind is EventKind.TEXT:
            threading.Thread(target=stop.cancel).start()

    result = hand("hang", session="talk", tell=tell, stop=stop)

    assert (result.state, result.data["stop"], result.data["content"]) == (State.ERROR, "cancelled", "hanging")
    assert "--session talk --to small" in str(result.meta["hint"])
    assert the_talk(yard).state is ConversationState.STOPPED
    assert hand("more", session="talk").ok


def test_a_forced_stop_does_not_wait_for_an_agent_that_ignores_it(hand: Callable[..., Result], yard: Project) -> None:
    stop = CancelToken()

    def tell(event: Event) -> None:
        if event.kind is EventKind.TEXT:
            threading.Thread(target=stop.force).start()

    result = hand("hang", session="talk", tell=tell, stop=stop)

    assert (result.state, result.data["stop"]) == (State.ERROR, "cancelled")
    assert the_talk(yard).state is ConversationState.STOPPED
    stop.force()  # afterwards it finds nobody


def test_a_task_that_was_taken_back_before_starts_nothing(hand: Callable[..., Result], yard: Project) -> None:
    stop = CancelToken()
    stop.cancel()

    result = hand("hello", session="talk", stop=stop)

    assert "taken back" in str(result.data["msg"])
    assert [told for told, _ in history(yard)] == ["task", "error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_the_agent_cleanly(
    begin: StartCommand, yard: Project, places: ProjectPaths, number: signal.Signals
) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk", "--json")
    until_running(yard)
    process.send_signal(number)

    told = envelope(process)
    assert (process.returncode, told["state"], told["data"]["stop"]) == (1, "error", "cancelled")
    assert the_talk(yard).state is ConversationState.STOPPED
    assert agents_of(places.own_home) == []


def test_another_process_stops_it_and_is_told_what_it_stopped(
    begin: StartCommand, skillyard: Skillyard, yard: Project, places: ProjectPaths
) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk", "--json")
    until_running(yard)

    stopped = envelope(skillyard("backend", "stop", "--session", "talk", "--json"))

    assert [talk["session"] for talk in stopped["data"]["conversations"]] == ["talk"]
    assert envelope(process)["data"]["stop"] == "cancelled"
    assert the_talk(yard).state is ConversationState.STOPPED
    assert agents_of(places.own_home) == []
    assert skillyard("backend", "stop").stdout == "nothing is running\n"


def test_a_ring_for_an_earlier_run_does_not_stop_the_present_one(begin: StartCommand, yard: Project) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk", "--json")
    talk = until_running(yard)

    assert yard.dispatcher.cancel_pipes.cancel(talk.id, "an-earlier-run")
    assert yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)
    envelope(process)
    assert not yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)


def test_two_tasks_in_one_conversation_come_one_after_the_other(
    begin: StartCommand, skillyard: Skillyard, yard: Project
) -> None:
    first = begin("dispatch", "hang", "--to", "small", "--session", "talk", "--json")
    talk = until_running(yard)
    second = begin("dispatch", "second", "--session", "talk", "--json")
    assert second.stderr is not None
    assert "another task runs in the conversation talk" in second.stderr.readline()

    yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)

    assert envelope(first)["data"]["stop"] == "cancelled"
    assert envelope(second)["data"]["content"] == "second"
    late = begin("dispatch", "hang", "--session", "talk", "--json")
    until_running(yard)
    told = envelope(skillyard("dispatch", "third", "--session", "talk", "--timeout", "1.5", "--json"))
    assert "another task runs" in told["data"]["msg"]
    assert "skillyard backend stop" in told["meta"]["hint"]
    assert late.poll() is None


def test_no_more_than_so_many_run_at_once_in_all_processes(
    begin: StartCommand, skillyard: Skillyard, yard: Project, places: ProjectPaths
) -> None:
    configure(places.own_home, "[dispatch]\nat_once = 1\n")
    begin("dispatch", "hang", "--to", "small", "--session", "talk")
    talk = until_running(yard)
    second = begin("dispatch", "second", "--to", "small", "--json")
    assert second.stderr is not None
    assert "1 agents run already" in second.stderr.readline()

    yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)

    assert envelope(second)["data"]["content"] == "second"


def test_a_killed_runtime_leaves_no_agent_and_is_known_afterwards(
    begin: StartCommand, skillyard: Skillyard, yard: Project, places: ProjectPaths
) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk")
    talk = until_running(yard)
    process.kill()
    process.wait()

    until(lambda: not agents_of(places.own_home))
    (listed,) = [
        backend["conversations"]
        for backend in envelope(skillyard("backend", "--json"))["data"]["backends"]
        if backend["name"] == "small"
    ]
    assert [(each["session"], each["state"], each["agent_session"]) for each in listed] == [("talk", "crashed", "s1")]
    run = yard.find_run(talk.run)
    assert run is not None
    assert (run.state, run.request["text"]) == ("error", "hang")
    assert envelope(skillyard("dispatch", "more", "--session", "talk", "--json"))["data"]["content"] == "more"


def test_what_a_killed_runtime_left_goes_when_its_conversation_is_forgotten(
    begin: StartCommand, yard: Project, places: ProjectPaths
) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk")
    talk = until_running(yard)
    process.kill()
    process.wait()
    until(lambda: not agents_of(places.own_home))
    assert not yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)

    assert yard.conversations.forget_before(time.time() + 1) == 1
    assert [file.name for file in (places.own_home / "conversations").iterdir()] == ["slot-0.lock"]


def test_an_agent_two_deep_starts_no_other(skillyard: Skillyard) -> None:
    assert envelope(skillyard("dispatch", "x", "--to", "small", "--json", **{DEPTH: "1"}))["state"] == "success"

    told = envelope(skillyard("dispatch", "x", "--to", "small", "--json", **{DEPTH: "2"}))
    assert (told["state"], told["data"]["type"]) == ("error", "TooDeep")


def test_a_projects_own_agents_count_only_after_trust(
    skillyard: Skillyard, places: ProjectPaths, project: Path
) -> None:
    (places.own_home / "config.toml").unlink()
    command = json.dumps([sys.executable, str(AGENT)])
    (project / "skillyard.toml").write_text(f'[dispatch]\norder = ["mine"]\n[backends.mine]\ncommand = {command}\n')

    before = envelope(skillyard("dispatch", "x", "--to", "mine", "--json"))
    shown = skillyard("trust", "--accept")
    after = envelope(skillyard("dispatch", "x", "--json"))

    assert "no backend 'mine'" in before["data"]["msg"]
    assert "acp_agent.py" in shown.stdout + shown.stderr
    assert (after["state"], after["data"]["backend"]) == ("success", "mine")


def test_the_users_word_stands_over_the_projects_and_a_changed_file_is_not_trusted_any_more(
    skillyard: Skillyard, places: ProjectPaths, project: Path
) -> None:
    configure(places.own_home, '[dispatch]\norder = ["small"]\n')
    file = project / "skillyard.toml"
    mine = f"[backends.mine]\ncommand = {json.dumps([sys.executable, str(AGENT)])}\n"
    evil = '[dispatch]\norder = ["evil"]\n[backends.small]\ncommand = ["/nowhere/evil"]\n'
    file.write_text(evil + mine, "utf-8")
    assert skillyard("trust", "--accept").returncode == 0

    assert envelope(skillyard("dispatch", "x", "--json"))["data"]["backend"] == "small"
    assert envelope(skillyard("dispatch", "x", "--to", "mine", "--json"))["state"] == "success"
    file.write_text(file.read_text("utf-8").replace("acp_agent.py", "other.py"), "utf-8")
    told = envelope(skillyard("dispatch", "x", "--to", "mine", "--json"))
    assert "no backend 'mine'" in told["data"]["msg"]


@pytest.mark.parametrize(
    "wrong",
    [
        "[dispatch]\norder = 3\n",
        "[dispatch]\nlimit = -1\n",
        'dispatch = "x"\n',
        "[backends.x]\ncommand = [1]\n",
        '[backends]\nx = "y"\n',
    ],
)
def test_settings_that_cannot_be_meant_are_named_with_their_file(
    skillyard: Skillyard, places: ProjectPaths, wrong: str
) -> None:
    (places.own_home / "config.toml").write_text(wrong, "utf-8")

    told = envelope(skillyard("dispatch", "x", "--json"))
    assert (told["data"]["type"], "config.toml" in told["data"]["msg"]) == ("InvalidArgs", True)


def test_what_looks_like_a_secret_is_sent_and_not_shown(hand: Callable[..., Result], yard: Project) -> None:
    result = hand(f"use {KEY}", session="talk")

    assert KEY not in str(result)
    run = yard.find_run(str(result.meta["run"]))
    kept = json.dumps([history(yard), run and run.request, run and run.result], default=dict, ensure_ascii=False)
    assert KEY not in kept
    assert "use •••" in kept


def test_the_log_tells_a_conversation_and_follows_it_to_its_end(
    begin: StartCommand, skillyard: Skillyard, yard: Project
) -> None:
    process = begin("dispatch", "hang", "--to", "small", "--session", "talk")
    talk = until_running(yard)
    following = begin("backend", "log", "--session", "talk", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline().endswith("←\n")
    assert following.poll() is None
    yard.dispatcher.cancel_pipes.cancel(talk.id, talk.run)
    process.communicate()

    rest = following.communicate(timeout=CEILING_SECONDS)[0]
    assert "hanging" in rest
    assert rest.endswith("-- stopped\n")
    data = envelope(skillyard("backend", "log", "small", "--json"))["data"]
    assert (data["session"], data["state"], data["events"][0]["text"]) == ("talk", "stopped", "hang")
    assert skillyard("backend", "log", "--session", "nobody").returncode == 1


def test_the_stream_goes_to_stderr_and_one_result_to_stdout(skillyard: Skillyard) -> None:
    done = skillyard("dispatch", "one\ntwo", "--to", "small", "--stream", SKILLYARD_LANG="zh")

    assert done.stderr.splitlines()[1:] == ["→ 已开始：s1", "one", "two"]
    assert done.stdout.startswith("✅ skillyard small 已完成任务\n")


def test_check_starts_the_agents_and_asks_a_model_only_when_told_to(skillyard: Skillyard) -> None:
    said = skillyard("backend", "check", "small")
    asked = envelope(skillyard("backend", "check", "small", "--ask", "--json"))
    none = skillyard("backend", "check", "codex", "--json", PATH="/nowhere")

    assert said.stdout == "✓ small speaks with us\n"
    assert asked["data"]["backends"][0]["said"] == "Answer with the one word: ok"
    assert (none.returncode, envelope(none)["data"]["backends"][0]["type"]) == (1, "AgentNotInstalled")


@pytest.mark.parametrize(("typed", "said"), [("y", "yes"), ("", "no")])
def test_a_person_at_the_terminal_is_asked(places: ProjectPaths, typed: str, said: str) -> None:
    with Terminal(places, "dispatch", "ask", "--to", "small", "--json") as terminal:
        terminal.expect("edit asks: write a file  Allow it? (a: always in this turn) [y/N/a]")
        terminal.say(typed)
        _, out = terminal.finish()

    assert json.loads(out)["data"]["content"] == said


def test_an_interrupt_instead_of_an_answer_refuses_and_stops(places: ProjectPaths, yard: Project) -> None:
    with Terminal(places, "dispatch", "ask", "--to", "small", "--session", "talk", "--json") as terminal:
        terminal.expect("[y/N/a]")
        terminal.interrupt()
        code, out = terminal.finish()

    assert (code, json.loads(out)["data"]["refused"][0]["tool"]) == (1, "edit")
    assert the_talk(yard).state is ConversationState.STOPPED


def test_a_person_sees_the_latest_step_and_a_second_interrupt_ends_everything(
    places: ProjectPaths, yard: Project
) -> None:
    with Terminal(places, "dispatch", "hang", "--to", "small", "--session", "talk") as terminal:
        terminal.expect("hanging")
        terminal.interrupt()
        terminal.expect("Ctrl-C again")
        terminal.interrupt()
        code, _ = terminal.finish()

    assert code == 1
    assert the_talk(yard).state is ConversationState.STOPPED
    assert agents_of(places.own_home) == []


PROMPT: Mapping[str, str] = {
    "ideas": "---\nname: ideas\ndescription: Ideas.\n---\n\nFind ideas for $ARGUMENTS.\n",
    "tool": "---\nname: tool\ndescription: A tool.\ncommand: echo {text}\n---\n",
}


def test_a_prompt_skill_is_run_by_an_agent_and_counts_as_its_run(
    skillyard: Skillyard, write_skill: WriteSkill, yard: Project
) -> None:
    for name, text in PROMPT.items():
        write_skill(name, text)
    skillyard("activate", "tool")

    told = envelope(skillyard("run", "--to", "small", "--json", "@ideas", "my", "product"))

    assert (told["agent"], told["state"], told["summary"]) == ("skills", "success", "ran: ideas")
    assert told["data"]["content"].strip() == told["data"]["text"].strip() == "Find ideas for my product."
    assert (told["data"]["skill"], told["data"]["name"], told["data"]["type"]) == ("ideas", "ideas", "prompt")
    run = yard.find_run(told["meta"]["run"])
    assert run is not None
    assert (run.skill, run.agent, run.kind) == ("ideas", "small", "prompt")
    assert (yard.history.uses(), yard.history.loads()) == ({}, {"ideas": 1})
    wrong = envelope(skillyard("run", "@tool", "--to", "small", "--json", "x"))
    assert (wrong["data"]["type"], wrong["agent"]) == ("InvalidArgs", "skills")
    assert skillyard("run", "--model", "m", "@ideas").returncode == 2
