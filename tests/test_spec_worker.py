"""The worker agent of the seeds (S1), example by example, in a folder made by `skillyard init`."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.envelope import as_text
from skillyard.core.messages import Lang
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.install.threats.rule import ThreatLevel
from skillyard.scripts.interrupt import Decider, Decision, Person, Rules
from skillyard.trust.consent import trust
from tests.conftest import Skillyard, WriteSkill

WriteScript = Callable[[str, str], None]

SCAN = (
    "print('✅ worker_agent 扫描完成: 新增 2 个, 更新 3 个')\n"
    "print('  state: success')\n"
    'print(\'  data: {added: ["skill_a","skill_b"], updated: ["skill_c","skill_d","skill_e"], total: 5}\')\n'
    "print('  meta: {agent: worker_agent, time: 0.5, ts: \"2025-01-29T10:30:00Z\"}')\n"
)


@pytest.fixture
def kernel(yard: Project) -> Kernel:
    return Kernel(yard, Lang.ZH)


@pytest.fixture
def write_script(yard: Project, project: Path) -> WriteScript:
    """A script of the project's own, which its person trusts."""

    def write(name: str, code: str) -> None:
        (project / "bin").mkdir(exist_ok=True)
        (project / "bin" / name).write_text(code, "utf-8")
        trust(yard.grants, project)

    return write


def run(kernel: Kernel, *scripts: str, key: str | None = None) -> Result:
    return kernel.task("worker_agent", "示例", "\n".join(f"执行 python bin/{s}" for s in scripts), idempotency_key=key)


def test_s1_success_is_the_scripts_own_summary_and_data(kernel: Kernel, write_script: WriteScript) -> None:
    write_script("scan.py", SCAN)

    result = run(kernel, "scan.py")

    assert as_text(result).startswith("✅ worker_agent 扫描完成: 新增 2 个, 更新 3 个\n")
    assert result.data == {"added": ["skill_a", "skill_b"], "updated": ["skill_c", "skill_d", "skill_e"], "total": 5}


def test_s1_a_cache_hit_is_told_as_one_and_the_script_ran_once(
    kernel: Kernel, write_script: WriteScript, project: Path
) -> None:
    code = "open('mybox/count', 'a').write('x')\nimport json\nprint(json.dumps({'total': 5, 'skills': ['a']}))\n"
    write_script("list.py", code)

    first, second = run(kernel, "list.py", key="skill-list"), run(kernel, "list.py", key="skill-list")

    assert first.data == {"total": 5, "skills": ["a"]}
    assert as_text(second).startswith("⏭️ worker_agent 缓存命中: 使用最近结果 (<5s)\n")
    assert second.data == {"cached": True, "original_result": {"total": 5, "skills": ["a"]}}
    assert second.exit_code == 0
    assert (project / "mybox/count").read_text() == "x"


def test_without_a_key_nothing_is_deduplicated(kernel: Kernel, write_script: WriteScript, project: Path) -> None:
    write_script("list.py", "open('mybox/count', 'a').write('x')\n")

    run(kernel, "list.py")
    run(kernel, "list.py")

    assert (project / "mybox/count").read_text() == "xx"


def test_s1_some_of_several_is_partial(kernel: Kernel, write_script: WriteScript) -> None:
    for name in "abc":
        write_script(f"{name}.py", "print('ok')\n")
    for name in "de":
        write_script(f"{name}.py", "raise SystemExit('broken')\n")

    result = run(kernel, *(f"{name}.py" for name in "abcde"))

    assert as_text(result).startswith("⚠️ worker_agent 部分完成: 3/5 个脚本执行成功\n")
    named = {key: result.data[key] for key in result.data.keys() - {"results"}}
    assert named == {"succeeded": ["a.py", "b.py", "c.py"], "failed": ["d.py", "e.py"]}
    assert result.exit_code == 3


def test_all_of_several_failed_is_an_error(kernel: Kernel, write_script: WriteScript) -> None:
    write_script("a.py", "raise SystemExit('broken')\n")

    result = run(kernel, "a.py", "a.py")

    assert (result.state, result.data["type"], result.data["failed"]) == (State.ERROR, "RuntimeError", ["a.py", "a.py"])


def test_s1_a_script_that_is_not_there(kernel: Kernel) -> None:
    result = run(kernel, "script.py")

    assert as_text(result).startswith("❌ worker_agent ScriptNotFound: 脚本不存在: bin/script.py\n")
    assert result.data == {
        "type": "ScriptNotFound",
        "msg": "bin/script.py not found",
        "recoverable": False,
        "exception": "FileNotFoundError",
    }


def test_s1_a_failing_script_is_a_runtime_error_with_its_last_words(kernel: Kernel, write_script: WriteScript) -> None:
    write_script("bad.py", "raise ValueError('数据坏了')\n")

    result = run(kernel, "bad.py")

    assert (result.data["type"], result.data["recoverable"]) == ("RuntimeError", None)
    assert result.summary.startswith("RuntimeError: 执行失败: ")
    assert "数据坏了" in result.summary


def test_s1_bad_arguments_come_with_the_usage_that_the_script_printed(
    kernel: Kernel, write_script: WriteScript
) -> None:
    write_script("args.py", "import argparse\np = argparse.ArgumentParser()\np.add_argument('name')\np.parse_args()\n")

    result = run(kernel, "args.py")

    assert (result.data["type"], result.data["recoverable"]) == ("InvalidArgs", True)
    assert "usage: args.py" in str(result.data["usage"])


@pytest.mark.parametrize("link", ["link.py", "sub/../../outside.py"])
def test_s1_a_script_that_leads_out_of_bin_is_denied(
    kernel: Kernel, write_script: WriteScript, project: Path, link: str
) -> None:
    write_script("a.py", "")
    (project / "outside.py").write_text("print('out')\n")
    (project / "bin/link.py").symlink_to(project / "outside.py")

    result = run(kernel, link)

    assert as_text(result).startswith("❌ worker_agent PermissionDenied: 权限不足\n")
    assert result.data["recoverable"] is False


def test_a_bin_folder_that_is_a_link_is_denied(kernel: Kernel, project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.py").write_text("print('x')\n")
    (project / "bin").symlink_to(tmp_path / "elsewhere")

    assert run(kernel, "x.py").data["type"] == "PermissionDenied"


def test_a_projects_scripts_run_only_after_trust(kernel: Kernel, project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin/x.py").write_text("print('x')\n")

    result = run(kernel, "x.py")

    assert (result.data["type"], result.data["grant"]) == ("NotGranted", "skillyard trust")


def test_a_script_reads_the_project_writes_mybox_and_cannot_change_bin(
    kernel: Kernel, write_script: WriteScript, project: Path
) -> None:
    (project / "README.md").write_text("readme")
    write_script("ok.py", "open('mybox/temp/x', 'w').write(open('README.md').read())\n")
    write_script("bad.py", "open('bin/ok.py', 'w').write('evil')\n")

    assert run(kernel, "ok.py").ok
    assert (project / "mybox/temp/x").read_text() == "readme"
    assert run(kernel, "bad.py").data["type"] == "RuntimeError"


def test_a_timeout_names_the_script(kernel: Kernel, write_script: WriteScript) -> None:
    write_script("slow.py", "import time\ntime.sleep(60)\n")

    result = kernel.task("worker", "慢", "执行 python bin/slow.py", timeout_seconds=0.5)

    assert (result.agent, result.state) == ("worker_agent", State.TIMEOUT)
    assert (result.data["script"], result.data["limit"]) == ("bin/slow.py", 0.5)


def test_a_task_output_is_told_where_the_result_was(kernel: Kernel) -> None:
    result = kernel.task("worker_agent", "x", "TaskOutput(task_id=xxx)")

    assert result.data["type"] == "InvalidArgs"
    assert "return value" in str(result.data["msg"])


def test_s1_analysis_prompt_is_exactly_that_block(kernel: Kernel, write_script: WriteScript) -> None:
    write_script("scan.py", "print('done\\n【LLM 二次分析任务】\\n请分析: a\\n\\n- b')\n")

    assert run(kernel, "scan.py").data["analysis_prompt"] == "【LLM 二次分析任务】\n请分析: a\n\n- b"


# Interrupts (S1 §4.1)

INTERRUPT: dict[str, object] = {
    "interrupted_skills": ["good", "evil"],
    "resume_command": "python bin/flow.py resume t1",
    "severities": {"good": "LOW", "evil": "HIGH"},
}
FLOW = """\
import json, sys
if sys.argv[1:2] == ["resume"]:
    print(json.dumps({"thread": sys.argv[2], "decisions": json.loads(sys.argv[sys.argv.index("--decisions") + 1])}))
else:
    open("mybox/temp/langgraph_interrupt.json", "w").write(json.dumps(%r))
    print("working\\n[INTERRUPT] waiting")
    sys.exit(5)
"""


def decided(yard: Project, decide: Decider | None) -> Result:
    return run(Kernel(yard, Lang.ZH, decide), "flow.py start")


def test_s1_an_interrupt_goes_to_the_caller_where_nobody_decides(
    yard: Project, kernel: Kernel, write_script: WriteScript
) -> None:
    write_script("flow.py", FLOW % INTERRUPT)

    result = decided(yard, None)

    assert as_text(result).startswith("⏸️ worker_agent 工作流已暂停: 2 个技能需 LLM 分析\n")
    assert result.data == {"interrupted_skills": ["good", "evil"], "resume_command": "python bin/flow.py resume t1"}
    assert result.exit_code == 5


def test_the_worker_decides_by_rules_resumes_and_says_so(yard: Project, write_script: WriteScript) -> None:
    write_script("flow.py", FLOW % INTERRUPT)

    result = decided(yard, Rules({ThreatLevel.LOW: Decision.KEEP, ThreatLevel.HIGH: Decision.UNINSTALL}))

    assert result.state is State.SUCCESS
    assert result.data == {
        "thread": "t1",
        "decisions": {"good": "keep", "evil": "uninstall"},
        "llm_decisions": {"good": "keep", "evil": "uninstall"},
        "resumed": True,
    }


def test_a_person_decides_and_what_is_no_clear_answer_stays_undecided(yard: Project, write_script: WriteScript) -> None:
    write_script("flow.py", FLOW % INTERRUPT)
    answers = iter(["k", "maybe", "keep", "u"])

    assert decided(yard, Person(lambda _: next(answers))).state is State.INTERRUPTED
    assert decided(yard, Person(lambda _: next(answers))).data["llm_decisions"] == {"good": "keep", "evil": "uninstall"}


@pytest.mark.parametrize(
    "answer",
    [{}, {"good": "keep"}, {"good": "KEEP", "evil": "keep"}, {"good": True, "evil": "keep"}, {"other": "keep"}],
)
def test_a_broken_or_unknown_decision_never_means_keep(
    yard: Project, write_script: WriteScript, answer: dict[str, Decision]
) -> None:
    write_script("flow.py", FLOW % INTERRUPT)

    assert decided(yard, lambda _: answer).state is State.INTERRUPTED


@pytest.mark.parametrize(
    "broken",
    [
        {"resume_command": "rm -rf /"},
        {"resume_command": "python bin/../evil.py"},
        {"resume_command": "python -c 'x'"},
        {"resume_command": "python bin/flow.py resume\nrm x"},
        {"interrupted_skills": []},
        {"interrupted_skills": "all"},
        {"interrupted_skills": ["a", "a"]},
        {"interrupted_skills": [{"no": "name"}]},
    ],
)
def test_a_file_that_is_not_well_written_is_no_interrupt(
    yard: Project, write_script: WriteScript, broken: dict[str, object]
) -> None:
    write_script("flow.py", FLOW % {**INTERRUPT, **broken})

    result = decided(yard, Rules({ThreatLevel.LOW: Decision.KEEP, ThreatLevel.HIGH: Decision.KEEP}))

    assert (result.state, result.data["type"]) == (State.ERROR, "RuntimeError")
    assert result.summary.startswith("RuntimeError: 中断被拒绝")


def test_a_file_that_is_no_json_is_an_error_that_says_so(yard: Project, write_script: WriteScript) -> None:
    write_script("坏.py", "open('mybox/temp/langgraph_interrupt.json', 'w').write('{坏')\nprint('[INTERRUPT]')\n")

    result = run(Kernel(yard), "坏.py")

    assert (result.state, result.data["type"]) == (State.ERROR, "RuntimeError")
    assert "cannot be read" in str(result.data["msg"])


def test_a_mark_inside_a_line_is_no_interrupt(yard: Project, write_script: WriteScript) -> None:
    write_script("docs.py", "print('it prints [INTERRUPT] when it waits')\n")

    assert run(Kernel(yard), "docs.py").state is State.SUCCESS


@pytest.mark.parametrize(
    "order", [">/dev/null 2>&1", "> /dev/null 2> /dev/null", "&>/dev/null", "2>/dev/null >/dev/null"]
)
@pytest.mark.parametrize("code", [0, 3])
def test_what_goes_to_dev_null_is_shown_nowhere(
    yard: Project, write_script: WriteScript, order: str, code: int
) -> None:
    write_script(
        "话多.py",
        f"import sys\nprint('出话', '【LLM 二次分析任务】')\nprint('错话', file=sys.stderr)\nsys.exit({code})\n",
    )
    heard: list[bytes] = []

    result = Kernel(yard).task("worker_agent", "x", f"执行 python bin/话多.py {order}", on_progress=heard.append)

    assert "话" not in as_text(result).replace("话多", "")
    assert not heard
    assert result.ok == (code == 0)


def test_stderr_goes_where_stdout_led_before(yard: Project, write_script: WriteScript) -> None:
    write_script("a.py", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n")

    assert run(Kernel(yard), "a.py 2>&1 >/dev/null").data == {"content": "err"}
    assert run(Kernel(yard), "a.py 2>&1").data == {"content": "out\nerr"}


def test_a_file_from_an_earlier_run_does_not_count(yard: Project, write_script: WriteScript, project: Path) -> None:
    (project / "mybox/temp").mkdir(parents=True)
    (project / "mybox/temp/langgraph_interrupt.json").write_text(json.dumps(INTERRUPT))
    write_script("flow.py", "print('[INTERRUPT] but nothing was written')\n")

    result = decided(yard, None)

    assert (result.state, result.data["type"]) == (State.ERROR, "RuntimeError")
    assert "was not written in this run" in str(result.data["msg"])


# In a folder that init made


@pytest.fixture
def laid_out(skillyard: Skillyard, project: Path, write_skill: WriteSkill) -> Path:
    assert skillyard("init").returncode == 0
    for name in ("markdown-converter", "photo-tool"):
        write_skill(name, f"---\nname: {name}\ndescription: Converts markdown and photos\n---\n# {name}\n")
    return project


@pytest.mark.parametrize(
    ("prompt", "key"),
    [
        ("执行 python bin/skill_manager.py list", "skill-list"),
        ("执行 python bin/skill_manager.py search markdown", "skill-search:markdown"),
        ("执行 python bin/skill_scanner.py scan", "scan-skills"),
    ],
)
def test_s1_the_prompts_of_the_protocol_run_verbatim_without_trust(
    kernel: Kernel, laid_out: Path, prompt: str, key: str
) -> None:
    result = kernel.task("worker_agent", "示例", prompt, idempotency_key=key)

    assert (result.state, result.agent) == (State.SUCCESS, "worker_agent")
    assert result.data["total"] == 2 or len(result.data["skills"]) == 2  # type: ignore[arg-type]


def test_a_script_of_init_that_somebody_changed_is_the_projects_own_again(kernel: Kernel, laid_out: Path) -> None:
    script = laid_out / "bin/skill_manager.py"
    script.write_text(script.read_text("utf-8") + "\nprint('changed')\n", "utf-8")

    assert run(kernel, "skill_manager.py list").data["type"] == "NotGranted"


def test_a_module_beside_a_script_of_init_is_not_imported_in_its_place(kernel: Kernel, laid_out: Path) -> None:
    (laid_out / "bin/skillyard.py").write_text("raise SystemExit('hijacked')\n")
    (laid_out / "bin/argparse.py").write_text("raise SystemExit('hijacked')\n")

    assert run(kernel, "skill_manager.py list").ok


def test_recording_a_use_from_a_script_counts_it_once(kernel: Kernel, yard: Project, laid_out: Path) -> None:
    assert run(kernel, "skill_manager.py record photo-tool").ok
    assert yard.history.uses()["photo-tool"] == 1


def test_the_environment_of_the_caller_does_not_leak_into_scripts(
    kernel: Kernel, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    write_script("env.py", "import os\nprint(os.environ.get('SECRET_TOKEN'), os.environ.get('SKILLYARD_HOME'))\n")

    assert run(kernel, "env.py").data["content"] == "None None"
    assert os.environ["SECRET_TOKEN"] == "s3cret"
