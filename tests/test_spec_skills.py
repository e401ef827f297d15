"""The skills agent of the seeds, example by example (S0 §1.2, §2.4, §4; S2 §4 and its call example).

Compared as the contract says: icon, agent, state, summary and the parsed data.
"""

from pathlib import Path

import pytest

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.envelope import as_block, parse
from skillyard.core.messages import Lang
from skillyard.core.result import Result
from skillyard.core.states import State
from tests.conftest import Skillyard, WriteSkill

CONVERTER = """\
---
name: markdown-converter
title: Markdown转换
description: Converts Markdown
command: python convert.py {input_file} --out {output} --format {format} --quality {quality}
params:
  input_file: {required: true}
  format: {}
  quality: {}
---
# Converter
"""
CONVERT_PY = """\
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--out")
parser.add_argument("--format")
parser.add_argument("--quality")
options = parser.parse_args()
target = pathlib.Path(options.out) / "result.html"
target.write_bytes(b"x" * 12800)
print(json.dumps({"operation": "convert"}))
"""
SLOW = "---\nname: large-processor\ndescription: Slow\ncommand: sh slow.sh\n---\n"
IDEAS = "---\nname: marketing-ideas\ndescription: 提供营销策略建议\n---\n# 营销\n\n先问产品。\n"


@pytest.fixture
def kernel(yard: Project) -> Kernel:
    return Kernel(yard, Lang.ZH)


def shown(result: Result) -> tuple[str, str, State, str]:
    return (as_block(result).split(" ", 1)[0], result.agent, result.state, result.summary)


def test_s0_success_names_the_title_the_path_and_the_size(
    kernel: Kernel, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("md-tools-v1", CONVERTER, {"convert.py": CONVERT_PY})
    (project / "README.md").write_text("# hi")

    result = kernel.task("skills", "转换文档", "执行 @markdown-converter README.md")

    assert shown(result) == ("✅", "skills", State.SUCCESS, "执行成功: Markdown转换 → mybox/output/result.html")
    assert result.data == {
        "skill": "markdown-converter",
        "operation": "convert",
        "output_path": "mybox/output/result.html",
        "output_size": "12.5KB",
    }
    assert list(result.meta)[:3] == ["agent", "time", "ts"]


def test_s0_a_missing_param_waits_for_the_user(kernel: Kernel, write_skill: WriteSkill) -> None:
    write_skill("md-tools-v1", CONVERTER, {"convert.py": CONVERT_PY})

    result = kernel.task("skills", "转换文档", "执行 @markdown-converter")

    assert shown(result) == ("⏸️", "skills", State.PENDING, "等待参数: 需要 input_file")
    assert result.data == {"required": ["input_file"], "optional": ["format", "quality"]}


def test_s0_a_missing_param_is_an_error_where_nobody_can_answer(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("md-tools-v1", CONVERTER, {"convert.py": CONVERT_PY})

    ran = skillyard("run", "--lang", "zh", "--non-interactive", "@markdown-converter")

    result = parse(ran.stdout)
    assert ran.returncode == 1
    assert shown(result) == ("❌", "skills", State.ERROR, "ParamMissing: 参数不足: 需要 input_file")
    assert result.data == {
        "type": "ParamMissing",
        "msg": "Required parameter 'input_file' not provided",
        "recoverable": True,
    }


def test_s0_a_timeout_names_the_limit_that_was_hit(kernel: Kernel, write_skill: WriteSkill) -> None:
    write_skill("slow", SLOW, {"slow.sh": "sleep 60\n"})

    result = kernel.task("skills", "处理", "执行 @large-processor", timeout_seconds=1)

    assert shown(result) == ("⏱️", "skills", State.TIMEOUT, "Timeout: 执行超时 (>1秒)")
    assert (result.data["skill"], result.data["limit"]) == ("large-processor", 1)
    assert isinstance(result.data["elapsed"], float)
    assert result.data["elapsed"] >= 1


def test_s0_a_prompt_skill_is_loaded_and_not_executed(kernel: Kernel, write_skill: WriteSkill) -> None:
    write_skill("marketing-ideas", IDEAS)

    result = kernel.task("skills", "营销", "执行 @marketing-ideas")

    assert shown(result) == ("✅", "skills", State.SUCCESS, "提示词加载: marketing-ideas")
    assert result.data == {
        "skill": "marketing-ideas",
        "type": "prompt",
        "name": "marketing-ideas",
        "description": "提供营销策略建议",
        "content": IDEAS,
        "executable": False,
    }


def test_s0_a_skill_that_is_not_installed_is_recoverable_and_names_the_nearest(
    kernel: Kernel, write_skill: WriteSkill
) -> None:
    write_skill("markdown-converter", IDEAS.replace("marketing-ideas", "markdown-converter"))

    result = kernel.task("skills", "转换", "执行 @markdown-convertor README.md")

    assert shown(result) == ("❌", "skills", State.ERROR, "SkillNotFound: 未安装技能: markdown-convertor")
    assert result.data["recoverable"] is True
    assert result.data["nearest"] == ["markdown-converter"]
    assert "引导用户安装" in str(result.meta["hint"])


def test_s0_a_broken_skill_md_is_metadata_missing(kernel: Kernel, project: Path) -> None:
    folder = project / ".claude/skills/broken"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(b"---\nname: [\n" + b"x: " * 40000 + b"\n---\n")

    result = kernel.task("skills", "x", "执行 @broken")

    assert shown(result) == ("❌", "skills", State.ERROR, "MetadataMissing: SKILL.md 损坏或缺失")
    assert result.data["recoverable"] is False


def test_s0_a_failing_program_is_runtime_failed_with_the_end_of_its_stderr(
    kernel: Kernel, write_skill: WriteSkill
) -> None:
    write_skill(
        "bad", "---\nname: bad\ndescription: x\ncommand: sh bad.sh\n---\n", {"bad.sh": "echo 坏了 >&2; exit 7\n"}
    )

    result = kernel.task("skills", "x", "执行 @bad")

    assert shown(result) == ("❌", "skills", State.ERROR, "RuntimeFailed: 执行失败: 坏了")
    error = {"type": "RuntimeFailed", "msg": "坏了", "recoverable": None}
    assert result.data == {**error, "exit_code": 7, "stderr": "坏了"}


def test_s0_several_steps_are_not_one_call(kernel: Kernel, write_skill: WriteSkill) -> None:
    write_skill("marketing-ideas", IDEAS)

    result = kernel.task("skills", "两步", "执行 @marketing-ideas 然后 执行 @marketing-ideas")

    assert result.data["type"] == "MultiStep"


@pytest.mark.parametrize(
    ("prompt", "argv"),
    [
        ("执行 @markdown-converter README.md", ["README.md"]),
        ("执行 @image-resizer photo.jpg --width 800", ["photo.jpg", "--width", "800"]),
        ("执行 @code-analyzer src/ --language python", ["src/", "--language", "python"]),
    ],
)
def test_s0_the_prompts_of_the_protocol_reach_their_skill(
    kernel: Kernel, write_skill: WriteSkill, prompt: str, argv: list[str]
) -> None:
    for name, option in (("markdown-converter", "to"), ("image-resizer", "width"), ("code-analyzer", "language")):
        text = f"---\nname: {name}\ndescription: x\ncommand: python say.py {{input}} --{option} {{{option}}}\n"
        params = f"params:\n  input: {{required: true}}\n  {option}: {{}}\n---\n"
        write_skill(name, text + params, {"say.py": "import json, sys\nprint(json.dumps({'argv': sys.argv[1:]}))\n"})

    assert kernel.task("skills", "示例", prompt).data["argv"] == argv


@pytest.mark.parametrize("agent", ["skills", "skills_agent"])
def test_both_names_of_the_agent_are_taken_and_one_is_printed(
    kernel: Kernel, write_skill: WriteSkill, agent: str
) -> None:
    write_skill("marketing-ideas", IDEAS)

    result = kernel.task(agent, "营销", "@marketing-ideas", model="haiku")

    assert (result.agent, result.meta["model"]) == ("skills", "haiku")


def test_s2_the_call_example_resolves_parses_executes_and_records(
    skillyard: Skillyard, yard: Project, write_skill: WriteSkill, project: Path
) -> None:
    """Name → folder md-tools-v1 → `python .claude/skills/md-tools-v1/convert.py README.md …`, run in the root."""
    text = (
        "---\nname: markdown-converter\ntitle: 转换\ndescription: x\ncommand: python convert.py {file} --to html\n---\n"
    )
    program = (
        "import os, pathlib, sys\n"
        "assert sys.argv[1:] == ['README.md', '--to', 'html'], sys.argv\n"
        "assert pathlib.Path('README.md').read_text() == '# hi'\n"
        "pathlib.Path('mybox/output/output.html').write_text('<h1>hi</h1>')\n"
        "print(sys.argv[0])\n"
    )
    write_skill("md-tools-v1", text, {"convert.py": program})
    (project / "README.md").write_text("# hi")

    result = parse(skillyard("run", "--lang", "zh", "@markdown-converter", "README.md").stdout)

    assert result.summary == "执行成功: 转换 → mybox/output/output.html"
    assert result.data["content"] == ".claude/skills/md-tools-v1/convert.py"
    assert result.data["output_path"] == "mybox/output/output.html"
    assert yard.history.uses() == {"markdown-converter": 1}
