"""`explain` says which skills an agent shows its model: compared with what each real agent sends to its model."""

import json
from pathlib import Path

from tools import agents

from skillyard.app.project import Project
from skillyard.catalog.explain import AGENT_PATHS, explain
from tests.agents.agent import Agent
from tests.agents.stub import Stub, answer
from tests.conftest import Skillyard

ROOTS = {"claude-code": ".claude/skills", "codex": ".agents/skills", "opencode": ".claude/skills"}
#: Where each kind lies below the root, by the name to explain; `good` is in every test.
KINDS: dict[str, tuple[str, bytes]] = {}


def kind(name: str, head: str, *, folder: str = "", file: str = "SKILL.md", encoding: str = "utf-8") -> None:
    KINDS[name] = (f"{folder or name}/{file}", head.encode(encoding))


def whole(name: str, description: str = "Words of it.", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n\nThe body.\n"


kind("good", whole("good"))
kind("crlf", whole("crlf").replace("\n", "\r\n"))
kind("colons", whole("colons", "one: two: three"))
kind("open-bracket", whole("open-bracket", more="tags: [a, b\n"))
kind("tabs", whole("tabs", more="metadata:\n\tkey: value\n"))
kind("unclosed", "---\nname: unclosed\ndescription: Words of it.\n\nThe body.\n")
kind("bom", whole("bom"), encoding="utf-8-sig")
kind("gbk", whole("gbk", "中文说明。"), encoding="gbk")
kind("no-description", "---\nname: no-description\n---\n\nThe body.\n")
kind("list-description", whole("list-description", "[a, b]"))
kind("no-name", "---\ndescription: Words of it.\n---\n\nThe body.\n")
kind("no-frontmatter", "# Title\n\nThe body.\n")
kind("line-before", "\n" + whole("line-before"))
kind("long-description", whole("long-description", "wordy " * 300))
kind("long-name", whole("long-name" + "x" * 70))
kind("lower-file", whole("lower-file"), file="skill.md")
kind("other-folder", whole("other-name"))
kind("space-name", whole("space name"))
kind("报告", whole("报告"))
kind("hidden-from-model", whole("hidden-from-model", more="disable-model-invocation: true\n"))
kind("hidden-from-user", whole("hidden-from-user", more="user-invocable: false\n"))
kind("nested", whole("nested"), folder="group/nested")
kind("in-root", whole("in-root"), folder=".")
kind("duplicate-key", whole("duplicate-key", more="description: Again.\n"))
kind("switched-off", whole("switched-off"))
LINKED = ("linked", "broken-link")
SWITCHED = {
    "claude-code": (".claude/settings.json", {"skillOverrides": {"switched-off": "off"}}),
    "opencode": ("opencode.json", {"permission": {"skill": {"switched-off": "deny"}}}),
}


def lay_out(agent: Agent, project: Path) -> None:
    root = project / ROOTS[agent.name]
    for place, held in KINDS.values():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(held)
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "SKILL.md").write_text(whole("linked"), "utf-8")
    (root / "linked").symlink_to(elsewhere)
    (root / "broken-link").symlink_to(project / "nowhere")
    if agent.name == "codex":
        with (agent.config / "config.toml").open("a", encoding="utf-8") as file:
            file.write(f'\n[[skills.config]]\npath = "{root}/switched-off/SKILL.md"\nenabled = false\n')
    else:
        name, settings = SWITCHED[agent.name]
        (project / name).write_text(json.dumps(settings), "utf-8")


def shown(agent: Agent, request: str) -> set[str]:
    """The kinds that stand in the list of skills in a request."""
    names = (*KINDS, *LINKED)
    own = {"other-folder": "other-name", "space-name": "space name", "long-name": "long-name" + "x" * 70}
    mark = {"opencode": "<name>{}</name>", "codex": "\\n- {}: "}.get(agent.name, "\\n- {}")
    return {name for name in names if any(mark.format(each) in request for each in (name, own.get(name, name)))}


def test_explain_is_right_about_every_kind_of_skill(agent: Agent, stub: Stub, yard: Project, project: Path) -> None:
    lay_out(agent, project)
    stub.play(answer("Well."))
    agent.ask("Hello?", cwd=project)
    truth = shown(agent, stub.last(agent.name).text)
    assert "good" in truth
    yard.catalog.sync()

    views = {
        name: next(
            view
            for view in explain(yard.catalog, name, project, agent.home, agent.env).views
            if view.agent == agent.name
        )
        for name in (*KINDS, *LINKED)
    }

    assert {name for name, view in views.items() if view.sees} == truth
    for name, view in views.items():
        assert view.why, name
        assert view.fix or view.sees, name


def test_the_rules_were_learnt_from_the_pinned_versions() -> None:
    pinned = {"claude-code": agents.CLAUDE_CODE, "codex": agents.CODEX, "opencode": agents.OPENCODE}

    assert {paths.agent: paths.learnt_from for paths in AGENT_PATHS} == pinned


def test_explain_says_where_the_installed_version_is_another_one(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    file = project / ".claude/skills/good/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(whole("good"), "utf-8")
    package = tmp_path / "node_modules/@anthropic-ai/claude-code"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "2.2.0"}', "utf-8")
    (package / "claude").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    (package / "claude").chmod(0o755)

    told = skillyard("explain", "good", SKILLYARD_CLAUDE_CODE=str(package / "claude"))

    assert f"learnt from {agents.CLAUDE_CODE}, you have 2.2.0" in told.stdout
