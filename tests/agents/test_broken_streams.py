"""However a model's stream breaks and the agent tries again, our answer is the one that the agent itself gives.

Each case is played twice: to the agent without any driver of ours, which prints its final message, and to our driver.
"""

import json
import subprocess
from collections.abc import Sequence

import pytest

from skillyard.backends.driver import Turn as DriverTurn
from skillyard.core.backend_events import Event, EventKind
from skillyard.core.errors import BackendFailed
from tests.agents.agent import CEILING_SECONDS, Agent
from tests.agents.drivers import TOOLS, open_agent
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Break, Stub, Turn, answer, broken, call, error
from tests.agents.turns import with_one_id

HALF, WHOLE = "I will DELETE the production table", "Nothing was deleted, 好的 🎉."
TRIED_AGAIN: dict[str, Sequence[Turn]] = {
    "cut after half of it": [broken(HALF, Break.CLOSED), answer(WHOLE)],
    "reset after half of it": [broken(HALF, Break.RESET), answer(WHOLE)],
    "cut inside a line": [broken(HALF, Break.IN_A_LINE), answer(WHOLE)],
    "an error after half of it": [broken(HALF, Break.ERROR), answer(WHOLE)],
    "overloaded": [error(529, "overloaded", times=1), answer(WHOLE)],
    "failed": [error(500, "failed", times=1), answer(WHOLE)],
    "half, then failed": [broken(HALF, Break.RESET), error(500, "failed", times=1), answer(WHOLE)],
    "half and an error, then failed": [broken(HALF, Break.ERROR), error(500, "failed", times=1), answer(WHOLE)],
    "twice half": [broken(HALF, Break.RESET), broken(f"Once more: {HALF}", Break.RESET), answer(WHOLE)],
    "half with the name of the retry": with_one_id(broken(HALF, Break.RESET), answer(WHOLE)),
    "nothing": [broken("", Break.EMPTY), answer(WHOLE)],
    "two ends": [broken(WHOLE, Break.TWO_ENDS)],
    "a tool before": [call("SHELL", text="First I look. "), broken(HALF, Break.RESET), answer(WHOLE)],
    "a tool after": [broken(HALF, Break.RESET), call("SHELL", text="First I look. "), answer(WHOLE)],
    "nothing said before the tool": [call("SHELL"), answer(WHOLE)],
}
#: Ways in which the agents differ: what the answer is, only the agent itself can say.
OTHERS: dict[str, Sequence[Turn]] = {
    "no end": [broken(HALF, Break.NO_END), answer(WHOLE)],
    "always half": [broken(HALF, Break.RESET)] * 12,
}
HEADLESS = {
    "claude-code": ("-p", "--model", "m", "--allowedTools=Bash"),
    "codex": ("exec", "--skip-git-repo-check"),
    "opencode": ("run", "--format", "json"),
}


def turns_for(agent: Agent, turns: Sequence[Turn]) -> list[Turn]:
    shell = TOOLS[agent.name]
    looks = call(shell.shell, shell.command("echo looked"))
    return [looks._replace(text=turn.text) if turn.tool == "SHELL" else turn for turn in turns]


def ready(agent: Agent) -> Agent:
    """With as many retries as the longest case takes."""
    if agent.name == "codex":
        file = agent.config / "config.toml"
        file.write_text(file.read_text("utf-8").replace("max_retries = 1", "max_retries = 3"), "utf-8")
    return agent._replace(env={**agent.env, "CLAUDE_CODE_MAX_RETRIES": "3"})


def own_answer(agent: Agent) -> str | None:
    """What the agent prints without us, as its final message; None if it fails."""
    done = subprocess.run(
        [agent.program, *HEADLESS[agent.name]],
        input="Is all well?",
        cwd=agent.cwd,
        env={**agent.env, "PWD": str(agent.cwd)},
        capture_output=True,
        encoding="utf-8",
        timeout=CEILING_SECONDS,
        check=False,
    )
    if done.returncode:
        return None
    if agent.name != "opencode":
        return done.stdout.strip()
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return str([event["part"]["text"] for event in said if event["type"] == "text"][-1]).strip()


def our_answer(agent: Agent) -> tuple[str | None, list[Event]]:
    events: list[Event] = []
    try:
        with open_agent(agent) as running:
            events += running.turn(DriverTurn("Is all well?"), lambda _: True)
    except BackendFailed:
        return None, events
    return events[-1].text.strip(), events


@pytest.mark.parametrize("case", TRIED_AGAIN)
def test_the_answer_is_the_agents_own_final_message_however_the_stream_broke(
    agent: Agent, stub: Stub, case: str
) -> None:
    agent = ready(agent)
    stub.play(*turns_for(agent, TRIED_AGAIN[case]))
    told = own_answer(agent)
    assert stub.left == [] or told is None
    stub.replay(*turns_for(agent, TRIED_AGAIN[case]))

    said, events = our_answer(agent)

    assert said == told
    assert said in {WHOLE, None}  # codex does not try again after an error in its stream
    streamed = "".join(event.text for event in events if event.kind is EventKind.TEXT)
    assert said is None or WHOLE in streamed


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_where_agents_differ_ours_is_the_answer_of_this_one(
    name: str, make_agent: MakeAgent, stub: Stub, case: str
) -> None:
    agent = ready(make_agent(name))
    stub.play(*OTHERS[case])
    told = own_answer(agent)
    stub.replay(*OTHERS[case])

    assert our_answer(agent)[0] == told
