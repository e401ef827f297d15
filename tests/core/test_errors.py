"""The error tree: what each says on the wire and to people, as the contract and the seeds have it."""

import re
from typing import NamedTuple

import pytest
from hypothesis import given

from skillyard.core import errors
from skillyard.core.errors import SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.states import State
from tests.core.values import texts


class Case(NamedTuple):
    error: SkillError
    type: str
    recoverable: bool | None
    zh: str


CASES = [
    # S0 §3, S2 §4
    Case(errors.SkillNotFound("foo"), "SkillNotFound", True, "未安装技能: foo"),
    Case(errors.MetadataMissing("no frontmatter"), "MetadataMissing", False, "SKILL.md 损坏或缺失"),
    Case(errors.RoleInvalid("line 3"), "MetadataMissing", False, "agent.yaml 无效: line 3"),
    Case(errors.ParamMissing(("input_file",)), "ParamMissing", True, "参数不足: 需要 input_file"),
    Case(errors.RuntimeFailed("boom"), "RuntimeFailed", None, "执行失败: boom"),
    Case(errors.Timeout("big", 90.2, 90), "Timeout", True, "执行超时 (>90秒)"),
    Case(errors.ReportedTimeout("slow", "x", 1.0, "log", {}, "skill"), "Timeout", True, "程序自行放弃等待: slow"),
    Case(errors.AgentSilent("codex", 61.0, 60), "Timeout", True, "智能体无响应 (>60秒)"),
    # S1 §3
    Case(errors.ScriptNotFound("bin/a.py"), "ScriptNotFound", False, "脚本不存在: bin/a.py"),
    Case(errors.InvalidArgs("no such option"), "InvalidArgs", True, "参数错误: no such option"),
    Case(errors.ScriptFailed("boom"), "RuntimeError", None, "执行失败: boom"),
    Case(errors.InterruptRefused("not JSON"), "RuntimeError", None, "中断被拒绝: not JSON"),
    Case(errors.PermissionDenied("/etc"), "PermissionDenied", False, "权限不足"),
    # ours
    Case(errors.AmbiguousName("a", ("x/a", "y/a")), "AmbiguousName", True, "名称不唯一: a"),
    Case(errors.InvalidParam("'n' takes int"), "InvalidParam", True, "参数无效: 'n' takes int"),
    Case(errors.InvalidCommand("needs a shell"), "InvalidCommand", False, "命令模板无效: needs a shell"),
    Case(errors.InvalidRequirements("line 2: -e ."), "InvalidCommand", False, "依赖声明无效: line 2: -e ."),
    Case(errors.EnvironmentFailed("no wheel"), "RuntimeFailed", None, "环境构建失败: no wheel"),
    Case(errors.Stopped(Message("it was stopped")), "RuntimeFailed", None, "已停止: 它已被停止"),
    Case(errors.FolderChanging("x"), "RuntimeFailed", None, "文件夹正在变化: x"),
    Case(errors.SkillChanged("other bytes"), "RuntimeFailed", None, "技能已变化: other bytes"),
    Case(errors.ChangesConflict(("a.txt",)), "RuntimeFailed", None, "运行开始之后，项目又有改动：a.txt"),
    Case(errors.ChangesTooMany(), "RuntimeFailed", None, "该运行改动的项目内容超过 1 GiB 或 100,000 个文件"),
    Case(errors.ItemsConflict("a.txt"), "RuntimeFailed", None, "两项更改了同一个文件：a.txt"),
    Case(errors.EarlierChangesMissing("a.txt"), "RuntimeFailed", None, "看不到前面步骤的更改：a.txt"),
    Case(
        errors.RequirementFailed("x", "x>=9", "a.txt:1", errors.EnvironmentFailed("no", log="r1"), "skillyard env @a"),
        "RuntimeFailed",
        None,
        "a.txt:1: 无法安装 x>=9: no",
    ),
    Case(errors.ProgramMissing("needs deno", "deno", "deno.com"), "InvalidCommand", True, "缺少程序: needs deno"),
    Case(errors.Cancelled("report"), "Cancelled", True, "任务已取消: report"),
    Case(errors.Replaced("report"), "Cancelled", True, "已被下一次运行取代: report"),
    Case(errors.TurnCancelled("it was stopped"), "Cancelled", True, "已取消: it was stopped"),
    Case(errors.PythonMissing("needs 3.99"), "RuntimeFailed", None, "环境构建失败: needs 3.99"),
    Case(errors.NotGranted("network", "skillyard grant a network"), "NotGranted", True, "未授权: network"),
    Case(errors.OutputTooLarge("x", limit="10.0MB", log="r1"), "OutputTooLarge", False, "输出过大: 超过 10.0MB"),
    Case(errors.SandboxUnavailable("x", missing="bwrap"), "SandboxUnavailable", False, "沙箱不可用: bwrap"),
    Case(errors.TextNotFound("no 'x'"), "TextNotFound", True, "未找到: no 'x'"),
    Case(errors.AmbiguousText("'x'", 2, [1, 5]), "AmbiguousText", True, "文本不唯一: 'x' 出现 2 次"),
    Case(errors.SourceRefused("../x"), "SourceRefused", False, "来源被拒绝: ../x"),
    Case(errors.SourceFailed("no answer"), "RuntimeFailed", None, "无法获取来源: no answer"),
    Case(errors.StoreFailed("disk full"), "RuntimeFailed", None, "无法读写自己的数据: disk full"),
    Case(errors.StateDamaged("state.db"), "RuntimeFailed", None, "自己的数据已损坏: state.db"),
    Case(errors.StateNewer("state.db"), "RuntimeFailed", None, "数据由更新版本的 Skillyard 写入: state.db"),
    Case(errors.StateLocked("pid 7"), "RuntimeFailed", True, "数据被其他进程锁定: pid 7"),
    Case(errors.StateUnsafe("grants.json"), "RuntimeFailed", None, "其他用户可能写过此文件: grants.json"),
    Case(errors.SandboxTooWeak("none", ()), "SandboxUnavailable", False, "以 root 运行时沙箱过弱: none"),
    Case(errors.DatabaseFailed("no answer"), "RuntimeFailed", None, "无法使用共享数据库: no answer"),
    Case(errors.ExtraMissing("dbos", "jobs"), "RuntimeFailed", None, "缺少组件: dbos 未安装"),
    Case(errors.SecretMissing("TOKEN", "export it", details={}), "RuntimeFailed", None, "缺少密钥: TOKEN"),
    Case(errors.WorkflowInvalid("line 3"), "InvalidArgs", True, "工作流无效: line 3"),
    Case(errors.WorkflowChanged("a.yaml"), "RuntimeFailed", None, "工作流已变化: a.yaml"),
    Case(errors.MultiStep("two skills"), "MultiStep", True, "多步任务: 请逐个调用或写成工作流"),
    Case(
        errors.AgentNotInstalled("x", agent="codex", command="npm i codex"),
        "AgentNotInstalled",
        True,
        "未安装智能体: codex",
    ),
    Case(
        errors.AgentTooOld("codex", "0.1", "0.100", "npm i codex"),
        "AgentNotInstalled",
        True,
        "智能体版本过旧: codex 0.1, 需要 0.100 以上",
    ),
    Case(errors.BackendFailed("codex", "401"), "BackendFailed", None, "智能体执行失败: codex: 401"),
    Case(errors.TooDeep(2, 2), "TooDeep", False, "智能体嵌套过深: 2 层 (最多 2)"),
]
#: The seeds' advice column stands in the Chinese hint.
ADVICE = {
    "SkillNotFound": "引导用户安装",
    "MetadataMissing": "重新安装技能",
    "ParamMissing": "询问用户提供",
    "RuntimeFailed": "视具体错误判断",
    "Timeout": "建议拆分任务",
    "ScriptNotFound": "检查脚本路径",
    "InvalidArgs": "显示脚本Help",
    "RuntimeError": "视具体错误判断",
    "PermissionDenied": "检查文件权限",
}


def every_class(parent: type[SkillError] = SkillError) -> set[type[SkillError]]:
    found = {cls for cls in parent.__subclasses__() if cls.__module__ == errors.__name__}
    return found.union(*(every_class(cls) for cls in found))


def test_every_error_of_the_tree_has_its_case_here() -> None:
    assert {type(case.error) for case in CASES} == every_class()


@pytest.mark.parametrize("case", CASES, ids=[case.type for case in CASES])
def test_an_error_has_its_type_on_the_wire_and_says_whether_a_caller_can_recover(case: Case) -> None:
    assert (case.error.type, case.error.recoverable) == (case.type, case.recoverable)
    if case.error.state is State.ERROR:
        data = case.error.data()
        assert list(data)[:3] == ["type", "msg", "recoverable"]
        assert (data["type"], data["recoverable"]) == (case.type, case.recoverable)
        assert data["msg"] == str(case.error)


@pytest.mark.parametrize("case", CASES, ids=[case.type for case in CASES])
def test_an_errors_summary_is_the_seeds_in_chinese_and_starts_with_its_type(case: Case) -> None:
    assert case.error.summary(Lang.ZH) == f"{case.type}: {case.zh}"
    assert case.error.summary(Lang.EN).startswith(f"{case.type}: ")
    assert case.error.summary(Lang.EN).isascii()


@pytest.mark.parametrize("case", CASES, ids=[case.type for case in CASES])
def test_an_error_advises_in_both_languages_with_every_slot_filled(case: Case) -> None:
    zh, en = case.error.hint(Lang.ZH), case.error.hint(Lang.EN)

    assert re.search(r"[\u4e00-\u9fff]", zh)
    assert en.isascii()
    assert len(en) > 10
    assert ADVICE.get(case.type, "") in zh
    for text in (zh, en, case.error.summary(Lang.ZH), case.error.summary(Lang.EN)):
        assert not re.search(r"[{}]", text)


@given(texts)
def test_whatever_a_word_holds_it_stands_in_the_summary_as_it_is(word: str) -> None:
    assert errors.SkillNotFound(word).summary(Lang.ZH) == f"SkillNotFound: 未安装技能: {word}"
    assert errors.RuntimeFailed(word, log=word).summary(Lang.EN).endswith(word)
    assert word in errors.AmbiguousName("a", (word,)).hint(Lang.EN)


def test_a_timeout_names_the_limit_that_was_hit_and_the_real_figures() -> None:
    error = errors.Timeout("bin/slow.py", 2.503, 2.5, noun="script")

    assert error.summary(Lang.ZH) == "Timeout: 执行超时 (>2.5秒)"
    assert error.summary(Lang.EN) == "Timeout: timed out (>2.5s)"
    assert error.data() == {"script": "bin/slow.py", "elapsed": 2.503, "limit": 2.5}
    assert error.state is State.TIMEOUT


def test_several_missing_params_are_all_named() -> None:
    error = errors.ParamMissing(("a", "b"), ("c",), {"a": "What is a?"})

    assert error.msg == "Required parameters 'a', 'b' not provided"
    assert error.summary(Lang.ZH) == "ParamMissing: 参数不足: 需要 a, b"
    assert error.as_question() == {"required": ["a", "b"], "optional": ["c"], "prompts": {"a": "What is a?"}}


def test_a_name_that_nothing_has_comes_with_the_nearest() -> None:
    error = errors.SkillNotFound("wrod-count", ("word-count",))

    assert error.data()["nearest"] == ["word-count"]
    assert error.msg == "Skill 'wrod-count' is not installed; nearest: word-count"


def test_pythons_own_runtime_error_is_not_hidden() -> None:
    assert not hasattr(errors, "RuntimeError")
    assert not issubclass(errors.ScriptFailed, RuntimeError)
