"""What we say in English to programs, as a Chinese reader reads it.

Messages of errors, findings, probes and the like are data: one English text for every program, in results, in the index
and in the history. A person who reads Chinese gets them from here, by the text itself: `{}` and `{name}` stand for what
the message holds. Only what is shown in Chinese imports this module.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

_SLOT = re.compile(r"\{(\w*)\}")
#: A line and a column, before what is said of them.
_PLACE = re.compile(r"\d+:\d+ ")
#: Longer than anything of ours: somebody else's words, and they stay as they are.
_LONGEST = 2000
_SURE = 20
#: What a message quotes may quote again.
_DEEPEST = 4
#: A single word in a message is a name that somebody gave; only these are words of ours.
_OUR_WORDS = frozenset({"shape", "wanted"})


class _Message(NamedTuple):
    """The words around the slots, the slots' names, and how it is said in Chinese."""

    pieces: tuple[str, ...]
    names: tuple[str, ...]
    chinese: str


def in_chinese(text: str, deep: int = 0) -> str:
    """The message in Chinese; as it came where it is none of ours."""
    if len(text) > _LONGEST or deep > _DEEPEST:
        return text
    if said := CHINESE.get(text):
        return said
    if place := _PLACE.match(text):
        return place[0] + in_chinese(text[place.end() :], deep + 1)
    for message in _messages():
        held = _held(message.pieces, text)
        if held is not None:
            return _filled(message, held, deep)
    return _after_colon(text, deep)


@cache
def _messages() -> tuple[_Message, ...]:
    """Those with slots, the most telling first."""
    found = []
    for english, chinese in CHINESE.items():
        parts = _SLOT.split(english)
        if len(parts) > 1:
            found.append(_Message(tuple(parts[::2]), tuple(parts[1::2]), chinese))
    return tuple(sorted(found, key=_telling, reverse=True))


def _telling(message: _Message) -> int:
    """The more words of its own; one that starts with them is hardly ever mistaken."""
    return sum(map(len, message.pieces)) + (_SURE if message.pieces[0] else 0)


def _held(pieces: Sequence[str], text: str) -> list[str] | None:
    """What stands in the slots, each as short as it can be. No regular expression: the text may be hostile."""
    start, end = len(pieces[0]), len(text) - len(pieces[-1])
    if start > end or not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return None
    held = []
    for piece in pieces[1:-1]:
        at = text.find(piece, start, end)
        if at < 0:
            return None
        held.append(text[start:at])
        start = at + len(piece)
    return [*held, text[start:end]] if start <= end else None


def _filled(message: _Message, held: Sequence[str], deep: int) -> str:
    """Slots without a name are counted, as `str.format` counts them."""
    words = [
        in_chinese(word, deep + 1) if " " in word or name in _OUR_WORDS else word
        for name, word in zip(message.names, held, strict=True)
    ]
    named = {name or str(at): word for at, (name, word) in enumerate(zip(message.names, words, strict=True))}
    named |= {str(at): word for at, word in enumerate(words)}
    left = iter(words)
    return _SLOT.sub(lambda slot: named[slot[1]] if slot[1] else next(left), message.chinese)


def _after_colon(text: str, deep: int) -> str:
    """`file:3: message` and the like: what stands before the message is a place."""
    place, colon, rest = text.partition(": ")
    if not colon:
        return text
    said = in_chinese(rest, deep + 1) if " " in rest else rest
    return f"{place}{colon}{said}"


#: By what they are about: errors, findings, values and schemas, probes, who sees what, what is asked for, threats.
CHINESE: dict[str, str] = {
    "{} is not installed: {}": "{} 未安装: {}",
    "{} does not say its version": "{} 没有报告自己的版本",
    "{} does not say its version: {}": "{} 没有报告自己的版本: {}",
    "it is still busy with another turn": "它还在处理另一轮对话",
    "it was stopped; start it again with its session": "它已被停止; 用原来的会话重新启动",
    "it could not start: {}": "它无法启动: {}",
    "{} did not tell its skills{}": "{} 没有列出自己的技能{}",
    "{} cannot be started: {}": "无法启动 {}: {}",
    "workspace: no file can have the name {}…": "workspace: 文件不能叫 {}…",
    "workspace: {} is a link that leads nowhere": "workspace: {} 是一个失效的链接",
    "{} never comes": "{} 永远不会到来",
    "a schedule has at most {} characters, not {}": "计划时间最多 {} 个字符, 这里有 {} 个",
    "{} is no interval; write every 90s, every 15m, every 2h or every 1d": (
        "{} 不是时间间隔; 写成 every 90s、every 15m、every 2h 或 every 1d"
    ),
    "{}: an interval is between a second and a year": "{}: 时间间隔在一秒到一年之间",
    "{}: there are {}": "{}: 可用的有 {}",
    "{} has {} fields: cron has five, minute hour day month weekday": "{} 有 {} 个字段: cron 有五个, 分 时 日 月 星期",
    "{} never comes: no such day in these months": "{} 永远不会到来: 这些月份没有这一天",
    "{}: {} is no {} ({}-{})": "{}: {} 不是有效的 {} ({}-{})",
    "{} is no time zone; they are named like Europe/Berlin": "{} 不是时区; 时区的名称形如 Asia/Shanghai",
    "{}: {} is no {}": "{}: {} 不是有效的 {}",
    "{}: {} is no {}: the range is empty": "{}: {} 不是有效的 {}: 范围为空",
    "{} holds more than {} files: nothing can be granted to it": "{} 里超过 {} 个文件: 无法对它授权",
    "{} holds more than {} GiB: nothing can be granted to it": "{} 超过 {} GiB: 无法对它授权",
    "{} is nested too deeply: nothing can be granted to it": "{} 嵌套过深: 无法对它授权",
    "{}: it cannot be read, so nothing can be granted to it": "{}: 无法读取, 因此无法对它授权",
    "{} changed while it was read": "{} 在读取时发生了变化",
    "the program says: {}": "程序说: {}",
    "a prompt holds no NUL characters": "提示词里不能有 NUL 字符",
    "a quote is opened and never closed": "引号没有闭合",
    "a session is named by 1 to {} characters that can be printed": "会话的名称是 1 到 {} 个可打印字符",
    "{}/{} is declared in agent.yaml: it has no text for an agent": (
        "{}/{} 在 agent.yaml 里声明: 没有可交给智能体的文本"
    ),
    "the path of {} cannot be written down: {}": "无法记录 {} 的路径: {}",
    "no backend {}; there are {}": "没有后端 {}; 可用的有 {}",
    "[dispatch] order names {}; there are {}": "[dispatch] order 里写了 {}; 可用的有 {}",
    "it was taken back before it began": "它在开始之前就被收回了",
    "{} was stopped": "{} 已被停止",
    "it gave up: {}": "它放弃了: {}",
    "it was taken back while it waited": "它在等待时被收回了",
    "{}, for more than {} s": "{}, 超过 {} 秒",
    "it used {}, and was to use no tools": "它用了 {}, 而它不应使用任何工具",
    "{} was stopped while it started": "{} 在启动时被停止",
    "a process that keeps an agent warm (skillyard.dispatch.warm) hangs": (
        "保持智能体预热的进程 (skillyard.dispatch.warm) 没有反应"
    ),
    "{} is missing; install it: pip install 'skillyard[langgraph]'": (
        "缺少 {}; 安装: pip install 'skillyard[langgraph]'"
    ),
    "nothing was chosen, and nothing installed": "没有选择, 也没有安装任何东西",
    "two of these would be {}: add one of them by itself, with --as": "其中两个都会叫 {}: 用 --as 单独安装其中一个",
    "--as names one skill, not {}": "--as 只能给一个技能命名, 这里有 {} 个",
    "no such conversation; `skillyard backend list` shows them": "没有这个会话; `skillyard backend list` 列出全部",
    "{} with {} was told to stop and still runs": "会话 {} ({}) 收到了停止请求, 但仍在运行",
    "{} of {} probes failed": "{} 项失败, 共 {} 项探测",
    "the database in SKILLYARD_HOME cannot be written; set SKILLYARD_HOME to a folder of yours": (
        "无法写入 SKILLYARD_HOME 里的数据库; 把 SKILLYARD_HOME 设为你自己的目录"
    ),
    "say which: names, or --all": "请指明: 名称, 或 --all",
    "the task on stdin is not UTF-8: {} at byte {}": "标准输入里的任务不是 UTF-8: {}, 位于第 {} 字节",
    "missing: {}": "缺少: {}",
    "CONTENT as an argument, or --stdin: one of them": "CONTENT 作为参数, 或 --stdin: 二选一",
    "{} belongs to nothing; only `skillyard env remove` takes more words": (
        "{} 是多余的; 只有 `skillyard env remove` 接受更多参数"
    ),
    "say which: `skillyard env list` shows their digests": "请指明: `skillyard env list` 显示它们的哈希",
    "{} of {} workflows have problems": "{} 个有问题, 共 {} 个工作流",
    "--input takes name=value, not {}": "--input 的格式是 name=value, 不是 {}",
    "no flow {} here, or more than one starts so": "这里没有工作流运行 {}, 或不止一个以此开头",
    "{} is over: {}": "{} 已经结束: {}",
    "{} is alive: whoever started it, or a worker, goes on with it": "{} 还在运行: 由启动它的进程或 worker 继续",
    "{} is queued again: the next `skillyard worker` goes on with it": (
        "{} 已重新排队: 由下一个 `skillyard worker` 继续"
    ),
    "nothing was granted: say yes on a terminal, or give --accept": "没有授权: 在终端上回答 y, 或加 --accept",
    "{} cannot be a project: it is the home folder, above it, or inside a role's folder": (
        "{} 不能作为项目: 它是主目录、主目录的上级, 或在角色目录之内"
    ),
    "a job runs a skill, not one of its scripts": "任务运行的是技能, 不是技能里的脚本",
    "the job is gone": "任务已不存在",
    "there is a schedule {} already": "已经有名为 {} 的计划",
    "{} stands in {}": "{} 写在 {} 里",
    "say for whom: --to {}": "请指明给谁: --to {}",
    "not installed: {}": "未安装: {}",
    "nothing is installed here: name the skills to link, or install some with `skillyard add`": (
        "这里没有安装技能: 写出要链接的技能, 或用 `skillyard add` 安装"
    ),
    "{} is no folder": "{} 不是目录",
    "an agent runs only what is installed: a person runs other things, or installs them": (
        "智能体只能运行已安装的技能: 其他的由用户本人运行或安装"
    ),
    "say which: names, or --source": "请指明: 名称, 或 --source",
    "nothing was removed: say yes on a terminal, or give --yes": "没有删除: 在终端上回答 y, 或加 --yes",
    '--decisions must be an object: {"skill": "keep"}': '--decisions 必须是一个对象: {"skill": "keep"}',
    "say which: `skillyard review {} ID`; `skillyard review` lists them": (
        "请指明: `skillyard review {} ID`; `skillyard review` 列出全部"
    ),
    "--decisions is not JSON: {}": "--decisions 不是 JSON: {}",
    "name a skill, or give --trust": "写出技能的名称, 或加 --trust",
    "{} of {} roles have problems": "{} 个有问题, 共 {} 个角色",
    "--params takes one JSON object": "--params 需要一个 JSON 对象",
    "{} takes NAME=VALUE, not {}": "{} 的格式是 NAME=VALUE, 不是 {}",
    "--params is not JSON: {}": "--params 不是 JSON: {}",
    "no run {} here, or more than one starts so": "这里没有运行记录 {}, 或不止一个以此开头",
    "{} of {} skills are {} or worse": "{0} 个技能达到 {2} 或更高, 共 {1} 个",
    "nothing was written: say yes on a terminal, or give --accept": "没有写入: 在终端上回答 y, 或加 --accept",
    "no service is installed for this project ({})": "这个项目没有安装服务 ({})",
    "nothing was trusted: say yes on a terminal, or give --accept": "没有信任: 在终端上回答 y, 或加 --accept",
    "changed here: {}; --keep keeps yours, --theirs takes the source's": (
        "这里改过: {}; --keep 保留你的, --theirs 采用来源的"
    ),
    "{} of {} skills have problems": "{} 个有问题, 共 {} 个技能",
    "{}: there is no such file or folder": "{}: 没有这个文件或目录",
    "{}: no {} in it or below it": "{}: 其中和下级目录里都没有 {}",
    "--queues names none: {} is the one that jobs wait in where nobody says otherwise": (
        "--queues 没有写出队列: 没有另外指定时, 任务在 {} 里等待"
    ),
    "action must be a text": "action 必须是文本",
    "{} takes no {}; it takes {}": "{} 不接受 {}; 它接受 {}",
    "{} needs {}, a text": "{} 需要 {}, 是一段文本",
    "{} must be a text": "{} 必须是文本",
    "{} must be a whole number above zero": "{} 必须是大于零的整数",
    "{} must be an object": "{} 必须是对象",
    "{} must be a list of texts": "{} 必须是文本列表",
    "the worker over MCP": "通过 MCP 使用 worker",
    "{} is outside the project": "{} 在项目之外",
    "job_run takes name, of a schedule, or skill, and not both": (
        "job_run 接受 name (计划的名称) 或 skill, 不能两者都给"
    ),
    "a schedule has its own params: they go with skill": "计划有自己的参数: 参数只能和 skill 一起给",
    "no run {} here, or more than one starts so; without run_id, runs lists them": (
        "这里没有运行记录 {}, 或不止一个以此开头; 不给 run_id 时 runs 列出全部"
    ),
    "no resource here has the address {}; they look like {}<name>/SKILL.md": (
        "这里没有地址为 {} 的资源; 地址形如 {}<name>/SKILL.md"
    ),
    "{} is no path inside the skill": "{} 不是技能之内的路径",
    "of the skills of a role, only {} can be read": "角色的技能里只能读取 {}",
    "{} leads out of the skill's folder": "{} 指向技能目录之外",
    "{} has {} bytes; up to {} can be read here": "{} 有 {} 字节; 这里最多读取 {}",
    "the skill has no file {}": "技能里没有文件 {}",
    "{} is not a plain file": "{} 不是普通文件",
    "{} names no source: give {}": "{} 不是来源: 请写 {}",
    "{} is a file, but no .skill, .zip or .tar.gz": "{} 是文件, 但不是 .skill、.zip 或 .tar.gz",
    "--ref {} and #{} say different things": "--ref {} 和 #{} 不一致",
    "{} is no branch, tag or commit": "{} 不是分支、标签或提交",
    "the lock names no source: {}": "锁文件里没有写来源: {}",
    "{} is no git repository: --ref means nothing there": "{} 不是 git 仓库: --ref 在这里没有意义",
    "no passwords in addresses: the lock would keep it; use git's credential helper": (
        "地址里不能有密码: 锁文件会把它存下来; 请用 git 的 credential helper"
    ),
    "{} is not there any more": "{} 已经不在了",
    "{}:// is not spoken here: give {}": "不支持 {}://: 请写 {}",
    "the address says {}, --ref says {}": "地址里是 {}, --ref 是 {}",
    "{} changed while it was being staged": "{} 在暂存期间发生了变化",
    "the archive is encrypted": "压缩包已加密",
    "{} is a device or a pipe": "{} 是设备或管道",
    "{} is a link that leads nowhere": "{} 是一个失效的链接",
    "{} has no content": "{} 没有内容",
    "it unpacks to {} bytes, more than {}": "解压后有 {} 字节, 超过 {}",
    "it unpacks to {} times its size": "解压后是原来的 {} 倍大",
    "{} is broken: {}": "{} 已损坏: {}",
    "the archive cannot be read: {}": "无法读取压缩包: {}",
    "more than {} files": "超过 {} 个文件",
    "{} is a hard link to something that is not in the archive before it": "{} 是硬链接, 它指向的文件不在压缩包的前面",
    "the archive ends too early": "压缩包不完整",
    "{} is a link that leads out, to {}": "{} 是指向外部的链接, 到 {}",
    "{} is longer than the archive says": "{} 比压缩包里声明的更长",
    "it unpacks to more than {} bytes": "解压后超过 {} 字节",
    "there is no folder {} with a skill in {}": "{1} 里没有带技能的目录 {0}",
    "{} was changed here: {}; `skillyard update {}` shows the difference, --keep keeps yours, --theirs "
    "takes the source's": ("{} 在这里改过: {}; `skillyard update {}` 显示差异, --keep 保留你的, --theirs 采用来源的"),
    "{} is there already and was not installed by us: use --as NAME, or remove it first": (
        "{} 已经存在, 而且不是我们安装的: 用 --as NAME, 或先删除它"
    ),
    "{} was installed from {}: use --as NAME, or remove it first": "{} 是从 {} 安装的: 用 --as NAME, 或先删除它",
    "{} changed while it was being installed": "{} 在安装期间发生了变化",
    "nothing was installed from {}": "没有从 {} 安装过任何东西",
    "{} exists already: choose another name, or remove it first": "{} 已经存在: 换一个名称, 或先删除它",
    "only JSON skills have actions: add --kind json": "只有 JSON 技能有动作: 加 --kind json",
    "bash cannot read JSON by itself: use --lang python or node, or --kind command": (
        "bash 自己不能读取 JSON: 用 --lang python 或 node, 或 --kind command"
    ),
    "a description has at most {} characters, not {}": "描述最多 {} 个字符, 这里有 {} 个",
    "the {} holds a NUL character": "{} 里有 NUL 字符",
    "{} is no action's name: use a-z, 0-9 and _, starting with a letter": (
        "{} 不是动作的名称: 用 a-z、0-9 和 _, 以字母开头"
    ),
    "the {} cannot be written to a file: {}": "{} 无法写入文件: {}",
    "git does not give {}": "git 没有给出 {}",
    "more than {} bytes": "超过 {} 字节",
    "git is not installed": "git 未安装",
    "git took longer than {} s": "git 用时超过 {} 秒",
    "git printed more than {} bytes": "git 输出超过 {} 字节",
    "{} is no git repository": "{} 不是 git 仓库",
    "{} keeps its refs in a format that is not read here: clone it, or give its address": (
        "{} 的引用格式在此无法读取: 请先克隆它, 或给出其地址"
    ),
    "{} has more than {} refs": "{} 的引用超过 {} 个",
    "{} names no folder: file:// is followed by an absolute path": "{} 没有指明目录: file:// 之后应是绝对路径",
    "{}: it ended after {} of {} bytes": "{}: 在 {} 字节处中断, 应有 {} 字节",
    "an address has no spaces or control characters": "地址中不能有空格或控制字符",
    "no host or user starts with '-'": "主机名和用户名不能以 '-' 开头",
    "{} is no address: {}": "{} 不是地址: {}",
    "the lock names no commit: {}": "锁文件里写的不是提交: {}",
    "git gives no pipes": "git 没有提供管道",
    "{} is no folder: move it away, then link again": "{} 不是目录: 移走它, 再重新链接",
    "{} cannot be written to": "{} 不可写",
    "{} was not written by us: look at it, and delete it": "{} 不是我们写的: 查看后删除它",
    "{}: another skillyard wrote it": "{}: 由另一个版本的 skillyard 写入",
    "{}: version {} is not {}: another skillyard wrote it": "{}: 版本 {} 不是 {}: 由另一个版本的 skillyard 写入",
    "{}: [skills] must be a table": "{}: [skills] 必须是表",
    "{}: the hash is not that of its files: a merge may have gone wrong": "{}: 哈希与文件不符: 可能是合并出了错",
    "{}: files must be texts by path": "{}: files 必须是路径到文本的映射",
    "{} is no name of a skill's folder": "{} 不是技能目录的名称",
    "{} must be a table": "{} 必须是表",
    "{} needs {}, as texts": "{} 需要 {}, 都是文本",
    "{}: {} is no plain path": "{}: {} 不是普通路径",
    "{} is no relative path": "{} 不是相对路径",
    "{} holds characters that no file name should": "{} 里有文件名不该有的字符",
    "{} names no file": "{} 不是文件的名称",
    "{} is longer than {} bytes": "{} 超过 {} 字节",
    "{} leads out of its folder": "{} 指向自己的目录之外",
    "{} is another file, or none, on Windows": "{} 在 Windows 上是另一个文件, 或不是文件",
    "{} has a part longer than {} bytes": "{} 中有一段超过 {} 字节",
    "{} is a file and a folder at once": "{} 既是文件又是目录",
    "{} and {} are one file on some systems": "{} 和 {} 在某些系统上是同一个文件",
    "{} and {} are one folder on some systems": "{} 和 {} 在某些系统上是同一个目录",
    "{} and {} must be on one file system": "{} 和 {} 必须在同一个文件系统上",
    "{} was not written by us: delete it": "{} 不是我们写的: 删除它",
    "{} is a link, and we never made it: delete it": "{} 是链接, 而且不是我们建立的: 删除它",
    "{} is broken, and not by us: delete it": "{} 已损坏, 而且不是我们造成的: 删除它",
    "no review {}": "没有待审 {}",
    "an agent cannot keep what a scan held back: a person must do it, outside": (
        "智能体不能保留被扫描拦下的技能: 须由用户本人在外面操作"
    ),
    "only a person at a terminal keeps what is above {}: {}": "高于 {} 的只能由终端前的用户保留: {}",
    "{} is broken: {}; `skillyard review drop {}`": "{} 已损坏: {}; `skillyard review drop {}`",
    "{} holds no letter and no digit to name a folder with": "{} 里没有可作目录名的字母或数字",
    "{} is not UTF-8": "{} 不是 UTF-8",
    "the index lists no skills, or more than {}": "索引里没有技能, 或超过 {} 个",
    "the index lists a name twice": "索引里有重复的名称",
    "an entry of the index has no name, url or digest": "索引里有一项缺少 name、url 或 digest",
    "{} leads to {}": "{} 指向 {}",
    "{} is not what the index says: its digest is sha256:{}": "{} 与索引不符: 它的哈希是 sha256:{}",
    "the index is not JSON: {}": "索引不是 JSON: {}",
    "it took longer than {} s": "用时超过 {} 秒",
    "{} is not SOURCE[@skill][#ref][:program]": "{} 不是 SOURCE[@skill][#ref][:program]",
    "{} holds {} skills: say which, {}@NAME. They are: {}": "{} 里有 {} 个技能: 请指明, {}@NAME。它们是: {}",
    "{} holds no skill: there is no SKILL.md in it": "{} 里没有技能: 没有 SKILL.md",
    "no agent {}; there are {}": "没有智能体 {}; 可用的有 {}",
    "{} is a link; paste the text where it leads": "{} 是链接; 请把文本贴到它指向的地方",
    "this is not a project folder: change into one, or make one": "这里不是项目目录: 进入一个项目, 或新建一个",
    "an agent cannot grant anything: a person must do it, outside": "智能体不能授权: 须由用户本人在外面操作",
    "this cannot be kept as a grant: {}": "无法保存为授权: {}",
    "{} is no capability; there are {}": "{} 不是能力; 可用的有 {}",
    "{} names no host: {}": "{} 没有指明主机: {}",
    "this task is for {}: no backend, session or model goes with it": "这个任务交给 {}: 不带后端、会话或模型",
    "an agent cannot queue tasks for agents: `skillyard dispatch` hands one over now": (
        "智能体不能为智能体排队任务: `skillyard dispatch` 可以立即交出一个"
    ),
    "the schedule of the role {}": "角色 {} 的计划",
    "agents/{}/{} has more than {} bytes": "agents/{}/{} 超过 {} 字节",
    "no workflow {} in {}/; {}": "{1}/ 里没有工作流 {0}; {2}",
    "several workflows are called {}: {}; name the file": "有几个工作流都叫 {}: {}; 请写出文件",
    "{} lies outside the project {}: a workflow is run where its skills are": (
        "{} 在项目 {} 之外: 工作流在它的技能所在的项目里运行"
    ),
    "there is no {}": "没有 {}",
    "step {}: `{}` {}": "步骤 {}: `{}` {}",
    "{} has no input '{}'; {}": "{} 没有输入 '{}'; {}",
    "the input '{}' takes {}, not {}": "输入 '{}' 应为{}, 不是 {}",
    "{} is no input; write name=value": "{} 不是输入; 写成 name=value",
    "the task is empty": "任务为空",
    "the task is no text: it holds NUL or bytes that are not UTF-8": "任务不是文本: 其中有 NUL 或不是 UTF-8 的字节",
    "{} is no folder that an agent could work in": "{} 不是智能体可以工作的目录",
    "{} runs by itself: only a prompt skill is run by an agent": "{} 自己就能运行: 只有 prompt 技能由智能体执行",
    "{} holds {} skills: say which with --skill, or --all. They are: {}": (
        "{} 里有 {} 个技能: 用 --skill 指明, 或 --all。它们是: {}"
    ),
    "{} is not there any more: `skillyard review drop {}`": "{} 已经不在了: `skillyard review drop {}`",
    "{} has other files for {} now than the lock says": "{} 里 {} 的文件与锁文件不同了",
    "it did not start within {} s": "它没有在 {} 秒内启动",
    "an agent cannot keep another one warm: a person must do it, outside": (
        "智能体不能预热另一个智能体: 须由用户本人在外面操作"
    ),
    "the process that was to keep it warm ended; {} may say why": "保持预热的进程结束了; 原因可能在 {} 里",
    "a task runs in the conversation {}": "会话 {} 里有任务在运行",
    "{} agents run already": "已有 {} 个智能体在运行",
    "a task runs in the conversation {}, with another {}": "会话 {} 里有任务在运行, 用的是另一个 {}",
    "{} is in the way: a folder must stand there": "{} 占了位置: 那里必须是目录",
    "{} is one of your own skills: add --user": "{} 是你自己的技能: 加 --user",
    "{} is a skill of this project: leave out --user": "{} 是这个项目的技能: 去掉 --user",
    "{} is a role's skill: agents reach it only through Skillyard": "{} 是角色的技能: 智能体只能通过 Skillyard 使用它",
    "results carry no task id: the result was in the return value of Task": "结果不带任务 id: 结果就在 Task 的返回值里",
    "not a prompt for a skill; write: {}": "这不是给技能的提示词; 写成: {}",
    "no role {} in {}/; {}": "{1}/ 里没有角色 {0}; {2}",
    "a folder with control characters in its name cannot be a service": "名称里有控制字符的目录不能作为服务",
    "{}: [engine] database must start with postgresql://": "{}: [engine] database 必须以 postgresql:// 开头",
    "{}: [engine] synchronous is normal or full": "{}: [engine] synchronous 只能是 normal 或 full",
    "{}: {} must be a list of texts": "{}: {} 必须是文本列表",
    "{}: [{}] must be a table": "{}: [{}] 必须是表",
    "{}: [{}] roots must be a list of folders": "{}: [{}] roots 必须是目录列表",
    "{}: {} must be a number that is not negative": "{}: {} 必须是不小于零的数",
    "{}: {} must be a text": "{}: {} 必须是文本",
    "{}: [engine.queues.{}] limit must be a whole number from 1 on": (
        "{}: [engine.queues.{}] limit 必须是不小于 1 的整数"
    ),
    "an idempotency key is a text that is not empty": "幂等键是非空的文本",
    "no review {} waits in this project": "这个项目里没有待审 {}",
    "no schedule {} here": "这里没有计划 {}",
    "the database of jobs that skillyard.toml names": "skillyard.toml 指定的任务数据库",
    "the schedule {}": "计划 {}",
    "{} needs Python {}; this machine has {}": "{} 需要 Python {}; 这台机器上有 {}",
    "{} environments start with {}; `skillyard env list` shows them": (
        "有 {} 个环境以 {} 开头; `skillyard env list` 列出全部"
    ),
    "{}: neither its first line nor its ending says what runs it": "{}: 首行和扩展名都没有说明由什么运行",
    "{}: TypeScript needs node {} or newer": "{}: TypeScript 需要 node {} 或更新版本",
    "no program named {} on this machine": "这台机器上没有程序 {}",
    "{} leads out of {}": "{} 指向 {} 之外",
    "the entry {} is missing in {}": "{1} 里缺少入口 {0}",
    "more than {} on stdout": "标准输出超过 {}",
    "{} leads out of {}/": "{} 指向 {}/ 之外",
    "{} is larger than {} bytes": "{} 大于 {} 字节",
    "{} is not UTF-8 at byte {}": "{} 在第 {} 字节处不是 UTF-8",
    "{}, line {}: a second script block": "{}, 第 {} 行: 出现第二个 script 块",
    "{}, line {}: the script block is not closed by '{}'": "{}, 第 {} 行: script 块没有用 '{}' 闭合",
    "{}, line {}: [tool.uv] {}: a skill cannot say where from": "{}, 第 {} 行: [tool.uv] {}: 技能不能指定包的来源",
    "{}, line {}: dependencies must be a list of texts": "{}, 第 {} 行: dependencies 必须是文本列表",
    "{}, line {}: requires-python must be versions like '>=3.11'": (
        "{}, 第 {} 行: requires-python 必须是 '>=3.11' 这样的版本"
    ),
    "{} names more than {} packages": "{} 列出了超过 {} 个包",
    "{}: {} is no environment marker": "{}: {} 不是环境标记",
    "{}, line {}: the script block is not TOML: {}": "{}, 第 {} 行: script 块不是 TOML: {}",
    "the command needs a shell for {}": "命令里的 {} 需要 shell",
    "the command is empty": "命令为空",
    "the program itself cannot be a param": "程序本身不能是参数",
    "the command needs a shell: {}": "命令需要 shell: {}",
    "the command cannot be split: {}": "命令无法拆分: {}",
    "{{}} would be run as code by {}": "{{}} 会被 {} 当作代码执行",
    "the value of '{}' starts with '-': the program would take it for an option": (
        "'{}' 的值以 '-' 开头: 程序会把它当作选项"
    ),
    "unknown action '{}'; supported: {}": "未知动作 '{}'; 支持: {}",
    "a time limit must be above zero, not {}": "时间限制必须大于零, 不能是 {}",
    "unknown param '{}'": "未知参数 '{}'",
    "{} is never an output": "{} 不能作为输出",
    "{} is a link to {}: a folder must stand there": "{} 是指向 {} 的链接: 那里必须是目录",
    "{} goes through a link in {}/ and leads to {}": "{} 经过 {}/ 内的链接, 指向 {}",
    "no file can have the name {}": "不可能有名为 {} 的文件",
    "{} is never opened to a run": "{} 从不向运行开放",
    "{} names no path: it holds characters that are no text": "{} 不是路径: 含有不是文本的字符",
    "{} names no path": "{} 不是路径",
    "the request is no text: {}": "请求不是文本: {}",
    "the task is no text: {}": "任务不是文本: {}",
    "{} is not UTF-8: rename the folder": "{} 不是 UTF-8: 请重命名该目录",
    "a name here is not UTF-8: {}; rename that file or folder": "这里有名称不是 UTF-8: {}; 请重命名该文件或目录",
    "the path {} is not UTF-8: rename that folder, or work in another": (
        "路径 {} 不是 UTF-8: 请重命名该目录, 或换一个目录"
    ),
    "the working directory was deleted: change into another one": "当前目录已被删除: 请换一个目录",
    "HOME is not set and this user has no home folder: set HOME to an absolute path": (
        "没有设置 HOME, 此用户也没有主目录: 请把 HOME 设为绝对路径"
    ),
    "HOME must be an absolute path in UTF-8, not {}": "HOME 必须是 UTF-8 的绝对路径, 不能是 {}",
    "SKILLYARD_HOME must be a path in UTF-8, not {}": "SKILLYARD_HOME 必须是 UTF-8 路径, 不能是 {}",
    "'{}' lies outside the project: {}": "'{}' 在项目之外: {}",
    "{}: no {} in it": "{}: 其中没有 {}",
    "it was stopped before it started": "它在开始之前被停止",
    "it was stopped, with everything that it had started": "它和它启动的一切都已停止",
    "packages {}": "软件包 {}",
    "{} is a {} skill and speaks no JSON": "{} 是 {} 技能, 不使用 JSON",
    "workspace.allowed_paths: {} leads out of the project through a link": (
        "workspace.allowed_paths: {} 经由链接指向项目之外"
    ),
    "{} is in workspace.denied_paths of the role {}": "{} 在角色 {} 的 workspace.denied_paths 之中",
    "{} is outside workspace.allowed_paths of the role {}": "{} 在角色 {} 的 workspace.allowed_paths 之外",
    "workspace.denied_paths: {} hides the role's own program": "workspace.denied_paths: {} 遮住了角色自己的程序",
    "'{}' holds a NUL character": "'{}' 里有 NUL 字符",
    "'{}' takes {}, not {}": "'{}' 应为{}, 不是 {}",
    "'{}' fails {}: {}": "'{}' 不符合 {}: {}",
    "nothing takes {}": "没有参数接受 {}",
    "'{}' is given twice": "'{}' 给了两次",
    "'--{}' needs a value": "'--{}' 需要一个值",
    "The sandbox could not be set up: {}": "沙箱无法建立: {}",
    "The layers could not be probed": "无法探测沙箱的各层",
    "As root, {} does not cover {}": "以 root 运行时, {} 不覆盖 {}",
    "This machine cannot guard {}{}": "这台机器无法防护 {}{}",
    "This machine has no mount namespaces any more: try again": "这台机器不再有挂载命名空间: 请重试",
    "This machine cannot limit the network to hosts: it needs namespaces, and the sandbox here is {}": (
        "这台机器无法把网络限制到主机: 这需要命名空间, 而这里的沙箱是 {}"
    ),
    "{} is not as it was when the job was queued": "{} 与任务排队时不同了",
    "{} is not as it was queued, and cannot be restored: {}": "{} 与排队时不同了, 而且无法恢复: {}",
    "{} is outside the folders that may be edited": "{} 在可编辑的目录之外",
    "a file has a name": "文件要有名称",
    "edit {}": "编辑 {}",
    "{}: {} is a link or no folder": "{}: {} 是链接, 或不是目录",
    "{} is not a text file that can be edited: neither UTF-8, UTF-16 with a BOM nor GB18030": (
        "{} 不是可编辑的文本文件: 既不是 UTF-8、带 BOM 的 UTF-16, 也不是 GB18030"
    ),
    "{} would be read in another encoding than {} after this edit": "编辑之后, {} 会被读成 {} 以外的编码",
    "{} holds a NUL, which no text file has": "{} 里有 NUL, 文本文件不会有它",
    "{} is not valid text in the encoding of the command line": "{} 在命令行的编码里不是有效文本",
    "no operation {}; there are {}": "没有操作 {}; 可用的有 {}",
    "{}: {} is not what it takes": "{}: {} 不是它接受的",
    "{}: {} is below zero": "{}: {} 小于零",
    "an empty text is everywhere": "空文本到处都是",
    "all of them, or the nth: not both": "全部, 或第 N 个: 不能两者都要",
    "the first is number 1": "从第 1 个算起",
    "no {} after {}": "{1} 之后没有 {0}",
    "{} stands there {} times": "{} 出现 {} 次",
    "nothing matches {}": "没有匹配 {} 的内容",
    "{} needs {}": "{} 需要 {}",
    "a batch is a JSON list of edits, at least one": "批量编辑是一个 JSON 列表, 至少一项",
    "edit {} must be an object": "第 {} 项编辑必须是对象",
    "edit {} needs 'operation' and 'file'": "第 {} 项编辑需要 'operation' 和 'file'",
    "a batch is a JSON list of edits: {}": "批量编辑是一个 JSON 列表: {}",
    "edit {}: {}": "第 {} 项编辑: {}",
    "the engine cannot be used: {}": "引擎无法使用: {}",
    '{} is no field path; there are a.b, items.0.name, items[0], items[-], "a.b".c': (
        '{} 不是字段路径; 可以写 a.b、items.0.name、items[0]、items[-]、"a.b".c'
    ),
    "{} leads into {}, which has no such field": "{} 指向 {}, 其中没有这个字段",
    "no item {}: the list has {}": "没有第 {} 项: 列表有 {} 项",
    "{} is no field path: {}": "{} 不是字段路径: {}",
    "the file is not JSON: {}": "文件不是 JSON: {}",
    "the file is nested too deeply": "文件嵌套过深",
    "a new list has no item {}": "新列表没有第 {} 项",
    "the value is not JSON: {}": "值不是 JSON: {}",
    "for_each takes a list, not {}": "for_each 需要列表, 不是 {}",
    "for_each takes at most {} items, not {}": "for_each 最多 {} 项, 这里有 {} 项",
    "{} is not as it was when the flow was started": "{} 与工作流启动时不同了",
    "{} leads nowhere: {}": "{} 没有指向任何东西: {}",
    "ended in the middle: {}": "中途结束: {}",
    "{} is not a regular file": "{} 不是普通文件",
    "{} is read-only": "{} 是只读的",
    "{} is locked by another edit for {} s": "{} 被另一个编辑锁住已 {} 秒",
    "{} is a link": "{} 是链接",
    "{} was started before: resume it, or choose another name": "{} 已经启动过: 恢复它, 或换一个名称",
    "no workflow {} in this project": "这个项目里没有工作流 {}",
    "{} waits for no decision; waiting: {}": "{} 没有等待决定; 等待决定的有: {}",
    "{}: {} is no decision; write {}": "{}: {} 不是决定; 写成 {}",
    "the worker failed": "worker 出错了",
    "no job {} here, or more than one starts so": "这里没有任务 {}, 或不止一个以此开头",
    "{} did not fail: {}": "{} 没有失败: {}",
    "{} is being retried already": "{} 已经在重试了",
    "{} is no journal of ours: look at it, and remove it": "{} 不是我们的日志: 查看后删除它",
    "a webhook is http(s)://host/path, without a user": "webhook 的形式是 http(s)://host/path, 不带用户名",
    "on_failure names no command": "on_failure 没有写命令",
    "inside an agent nobody is told: only a person may send something out": (
        "智能体里不会通知任何人: 只有用户本人可以向外发送"
    ),
    "the key {} was just used for another prompt: one key, one meaning": "键 {} 刚用于另一个提示词: 一个键只有一个含义",
    "not a prompt for the worker: {}; write: {}": "这不是给 worker 的提示词: {}; 写成: {}",
    "python {} runs code, not a script of bin/: {}": "python {} 执行的是代码, 不是 bin/ 的脚本: {}",
    "{} is not in bin/": "{} 不在 bin/ 里",
    "{} needs a shell, and there is none: one script on each line, quote the rest": (
        "{} 需要 shell, 而这里没有: 每行一个脚本, 其余加引号"
    ),
    "`> nul` makes a file named nul here: write > /dev/null": "`> nul` 在这里会建立名为 nul 的文件: 写成 > /dev/null",
    "only /dev/null can be redirected to, not {}; the result is in the return value": (
        "只能重定向到 /dev/null, 不能到 {}; 结果就在返回值里"
    ),
    "the matcher ended with {}": "匹配进程以 {} 结束",
    "the pattern or its replacement cannot be used: {}": "模式或替换文本无法使用: {}",
    "the pattern was stopped after {} s: it may never end on this text": (
        "模式在 {} 秒后被停止: 它在这段文本上可能永远不会结束"
    ),
    "schedule {} needs a skill or a task, and not both": "计划 {} 需要技能或任务, 不能两者都给",
    "schedule {}: a backend, session or model goes with a task, not with a skill": (
        "计划 {}: 后端、会话和模型只能和任务一起给, 不能和技能一起"
    ),
    "misfire run-all needs overlap queue: missed runs follow each other": (
        "misfire run-all 需要 overlap queue: 错过的运行要一个接一个地补"
    ),
    "schedule {}: retries and jitter are not negative": "计划 {}: retries 和 jitter 不能小于零",
    "an entry is a mapping with cron or interval, and skill or task": (
        "每一项是一个映射, 有 cron 或 interval, 以及 skill 或 task"
    ),
    "either cron or interval": "cron 或 interval 二选一",
    "a skill or a flow, and not both": "技能或工作流, 不能两者都给",
    "params must be a mapping": "params 必须是映射",
    "{} must be a number that is not negative": "{} 必须是不小于零的数",
    "{} is none of {}": "{} 不在 {} 之中",
    "on_failure has a command or a webhook": "on_failure 要有 command 或 webhook",
    "{} leads out of bin/": "{} 指向 bin/ 之外",
    "{} is a link out of bin/": "{} 是指向 bin/ 之外的链接",
    "running {}": "运行 {}",
    "the database went away: the run here was stopped, and a worker does it again (`skillyard jobs` lists it)": (
        "数据库断开了: 这里的运行已停止, 由 worker 重新执行 (`skillyard jobs` 可以看到它)"
    ),
    "exit code {}": "退出码 {}",
    "ended by signal {}": "被信号 {} 结束",
    "did you mean `{}`?": "是不是 `{}`?",
    "there are none": "一个也没有",
    "there are {}": "可用的有 {}",
    "{} ran longer than {} s": "{} 运行超过 {} 秒",
    "Not granted: {}": "未授权: {}",
    "an argument is not UTF-8: {}": "参数不是 UTF-8: {}",
    "on_failure names {}: use a program of the system or of the project": (
        "on_failure 写的是 {}: 请使用系统或项目里的程序"
    ),
    "the job {} was cancelled": "任务 {} 已取消",
    "{} said nothing for {} s": "{} 超过 {} 秒没有响应",
    "{} could be any of: {}": "{} 可能是其中任何一个: {}",
    "{} not found": "未找到 {}",
    "{} is missing": "{} 未安装",
    "{} is older than {}": "{} 比 {} 旧",
    "An agent {} deep may not start another one (at most {})": "第 {} 层的智能体不能再启动一个 (最多 {} 层)",
    "Required parameter{} {} not provided": "缺少必需的参数 {1}",
    "Failed to parse input JSON: {}": "无法解析输入的 JSON: {}",
    "at most {}": "最多 {}",
    "{} has more than {} bytes": "{} 超过 {} 字节",
    "{} is no text": "{} 不是文本",
    "{} is not set": "{} 没有设置",
    "{} is ours, not a secret of yours": "{} 是我们的, 不是你的密钥",
    "no response within {} s": "{} 秒内没有响应",
    "put it into {}": "把它放进 {}",
    "the request must be a JSON object": "请求必须是 JSON 对象",
    "write only the value into {}": "只把值写进 {}",
    "write the value into {}": "把值写进 {}",
    "install it: {}": "安装: {}",
    "update it: {}": "更新: {}",
    "it depends on the error: the agent, started by hand, says the same": (
        "视具体错误判断: 直接运行该智能体可看到同样的错误"
    ),
    "look whether its model answers; the last heard of it: {}": "检查模型服务是否可用; 最后听到的: {}",
    "split the task, or allow more with --timeout": "建议拆分任务, 或用 --timeout 放宽限制",
    "no `{}` on the PATH": "PATH 中没有 `{}`",
    "it was stopped": "它已被停止",
    "Skillyard and a few others": "Skillyard 和少数其他智能体",
    "the file cannot be read: {reason}": "无法读取文件: {reason}",
    "check that it exists and may be read": "检查它是否存在, 是否可读",
    "the file has more than {limit} bytes": "文件超过 {limit} 字节",
    "move long texts to files of their own": "把长文本移到单独的文件",
    "the file is empty": "文件为空",
    "write frontmatter with name and description, then the text": "写上带 name 和 description 的 frontmatter, 再写正文",
    "the file starts with a byte order mark": "文件以字节顺序标记 (BOM) 开头",
    "save it as UTF-8 without BOM": "另存为不带 BOM 的 UTF-8",
    "the file is {encoding}, not UTF-8": "文件是 {encoding}, 不是 UTF-8",
    "save it as UTF-8": "另存为 UTF-8",
    "the file is not UTF-8; read as {encoding}": "文件不是 UTF-8; 按 {encoding} 读取",
    "the file is not UTF-8; read as {encoding}, a guess": "文件不是 UTF-8; 猜测为 {encoding} 读取",
    "the file contains NUL characters": "文件里有 NUL 字符",
    "remove them": "删除它们",
    "lines end with CR LF": "行尾是 CR LF",
    "save it with LF line ends": "用 LF 行尾保存",
    "line ends are mixed": "行尾不一致",
    "save it with LF line ends only": "全部用 LF 行尾保存",
    "a merge conflict was left in the file": "文件里留有合并冲突",
    "resolve it and remove the marker lines": "解决冲突并删除标记行",
    "there is no frontmatter": "没有 frontmatter",
    "start the file with ---, name:, description: and --- on lines of their own": (
        "文件开头写 ---、name:、description: 和 ---, 各占一行"
    ),
    "the frontmatter holds no fields": "frontmatter 里没有字段",
    "write name: and description: into it": "写上 name: 和 description:",
    "the frontmatter has more than {limit} bytes": "frontmatter 超过 {limit} 字节",
    "move text to the body": "把文本移到正文",
    "blank lines stand before the opening ---": "开头的 --- 之前有空行",
    "text stands before the opening ---": "开头的 --- 之前有文本",
    "make --- the first line of the file": "让 --- 成为文件的第一行",
    "a comment stands before the opening ---": "开头的 --- 之前有注释",
    "move it below the frontmatter": "把它移到 frontmatter 下面",
    "the frontmatter is inside a code block": "frontmatter 写在代码块里",
    "remove the ``` around it": "去掉外面的 ```",
    "the opening fence is {shown}": "开头的分隔行是 {shown}",
    "write exactly --- on that line": "该行只写 ---",
    "fields start without an opening ---": "字段之前没有开头的 ---",
    "add a line --- before them": "在前面加一行 ---",
    "the closing --- is missing": "缺少结尾的 ---",
    "add a line --- after the last field": "在最后一个字段之后加一行 ---",
    "text is glued to the closing ---": "结尾的 --- 后面粘着文本",
    "put {shown} on the next line": "把 {shown} 放到下一行",
    "the closing fence is {shown}": "结尾的分隔行是 {shown}",
    "the whole frontmatter stands on one line": "整个 frontmatter 写在一行",
    "put each field on its own line": "每个字段各占一行",
    "not valid YAML: {reason}": "不是有效的 YAML: {reason}",
    "correct this place; quote text that holds : or #": "改正此处; 含有 : 或 # 的文本要加引号",
    "the frontmatter is {shape}, not fields": "frontmatter 是{shape}, 不是字段",
    "write `field: value` lines": "写成 `字段: 值` 的行",
    "values are nested deeper than {limit} levels": "值的嵌套超过 {limit} 层",
    "flatten them": "减少嵌套",
    "anchors (&) are refused": "不接受锚点 (&)",
    "write the value out, or quote a text that starts with &": "把值写全, 或给以 & 开头的文本加引号",
    "aliases (*) are refused": "不接受别名 (*)",
    "write the value out, or quote a text that starts with *": "把值写全, 或给以 * 开头的文本加引号",
    "tags (!) are refused": "不接受标签 (!)",
    "remove the tag, or quote a text that starts with !": "去掉标签, 或给以 ! 开头的文本加引号",
    "merge keys (<<) are refused": "不接受合并键 (<<)",
    "write the fields out": "把字段写全",
    "a field's name is not text": "字段名不是文本",
    "use a word as the name of the field": "用一个单词作字段名",
    "the field {field} stands here again": "字段 {field} 在此重复出现",
    "keep one of them; the last one counts": "只保留一个; 以最后一个为准",
    "` #` cuts the value of {field} here": "` #` 在此截断了 {field} 的值",
    "put the whole value in quotes": "给整个值加引号",
    "{field} is broken and is never guessed: the field is not used": "{field} 有误且从不猜测: 不使用这个字段",
    "correct it by hand: it decides what may run or who may call": "请手工改正: 它决定什么可以运行、谁可以调用",
    "the field {field} cannot be read": "无法读取字段 {field}",
    "correct its YAML": "改正它的 YAML",
    "this line belongs to no field and was ignored": "这一行不属于任何字段, 已忽略",
    "remove it or make it a field": "删除它, 或写成字段",
    "{field} holds `: ` and was read as text": "{field} 含有 `: `, 已按文本读取",
    "put the value in quotes": "给值加引号",
    "{field} has text on the line of > or |": "{field} 在 > 或 | 的同一行有文本",
    "move the text to the next line, indented": "把文本移到下一行并缩进",
    "{field} starts with {shown} and was read as text": "{field} 以 {shown} 开头, 已按文本读取",
    "the quotes of {field} are broken; read as text": "{field} 的引号有误; 已按文本读取",
    "close or double the quotes": "闭合引号, 或把引号写成两个",
    "the brackets of {field} are broken; read as text": "{field} 的括号有误; 已按文本读取",
    "close them, or quote the value": "闭合括号, 或给值加引号",
    "the lines after {field} are not indented; joined to it": "{field} 之后的行没有缩进; 已并入该字段",
    "indent them": "给它们加上缩进",
    "{field} is indented with tabs; read as spaces": "{field} 用制表符缩进; 已按空格读取",
    "indent with spaces": "用空格缩进",
    "{field} holds control characters": "{field} 含有控制字符",
    "{field} escapes half characters; joined": "{field} 把一个字符转义成两半; 已合并",
    "write the character itself": "直接写出该字符",
    "a value inside {field} was read as text": "{field} 里的一个值已按文本读取",
    "put that value in quotes": "给该值加引号",
    "there is no name; the folder's is used": "没有 name; 使用目录名",
    "add `name: {name}`": "加上 `name: {name}`",
    "the name is not text": "name 不是文本",
    "write `name: some-name`": "写成 `name: some-name`",
    "the name {name} has other characters than a-z, 0-9 and single hyphens between": (
        "名称 {name} 含有 a-z、0-9 和单个连字符以外的字符"
    ),
    "rename it to {better}": "改名为 {better}",
    "the name has {count} characters": "名称有 {count} 个字符",
    "use at most {limit}": "最多 {limit} 个",
    "the name {name} is not its folder's, {folder}": "名称 {name} 与目录名 {folder} 不同",
    "rename one of them": "改掉其中一个",
    "there is no description; the text's first paragraph is used": "没有 description; 使用正文的第一段",
    "add `description:` saying what the skill does and when to use it": "加上 `description:`, 说明技能做什么、何时使用",
    "the description is not text": "description 不是文本",
    "write it as one text, in quotes": "写成一段文本, 加引号",
    "the description has {count} characters": "描述有 {count} 个字符",
    "the description holds the tag {shown}": "描述里有标签 {shown}",
    "agents put it into XML: remove the tag": "智能体会把它放进 XML: 去掉标签",
    "compatibility has {count} characters": "compatibility 有 {count} 个字符",
    "{field} is {shape}; it should be {wanted}": "{field} 是{shape}; 应为{wanted}",
    "write it as {wanted}": "写成{wanted}",
    "metadata.{field} is not text": "metadata.{field} 不是文本",
    "the standard wants text values: quote it": "标准要求文本值: 加引号",
    "there is no text below the frontmatter": "frontmatter 下面没有正文",
    "say what the agent should do": "说明智能体应该做什么",
    "the text has {count} lines": "正文有 {count} 行",
    "keep it below {limit}; move details to references/": "保持在 {limit} 行以内; 细节移到 references/",
    "a hidden character, {shown}, stands here": "此处有隐藏字符 {shown}",
    "remove it: readers cannot see it": "删除它: 读者看不见",
    "command is empty: this is a prompt skill": "command 为空: 这是 prompt 技能",
    "remove it, or write the program": "删除它, 或写上程序",
    "{name} is a slash command's name, no program": "{name} 是斜杠命令的名称, 不是程序",
    "remove `command`": "删除 `command`",
    "command is {shape}, not text": "command 是{shape}, 不是文本",
    "write the command line as one text": "把命令行写成一段文本",
    "the command's quotes are not closed": "命令的引号没有闭合",
    "close them": "闭合引号",
    "the command holds {shown}, which needs a shell": "命令里有 {shown}, 需要 shell",
    "put it in a script and call that": "写进脚本, 再调用脚本",
    "protocol is json, but there is no entry": "protocol 是 json, 但没有 entry",
    "add `entry:` with the program's path": "加上 `entry:`, 写程序的路径",
    "the entry {name} leaves the skill's folder": "入口 {name} 在技能目录之外",
    "name a file inside the folder": "写目录之内的文件",
    "the protocol {name} is unknown": "未知的协议 {name}",
    "write `protocol: json`, or remove it": "写成 `protocol: json`, 或删除它",
    "timeout {name} is no number of seconds above 0": "timeout {name} 不是大于 0 的秒数",
    "write a number of seconds": "写一个秒数",
    "{field} is {shape}, not a mapping or a list": "{field} 是{shape}, 不是映射或列表",
    "list the params by name": "按名称列出参数",
    "a param has no usable name": "有参数没有可用的名称",
    "name it with letters, digits, _ and -": "用字母、数字、_ 和 - 命名",
    "the param {name} is {shape}": "参数 {name} 是{shape}",
    "write {required: true, type: string}": "写成 {required: true, type: string}",
    "the param {name} has the unknown type {type}": "参数 {name} 的类型 {type} 未知",
    "use one of: {known}": "使用其中之一: {known}",
    "the param {name} has the unknown validation {check}": "参数 {name} 的校验 {check} 未知",
    "`{flag}` of the param {name} is not true or false": "参数 {name} 的 `{flag}` 不是 true 或 false",
    "write true or false": "写 true 或 false",
    "the enum {name} lists no choices": "枚举 {name} 没有列出可选值",
    "add `choices: [one, two]`": "加上 `choices: [one, two]`",
    "the default of {name} is not of its type, {type}": "{name} 的默认值不是它的类型 {type}",
    "correct the default": "改正默认值",
    "the param {name} is declared twice": "参数 {name} 声明了两次",
    "keep one; the first one counts": "只保留一个; 以第一个为准",
    "the command has no slot for the param {name}": "命令里没有参数 {name} 的位置",
    "add {{name}} to the command": "在命令里加上 {{name}}",
    "the slot {{name}} is not declared": "位置 {{name}} 没有声明",
    "declare it with type and description": "声明它的类型和描述",
    "correct agent.yaml": "改正 agent.yaml",
    "the role leads out of the project through a link": "角色经由链接指向项目之外",
    "put its folder into agents/": "把它的目录放进 agents/",
    "a value is not as the schema says": "有值不符合 schema",
    "see docs/reference/agent-yaml.md": "见 docs/reference/agent-yaml.md",
    "a key is not known": "有未知的键",
    "the entry of {name} must be a path inside the role's folder": "{name} 的 entry 必须是角色目录之内的路径",
    "put the program there": "把程序放到那里",
    "there is no workflow {name} in workflows/": "workflows/ 里没有工作流 {name}",
    "write it, or correct the name": "写一个, 或改正名称",
    "the entry of {name} is not there: {entry}": "{name} 的 entry 不存在: {entry}",
    "write the program, or correct the path": "写出程序, 或改正路径",
    "correct the workflow's file": "改正工作流文件",
    "a value is not as it should be": "有值不对",
    "see docs/reference/workflow-yaml.md": "见 docs/reference/workflow-yaml.md",
    "{field} means something only to {agents}": "{field} 只对 {agents} 有意义",
    "other agents ignore it": "其他智能体会忽略它",
    "{field} is no field of the standard": "{field} 不是标准里的字段",
    "put it under metadata": "放到 metadata 下面",
    "allowed-tools is a list": "allowed-tools 是列表",
    "the standard wants one text, separated by spaces": "标准要求一段文本, 用空格分隔",
    "{shown} is filled in by Claude Code only": "{shown} 只有 Claude Code 会填入",
    "say in words what goes here": "用文字说明此处填什么",
    "{shown} runs a command when Claude Code loads it": "Claude Code 加载时, {shown} 会执行命令",
    "ask the agent to run it": "请智能体去执行",
    "{shown} is replaced by the file in some agents only": "{shown} 只在部分智能体里会换成文件内容",
    "name the file in words": "用文字写出文件",
    "{shown} is known to Claude Code only": "{shown} 只有 Claude Code 认识",
    "write paths relative to the skill": "写相对于技能的路径",
    "name and description cost {count} characters in every catalog": "名称和描述在每份目录里占 {count} 个字符",
    "keep it short": "尽量简短",
    "text": "文本",
    "a text": "文本",
    "true or false": "true 或 false",
    "a list": "列表",
    "a mapping": "映射",
    "text or a list": "文本或列表",
    "a whole number": "整数",
    "a number": "数",
    "nothing": "空",
    "a plain value": "普通值",
    "the text {}": "文本 {}",
    "one of {}": "{} 之一",
    "it has more than {} bytes": "它超过 {} 字节",
    "`{}` {}": "`{}` {}",
    "is {}; it should be {}": "是{}; 应为{}",
    "has {} items; it should have at least {}": "有 {} 项; 至少应有 {} 项",
    "lacks `{}`": "缺少 `{}`",
    "goes only with {}": "只能和 {} 一起用",
    "is empty": "为空",
    "has less than {} characters": "少于 {} 个字符",
    "is not known and does nothing": "未知, 不起作用",
    "is {} again": "又是 {}",
    "name each once": "每个名称只用一次",
    "is {}, which is no skill of this role": "是 {}, 不是这个角色的技能",
    "its skills: {}": "它的技能: {}",
    "cannot be read: {}": "无法读取: {}",
    "is {} beside misfire run-all": "是 {}, 与 misfire run-all 不合",
    "missed runs follow each other: overlap queue, or leave it out": (
        "错过的运行要一个接一个地补: 用 overlap queue, 或不写"
    ),
    "has more than {} items": "超过 {} 项",
    "use `for_each`": "用 `for_each`",
    "is no name that a reference can have": "不是引用能用的名称",
    "use a word": "用一个单词",
    "should be {}, as `type` says": "应为{}, 如 `type` 所写",
    "is {}, which references use for something else": "是 {}, 它在引用里另有用途",
    "give it another id": "换一个 id",
    "is {} again, like step {}": "又是 {}, 与第 {} 步相同",
    "give each step an `id` of its own": "给每一步各自的 `id`",
    "is missing, and {} cannot stand in for it": "缺失, 而 {} 不能代替它",
    "give the step an `id`": "给这一步写上 `id`",
    "holds what is no reference: {}": "其中有不是引用的内容: {}",
    "refers to {}: {}": "引用了 {}: {}",
    "is a text": "是文本",
    'write a list, or a reference: "${step.data.files}"': '写列表, 或写引用: "${step.data.files}"',
    "does nothing without `for_each`": "没有 `for_each` 时不起作用",
    "only the params of a step with `for_each` have it": "只有带 `for_each` 的步骤的参数才有它",
    "add `for_each`, or name an earlier step": "加上 `for_each`, 或引用前面的步骤",
    "there is nothing below a number": "数的下面没有内容",
    "write `${index}`": "写成 `${index}`",
    "there is no such input": "没有这个输入",
    "that step comes later, or is this one": "那一步在后面, 或就是这一步",
    "only earlier steps can be referred to": "只能引用前面的步骤",
    "there is no such step": "没有这一步",
    "a step has {}": "步骤有 {}",
    "write `${{}.data…}`": "写成 `${{}.data…}`",
    "`{}` has no closing brace; write `$${` for a plain `${`": "`{}` 没有右花括号; 普通的 `${` 要写成 `$${`",
    "`{}` is no reference; write `${step.data.key}`, `${inputs.name}`, `${item}` or `${index}`": (
        "`{}` 不是引用; 写成 `${step.data.key}`、`${inputs.name}`、`${item}` 或 `${index}`"
    ),
    "there is no [{}] in a list of {}": "{1} 项的列表里没有 [{0}]",
    "there is no `{}`; {}": "没有 `{}`; {}",
    "there is nothing below {}: no `{}`": "{}的下面没有内容: 没有 `{}`",
    "Skill '{}' is not installed{}": "未安装技能 '{}'{}",
    "; nearest: {}": "; 相近的有: {}",
    "install it first; `skillyard search {}` looks for it, `skillyard list` shows what is installed": (
        "先安装它; `skillyard search {}` 查找, `skillyard list` 查看已安装的技能"
    ),
    "is given, but {} is a {} skill and has none": "给了动作, 但 {} 是 {} 技能, 没有动作",
    "is {}, which {} has not": "是 {}, 而 {} 没有它",
    "is missing: {} needs one": "缺失: {} 需要一个",
    "do not fit: {}": "不合适: {}",
    "is wrong: {}": "不对: {}",
    "is no param of {}": "不是 {} 的参数",
    "lacks `{}`, which {} needs": "缺少 {1} 需要的 `{0}`",
    "well written": "写得很好",
    "{} (and {} more: `skillyard validate`)": "{} (还有 {} 项: `skillyard validate`)",
    "{} characters": "{} 个字符",
    "agents are handed at most {}: move parts to files in references/": (
        "交给智能体的最多 {} 个: 把部分内容移到 references/ 的文件里"
    ),
    "not there: {}": "不存在: {}",
    "add the files, or correct the links": "补上文件, 或改正链接",
    "mentioned, but not there: {}": "提到了, 但不存在: {}",
    "add them if they are not examples": "如果不是举例, 请补上",
    "{}, all there": "{} 个, 都在",
    "write one program with its arguments, and {slots} for params": "写一个程序和它的参数, 用 {slots} 表示技能的参数",
    "{} is not in the skill's folder": "{} 不在技能目录里",
    "add it, or correct the command": "补上它, 或改正命令",
    "see what the command starts: it must be there, and need no grant": (
        "看看命令启动的是什么: 它必须存在, 且不需要授权"
    ),
    "none is required": "没有必需的参数",
    "describe {}: people are asked with these words": "给 {} 写上描述: 询问用户时会用到",
    "the run waits for {}": "运行会等待 {}",
    "correct the params in SKILL.md": "改正 SKILL.md 里的参数",
    "nothing is asked for": "没有询问任何参数",
    "write below {output} only, and read only what a param names": "只写到 {output} 之下, 只读参数指定的内容",
    "it wrote outside mybox/: {}": "它写到了 mybox/ 之外: {}",
    "no end within {} s": "{} 秒内没有结束",
    "end sooner, or allow more with --timeout": "更快结束, 或用 --timeout 放宽限制",
    "with made-up values, in {} s; it wrote nothing outside mybox/": "用虚构的值运行, 用时 {} 秒; 没有写到 mybox/ 之外",
    "the sandbox refused something: {}": "沙箱拒绝了某个操作: {}",
    "it refused values that we made up: {}": "它拒绝了我们虚构的值: {}",
    "give params defaults that work as examples": "给参数写上可用作示例的默认值",
    "answer with a usage text on stderr and exit code 2": "在 stderr 输出用法, 退出码为 2",
    "no end within the limit": "在限制时间内没有结束",
    "usage text and exit code {}": "输出了用法, 退出码 {}",
    "exit code {} without a usage text": "退出码 {}, 没有输出用法",
    "it was ignored": "它被忽略了",
    "name a program in `entry:` that is there and can be started": "在 `entry:` 里写存在且能启动的程序",
    "{} can be started": "{} 可以启动",
    "none is known": "一个也不知道",
    "list them as `actions:` in SKILL.md, or in `supported_actions`": (
        "在 SKILL.md 的 `actions:` 里列出, 或放进 `supported_actions`"
    ),
    "no answer within {} s": "{} 秒内没有回答",
    "more output than S3's 10 MB": "输出超过 S3 规定的 10 MB",
    "answer with an error response, whatever comes on stdin": "无论 stdin 是什么, 都用错误响应回答",
    "it reported success": "它报告了成功",
    "answer with success: false and a code": "用 success: false 和错误码回答",
    "{} is the code for this": "这种情况的错误码是 {}",
    "answered {}": "回答 {}",
    "answered in {} s": "用时 {} 秒回答",
    'answer with {"success": false, "error": {"code": "UNKNOWN_ACTION", …}}': (
        '用 {"success": false, "error": {"code": "UNKNOWN_ACTION", …}} 回答'
    ),
    "list what is supported in error.supported_actions": "在 error.supported_actions 里列出支持的动作",
    "answer with MISSING_PARAM, or do without params": "用 MISSING_PARAM 回答, 或不需要参数",
    "it ran without {}": "没有 {} 它也运行了",
    "answer with MISSING_PARAM, or do not require it": "用 MISSING_PARAM 回答, 或不把它设为必需",
    "it needs none": "它不需要参数",
    "print exactly one JSON object with success, action and data": "只输出一个 JSON 对象, 含 success、action 和 data",
    "it refused values that we made up ({})": "它拒绝了我们虚构的值 ({})",
    "a declared action must be able to succeed": "声明的动作必须能够成功",
    "no param with a type is declared": "没有声明带类型的参数",
    "objects for {}: {}": "给 {} 传对象: {}",
    "answer with INVALID_PARAM": "用 INVALID_PARAM 回答",
    "answer with INVALID_PARAM, if the action takes any of them": "如果动作接受其中任何一个, 用 INVALID_PARAM 回答",
    "the same answer": "回答相同",
    "what is fetched may change": "抓取的内容可能变化",
    "different: {}": "不同: {}",
    "leave times and random values out, or put them into metadata": "去掉时间和随机值, 或放进 metadata",
    "no request gave the same answer twice": "没有哪个请求两次回答相同",
    "it was faster than the limit": "它比限制更快",
    "it took {} s to stop at {} s": "在 {1} 秒时要求停止, 用了 {0} 秒",
    "end on SIGTERM": "收到 SIGTERM 就结束",
    "write to a temporary file and rename it; take no lock that outlives you": (
        "先写临时文件再改名; 不要留下结束后仍在的锁"
    ),
    "the next answer was {}, or another one": "下一个回答是 {}, 或与之前不同",
    "stopped at {} s, and the next answer was the same": "在 {} 秒时停止, 下一个回答相同",
    "one JSON document each time, nothing else": "每次一个 JSON 文档, 没有别的",
    "print nothing else on stdout: logs and progress belong on stderr": "stdout 不要输出别的: 日志和进度写到 stderr",
    "0 for success, 0 or 1 for an error": "成功为 0, 错误为 0 或 1",
    "exit code {} with {}": "退出码 {}, 回答 {}",
    "end with 0 after a success, with 1 after an error": "成功以 0 结束, 错误以 1 结束",
    "no code": "没有错误码",
    "an error without a code": "没有错误码的错误",
    "all among S3's nine": "都在 S3 的九个之中",
    "use one of: {}": "使用其中之一: {}",
    "no answer in {}": "{} 内没有回答",
    "answer sooner, or allow more with --timeout": "更快回答, 或用 --timeout 放宽限制",
    "at most {} s ({}), of {} s": "最多 {} 秒 ({}), 限制 {} 秒",
    "echo the action of the request": "回显请求里的 action",
    "no action in the answer": "回答里没有 action",
    "told in every answer": "每个回答里都有",
    "{}: {} (and {} more)": "{}: {} (还有 {} 项)",
    "{}, a valid request": "{}, 有效请求",
    "{}, again": "{}, 再次请求",
    "{}, after it was stopped": "{}, 停止之后",
    "an unknown action": "未知动作",
    "empty stdin": "stdin 为空",
    "not JSON": "不是 JSON",
    "not an object": "不是对象",
    "no action": "没有 action",
    "params not an object": "params 不是对象",
    "unknown action": "未知动作",
    "{}: no params": "{}: 没有参数",
    "{}: valid request": "{}: 有效请求",
    "{}: wrong params": "{}: 错误的参数",
    "{}: same request twice": "{}: 同一请求两次",
    "stopped half-way": "中途停止",
    "response time": "响应时间",
    "error codes": "错误码",
    "exit code": "退出码",
    "missing params": "缺少参数",
    "wrong option": "错误的选项",
    "files it names": "提到的文件",
    "size": "大小",
    "program": "程序",
    "command": "命令",
    "runs": "运行",
    "starts": "启动",
    "entry": "入口",
    "actions": "动作",
    "action": "动作",
    "stdout is not JSON": "stdout 不是 JSON",
    "{} (exit code {})": "{} (退出码 {})",
    "{} (exit code {}; stderr: {})": "{} (退出码 {}; stderr: {})",
    "`success` is missing": "缺少 `success`",
    "`success` is not true or false": "`success` 不是 true 或 false",
    "`error` is not an object with code and message": "`error` 不是带 code 和 message 的对象",
    "`data` is missing: flat keys": "缺少 `data`: 键没有放在 data 里",
    "as strong as another of the same name: say which": "与另一个同名的技能同样优先: 请指明",
    "first in the order of roots: {}": "按目录顺序排在最前: {}",
    "a link to the skill in {}": "指向 {} 里的技能的链接",
    "shadowed: {} comes before {}": "被遮住: {} 先于 {}",
    "a folder of that name comes before a skill of that name": "同名的目录先于同名的技能",
    "the only one it reads": "它只读到这一个",
    "a role's skill: agents reach it only through Skillyard": "角色的技能: 智能体只能通过 Skillyard 使用它",
    "it looks only in {} and in the same folders of your home": "它只查看 {} 和主目录里的同名目录",
    "it reads only folders directly below its own": "它只读取自己目录的直接下级",
    "it reads only {}, not {}": "它只读取 {}, 不读取 {}",
    "it leaves out skills without a description": "它不收没有描述的技能",
    "its YAML reader may refuse the frontmatter": "它的 YAML 解析器可能不接受这个 frontmatter",
    "lists all of them; the personal one (~/.claude/skills) wins over the project's": (
        "全部列出; 个人的 (~/.claude/skills) 优先于项目的"
    ),
    "lists all of them, without choosing": "全部列出, 不做选择",
    "takes one of them, and not the same one at each start": "取其中一个, 且每次启动不一定相同",
    "skillyard link {} --check tells which one it takes": "skillyard link {} --check 查看它取哪一个",
    "something else of that name stands there": "那里有别的同名文件",
    "move it away, then link again: mv {} …": "移走它, 再重新链接: mv {} …",
    "the copy was edited here, and stays": "副本在这里改过, 予以保留",
    "a link that leads nowhere stands there, to {}": "那里有失效的链接, 指向 {}",
    "rm {}, then link again": "rm {}, 再重新链接",
    "also {}": "还有 {}",
    "another of that name: rename or remove one of them": "有另一个同名的: 改名或删除其中一个",
    "none on {}: runs need --no-sandbox": "{} 上没有: 运行需要 --no-sandbox",
    "{}; not covered: {}": "{}; 未覆盖: {}",
    "this kernel has none": "这个内核没有",
    "none is writable for us": "没有我们可写的",
    "not known on {}": "不支持 {}",
    "it ended before it could say why": "它没来得及说明原因就结束了",
    "not needed: namespaces are there": "不需要: 已有 namespaces",
    "not on the PATH": "不在 PATH 中",
    "{} cannot be written": "{} 不可写",
    "not in one": "不在项目中",
    "{} for the role {}": "{} (角色 {})",
    "give {}, from {} {}, to the skills": "把 {1} {2} 中的 {0} 交给技能",
    "your environment variable": "你的环境变量",
    "your file": "你的文件",
    "reach the network": "访问网络",
    "read {}": "读取 {}",
    "read and write {}": "读写 {}",
    "use {} MB of memory": "使用 {} MB 内存",
    "start {} processes": "启动 {} 个进程",
    "let a backend agent use {} unasked": "允许后端智能体免确认使用 {}",
    "run the scripts in bin/ with read access to the whole project": "运行 bin/ 的脚本, 可读取整个项目",
    "keep jobs in {}": "把任务保存在 {}",
    "look for skills in {}": "在 {} 里查找技能",
    "edit files in {}": "编辑 {} 里的文件",
    "hand tasks to agents with {} = {}": "以 {} = {} 把任务交给智能体",
    "start `{}` as the backend {}": "把 `{}` 作为后端 {} 启动",
    "let {} use {} unasked": "允许 {} 免确认使用 {}",
    "let {} decide on skills up to MEDIUM": "允许 {} 决定 MEDIUM 及以下的技能",
    "scanning {}": "正在扫描 {}",
    "unpacking {}": "正在解压 {}",
    "fetching {}": "正在获取 {}",
    "writing {} files": "正在写入 {} 个文件",
    "asking {}": "正在询问 {}",
    "{}: cancelled": "{}: 已取消",
    "took over from {}, which died": "接替了已死的 {}",
    "{}, another attempt follows": "{}, 稍后再试一次",
    "the schedule {} cannot be read: {}": "无法读取计划 {}: {}",
    "Find out why it reads them. In the sandbox it cannot: see what fails.": (
        "弄清它为什么读取。在沙箱里它读不到: 看看哪里失败。"
    ),
    "Do not install it unless that is what you want it for.": "除非这正是你要它做的, 否则不要安装。",
    "Do not install it unless it is a tool for debugging processes.": "除非它是调试进程的工具, 否则不要安装。",
    "See which of its values it uses, and whether it sends them anywhere.": "看看它用了哪些值, 是否发送到别处。",
    "Do not install it unless the line only warns of this.": "除非这一行只是警告, 否则不要安装。",
    "Do not install it unless that is what it is for.": "除非这正是它的用途, 否则不要安装。",
    "Do not install it.": "不要安装。",
    "Fetch it to a file, read it, then run it; or install from a package.": (
        "先下载到文件, 读过再运行; 或用软件包安装。"
    ),
    "Fetch it to a file, read it, then run it.": "先下载到文件, 读过再运行。",
    "Do not install it. To see what it is, decode it and do not run it.": (
        "不要安装。想知道是什么, 解码来看, 不要运行。"
    ),
    "Compare a checksum, or read it first.": "核对校验和, 或先读一遍。",
    "See what is sent there.": "看看向那里发送了什么。",
    "See what is put into the name.": "看看域名里放了什么。",
    "See which file goes where.": "看看哪个文件发到哪里。",
    "Ask for the source, or build it yourself.": "索取源码, 或自己构建。",
    "Ask for the source, or delete it.": "索取源码, 或删除它。",
    "Unpack it and scan that.": "解压后再扫描。",
    "Take the bit away: `chmod u-s,g-s`.": "去掉该位: `chmod u-s,g-s`。",
    "See what the file is.": "看看这个文件是什么。",
    "Remove the link.": "删除链接。",
    "Make it readable, or remove it.": "改为可读, 或删除它。",
    "Scan the folders one by one.": "逐个扫描目录。",
    "List the tools that it needs.": "列出它需要的工具。",
    "Name the exact commands.": "写出确切的命令。",
    "Write `Bash(git:*)` or what it is.": "写成 `Bash(git:*)` 这样的具体命令。",
    "Read the command before you install it.": "安装之前先读这条命令。",
    "Do not install it: there is no honest use beside three flags.": "不要安装: 除三面旗帜的表情外没有正当用途。",
    "Remove them and read the words again.": "删除它们, 再读一遍。",
    "Remove them; ask where they came from.": "删除它们; 问清来源。",
    "Remove the characters and read the line again.": "删除这些字符, 再读一遍这一行。",
    "Look at the line in a viewer that shows them.": "用能显示它们的工具查看这一行。",
    "Look at it with `cat -v`.": "用 `cat -v` 查看。",
    "Read the comment. Instructions belong where people see them.": "读一读这条注释。指令应写在人能看到的地方。",
    "Read the paragraph. If the text is not about such attacks, do not install it.": (
        "读一读这一段。如果不是在讨论这类攻击, 不要安装。"
    ),
    "Read what is to be hidden. Do not install it unless that is plainly harmless.": (
        "看看要隐瞒什么。除非显然无害, 否则不要安装。"
    ),
    "Do not install it unless the text is about defending against this.": "除非文中是在讲如何防范, 否则不要安装。",
    "Do not install it unless the text is about such attacks.": "除非文中是在讨论这类攻击, 否则不要安装。",
    "Run it without that option, or only inside a sandbox.": "去掉该选项运行, 或只在沙箱里运行。",
    "See what it wants them for.": "看看它要密钥做什么。",
    "Ask the author to say what is sent where; or run it without the network.": (
        "请作者说明把什么发到哪里; 或在没有网络的情况下运行。"
    ),
    "Ask for the source.": "索取源码。",
    "See where the text comes from.": "看看文本从哪里来。",
    "Decode it and see what it is.": "解码看看是什么。",
    "See whether it is for an old Python, or a template.": "看看它是不是旧版 Python 的代码, 或是模板。",
    "Ask why; there is hardly an honest reason.": "问清原因; 几乎没有正当理由。",
    "See what it does with the module.": "看看它用这个模块做什么。",
    "See where the text comes from; `ast.literal_eval` reads values without running them.": (
        "看看文本从哪里来; `ast.literal_eval` 只读取值, 不执行。"
    ),
    "Compare it with the name that you expect.": "与你预期的名称比对。",
    "See what it starts; `skillyard` jobs do the same where you can see them.": (
        "看看它启动什么; `skillyard` 的任务能做同样的事, 而且看得见。"
    ),
    "See what it adds; better do it by hand.": "看看它加了什么; 最好自己动手。",
    "Do not install it unless it sets up servers for you.": "除非它是为你配置服务器, 否则不要安装。",
    "See what the hook does.": "看看钩子做什么。",
    "See what it writes there.": "看看它写了什么。",
    "a name in a-z, 0-9 and hyphens": "只含 a-z、0-9 和连字符的名称",
    "{}; it needs exactly one": "{}; 需要且只能有一个",
    "has both {}": "同时有 {}",
    "has none of {}": "{} 一个也没有",
    "after a failure {}": "失败后{}",
    "run `{}`": "运行 `{}`",
    "post to {}": "发送到 {}",
    "start {} scheduled {}": "启动 {0} 个计划任务",
    "is {}: {}": "是 {}: {}",
    "there is another of that name at {}; {} {}": "{} 有另一个同名的; {} {}",
    "A role: who it is, the JSON skills it has, when they run, and what bounds them.": (
        "角色: 它是谁, 有哪些 JSON 技能, 何时运行, 受什么限制。"
    ),
    "The JSON skills of the role.": "角色的 JSON 技能。",
    "What runs by itself, and when. Takes effect after `skillyard trust`.": (
        "什么自动运行, 何时运行。`skillyard trust` 之后生效。"
    ),
    "What the role's skills get from outside, as environment variables of their process alone. Takes effect "
    "after `skillyard trust`.": ("角色的技能从外部得到的内容, 只作为其进程的环境变量。`skillyard trust` 之后生效。"),
    "The tools that a backend agent may use without asking, when a task of this role is dispatched to it. "
    "Takes effect after `skillyard trust`.": (
        "把这个角色的任务派发给后端智能体时, 它可以免确认使用的工具。`skillyard trust` 之后生效。"
    ),
    "How many turns a backend agent may take for a task of this role.": "后端智能体为这个角色的任务最多进行多少轮。",
    "Who the role is.": "角色是谁。",
    "A short id of your own.": "你自己的简短 id。",
    "What skills get as `context.agent_id`.": "技能收到的 `context.agent_id`。",
    "What people call the role, in any script.": "人们怎么称呼这个角色, 任何文字都可以。",
    "What the role is for.": "角色的用途。",
    "The model that a backend agent should use for this role.": "后端智能体为这个角色使用的模型。",
    "Who should see the role; kept and shown, decides nothing here.": (
        "谁应该看到这个角色; 只保存和显示, 在这里不起作用。"
    ),
    "Whose role it is.": "角色属于谁。",
    "One JSON skill: a program that reads a request on stdin and answers on stdout.": (
        "一个 JSON 技能: 从 stdin 读取请求、在 stdout 回答的程序。"
    ),
    "What callers name it by.": "调用者用的名称。",
    "a name without slashes that starts with a letter or digit": "不含斜杠、以字母或数字开头的名称",
    "The program, as a path inside the role's folder.": "程序, 写成角色目录之内的路径。",
    "What it does, for people and for search.": "它做什么, 供人阅读和搜索。",
    "Seconds that a run may take; 300 where it is not given.": "一次运行最多用多少秒; 不写则为 300。",
    "The actions that it supports; others are refused before it starts.": "它支持的动作; 其他的在启动之前就被拒绝。",
    "One thing that runs by itself: when (`cron` or `interval`) and what (`task`, `flow` with `params`, or "
    "`skill` with `action` and `params`).": (
        "一项自动运行的内容: 何时 (`cron` 或 `interval`), 做什么 (`task`, 带 `params` 的 `flow`, 或带 `action` "
        "和 `params` 的 `skill`)。"
    ),
    "What the job is called; made from the rest where it is not given.": "任务的名称; 不写则由其他内容得出。",
    "Five fields: minute, hour, day, month, weekday; or @hourly, @daily, @weekly, @monthly. Quote it.": (
        "五个字段: 分、时、日、月、星期; 或 @hourly、@daily、@weekly、@monthly。要加引号。"
    ),
    "Seconds between two runs, or a text such as `15m`, `2h`, `1d`.": (
        "两次运行之间的秒数, 或 `15m`、`2h`、`1d` 这样的文本。"
    ),
    "a number of seconds, or a text such as 30s, 15m, 2h, 1d": "秒数, 或 30s、15m、2h、1d 这样的文本",
    "A Task prompt (`执行 @name`, `run @name`), or a text for a backend agent with the role's CLAUDE.md.": (
        "Task 提示词 (`执行 @name`、`run @name`), 或连同角色的 CLAUDE.md 交给后端智能体的文本。"
    ),
    "For a task that goes to a backend agent: which one; the first that is installed where it is not given.": (
        "任务交给后端智能体时: 哪一个; 不写则是第一个已安装的。"
    ),
    "For a task that goes to a backend agent: the conversation that every run goes on with; each run has "
    "its own where it is not given.": ("任务交给后端智能体时: 每次运行接着哪个会话; 不写则每次各有自己的会话。"),
    "The name of one of the role's skills.": "角色的某个技能的名称。",
    "The action of that skill.": "该技能的动作。",
    "The name of a workflow of the project, in workflows/.": "项目里 workflows/ 中的工作流的名称。",
    "The params of that action, or the inputs of that workflow.": "该动作的参数, 或该工作流的输入。",
    "A name such as `Asia/Shanghai`; the machine's where it is not given.": (
        "`Asia/Shanghai` 这样的名称; 不写则是这台机器的时区。"
    ),
    "false: it stays here and does not run.": "false: 保留在这里, 但不运行。",
    "How often a failed run is tried again.": "失败后再试几次。",
    "What to do with runs that were missed.": "错过的运行怎么办。",
    "What to do when the run before has not ended.": "上一次运行还没结束时怎么办。",
    "Up to so many seconds later, by chance.": "随机推迟, 最多这么多秒。",
    "What it is for; decides nothing.": "它的用途; 不起作用。",
    "Seconds that a run may take, where the skill's own limit does not fit.": (
        "一次运行最多用多少秒, 用于技能自己的限制不合适时。"
    ),
    "The queue that the run waits in.": "运行在哪个队列里等待。",
    "Who is told when it failed for good: a command or a web address. Takes effect after `skillyard trust`.": (
        "最终失败时通知谁: 命令或网址。`skillyard trust` 之后生效。"
    ),
    "A program and its arguments, split like a shell splits words, and run without one.": (
        "程序和它的参数, 像 shell 那样拆分, 但不经过 shell 运行。"
    ),
    "Where the result is posted to.": "结果发送到哪里。",
    "an address that starts with https:// or http://": "以 https:// 或 http:// 开头的地址",
    "One secret: its value never stands in this file.": "一个密钥: 它的值从不写在这个文件里。",
    "The environment variable that the skill reads.": "技能读取的环境变量。",
    "the name of a variable that nothing else uses: letters, digits and _, not PATH, LD_…, PYTHON…, SKILLYARD_…": (
        "没有其他用途的变量名: 字母、数字和 _, 不能是 PATH、LD_…、PYTHON…、SKILLYARD_…"
    ),
    "Where the value comes from: a variable of your environment, or a file.": "值从哪里来: 你的环境变量, 或文件。",
    "The variable (`env`; the name where it is not given), or the file (`file`): below `secrets/` of "
    "SKILLYARD_HOME, or a path that starts with `/` or `~/`.": (
        "变量 (`env`; 不写则与名称相同), 或文件 (`file`): 在 SKILLYARD_HOME 的 `secrets/` 之下, 或以 `/` 或 "
        "`~/` 开头的路径。"
    ),
    "the name of a variable or the path of a file": "变量名或文件路径",
    "one file or folder, without * ? [ ] { }: patterns are not read": "一个文件或目录, 不含 * ? [ ] { }: 不支持通配",
    "Which files the role's skills reach. Paths are relative to the project, or start with `/` or `~/`.": (
        "角色的技能能访问哪些文件。路径相对于项目, 或以 `/` 或 `~/` 开头。"
    ),
    "Only these, beside the system and the role's own folder. Parts of `mybox/` count at once, others after "
    "`skillyard trust`: in the project they can be read and written (`.git`, `.claude`, `.skillyard`, "
    "`agents`, `bin` and the whole project only read), outside it read.": (
        "除系统和角色自己的目录外只有这些。`mybox/` 之内的立即生效, 其他的在 `skillyard trust` 之后: "
        "项目之内可读写 (`.git`、`.claude`、`.skillyard`、`agents`、`bin` 和整个项目只读), 项目之外只读。"
    ),
    "Never these, whatever else allows them. Counts at once.": "永远不能访问这些, 无论别处如何允许。立即生效。",
    "What else bounds the role's skills. Less than usual counts at once, more takes effect after `skillyard trust`.": (
        "角色的技能的其他限制。比平常少的立即生效, 更多的在 `skillyard trust` 之后生效。"
    ),
    "true: they may reach other hosts. false: never, even with a grant. A list: these hosts and no others "
    "(api.example.com, *.example.com, db.example.com:5432).": (
        "true: 可以访问其他主机。false: 永远不能, 即使有授权。列表: 只能访问这些主机 "
        "(api.example.com、*.example.com、db.example.com:5432)。"
    ),
    "Megabytes for each process of a run, and for all together where the system can bound that; 4096 where "
    "it is not given.": ("一次运行中每个进程的内存 (MB), 系统能限制时也是全部进程的总和; 不写则为 4096。"),
    "How many processes a run may have; 512 where it is not given.": "一次运行最多多少个进程; 不写则为 512。",
    "A workflow: skills that run one after the other, each with what the earlier ones gave.": (
        "工作流: 一个接一个运行的技能, 每个都能用前面的结果。"
    ),
    "What `skillyard flow run NAME` calls it; the file's name where nothing is said.": (
        "`skillyard flow run NAME` 里的名称; 不写则是文件名。"
    ),
    "a word without spaces, slashes, colons and @": "不含空格、斜杠、冒号和 @ 的单词",
    "What it is for.": "它的用途。",
    "What whoever starts it may give, by name; `${inputs.NAME}` stands for it.": (
        "启动者可以给的值, 按名称; 用 `${inputs.NAME}` 引用。"
    ),
    "What runs, in this order.": "依次运行什么。",
    "One value that is given at the start. Without a default it must be given.": (
        "启动时给的一个值。没有默认值则必须给。"
    ),
    "What it must be; a string where nothing is said.": "它的类型; 不写则为 string。",
    "What it is where nobody gives it; of the same type.": "没有给时的值; 类型相同。",
    "One run of a skill, or one for each item of a list.": "运行一次技能, 或对列表的每一项各运行一次。",
    "What later steps call it: `${ID.data.key}`. The skill's name where nothing is said.": (
        "后面的步骤怎么引用它: `${ID.data.key}`。不写则是技能的名称。"
    ),
    "a word of at most 64 letters, digits, - and _": "最多 64 个字母、数字、- 和 _ 的单词",
    'Which skill: `"@name"`, or `role/skill` for a skill of agents/<role>.': (
        '哪个技能: `"@name"`, 或 agents/<role> 的技能 `role/skill`。'
    ),
    '"@name" or role/skill': '"@name" 或 role/skill',
    "Which action, for a JSON skill that has several.": "哪个动作, 用于有多个动作的 JSON 技能。",
    "Its params by name; references in them are filled in.": "按名称给的参数; 其中的引用会填入。",
    "The same as words, as they would stand after `@name`: value, --key, value.": (
        "同样的内容写成单词, 如同写在 `@name` 之后: value, --key, value。"
    ),
    "A list, or a reference to one: the step runs once for each `${item}`, which is number `${index}` "
    "counted from 0.": ("列表, 或对列表的引用: 这一步对每个 `${item}` 运行一次, `${index}` 是从 0 开始的序号。"),
    "How many items may run at the same time; 1 where nothing is said.": "最多同时运行几项; 不写则为 1。",
    "More attempts after a failure that may pass (a program that failed, or took too long).": (
        "遇到可能过去的失败 (程序失败或超时) 后再试几次。"
    ),
    "Seconds that one attempt may take; the skill's own limit where nothing is said.": (
        "每次尝试最多用多少秒; 不写则是技能自己的限制。"
    ),
    "`stop` ends the workflow (this is so where nothing is said), `continue` goes on with the next item and "
    "the next step.": ("`stop` 结束工作流 (不写则如此), `continue` 继续下一项和下一步。"),
    "a path": "路径",
    "one of its choices": "它的可选值之一",
    "a number above {}": "大于 {} 的数",
    "a number from {}": "不小于 {} 的数",
    "a number from {} to {}": "{} 到 {} 的数",
    "a whole number above {}": "大于 {} 的整数",
    "a whole number from {}": "不小于 {} 的整数",
    "a whole number from {} to {}": "{} 到 {} 的整数",
    "a whole number or text": "整数或文本",
    "a number or text": "数或文本",
    "text or a whole number": "文本或整数",
    "text or a number": "文本或数",
    "stdout is empty": "stdout 为空",
    "stdout is not JSON: {}": "stdout 不是 JSON: {}",
    "stdout holds more than one JSON document; logs belong on stderr": "stdout 里不止一个 JSON 文档; 日志应写到 stderr",
    "the response is not an object but {}": "响应不是对象, 而是 {}",
    "not an S3 response: {}": "不是 S3 响应: {}",
    "no message": "没有说明",
    "{} (and {} more)": "{} (还有 {} 项)",
    "{}; `skillyard role validate {}` tells what to do": "{}; `skillyard role validate {}` 说明怎么办",
    "use a longer value": "换一个更长的值",
    "{} holds a NUL": "{} 里有 NUL",
    "{} has less than {} characters, so it could not be masked": "{} 少于 {} 个字符, 无法遮盖",
    "the following arguments are required: {}": "缺少必需的参数: {}",
    "unrecognized arguments: {}": "无法识别的参数: {}",
    "argument {}: {}": "参数 {}: {}",
    "invalid choice: {} (choose from {})": "无效的选择: {} (可选 {})",
    "expected one argument": "需要一个值",
    "expected at most one argument": "最多一个值",
    "expected at least one argument": "至少一个值",
    "expected {} argument": "需要 {} 个值",
    "expected {} arguments": "需要 {} 个值",
    "not allowed with argument {}": "不能与 {} 一起使用",
    "one of the arguments {} is required": "需要其中一个: {}",
    "invalid {} value: {}": "无效的值: {1}",
    "ignored explicit argument {}": "它不接受值: {}",
    "ambiguous option: {} could match {}": "选项不明确: {} 可能是 {}",
    "only with --to": "只能与 --to 一起使用",
    "either @SKILL or --task": "@SKILL 或 --task 二选一",
    "{} goes with no skill; quote the task as one word": "{} 不属于任何技能; 把任务用引号括成一个词",
    "--to, --session and --model go with --task": "--to、--session 和 --model 只能与 --task 一起使用",
    "at least 1": "至少为 1",
    "at least 0": "至少为 0",
    "above 0": "必须大于 0",
    "{}: the agents are {}": "{}: 可用的智能体有 {}",
    "nothing: the agents are {}": "没有写出: 可用的智能体有 {}",
    "nothing called {} can be allowed; there is {}": "没有可许可的 {}; 可用的有 {}",
    "end that process, then run any command: it sets the damaged file aside and restores the last backup": (
        "结束该进程, 然后执行任何命令: 损坏的文件会被保留到一边, 并恢复最近的备份"
    ),
    "run a command as the user who may write there: it repairs the file": "由有写权限的用户执行任何命令: 文件会被修复",
    "run it again: the file is only a cache, it was removed and is made anew": (
        "再执行一次: 该文件只是缓存, 已删除并会重新生成"
    ),
    "run it again: the file is checked, and repaired where it has to be": "再执行一次: 文件会被检查, 必要时修复",
    "`skillyard doctor` shows what is damaged and what to do": "`skillyard doctor` 显示哪里损坏以及怎么办",
    "stop the workers and set it aside: `mv {} {}.damaged`; a new one is made, jobs and flows that waited in it must "
    "be added again, and what already ran stays in `skillyard jobs history`": (
        "停止 worker 并把它移开: `mv {} {}.damaged`; 会生成新的文件, 其中等待的任务和流程需要重新添加, 已执行的仍在 "
        "`skillyard jobs history` 中"
    ),
    "{} is damaged and cannot be replaced: {}": "{} 已损坏且无法替换: {}",
    "{} belongs to another user (uid {}): nothing in it counts": "{} 属于其他用户 (uid {}): 其中的内容不算数",
    "{} can be written by others: nothing in it counts until `chmod 600 {}`": (
        "{} 可被其他用户写入: 执行 `chmod 600 {}` 之前其中的内容不算数"
    ),
    "{} cannot be read: {}; nothing is granted": "{} 无法读取: {}; 没有任何授权",
    "{} {}, and it is still used by {}": "{} {}, 并且仍在使用: {}",
    "{} {}, and SKILLYARD_HOME cannot be written": "{} {}, 并且 SKILLYARD_HOME 不可写",
    "{} has format {}, this Skillyard knows {}": "{} 的格式是 {}, 当前 Skillyard 只认识 {}",
    "{} has version {}, this Skillyard knows {}": "{} 的版本是 {}, 当前 Skillyard 只认识 {}",
    "{} {}, and there is no intact copy: nothing is granted any more": "{} {}, 并且没有完好的副本: 不再有任何授权",
    "{} {}; its copy was restored, no grant is lost": "{} {}; 已恢复其副本, 没有丢失任何授权",
    "{} {}; there is no backup, so a new one was made without any history": "{} {}; 没有备份, 已新建一个没有历史的文件",
    "{} {}; the backup of {} min ago was restored": "{} {}; 已恢复 {} 分钟前的备份",
    "{}: no backup could be made: {}": "{}: 无法生成备份: {}",
    "{}: the new backup is not sound: {}": "{}: 新备份不完好: {}",
    "{}: {} has held it for {} s": "{}: {} 已占用 {} 秒",
    "grant again what you need; the damaged file is kept as {}": "请重新授权需要的内容; 损坏的文件保留为 {}",
    "grant again what you need": "请重新授权需要的内容",
    "the damaged file is kept as {}": "损坏的文件保留为 {}",
    "to drop every grant, remove {} too": "要撤销全部授权, 请同时删除 {}",
    "grants are not affected; the damaged file is kept as {}, and `skillyard doctor` lists it": (
        "授权不受影响; 损坏的文件保留为 {}, `skillyard doctor` 会列出它"
    ),
    "grants are not affected; to start anew, remove {} together with {}.backup*": (
        "授权不受影响; 要重新开始, 请同时删除 {} 和 {}.backup*"
    ),
    "is missing": "不存在",
    "is cut off": "被截断",
    "is a link": "是链接",
    "is a link to nothing": "是指向不存在文件的链接",
    "is not a plain file": "不是普通文件",
    "is cut off or not a file of grants": "被截断或不是授权文件",
    "does not match its checksum": "与校验和不符",
    "has {} bytes, which is too many": "有 {} 字节, 太大",
    "does not have the fields of a file of grants: {}": "没有授权文件应有的字段: {}",
    "is damaged: {}": "已损坏: {}",
    "is damaged: its header says that nobody may write": "已损坏: 文件头标记为不可写",
    "is not a database of Skillyard": "不是 Skillyard 的数据库",
    "has a damaged -wal file": "的 -wal 文件已损坏",
    "the definition of a table was changed": "表的定义被改动",
    "not there yet: the first run makes it": "还没有: 第一次运行时生成",
    "version {}, {}, sound": "版本 {}, {}, 完好",
    "{} was made {} min ago": "{} 生成于 {} 分钟前",
    "{} is damaged and will not be used: {}": "{} 已损坏, 不会使用: {}",
    "none yet: one is made every hour while something runs": "还没有: 有任务运行时每小时生成一个",
    "{} is damaged: {}: stop the workers, then `mv {} {}.damaged`": (
        "{} 已损坏: {}: 停止 worker, 然后 `mv {} {}.damaged`"
    ),
    "{}: remove it when you do not need it: `rm -r {}*`": "{}: 不需要时删除: `rm -r {}*`",
    "{} grants, {} trusted projects, checksum matches": "{} 项授权, {} 个受信任的项目, 校验和相符",
    "the file is sound, its copy is not: the next `skillyard grant` writes both": (
        "文件完好, 副本不完好: 下一次 `skillyard grant` 会写入两者"
    ),
    "{}: its copy is sound, and the next command restores it": "{}: 副本完好, 下一个命令会恢复它",
    "{}: nothing is granted; grant again what you need": "{}: 没有任何授权; 请重新授权需要的内容",
    "{} is missing; `skillyard runs` restores it": "{} 不存在; `skillyard runs` 会恢复它",
    "{} is empty; `skillyard runs` repairs it": "{} 是空的; `skillyard runs` 会修复它",
    "{} is not a plain file; `skillyard runs` repairs it": "{} 不是普通文件; `skillyard runs` 会修复它",
    "{} is damaged: {}; `skillyard runs` repairs it": "{} 已损坏: {}; `skillyard runs` 会修复它",
    "{} cannot be read: {}; see `ls -l {}`": "{} 无法读取: {}; 请看 `ls -l {}`",
    "{} was written by a newer Skillyard: `pip install -U skillyard`": (
        "{} 由更新版本的 Skillyard 写入: `pip install -U skillyard`"
    ),
}
