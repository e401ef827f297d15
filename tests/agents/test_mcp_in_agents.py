"""Each of the three real agents finds and runs skills through `skillyard mcp`, as `init --mcp` configures it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skillyard.core.envelope import from_json, parse
from skillyard.core.result import Result
from skillyard.core.states import State
from tests.agents.agent import Agent
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Stub, answer, call

EXAMPLES = Path(__file__).parents[2] / "examples"
#: One of each kind.
SKILLS = ("word-count", "code-review", "log-analyzer")


class Desk(NamedTuple):
    """An agent at work in a project with skills."""

    agent: Agent
    project: Path

    def skillyard(self, *args: str) -> dict[str, Any]:
        """The user's own command, in the same project and the same home."""
        done = subprocess.run(
            [sys.executable, "-m", "skillyard", *args, "--json"],
            cwd=self.project,
            env=self.agent.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def runs(self) -> list[tuple[str, str]]:
        """Which skills ran and how, the first one first."""
        return [(run["skill"], run["state"]) for run in reversed(self.skillyard("runs", "list")["data"]["runs"])]

    def configure(self, *, approved: bool = True) -> list[str]:
        """Ours is what `init --mcp` writes. The rest is what the person says on the agent's own screen: codex may trust
        the project; and, in tests only, every call is approved."""
        written = self.skillyard("init", "--mcp", self.agent.name, "--yes")
        assert [file["entry"] for file in written["data"]["files"]] == ["written"]
        if self.agent.name == "claude-code":
            return ["--allowedTools", "mcp__skillyard"] if approved else []
        if self.agent.name == "codex":
            trusted = f'\n[projects.{json.dumps(str(self.project))}]\ntrust_level = "trusted"\n'
            with (self.agent.config / "config.toml").open("a", encoding="utf-8") as file:
                file.write(trusted)
            patient = ["-c", "mcp_servers.skillyard.startup_timeout_sec=120"]
            approving = ["-c", 'mcp_servers.skillyard.default_tools_approval_mode="approve"'] if approved else []
            return [*patient, *approving]
        return []

    def ask(self, *options: str, **env: str) -> str:
        """One question. `claude -p` would ask the model before our server is there, were it not told to wait, and it
        waits for only five seconds unless it is told for how long."""
        waits = {"MCP_CONNECTION_NONBLOCKING": "false", "MCP_CONNECT_TIMEOUT_MS": "120000", "MCP_TIMEOUT": "120000"}
        done = self.agent.ask("Please look into this.", *options, cwd=self.project, **waits, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def sit_down(agent: Agent, project: Path) -> Desk:
    """The skills lie in `skills`, where none of the three looks by itself: what it knows of them, it has from us."""
    for skill in SKILLS:
        shutil.copytree(EXAMPLES / "skills" / skill, project / "skills" / skill)
    shutil.copytree(EXAMPLES / "data", project, dirs_exist_ok=True)
    return Desk(agent, project)


def told(stub: Stub, agent: Agent) -> list[Result]:
    """The results as the model read them: opencode shows it the text, the other two the structured content."""
    results = stub.last(agent.name).results
    if agent.name == "opencode":  # of a long result the long values stand below the two lines
        return [parse("\n".join(text.splitlines()[:2])) for text in results]
    return [from_json(text.splitlines()[-1]) for text in results]


@pytest.fixture
def desk(agent: Agent, project: Path) -> Desk:
    return sit_down(agent, project)


def test_an_agent_knows_finds_and_runs_a_skill_of_each_kind(desk: Desk, stub: Stub) -> None:
    stub.play(
        call("skill_search", {"query": "log"}),
        call("skill_run", {"name": "word-count", "params": {"file": "文章.md"}}, text="First I count. "),
        call("skill_run", {"name": "code-review"}),
        call("skill_run", {"name": "log-analyzer", "action": "analyze", "params": {"path": "app.log"}}),
        answer("All three ran, 好的."),
    )

    said = desk.ask(*desk.configure(), ENABLE_TOOL_SEARCH="false")

    assert "All three ran, 好的." in said
    before_any_call = stub.asked(desk.agent.name)[0].text
    assert [skill for skill in SKILLS if f"- {skill}" not in before_any_call] == []
    searched, counted, reviewed, analysed = told(stub, desk.agent)
    assert [result.state for result in (searched, counted, reviewed, analysed)] == [State.SUCCESS] * 4
    texts = stub.last(desk.agent.name).results
    assert "log-analyzer" in texts[0]
    assert (counted.summary, counted.data["cjk_characters"]) == ("ran: Word count", 41)
    assert "Review the change, not the author." in texts[2]
    assert "description:" not in texts[2], "no frontmatter"
    assert "busiest_hour" in analysed.data
    assert desk.runs() == [(skill, "success") for skill in ("word-count", "code-review", "log-analyzer")]


def test_a_missing_param_is_a_question_that_the_model_can_answer(desk: Desk, stub: Stub) -> None:
    stub.play(
        call("skill_run", {"name": "word-count"}),
        call("skill_run", {"name": "word-count", "params": {"file": "文章.md"}}),
        answer("Counted."),
    )

    said = desk.ask(*desk.configure(), ENABLE_TOOL_SEARCH="false")

    assert "Counted." in said
    asked, counted = told(stub, desk.agent)
    assert (asked.state, asked.data["prompts"]) == (State.PENDING, {"file": "Which text file should be counted?"})
    assert (counted.state, counted.data["skill"]) == (State.SUCCESS, "word-count")
    assert desk.runs()[-1] == ("word-count", "success")


def test_claude_knows_the_skills_while_their_tools_are_deferred(
    make_agent: MakeAgent, project: Path, stub: Stub
) -> None:
    desk = sit_down(make_agent("claude-code"), project)
    stub.play(
        call("ToolSearch", {"query": "select:mcp__skillyard__skill_run"}),
        call("skill_run", {"name": "word-count", "params": {"file": "文章.md"}}),
        answer("Found and run."),
    )

    said = desk.ask(*desk.configure())

    first = stub.asked("claude-code")[0]
    assert not [tool for tool in first.tools if tool.endswith("skill_run")]
    assert [skill for skill in SKILLS if f"- {skill}" not in first.text] == []
    assert "Found and run." in said
    assert desk.runs() == [("word-count", "success")]


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_without_the_person_nothing_is_run(name: str, make_agent: MakeAgent, project: Path, stub: Stub) -> None:
    """What `init --mcp` gives leaves approval to the person: with nobody to ask, the agent refuses the call."""
    desk = sit_down(make_agent(name), project)
    stub.play(call("skill_run", {"name": "word-count", "params": {"file": "文章.md"}}), answer("It was refused."))

    said = desk.ask(*desk.configure(approved=False), ENABLE_TOOL_SEARCH="false")

    assert "It was refused." in said
    last = stub.last(name)
    assert [tool for tool in last.tools if tool.endswith("skill_run")]
    assert "reading_minutes" not in last.results[-1]
    assert desk.runs() == []
