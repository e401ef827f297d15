"""`skillyard dispatch` with the real agents: the whole way, in processes of their own; only the model is ours."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.store.conversations import ConversationState
from tests.agents.agent import Agent
from tests.agents.drivers import TOOLS, alive, contents, environment, new_mark, until
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Stub, answer, call, error, hang
from tests.conftest import WriteSkill
from tests.dispatch.test_activation import skill_text

CEILING_SECONDS = 240
Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(places: ProjectPaths) -> Iterator[Command]:
    """The real `skillyard`, which finds the real agent."""
    started: list[subprocess.Popen[str]] = []

    def start(agent: Agent, *words: str, mark: str = "", text: str = "") -> "subprocess.Popen[str]":
        env = {**environment(agent, mark), "SKILLYARD_HOME": str(places.own_home), "SKILLYARD_LANG": "en"}
        process = subprocess.Popen(
            [sys.executable, "-m", "skillyard", *words],
            cwd=places.project,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        started.append(process)
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> Any:
    out, err = process.communicate(timeout=CEILING_SECONDS)
    assert out, err
    return json.loads(out)


def dispatch(agent: Agent, *more: str) -> tuple[str, ...]:
    return ("dispatch", *more, "--to", agent.name, "--model", agent.model, "--cwd", str(agent.cwd), "--json")


def test_the_enhanced_task_arrives_complete_and_unchanged(
    agent: Agent, stub: Stub, command: Command, write_skill: WriteSkill
) -> None:
    write_skill("style", skill_text("Style", "".join(f"第 {n} 条规则 🎈 rule {n}\n" for n in range(1_200))))
    said(command(agent, "activate", "style", "--json"))
    (agent.cwd / "kept.txt").write_text("as it was", "utf-8")
    before = contents(agent.cwd)
    task = "Look at @/etc/passwd 你好 🎉\n" + "".join(f"行 {n} 🎈 --help\n" for n in range(1_200))
    stub.play(answer("Done, 好的 🎉."))

    result = said(command(agent, *dispatch(agent, "-"), text=task))

    assert (result["state"], result["data"]["content"]) == ("success", "Done, 好的 🎉.")
    sent = result["data"]["text"]
    assert len(sent) > 35_000
    assert sent.startswith("# Reference Skills\n")
    assert sent.endswith(task)
    assert sent.encode() in [text.encode() for text in stub.last(agent.name).user_texts]
    assert [skill["name"] for skill in result["data"]["skills"]] == ["Style"]
    assert result["data"]["usage"]["output"]
    assert contents(agent.cwd) == before


def test_a_conversation_goes_on_in_new_processes_and_after_a_kill_in_the_middle_of_a_turn(
    agent: Agent, stub: Stub, command: Command, yard: Project
) -> None:
    stub.play(answer("One."), answer("Two."), hang("Three… "))
    first = said(command(agent, *dispatch(agent, "The first thing.", "--session", "talk")))
    second = said(command(agent, *dispatch(agent, "The second thing.", "--session", "talk")))
    mark = new_mark()
    doomed = command(agent, *dispatch(agent, "The third thing.", "--session", "talk"), mark=mark)
    stub.wait_until_held()
    assert alive(mark)
    doomed.kill()

    assert until(lambda: not alive(mark))
    # A process that ends has no environment any more a moment before it lets go of its locks.
    assert until(lambda: yard.conversations.list(name="talk")[0].state is not ConversationState.RUNNING)
    (talk,) = yard.conversations.list(name="talk")
    assert (talk.state, talk.session) == (ConversationState.CRASHED, first["data"]["agent_session"])
    stub.release()
    stub.play(answer("Four."))
    fourth = said(command(agent, *dispatch(agent, "The fourth thing.", "--session", "talk")))

    assert (second["data"]["content"], fourth["data"]["content"]) == ("Two.", "Four.")
    assert fourth["data"]["agent_session"] == second["data"]["agent_session"] == first["data"]["agent_session"]
    told = stub.last(agent.name).text
    assert all(words in told for words in ("The first thing.", "One.", "The second thing.", "Two."))
    tasks = [telling.text for _, telling in yard.conversations.history(talk) if telling.told == "task"]
    assert tasks == [f"The {number} thing." for number in ("first", "second", "third", "fourth")]


def test_a_warm_agent_goes_on_with_its_session_and_answers_again(agent: Agent, stub: Stub, command: Command) -> None:
    mark = new_mark()
    stub.play(answer("One."), answer("Two."), answer("Three."), answer("Four."))
    session = ("--session", "talk")
    where = ("--model", agent.model, "--cwd", str(agent.cwd), "--json")
    first = said(command(agent, *dispatch(agent, "The first thing.", *session), mark=mark))
    started = said(command(agent, "backend", "start", agent.name, *session, *where, mark=mark))
    try:
        second, third = (
            said(command(agent, *dispatch(agent, f"The {which} thing.", *session), mark=mark))
            for which in ("second", "third")
        )
        told = stub.last(agent.name).text
    finally:
        said(command(agent, "backend", "stop", *session, "--json", mark=mark))

    assert (started["state"], started["data"]["warm"]["state"]) == ("success", "idle")
    assert [each["data"]["warm"] for each in (first, second, third)] == [False, True, True]
    assert [each["data"]["content"] for each in (first, second, third)] == ["One.", "Two.", "Three."]
    assert third["data"]["agent_session"] == second["data"]["agent_session"] == first["data"]["agent_session"]
    assert all(words in told for words in ("The first thing.", "One.", "The second thing.", "Two."))
    assert until(lambda: not alive(mark))
    fourth = said(command(agent, *dispatch(agent, "The fourth thing.", *session)))
    assert (fourth["data"]["content"], fourth["data"]["warm"]) == ("Four.", False)
    assert "The third thing." in stub.last(agent.name).text


def test_one_interrupt_stops_the_whole_tree_and_the_result_says_so(
    agent: Agent, stub: Stub, command: Command, yard: Project
) -> None:
    mark = new_mark()
    stub.play(hang("One moment… "))
    process = command(agent, *dispatch(agent, "Hello?", "--session", "talk"), mark=mark)
    stub.wait_until_held()
    process.send_signal(signal.SIGINT)

    result = said(process)

    assert (process.returncode, result["data"]["stop"]) == (1, "cancelled")
    assert alive(mark) == []
    (talk,) = yard.conversations.list(name="talk")
    assert talk.state is ConversationState.STOPPED
    stub.wait_until_hung_up()


def test_check_speaks_with_each_and_asks_no_model(agent: Agent, stub: Stub, command: Command) -> None:
    result = said(command(agent, "backend", "check", agent.name, "--json"))

    (checked,) = result["data"]["backends"]
    assert checked["ok"], checked
    assert checked["version"][0].isdigit()
    assert stub.requests == []


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_wrong_key_is_told_in_the_agents_own_words(
    name: str, make_agent: MakeAgent, stub: Stub, command: Command, yard: Project
) -> None:
    agent = make_agent(name)
    stub.play(error(401, "the stub does not know this key"))

    result = said(command(agent, *dispatch(agent, "Hello?", "--session", "talk")))

    assert (result["state"], result["data"]["type"]) == ("error", "BackendFailed")
    assert "the stub does not know this key" in result["data"]["msg"]
    assert "log in" in result["meta"]["hint"]
    assert yard.conversations.list(name="talk")[0].state is ConversationState.FAILED


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_tool_that_nobody_allows_is_refused_and_told(
    name: str, make_agent: MakeAgent, stub: Stub, command: Command
) -> None:
    agent = make_agent(name)
    tool = TOOLS[name]
    stub.play(call(tool.shell, tool.command("touch made-by-the-tool")), answer("As you like."))
    words = (word for word in dispatch(agent, "Make a file.", "--stream") if word != "--json")

    process = command(agent, *words)
    out, err = process.communicate(timeout=CEILING_SECONDS)

    assert process.returncode == 3, err
    assert out.startswith(f"⚠️ skillyard {name} is done, but not all of it was allowed: {tool.permission} (")
    assert f'refused: [{{tool: "{tool.permission}"' in out
    assert "touch made-by-the-tool" in err
    assert err.rstrip().endswith("As you like.")
    assert contents(agent.cwd) == {}


def test_a_prompt_skill_is_run_by_claude_with_the_model_that_was_named(
    make_agent: MakeAgent, stub: Stub, command: Command, write_skill: WriteSkill, yard: Project
) -> None:
    agent = make_agent("claude-code")
    write_skill("ideas", "---\nname: ideas\ndescription: Ideas.\n---\n\nFind ideas for $ARGUMENTS.\n")
    stub.play(answer("Sell it."))

    result = said(command(agent, "run", "--to", agent.name, "--model", "haiku", "--json", "@ideas", "my product"))

    assert (result["agent"], result["data"]["skill"], result["data"]["content"]) == ("skills", "ideas", "Sell it.")
    assert "Find ideas for 'my product'." in stub.last(agent.name).user_text
    assert "haiku" in stub.last(agent.name).body["model"]
    assert (yard.history.uses(), yard.history.loads()) == ({}, {"ideas": 1})
    assert Path(yard.runs(1)[0].skill).name == "ideas"
