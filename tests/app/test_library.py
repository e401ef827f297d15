"""`from skillyard import Project`: what a Python program sees."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import skillyard
from skillyard import Kernel, Lang, Project, Request, Result, SkillError, State, execute_skill, parse
from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import InvalidArgs
from tests.conftest import Skillyard, WriteSkill

ECHO = "---\nname: echo\ndescription: Says it again.\ncommand: python echo.py {text}\n---\n"
PROGRAM = {"echo.py": "import sys\nprint(sys.argv[1])\n"}


@pytest.fixture
def opened(places: ProjectPaths, write_skill: WriteSkill) -> Any:
    write_skill("echo", ECHO, PROGRAM)
    with Project(places, lang="en") as project:
        yield project


def test_a_skill_runs_by_name_and_params(opened: Project) -> None:
    result = opened.run("echo", text="$(id); rm -rf ~")

    assert result.ok
    assert result.data["content"] == "$(id); rm -rf ~"
    assert opened.run("@echo", "words").data["content"] == "words"
    assert opened.run(Request(name="echo", params={"text": "asked"})).data["content"] == "asked"


def test_skills_search_and_runs_tell_what_is_there(opened: Project) -> None:
    opened.run("echo", text="x")

    assert [entry.name for entry in opened.skills()] == ["echo"]
    assert [hit.entry.name for hit in opened.search("says")] == ["echo"]
    assert [(run.skill, run.state) for run in opened.runs()] == [("echo", "success")]


def test_a_task_is_the_kernels(opened: Project) -> None:
    first = opened.task("skills", "say it", "run @echo hello", idempotency_key="k")
    again = opened.task("skills", "say it", "run @echo hello", idempotency_key="k")

    assert first.data["content"] == "hello"
    assert again.cached


def test_a_queued_skill_is_run_by_a_worker(opened: Project, skillyard: Skillyard) -> None:
    job = opened.enqueue("echo", text="later")
    worked = skillyard("worker", "--drain")

    assert worked.returncode == 0, worked.stderr
    run = opened.find_run(job)
    assert run is not None
    assert run.state == "success"
    assert run.result["data"]["content"] == "later"  # type: ignore[index, call-overload]


def test_what_cannot_run_is_not_queued(opened: Project) -> None:
    with pytest.raises(SkillError, match="not installed"):
        opened.enqueue("nobody")
    with pytest.raises(SkillError, match="unknown param"):
        opened.enqueue("echo", txet="x")
    with pytest.raises(TypeError, match=r"^args must "):
        opened.enqueue("echo", 3)  # type: ignore[arg-type]


def test_many_threads_use_one_project_at_once(opened: Project) -> None:
    def use(number: int) -> str:
        opened.search("echo")
        return str(opened.run("echo", text=str(number)).data["content"])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(40))) == [str(number) for number in range(40)]
    assert len(opened.runs(100)) == 40


def test_a_kernel_made_in_one_thread_works_in_another(opened: Project) -> None:
    kernel = Kernel(opened)
    kernel.task("skills", "here", "run @echo here")
    told: list[Result] = []
    thread = threading.Thread(target=lambda: told.append(kernel.task("skills", "there", "run @echo there")))
    thread.start()
    thread.join(60)

    assert told[0].data["content"] == "there"


def test_asyncio_uses_it_through_to_thread(opened: Project) -> None:
    async def main() -> list[Result]:
        return await asyncio.gather(*(asyncio.to_thread(opened.run, "echo", text=str(n)) for n in range(5)))

    assert [result.data["content"] for result in asyncio.run(main())] == ["0", "1", "2", "3", "4"]


def test_a_path_is_opened_wherever_the_program_runs(project: Path, write_skill: WriteSkill, tmp_path: Path) -> None:
    write_skill("echo", ECHO, PROGRAM)
    with pytest.raises(InvalidArgs, match="is no folder"):
        Project(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="path must be str or PathLike, not int"):
        Project(3)  # type: ignore[arg-type]


def test_a_closed_project_says_so(places: ProjectPaths) -> None:
    project = Project(places)
    project.close()
    project.close()

    with pytest.raises(ValueError, match="closed"):
        project.skills()


def test_the_language_is_chosen_and_a_wrong_one_refused(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("echo", ECHO, PROGRAM)
    with Project(places, lang="zh") as project:
        assert project.run("echo", text="x").summary == "执行成功: echo"
        assert Kernel(project, "en").task("skills", "", "run @echo x").summary == "ran: echo"
    for wrong in ("fr", "zh_CN", ""):
        with pytest.raises(ValueError, match="lang must be one of"):
            Project(places, lang=wrong)
        with pytest.raises(ValueError, match="lang must be one of"):
            Kernel(project, wrong)
    assert Project(places, lang=Lang.EN).lang is Lang.EN


def test_a_result_renders_itself_and_reads_back(opened: Project) -> None:
    result = opened.run("echo", text="你好")

    assert parse(result.as_text()) == result
    assert result.as_json().startswith('{"agent": "skills"')
    assert result.state is State.SUCCESS


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda p: p.run(3), "name"),
        (lambda p: p.run("echo", 3), "args"),
        (lambda p: p.run("echo", text={1, 2}), "params"),
        (lambda p: p.run("echo", text=float("nan")), "params"),
        (lambda p: p.search(None), "query"),
        (lambda p: p.runs("many"), "limit"),
        (lambda p: p.task("skills", "x", b"run @echo"), "prompt"),
        (lambda p: p.task("skills", None, "run @echo"), "description"),
        (lambda p: p.task("skills", "x", "run @echo x", idempotency_key=1), "idempotency_key"),
        (lambda p: p.task("skills", "x", "run @echo x", timeout_seconds="1"), "timeout_seconds"),
        (
            lambda p: execute_skill(
                agent_role=1,  # type: ignore[arg-type]
                skill_name="x",
                action="y",
                project=p,
            ),
            "agent_role",
        ),
    ],
)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(opened: Project, call: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must "):
        call(opened)


@pytest.mark.parametrize(
    "params", [[1], {1, 2}, {1: "x"}, {"x": float("nan")}, {"x": "\ud800"}, {"x": object()}, "text"]
)
def test_params_that_are_no_json_object_give_the_response_of_an_error(opened: Project, params: Any) -> None:
    response = execute_skill(agent_role="dev", skill_name="x", action="y", params=params, project=opened)

    assert response["success"] is False
    error = response["error"]
    assert isinstance(error, dict)
    assert error["code"] == "INVALID_PARAM"
    assert "params" in str(error["message"])


def test_every_promised_name_is_there_and_listed() -> None:
    promised = {"Project", "Kernel", "run", "execute_skill", "dispatch_task", "JobExecutor", "active_skills"}
    promised |= {"build_enhanced_task", "Result", "Request", "parse", "Lang", "State"}

    assert promised <= set(dir(skillyard))
    assert all(getattr(skillyard, name) for name in skillyard.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = skillyard.nothing
