"""The same expectations for all three drivers, with the real agents: only the stub stands where a model would be."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from skillyard.backends.driver import Turn
from skillyard.core.backend_events import Event, EventKind, Permission, TurnEnd
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import AgentSilent, BackendFailed, Timeout, TooDeep
from skillyard.core.messages import Lang
from tests.agents.agent import Agent
from tests.agents.drivers import (
    TOOLS,
    alive,
    contents,
    driver_of,
    environment,
    first,
    kinds,
    new_mark,
    open_agent,
    texts,
    until,
)
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Stub, answer, call, error, hang

#: claude refuses a plain `sleep`.
SLEEP = "python3 -c 'import time; time.sleep(987)'"
ASLEEP = "time.sleep(987)"


def test_an_answer_comes_in_pieces_between_started_and_done(agent: Agent, stub: Stub) -> None:
    stub.play(answer("All done, 好的 🎉."))

    with open_agent(agent) as running:
        events = list(running.turn(Turn("Hello?")))

    assert kinds(events) == ["started", "text", "usage", "done"]
    assert len(texts(events)) > 1
    assert "".join(texts(events)) == "All done, 好的 🎉." == events[-1].text
    assert events[-1].data["stop"] == TurnEnd.END
    assert events[0].data["session"] == events[-1].data["session"] == running.session
    assert first(events, EventKind.USAGE).data["output"]


@pytest.mark.parametrize(
    "task",
    [
        "# Reference Skills\n\n你好 🎉\n" + "".join(f"line {n} 行 🎈\n" for n in range(3_000)) + "# Task\n\nDo it.",
        "/review this",
        "\n/review this",
        "Look at @/etc/passwd and $imagegen --help\t\u2028end",
        "--help",
        "  both ends  \n",
    ],
    ids=["long", "slash", "newline and slash", "mentions", "option", "spaces"],
)
def test_a_task_arrives_byte_for_byte(agent: Agent, stub: Stub, task: str) -> None:
    stub.play(answer("Yes."))

    with open_agent(agent) as running:
        list(running.turn(Turn(task)))

    if task.startswith("/") and agent.name == "claude-code":
        task = "\n" + task  # else it were a command of its own
    arrived = stub.last(agent.name).user_texts
    assert task.encode() in [text.encode() for text in arrived]
    # codex adds the skill that it believes to be meant by `$imagegen`, after a text that it leaves as it is
    assert arrived[-1] == task or (agent.name == "codex" and arrived[-1].startswith("<skill>"))
    assert "root:x:0" not in stub.last().text


def test_a_refused_tool_is_not_run_and_the_agent_is_told(agent: Agent, stub: Stub) -> None:
    tool = TOOLS[agent.name]
    asked: list[Permission] = []
    stub.play(call(tool.shell, tool.command("touch made-by-the-tool")), answer("As you like."))

    def ask(permission: Permission) -> bool:
        asked.append(permission)
        return False

    with open_agent(agent) as running:
        events = list(running.turn(Turn("Make a file."), ask))

    assert [permission.tool for permission in asked] == [tool.permission]
    assert "touch made-by-the-tool" in asked[0].says
    assert first(events, EventKind.TOOL_CALL).data["id"] == first(events, EventKind.TOOL_RESULT).data["id"]
    assert first(events, EventKind.TOOL_RESULT).data["ok"] is False
    assert events[-1].kind is EventKind.DONE
    assert contents(agent.cwd) == {}


def test_an_allowed_tool_is_run_and_its_result_comes_back(agent: Agent, stub: Stub) -> None:
    tool = TOOLS[agent.name]
    stub.play(call(tool.shell, tool.command("touch made-by-the-tool; echo said-so")), answer("It is there."))

    with open_agent(agent) as running:
        events = list(running.turn(Turn("Make a file."), lambda _: True))

    called, came = first(events, EventKind.TOOL_CALL), first(events, EventKind.TOOL_RESULT)
    assert "made-by-the-tool" in json.dumps(called.data) or agent.name == "opencode"
    assert (came.data["id"], came.data["ok"]) == (called.data["id"], True)
    assert "said-so" in came.text
    assert events[-1].text == "It is there."
    assert list(contents(agent.cwd)) == ["made-by-the-tool"]


def test_an_allowed_tool_by_name_asks_nobody(agent: Agent, stub: Stub) -> None:
    tool = TOOLS[agent.name]
    stub.play(call(tool.shell, tool.command("touch made-by-the-tool")), answer("It is there."))

    with open_agent(agent, allowed_tools=(tool.permission,)) as running:
        list(running.turn(Turn("Make a file."), lambda _: pytest.fail("nobody was to be asked")))

    assert list(contents(agent.cwd)) == ["made-by-the-tool"]


def test_a_second_turn_goes_on_in_the_same_process_and_a_third_in_a_new_one(agent: Agent, stub: Stub) -> None:
    stub.play(answer("One."), answer("Two."), answer("Three."))

    with open_agent(agent) as running:
        list(running.turn(Turn("The first thing.")))
        session = running.session
        second = list(running.turn(Turn("The second thing.")))
    with open_agent(agent, session=session) as again:
        third = list(again.turn(Turn("The third thing.")))

    assert (second[-1].text, third[-1].text) == ("Two.", "Three.")
    assert second[0].data["session"] == third[0].data["session"] == session
    told = stub.last(agent.name).text
    assert all(words in told for words in ("The first thing.", "One.", "The second thing.", "Two.", "The third thing."))
    assert len(texts(third)) > 1
    assert "".join(texts(third)) == "Three."


def test_a_session_that_is_not_there_is_an_error_and_asks_no_model(agent: Agent, stub: Stub) -> None:
    unknown = "ses_00000000000000000000000000" if agent.name == "opencode" else "11111111-1111-4111-8111-111111111111"

    with open_agent(agent, session=unknown) as running, pytest.raises(BackendFailed) as raised:
        list(running.turn(Turn("Go on.")))

    assert agent.name in str(raised.value)
    assert stub.asked() == []


def test_cancel_ends_a_turn_whose_model_hangs_and_leaves_nothing_running(agent: Agent, stub: Stub) -> None:
    mark = new_mark()
    stub.play(hang("One moment… "))

    with open_agent(agent, mark=mark) as running:
        seen: list[Event] = []
        for event in running.turn(Turn("Hello?")):
            seen.append(event)
            if event.kind is EventKind.TEXT and len(texts(seen)) == 1:
                assert alive(mark)
                threading.Thread(target=running.cancel).start()

        assert seen[-1].kind is EventKind.DONE
        assert seen[-1].data["stop"] == TurnEnd.CANCELLED
        assert alive(mark) == []
    stub.wait_until_hung_up()


def test_cancel_ends_a_tool_that_sleeps(agent: Agent, stub: Stub) -> None:
    mark = new_mark()
    tool = TOOLS[agent.name]
    stub.play(call(tool.shell, tool.command(SLEEP)), answer("Slept."))

    with open_agent(agent, mark=mark) as running:

        def stop_when_asleep() -> None:
            until(lambda: any(ASLEEP in line for line in alive(mark)))
            running.cancel()

        stopper = threading.Thread(target=stop_when_asleep)
        stopper.start()
        events = list(running.turn(Turn("Sleep."), lambda _: True))
        stopper.join()

        assert events[-1].data["stop"] == TurnEnd.CANCELLED
        assert alive(mark) == []


def test_a_cancelled_session_can_be_gone_on_with(agent: Agent, stub: Stub) -> None:
    stub.play(answer("One."), hang("Two"))

    with open_agent(agent) as running:
        list(running.turn(Turn("The first thing.")))
        for event in running.turn(Turn("The second thing.")):
            if event.kind is EventKind.TEXT:
                running.cancel()
    stub.play(answer("Three."))
    with open_agent(agent, session=running.session) as again:
        events = list(again.turn(Turn("The third thing.")))

    assert events[-1].text == "Three."
    assert "The first thing." in stub.last(agent.name).text


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_model_that_fails_is_an_error_in_its_own_words(agent: Agent, stub: Stub, status: int) -> None:
    stub.play(error(status, f"the stub says {status}, wrong API key sk-abcdefghijklmnopqrstuvwxyz"))

    with open_agent(agent) as running, pytest.raises(BackendFailed) as raised:
        list(running.turn(Turn("Hello?")))

    said = raised.value.msg
    assert f"the stub says {status}" in said or (agent.name == "codex" and status != 401)  # it has words of its own
    assert "sk-abc" not in said
    if status == 401:
        assert "log in" in raised.value.hint(Lang.EN)


def test_retries_are_told_as_they_happen(agent: Agent, stub: Stub) -> None:
    stub.play(error(500, "the stub is tired", times=1), answer("Better now."))

    with open_agent(agent) as running:
        events = list(running.turn(Turn("Hello?")))

    assert events[-1].text == "Better now."
    if agent.name == "codex":  # it says nothing of the first retry of a request
        return
    assert first(events, EventKind.ERROR).data["retrying"] is True


def test_a_model_that_is_not_there_is_an_error(agent: Agent, stub: Stub) -> None:
    stub.play(error(404, "model not found: nonsense"))

    with open_agent(agent, model="stub/nonsense") as running, pytest.raises(BackendFailed) as raised:
        list(running.turn(Turn("Hello?")))

    assert "nonsense" in raised.value.msg
    assert "--model" in raised.value.hint(Lang.EN)


def test_an_agent_that_says_nothing_is_stopped_and_the_limit_is_named(agent: Agent, stub: Stub) -> None:
    mark = new_mark()
    stub.play(answer("One."), hang())

    with open_agent(agent, mark=mark) as running:
        list(running.turn(Turn("Begin.")))
        with pytest.raises(AgentSilent) as raised:
            list(running.turn(Turn("Hang.", silent_seconds=3)))

    assert raised.value.data()["limit"] == 3
    assert alive(mark) == []


@pytest.mark.alone  # the tool must have started before the agent counts as silent
def test_a_turn_has_a_time_limit_also_while_a_tool_runs(agent: Agent, stub: Stub) -> None:
    mark = new_mark()
    tool = TOOLS[agent.name]
    stub.play(answer("One."), call(tool.shell, tool.command(SLEEP)), answer("Slept."))

    with open_agent(agent, mark=mark) as running:
        list(running.turn(Turn("Begin.")))
        with pytest.raises(Timeout) as raised:
            list(running.turn(Turn("Sleep.", silent_seconds=3, limit_seconds=8), lambda _: True))

    assert raised.value.data()["limit"] == 8
    assert alive(mark) == []


def test_an_agent_that_is_killed_is_a_clear_error(agent: Agent, stub: Stub) -> None:
    mark = new_mark()
    stub.play(hang("One moment… "))

    with open_agent(agent, mark=mark) as running:
        events = running.turn(Turn("Hello?"))
        next(event for event in events if event.kind is EventKind.TEXT)
        _kill(mark)
        with pytest.raises(BackendFailed) as raised:
            list(events)

    assert "ended without an answer" in raised.value.msg


def _kill(mark: str) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue


def test_whoever_stops_listening_ends_the_agent(agent: Agent, stub: Stub) -> None:
    mark = new_mark()
    stub.play(hang("One moment… "))

    with open_agent(agent, mark=mark) as running:
        events = running.turn(Turn("Hello?"))
        next(event for event in events if event.kind is EventKind.TEXT)
        events.close()  # type: ignore[attr-defined]

        assert alive(mark) == []


def test_nothing_is_left_in_the_working_folder(agent: Agent, stub: Stub) -> None:
    (agent.cwd / "kept.txt").write_text("as it was", "utf-8")
    (agent.cwd / "deep").mkdir()
    before = contents(agent.cwd)
    stub.play(answer("One."), answer("Two."))

    with open_agent(agent) as running:
        list(running.turn(Turn("The first thing.")))
        list(running.turn(Turn("The second thing.")))

    assert contents(agent.cwd) == before


def test_the_agent_is_told_how_deep_it_is_and_at_two_there_is_no_further(agent: Agent, stub: Stub) -> None:
    tool = TOOLS[agent.name]
    stub.play(call(tool.shell, tool.command(f"echo depth-$SKILLYARD_DEPTH; echo ${DEPTH} > depth")), answer("So."))

    with open_agent(agent) as running:
        list(running.turn(Turn("How deep?"), lambda _: True))

    assert (agent.cwd / "depth").read_text().strip() == "1"
    too_deep = agent._replace(env={**agent.env, DEPTH: "2"})
    with pytest.raises(TooDeep):
        open_agent(too_deep).__enter__()


@pytest.mark.parametrize("busy", ["model", "tool"])
def test_a_runtime_that_is_killed_leaves_no_agent_and_no_tool(agent: Agent, stub: Stub, busy: str) -> None:
    mark = new_mark()
    tool = TOOLS[agent.name]
    stub.play(hang("One moment… ") if busy == "model" else call(tool.shell, tool.command(SLEEP)))
    doomed = subprocess.Popen(
        [sys.executable, "-m", "tests.agents.doomed", agent.name, str(agent.cwd), agent.model],
        env=environment(agent, mark) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    assert doomed.stdout
    with doomed.stdout:
        if busy == "model":
            stub.wait_until_held()
        else:
            assert until(lambda: any(ASLEEP in line for line in alive(mark)))
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()

        assert until(lambda: alive(mark) == []), alive(mark)


def test_an_agent_finds_its_version(agent: Agent) -> None:
    found = driver_of(agent).find()

    assert found.program == agent.program
    assert found.version.count(".") == 2


@pytest.mark.parametrize(("name", "key"), [("claude-code", "ANTHROPIC_API_KEY"), ("codex", "STUB_KEY")])
def test_no_credentials_are_an_error_that_says_how_to_log_in(make_agent: MakeAgent, name: str, key: str) -> None:
    agent = make_agent(name)
    del agent.env[key]

    with open_agent(agent) as running, pytest.raises(BackendFailed) as raised:
        list(running.turn(Turn("Hello?")))

    assert "log in: " in raised.value.hint(Lang.EN)


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_network_that_leads_nowhere_is_told_and_not_waited_for(make_agent: MakeAgent, stub: Stub, name: str) -> None:
    agent = make_agent(name)
    nowhere = "http://no-such-host.invalid"
    if name == "codex":
        file = agent.config / "config.toml"
        # By this way codex only warns of what failed at first, and goes on to the other one.
        sockets = file.read_text("utf-8").replace("wire_api", "supports_websockets = true\nwire_api")
        file.write_text(sockets.replace(stub.url, nowhere), "utf-8")
    else:
        agent.env["ANTHROPIC_BASE_URL"] = nowhere
    events: list[Event] = []

    with open_agent(agent) as running, pytest.raises(BackendFailed) as raised:
        events += running.turn(Turn("Hello?"))

    assert "reach" in raised.value.msg
    if name == "codex":
        assert "failed to lookup address" in raised.value.msg + " ".join(event.text for event in events)
