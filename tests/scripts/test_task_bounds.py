"""What a Task keeps of itself, what it refuses to make, and who decides for it by default."""

import json
from pathlib import Path

import pytest

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.result import Result
from skillyard.trust.consent import trust
from tests.conftest import Skillyard, WriteSkill

FLOW = """
import json, pathlib, sys
if sys.argv[1:2] == ["resume"]:
    print(json.dumps({"decided": json.loads(sys.argv[-1])}))
else:
    pathlib.Path("mybox/temp/langgraph_interrupt.json").write_text(json.dumps(%r))
    print("[INTERRUPT]")
"""


def test_the_description_and_the_model_are_kept_with_the_run_and_shown(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path, yard: Project
) -> None:
    write_skill("greet", "---\nname: greet\ndescription: d\ncommand: echo hi\n---\nx\n")
    (project / "bin").mkdir()
    (project / "bin/a.py").write_text("print('a')\n")
    trust(yard.grants, project)

    for agent, prompt in (("skills", "run @greet"), ("worker", "run python bin/a.py")):
        skillyard("task", agent, "给测试 打招呼", prompt, "--model", "opus")
        run = yard.runs(1)[0]
        shown = skillyard("runs", "show", run.id).stdout
        assert "description: 给测试 打招呼" in shown
        assert "model: opus" in shown
        assert run.request["description"] == "给测试 打招呼"


def test_a_task_that_nobody_can_answer_tells_what_is_missing_as_an_error(
    skillyard: Skillyard, write_skill: WriteSkill, yard: Project
) -> None:
    write_skill("greet", "---\nname: greet\ndescription: d\ncommand: echo {who}\n---\nx\n")

    asked = yard.task("skills", "greet", "run @greet")
    told = yard.task("skills", "greet", "run @greet", interactive=False)
    typed = skillyard("task", "skills", "greet", "run @greet", "--non-interactive", "--json")

    assert asked.state == "pending"
    assert (told.data["type"], told.exit_code) == ("ParamMissing", 1)
    assert json.loads(typed.stdout)["data"]["type"] == "ParamMissing"


@pytest.mark.parametrize(
    "words",
    [
        'append mybox/new.py "print(1)"',
        "append mybox/程序.PY x",
        'append mybox/tool "#!/usr/bin/env python3"',
        "batch mybox/edits.json",
    ],
)
def test_the_file_editor_of_a_task_creates_no_python_program(
    skillyard: Skillyard, project: Path, yard: Project, words: str
) -> None:
    skillyard("init")
    (project / "mybox/old.py").write_text("a = 1\n")
    edits = [{"operation": "append", "file": f"mybox/{name}", "content": "x = 1"} for name in ("fine.txt", "b.py")]
    (project / "mybox/edits.json").write_text(json.dumps(edits))
    before = sorted(path.name for path in (project / "mybox").iterdir())

    refused = Kernel(yard, "en").task("worker", "make a program", f"run python bin/file_editor.py {words}")
    changed = Kernel(yard, "en").task("worker", "edit", "run python bin/file_editor.py append mybox/old.py 'b = 2'")

    assert refused.data["type"] == "PermissionDenied"
    assert "creates no Python programs" in str(refused.data["msg"])
    assert sorted(path.name for path in (project / "mybox").iterdir()) == before
    assert changed.ok
    assert (project / "mybox/old.py").read_text() == "a = 1\nb = 2"


def test_a_person_creates_python_programs_with_the_same_editor(skillyard: Skillyard, project: Path) -> None:
    skillyard("init")

    assert skillyard("edit", "append", "mybox/new.py", "print(1)").returncode == 0
    assert (project / "mybox/new.py").read_text() == "print(1)"


def interrupted(project: Path, yard: Project, severities: dict[str, str], script: str = "flow.py") -> Result:
    told = {
        "interrupted_skills": list(severities),
        "resume_command": f"python bin/{script} resume t1",
        "severities": severities,
    }
    (project / "bin").mkdir(exist_ok=True)
    (project / "bin/flow.py").write_text(FLOW % told)
    (project / "bin/other.py").write_text(FLOW % told)
    trust(yard.grants, project)
    return Kernel(yard, "en").task("worker", "flow", "run python bin/flow.py")


def test_what_no_install_would_hold_back_is_decided_by_default(project: Path, yard: Project) -> None:
    result = interrupted(project, yard, {"safe-one": "SAFE", "轻": "LOW"})

    assert result.data["decided"] == {"safe-one": "keep", "轻": "keep"}
    assert (result.data["resumed"], result.data["llm_decisions"]) == (True, {"safe-one": "keep", "轻": "keep"})


@pytest.mark.parametrize("severity", ["MEDIUM", "HIGH", "CRITICAL", "", "unheard-of"])
def test_anything_above_waits_for_somebody(project: Path, yard: Project, severity: str) -> None:
    result = interrupted(project, yard, {"safe-one": "SAFE", "odd": severity})

    assert (result.state, result.data["interrupted_skills"]) == ("interrupted", ["safe-one", "odd"])


def test_nobody_decides_where_the_settings_say_so_or_inside_an_agent(
    project: Path, yard: Project, skillyard: Skillyard
) -> None:
    interrupted(project, yard, {"safe-one": "SAFE"})
    order = ("task", "worker", "flow", "run python bin/flow.py")

    assert skillyard(*order).returncode == 0
    assert skillyard(*order, SKILLYARD_DEPTH="1").returncode == 5
    (yard.paths.own_home / "config.toml").write_text('[worker]\ndecider = "none"\n')
    assert skillyard(*order).returncode == 5


def test_the_worker_resumes_only_the_script_that_was_interrupted(project: Path, yard: Project) -> None:
    assert interrupted(project, yard, {"safe-one": "SAFE"}, script="other.py").state == "interrupted"
