"""Where an agent is found: PATH, variable, the binary behind npm's wrapper; and what is said where it is not."""

from pathlib import Path

import pytest

from skillyard.backends.registry import list_backends, make_drivers
from skillyard.core.child_process import DEPTH, deeper
from skillyard.core.errors import AgentNotInstalled, AgentTooOld, TooDeep
from skillyard.core.messages import Lang

CODEX = list_backends()["codex"]


def script(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n", "utf-8")
    path.chmod(0o755)
    return path


def test_an_agent_that_is_not_there_comes_with_the_command_that_installs_it(tmp_path: Path) -> None:
    for backend, driver in make_drivers({"PATH": str(tmp_path)}).items():
        with pytest.raises(AgentNotInstalled) as raised:
            driver.locate()

        assert list_backends()[backend].package in raised.value.hint(Lang.EN)
        assert "npm install -g" in raised.value.hint(Lang.ZH)


def test_an_agent_is_found_on_the_path_and_a_variable_names_another(tmp_path: Path) -> None:
    usual = script(tmp_path / "bin" / "codex", "codex-cli 0.166.0")
    other = script(tmp_path / "other", "codex-cli 9.9.9")
    env = {"PATH": str(usual.parent)}

    assert CODEX(env).find() == (usual, "0.166.0")
    assert CODEX({**env, CODEX.variable: str(other)}).find() == (other, "9.9.9")
    with pytest.raises(AgentNotInstalled, match="SKILLYARD_CODEX"):
        CODEX({**env, CODEX.variable: str(tmp_path / "nowhere")}).locate()


@pytest.mark.parametrize("backend", list_backends())
def test_npms_wrapper_gives_way_to_the_binary_that_it_would_start(backend: str, tmp_path: Path) -> None:
    program = list_backends()[backend]
    package = tmp_path / "lib" / "node_modules" / program.package
    wrapper = script(package / "bin" / "wrapper.js", "wrapper")
    binary = script(package / "node_modules" / program.native.replace("*", "-x"), "binary")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program.command).symlink_to(wrapper)

    assert program({"PATH": str(tmp_path / "bin")}).locate() == binary


def test_an_agent_that_is_too_old_is_refused_with_both_versions(tmp_path: Path) -> None:
    script(tmp_path / "codex", "codex-cli 0.20.3")

    with pytest.raises(AgentTooOld) as raised:
        CODEX({"PATH": str(tmp_path)}).find()

    assert raised.value.data()["version"] == "0.20.3"
    assert CODEX.minimum in raised.value.summary(Lang.EN)


def test_a_program_that_says_no_version_is_not_the_agent(tmp_path: Path) -> None:
    script(tmp_path / "codex", "hello")

    with pytest.raises(AgentNotInstalled):
        CODEX({"PATH": str(tmp_path)}).find()


def test_any_other_acp_agent_is_a_name_and_a_command_but_never_takes_one_of_ours(tmp_path: Path) -> None:
    mine = script(tmp_path / "my-agent", "x")
    drivers = make_drivers({"PATH": str(tmp_path)}, {"mine": ("my-agent", "--acp"), "codex": ("my-agent",)})

    assert list(drivers) == ["claude-code", "codex", "opencode", "mine"]
    assert drivers["mine"].locate() == mine
    with pytest.raises(AgentNotInstalled):
        drivers["codex"].locate()


@pytest.mark.parametrize(("now", "then"), [("", "1"), ("0", "1"), ("1", "2")])
def test_each_agent_is_one_deeper(now: str, then: str) -> None:
    assert deeper({DEPTH: now}) == then


@pytest.mark.parametrize("now", ["2", "3", "-1", "many", "١"])
def test_two_deep_is_the_end_and_so_is_what_cannot_be_read(now: str) -> None:
    with pytest.raises(TooDeep):
        deeper({DEPTH: now})
