"""A role's scheduled task, with the real claude: the worker hands it over; only the model is ours."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.trust.consent import trust
from tests.agents.drivers import TOOLS, environment
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Stub, answer, call

CEILING_SECONDS = 240


def test_a_roles_task_reaches_claude_with_its_text_its_tools_and_its_bound_on_turns(
    make_agent: MakeAgent, stub: Stub, places: ProjectPaths, yard: Project, project: Path
) -> None:
    agent = make_agent("claude-code")
    tool = TOOLS["claude-code"]
    folder = project / "agents" / "analyst"
    folder.mkdir(parents=True)
    (folder / "CLAUDE.md").write_text("# 分析师\nYou count things.\n", "utf-8")
    (folder / "agent.yaml").write_text(
        f"metadata: {{model: {agent.model}}}\nmax_turns: 2\nallowed_tools: [{tool.permission}]\n"
        "schedule:\n- {name: one, cron: '0 9 * * *', task: Make a file., to: claude-code}\n",
        "utf-8",
    )
    trust(yard.grants, project)

    def run() -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "skillyard", "jobs", "run", "analyst/one", "--json"],
            cwd=project,
            env={**environment(agent), "SKILLYARD_HOME": str(places.own_home), "SKILLYARD_LANG": "en"},
            capture_output=True,
            text=True,
            timeout=CEILING_SECONDS,
            check=False,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    touch = call(tool.shell, tool.command("touch ../../made"))
    stub.play(touch, answer("Done, 好的."))
    result = run()
    stub.play(touch, touch, touch, answer("Never."))
    cut = run()

    assert (result["state"], result["data"]["content"], result["data"]["refused"]) == ("success", "Done, 好的.", [])
    assert result["data"]["text"] == "# 分析师\nYou count things.\n\n---\n\nMake a file."
    assert (result["data"]["cwd"], (project / "made").exists()) == (str(folder.resolve()), True)
    assert "not_supported" not in result["data"]
    assert {asked.body["model"] for asked in stub.asked("claude-code")} == {agent.model}
    assert (cut["state"], cut["data"]["type"]) == ("error", "BackendFailed")
    assert "max" in cut["data"]["msg"]
    assert "turns" in cut["data"]["msg"]
