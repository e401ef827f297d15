"""Everything that can go wrong, as one tree.

SkillError
  SkillNotFound       the name resolves to nothing
  AmbiguousName       the name resolves to several, none of them better than the others
  MetadataMissing     a named folder without a usable SKILL.md
  RoleInvalid         an agent.yaml that cannot be read (MetadataMissing on the wire)
  ParamMissing        a required param was not given; pending where someone can answer
  InvalidParam        a param has a value that the skill does not take
  InvalidCommand      the command template cannot be run without a shell
  InvalidRequirements the packages it names cannot be read (InvalidCommand on the wire)
  InvalidArgs         the call itself cannot be read
  WorkflowInvalid     a workflow.yaml that cannot be run (InvalidArgs on the wire)
  SourceRefused       what a source holds is not safe to write down
  MultiStep           one call asks for several steps
  NotGranted          the person has not allowed it
  PermissionDenied    nobody can allow it here
  ScriptNotFound      no such script in bin/
  TextNotFound        the file has no such text, marker or field
  AmbiguousText       the text stands in several places of the file, and nobody said which
  RuntimeFailed       the skill ran and failed
  EnvironmentFailed   its packages could not be installed (RuntimeFailed on the wire)
  SourceFailed        a source could not be fetched (RuntimeFailed on the wire)
  SecretMissing       a declared secret is not there (RuntimeFailed on the wire)
  StoreFailed         our own files cannot be kept: a full disk, most often (RuntimeFailed on the wire)
  StateDamaged        a file of ours is damaged (RuntimeFailed on the wire)
  StateNewer          a file of ours was written by a newer version (RuntimeFailed on the wire)
  StateUnsafe         others could have written a file of ours (RuntimeFailed on the wire)
  StateLocked         another process has held a file of ours for too long (RuntimeFailed on the wire)
  DatabaseFailed      the shared database does not answer (RuntimeFailed on the wire)
  ExtraMissing        a part of us that is installed on its own (RuntimeFailed on the wire)
  Stopped             whoever asked for the run took it back (RuntimeFailed on the wire)
  SkillChanged        the bytes that a job meant are not here (RuntimeFailed on the wire)
  FolderChanging      a folder did not stand still while it was read (RuntimeFailed on the wire)
  WorkflowChanged     the file that a flow was started from is another now (RuntimeFailed on the wire)
  PythonMissing       the Python that it needs is not there (RuntimeFailed on the wire)
  ScriptFailed        the bin/ script ran and failed (RuntimeError on the wire)
  Timeout             the deadline passed and the whole tree was stopped
  Cancelled           somebody took the job back
  AgentSilent         a backend agent told nothing for too long (Timeout on the wire)
  OutputTooLarge      more output than the limit
  SandboxUnavailable  this machine cannot give what the policy demands
  SandboxTooWeak      root without namespaces, and nobody insisted (SandboxUnavailable on the wire)
  AgentNotInstalled   the backend agent's program is not there
  AgentTooOld         it is there, but speaks too old a protocol (AgentNotInstalled on the wire)
  BackendFailed       the backend agent ran and failed, or its model did; carries its own words
  TooDeep             an agent that we started asks for one more

Type, whether a caller can recover, summary and hint are class data: whoever raises says only what happened.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from skillyard.core.phrases import Lang, Text, as_read
from skillyard.core.states import State
from skillyard.core.values import Json

#: The words that are messages themselves.
_MESSAGES = frozenset({"reason", "what", "remedy", "missing"})


class SkillError(Exception):
    """`msg` is for programs and never changes with the language; `words` fill the summary and the hint."""

    type: ClassVar[str] = "SkillError"
    state: ClassVar[State] = State.ERROR
    recoverable: ClassVar[bool | None] = None
    says: ClassVar[Text]
    advises: ClassVar[Text]

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, **words: object) -> None:
        super().__init__(msg)
        self.msg = msg
        self.details: Mapping[str, Json] = details or {}
        self.words: Mapping[str, object] = words
        #: What the one who knows more than the class adds to the hint.
        self.also_advises: Text | None = None

    def __init_subclass__(cls) -> None:
        if "type" not in cls.__dict__:
            cls.type = cls.__name__

    def summary(self, lang: Lang) -> str:
        return f"{self.type}: {self.says.fill(lang, **self._words(lang))}"

    def hint(self, lang: Lang) -> str:
        advice = (self.advises, self.also_advises) if self.also_advises else (self.advises,)
        return "; ".join(text.fill(lang, **self._words(lang)) for text in advice)

    def _words(self, lang: Lang) -> Mapping[str, object]:
        """As a person reads them; what a program said of itself stays as it said it."""
        if lang is Lang.EN or not self.details.keys().isdisjoint({"exit_code", "code"}):
            return self.words
        return {
            name: as_read(word, lang) if name in _MESSAGES and isinstance(word, str) and " " in word else word
            for name, word in self.words.items()
        }

    def data(self) -> dict[str, Json]:
        return {"type": self.type, "msg": self.msg, "recoverable": self.recoverable, **self.details}


class SkillNotFound(SkillError):
    recoverable = True
    says = Text("未安装技能: {name}", "skill not installed: {name}")
    advises = Text(
        "引导用户安装: skillyard search {name} 查找, skillyard list 查看已安装的技能",
        "install it first; `skillyard search {name}` looks for it, `skillyard list` shows what is installed",
    )

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        near = f"; nearest: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"Skill '{name}' is not installed{near}", details={"nearest": list(nearest)}, name=name)


class AmbiguousName(SkillError):
    recoverable = True
    says = Text("名称不唯一: {name}", "ambiguous name: {name}")
    advises = Text("用完整名称之一重试: {candidates}", "name one of these instead: {candidates}")

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        shown = ", ".join(candidates)
        super().__init__(
            f"'{name}' could be any of: {shown}",
            details={"candidates": list(candidates)},
            name=name,
            candidates=shown,
        )


class MetadataMissing(SkillError):
    recoverable = False
    says = Text("SKILL.md 损坏或缺失", "SKILL.md is broken or missing")
    advises = Text(
        "重新安装技能, 或用 skillyard validate 查看问题",
        "reinstall the skill, or see what is wrong with `skillyard validate`",
    )


class RoleInvalid(MetadataMissing):
    """A role's file says something that cannot be read about what its skills may touch."""

    type = "MetadataMissing"
    says = Text("agent.yaml 无效: {reason}", "invalid agent.yaml: {reason}")
    advises = Text(
        "重新安装技能, 或用 skillyard role validate 查看并修正", "see and correct it with `skillyard role validate`"
    )

    def __init__(self, msg: str) -> None:
        super().__init__(msg, reason=msg)


class ParamMissing(SkillError):
    """Carries what is needed to ask for it; a skill that only says so itself gives nothing to ask for."""

    recoverable = True
    says = Text("参数不足: 需要 {names}", "missing params: {names}")
    advises = Text("询问用户提供: {names}", "ask the user for: {names}")

    def __init__(
        self,
        required: tuple[str, ...],
        optional: tuple[str, ...] = (),
        prompts: Mapping[str, str] | None = None,
        *,
        told: str = "",
        details: Mapping[str, Json] | None = None,
    ) -> None:
        quoted = ", ".join(f"'{name}'" for name in required)
        plural = "s" if len(required) > 1 else ""
        msg = told or f"Required parameter{plural} {quoted} not provided"
        super().__init__(msg, details=details, names=", ".join(required) or told)
        self.required = required
        self.optional = optional
        self.prompts = prompts or {}

    def as_question(self) -> dict[str, Json]:
        """The data of a pending result."""
        asked: dict[str, Json] = {"required": list(self.required), "optional": list(self.optional)}
        if self.prompts:
            asked["prompts"] = dict(self.prompts)
        return asked


class InvalidParam(SkillError):
    recoverable = True
    says = Text("参数无效: {reason}", "invalid param: {reason}")
    advises = Text("修正该参数后重试", "correct that param and try again")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(msg, details=details, reason=msg)


class InvalidCommand(SkillError):
    recoverable = False
    says = Text("命令模板无效: {reason}", "invalid command: {reason}")
    advises = Text(
        "请技能作者改写 command: 一个程序加参数, 不经过 shell",
        "the skill's `command` must be one program with its arguments, without a shell",
    )

    def __init__(self, msg: str) -> None:
        super().__init__(msg, reason=msg)


class InvalidRequirements(InvalidCommand):
    """What a skill says of its packages is not plain names and versions."""

    type = "InvalidCommand"
    says = Text("依赖声明无效: {reason}", "invalid requirements: {reason}")
    advises = Text(
        "请技能作者改写依赖: 每行一个包名加版本, 不含地址、路径或选项",
        "the skill must name its packages plainly: name and versions, without addresses, paths or options",
    )


class InvalidArgs(SkillError):
    recoverable = True
    says = Text("参数错误: {reason}", "invalid arguments: {reason}")
    advises = Text("显示脚本Help, 按用法重试", "read the usage text and try again")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, advice: Text | None = None) -> None:
        """`advice`: the next step, where whoever raises knows more than "read the usage"."""
        super().__init__(msg, details=details, reason=msg)
        self.also_advises = advice


class WorkflowInvalid(InvalidArgs):
    """Found before anything of it was started."""

    type = "InvalidArgs"
    says = Text("工作流无效: {reason}", "invalid workflow: {reason}")
    advises = Text(
        "显示脚本Help: 用 skillyard flow validate 查看全部问题并修正",
        "nothing was started; `skillyard flow validate` shows every problem with its line",
    )


class SourceRefused(SkillError):
    """Nothing of it was written."""

    recoverable = False
    says = Text("来源被拒绝: {reason}", "the source is refused: {reason}")
    advises = Text("不要信任此来源; 请发布者修正", "nothing was installed; whoever publishes it must correct it")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(msg, details=details, reason=msg)


class MultiStep(SkillError):
    recoverable = True
    says = Text("多步任务: 请逐个调用或写成工作流", "several steps in one call: make it a workflow")
    advises = Text(
        "每次派发一个技能; 或将 data.workflow 存为 workflow.yaml, 执行 skillyard flow run workflow.yaml",
        "dispatch one skill at a time, or save data.workflow as workflow.yaml: `skillyard flow run workflow.yaml`",
    )


class NotGranted(SkillError):
    recoverable = True
    says = Text("未授权: {what}", "not granted: {what}")
    advises = Text("由用户本人执行: {command}", "the person must run: {command}")

    def __init__(self, what: str, command: str, *, details: Mapping[str, Json] | None = None) -> None:
        told = {"grant": command, **(details or {})}
        super().__init__(f"Not granted: {what}", details=told, what=what, command=command)


class PermissionDenied(SkillError):
    recoverable = False
    says = Text("权限不足", "permission denied")
    advises = Text("检查文件权限", "check the permissions of the file or folder")


class ScriptNotFound(SkillError):
    recoverable = False
    says = Text("脚本不存在: {script}", "no such script: {script}")
    advises = Text("检查脚本路径", "check the script's path")

    def __init__(self, script: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(f"{script} not found", details=details, script=script)


class TextNotFound(SkillError):
    recoverable = True
    says = Text("未找到: {reason}", "not found: {reason}")
    advises = Text("读取文件, 用其中的原文重试", "read the file and try again with text that stands in it")

    def __init__(self, msg: str) -> None:
        super().__init__(msg, reason=msg)


class AmbiguousText(SkillError):
    recoverable = True
    says = Text("文本不唯一: {text} 出现 {count} 次", "ambiguous text: {text} stands in {count} places")
    advises = Text("用更长的原文, 或 --nth N, 或 --all", "give more of the text around it, or --nth N, or --all")

    def __init__(self, text: str, count: int, lines: Sequence[int]) -> None:
        shown = ", ".join(map(str, lines))
        super().__init__(
            f"{text} stands in {count} places: lines {shown}",
            details={"count": count, "lines": list(lines)},
            text=text,
            count=count,
        )


class RuntimeFailed(SkillError):
    says = Text("执行失败: {reason}", "failed: {reason}")
    advises = Text("视具体错误判断: 查看 {log}", "it depends on the error: see {log}")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, log: str = "stderr") -> None:
        super().__init__(msg, details=details, reason=msg, log=log)


class EnvironmentFailed(RuntimeFailed):
    """The packages of a skill could not be installed."""

    type = "RuntimeFailed"
    says = Text("环境构建失败: {reason}", "the environment could not be built: {reason}")
    advises = Text(
        "视具体错误判断: 只安装二进制 wheel, 没有适合此平台的 wheel 的包无法安装; 完整输出见 {log}",
        "only binary wheels are installed, so each package needs one for this Python and platform; see {log}",
    )


class SourceFailed(RuntimeFailed):
    """A source is not there, or did not answer in time."""

    type = "RuntimeFailed"
    says = Text("无法获取来源: {reason}", "the source could not be fetched: {reason}")
    advises = Text(
        "视具体错误判断: 检查地址、网络和访问权限后重试",
        "check the address, the network and your access, then try again",
    )


class SecretMissing(RuntimeFailed):
    """A secret that a role declares is not where it says."""

    type = "RuntimeFailed"
    says = Text("缺少密钥: {reason}", "secret missing: {reason}")
    advises = Text("视具体错误判断: 由用户本人提供: {remedy}", "the person must provide it: {remedy}")

    def __init__(self, msg: str, remedy: str, *, details: Mapping[str, Json]) -> None:
        super().__init__(msg, details=details)
        self.words = {**self.words, "remedy": remedy}


class StoreFailed(RuntimeFailed):
    """What we keep cannot be written or read: a full disk, most often."""

    type = "RuntimeFailed"
    says = Text("无法读写自己的数据: {reason}", "what is kept cannot be read or written: {reason}")
    advises = Text(
        "视具体错误判断: 检查磁盘空间 (`df -h`) 或把 SKILLYARD_HOME 设到有空间的位置, 然后重试; 已保存的内容不会丢失",
        "look at the space on that disk (`df -h`) or set SKILLYARD_HOME to a place with room, and try again; "
        "what was kept is not lost",
    )


class StateDamaged(StoreFailed):
    """A file in SKILLYARD_HOME cannot be read as what it should be. `remedy` is the next step, or what was done."""

    type = "RuntimeFailed"
    says = Text("自己的数据已损坏: {reason}", "a file of Skillyard is damaged: {reason}")
    advises = Text("视具体错误判断: {remedy}", "{remedy}")

    def __init__(self, msg: str, remedy: str = "`skillyard doctor` shows what is damaged and what to do") -> None:
        super().__init__(msg)
        self.words = {**self.words, "remedy": remedy}


class StateNewer(StoreFailed):
    """A file in SKILLYARD_HOME has a format that this version does not know. Nothing is written to it."""

    type = "RuntimeFailed"
    says = Text("数据由更新版本的 Skillyard 写入: {reason}", "written by a newer Skillyard: {reason}")
    advises = Text(
        "视具体错误判断: 更新 Skillyard (`pip install -U skillyard`), 或把 SKILLYARD_HOME 设到另一个文件夹; "
        "没有任何内容被改动",
        "update Skillyard (`pip install -U skillyard`), or set SKILLYARD_HOME to another folder; nothing was changed",
    )


class StateUnsafe(StoreFailed):
    """Other users could have written the file. It stays where it is, and nothing in it counts."""

    type = "RuntimeFailed"
    says = Text("其他用户可能写过此文件: {reason}", "other users could have written a file of Skillyard: {reason}")
    advises = Text(
        "视具体错误判断: 检查文件内容后, 用 chown 和 chmod 600 设为只有你能写",
        "look at what is in it, then make it yours alone with chown and chmod 600",
    )


class StateLocked(StoreFailed):
    """Another process has held a file in SKILLYARD_HOME for longer than `[store] lock_seconds`."""

    type = "RuntimeFailed"
    recoverable = True
    says = Text("数据被其他进程锁定: {reason}", "locked by another process: {reason}")
    advises = Text(
        "视具体错误判断: 等待或结束该进程后重试; 等待时间可在 config.toml 的 [store] lock_seconds 设置",
        "wait for that process or end it, then try again; config.toml [store] lock_seconds sets how long to wait",
    )


class DatabaseFailed(RuntimeFailed):
    """The database that several machines share does not answer, or not to us."""

    type = "RuntimeFailed"
    says = Text("无法使用共享数据库: {reason}", "the shared database cannot be used: {reason}")
    advises = Text(
        "视具体错误判断: 确认数据库在运行, 并检查 skillyard.toml 里 [engine] database 的地址和密码, 然后重试",
        "see that it runs, and that the address and the password at [engine] database in skillyard.toml are right, "
        "then try again",
    )


class ExtraMissing(RuntimeFailed):
    """A library that only some of us need."""

    type = "RuntimeFailed"
    says = Text("缺少组件: {reason}", "not installed: {reason}")
    advises = Text("视具体错误判断: 先安装: {install}", "install it first: {install}")

    def __init__(self, library: str | None, extra: str) -> None:
        super().__init__(f"{library or extra} is missing")
        self.words = {**self.words, "install": f"pip install 'skillyard[{extra}]'"}


class PythonMissing(EnvironmentFailed):
    """No Python of this machine is one that the skill takes."""

    type = "RuntimeFailed"
    advises = Text(
        "视具体错误判断: 安装该版本的 Python (在 PATH 中, 或用 uv python install)",
        "install that Python, on the PATH or with `uv python install`",
    )


class Stopped(RuntimeFailed):
    """Whoever asked for the run did not want it any more."""

    type = "RuntimeFailed"
    says = Text("已停止: {reason}", "stopped: {reason}")
    advises = Text("视具体错误判断: 需要时重新执行", "run it again where it is still wanted")


class SkillChanged(RuntimeFailed):
    """The bytes that were meant are not here; another worker may have them."""

    type = "RuntimeFailed"
    says = Text("技能已变化: {reason}", "the skill changed: {reason}")
    advises = Text(
        "视具体错误判断: skillyard jobs retry <id> 使用现在的技能",
        "`skillyard jobs retry <id>` runs it as the skill is now",
    )


class FolderChanging(RuntimeFailed):
    """Something writes to a folder while we read it."""

    type = "RuntimeFailed"
    says = Text("文件夹正在变化: {reason}", "the folder is changing: {reason}")
    advises = Text("视具体错误判断: 停止对它的改动, 然后重试", "stop whatever writes to it, and try again")


class WorkflowChanged(RuntimeFailed):
    """What was started is not what lies there now; half of each would be neither."""

    type = "RuntimeFailed"
    says = Text("工作流已变化: {reason}", "the workflow changed: {reason}")
    advises = Text(
        "视具体错误判断: skillyard flow run 从头执行现在的工作流",
        "put the file back and retry, or start it anew as it is now with `skillyard flow run`",
    )


class ScriptFailed(RuntimeFailed):
    """Its name on the wire is the seeds'; a class of that name would hide Python's own."""

    type = "RuntimeError"


class Timeout(SkillError):
    state = State.TIMEOUT
    recoverable = True
    says = Text("执行超时 (>{limit:g}秒)", "timed out (>{limit:g}s)")
    advises = Text("建议拆分任务, 或用 --timeout 放宽限制", "split the task, or allow more with --timeout")

    def __init__(self, name: str, elapsed: float, limit: float, noun: str = "skill") -> None:
        super().__init__(f"{name} ran longer than {limit:g} s", limit=limit)
        self.figures: dict[str, Json] = {noun: name, "elapsed": elapsed, "limit": limit}

    def data(self) -> dict[str, Json]:
        return self.figures


class Cancelled(SkillError):
    """Somebody took the job back. Never tried again by itself."""

    recoverable = True
    says = Text("任务已取消: {name}", "the job was cancelled: {name}")
    advises = Text("需要时: skillyard jobs retry <id>", "`skillyard jobs retry <id>` runs it after all")

    def __init__(self, name: str) -> None:
        super().__init__(f"the job {name} was cancelled", name=name)


class AgentSilent(Timeout):
    """It runs, but nothing comes any more; `words` is the last that it said on the side."""

    type = "Timeout"
    says = Text("智能体无响应 (>{limit:g}秒)", "the agent says nothing (>{limit:g}s)")
    advises = Text(
        "建议拆分任务, 或检查模型服务是否可用: {heard}",
        "look whether its model answers; the last heard of it: {heard}",
    )

    def __init__(self, name: str, elapsed: float, limit: float, heard: str = "") -> None:
        super().__init__(name, elapsed, limit, "backend")
        self.msg = f"{name} said nothing for {limit:g} s"
        self.args = (self.msg,)
        self.words = {**self.words, "heard": heard or "-"}
        if heard:
            self.figures["heard"] = heard


class OutputTooLarge(SkillError):
    recoverable = False
    says = Text("输出过大: 超过 {limit}", "too much output: over {limit}")
    advises = Text(
        "让技能写入文件而不是标准输出; 首尾部分保存在 {log}",
        "let the skill write a file instead of stdout; head and tail are kept in {log}",
    )


class SandboxUnavailable(SkillError):
    recoverable = False
    says = Text("沙箱不可用: {missing}", "sandbox unavailable: {missing}")
    advises = Text("运行 skillyard doctor 查看缺少什么", "`skillyard doctor` shows what this machine lacks")


class SandboxTooWeak(SandboxUnavailable):
    """Root, on a machine without namespaces: what the other layers leave open is the whole machine."""

    type = "SandboxUnavailable"
    says = Text("以 root 运行时沙箱过弱: {level}", "the sandbox is too weak for root: {level}")
    advises = Text(
        "改用普通用户, 或允许创建 namespaces; 若仍要运行: skillyard run --weak-sandbox (未覆盖: {missing})",
        "run as an ordinary user, or allow namespaces; to run nevertheless: `skillyard run --weak-sandbox` "
        "(not covered: {missing})",
    )

    def __init__(self, level: str, not_covered: tuple[str, ...]) -> None:
        names = ", ".join(not_covered) or "files"
        super().__init__(
            f"As root, {level} does not cover {names}",
            details={"missing": list(not_covered), "sandbox": level},
            level=level,
            missing=names,
        )


class AgentNotInstalled(SkillError):
    recoverable = True
    says = Text("未安装智能体: {agent}", "agent not installed: {agent}")
    advises = Text("安装: {command}", "install it: {command}")


class AgentTooOld(AgentNotInstalled):
    """It would not understand us."""

    type = "AgentNotInstalled"
    says = Text(
        "智能体版本过旧: {agent} {version}, 需要 {minimum} 以上", "{agent} {version} is too old: {minimum} is needed"
    )
    advises = Text("更新: {command}", "update it: {command}")

    def __init__(self, agent: str, version: str, minimum: str, command: str) -> None:
        super().__init__(
            f"{agent} {version} is older than {minimum}",
            details={"version": version, "minimum": minimum},
            agent=agent,
            version=version,
            minimum=minimum,
            command=command,
        )


class BackendFailed(SkillError):
    """`reason` is in the agent's own words."""

    says = Text("智能体执行失败: {agent}: {reason}", "{agent} failed: {reason}")
    advises = Text(
        "视具体错误判断: 直接运行该智能体可看到同样的错误",
        "it depends on the error: the agent, started by hand, says the same",
    )

    def __init__(self, agent: str, reason: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(
            f"{agent}: {reason}", details={"backend": agent, **(details or {})}, agent=agent, reason=reason
        )


class TooDeep(SkillError):
    """The loop agent → skillyard → agent ends here."""

    recoverable = False
    says = Text("智能体嵌套过深: {depth} 层 (最多 {deepest})", "agents inside agents: {depth} deep (at most {deepest})")
    advises = Text("由当前智能体自己完成任务", "the agent that is running must do the task itself")

    def __init__(self, depth: int, deepest: int) -> None:
        super().__init__(
            f"An agent {depth} deep may not start another one (at most {deepest})",
            details={"depth": depth, "deepest": deepest},
            depth=depth,
            deepest=deepest,
        )
