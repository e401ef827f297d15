"""`--help` in Chinese: every text of the parsers, by its English. Only what is shown in Chinese imports it.

A description is looked up paragraph by paragraph, its lines joined; the lines below `examples:` are commands, and stay.
"""

import argparse
import re
from collections.abc import Iterable, Iterator

from skillyard.faces.cli.command import HelpFormatter
from skillyard.faces.present import cell_width

_USAGE = "usage "
_TOKEN = re.compile(r" +|[!-~]+|.")
#: No line starts with one of these.
_CLOSING = frozenset(",.;:!?)]}、。”")


def speak_chinese(parser: argparse.ArgumentParser) -> None:
    """Every text of the parser, in place; what is Chinese already stays."""
    parser.formatter_class = ChineseHelp
    parser.description = _describe(parser.description) if parser.description else None
    for group in parser._action_groups:  # noqa: SLF001  (argparse has no other way to its texts)
        group.title = say(group.title) if group.title else None
    for action in parser._actions:  # noqa: SLF001
        action.help = say(action.help) if action.help else None
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for choice in action._choices_actions:  # noqa: SLF001
                choice.help = say(choice.help) if choice.help else None


def say(text: str) -> str:
    return HELP.get(text, text)


def paragraphs_of(description: str) -> Iterator[str]:
    """What is looked up of a description: each paragraph on one line, without the commands below `examples:`."""
    for paragraph in description.strip().split("\n\n"):
        title = paragraph.partition(":\n")[0]
        yield title if title in {"example", "examples"} else " ".join(paragraph.split())


def _describe(description: str) -> str:
    return "\n\n".join(_paragraph(paragraph) for paragraph in description.strip().split("\n\n"))


def _paragraph(paragraph: str) -> str:
    title, colon, commands = paragraph.partition(":\n")
    if colon and title in {"example", "examples"}:
        return f"{say(title)}:\n{commands}"
    joined = " ".join(paragraph.split())
    return HELP.get(joined, paragraph)


class ChineseHelp(HelpFormatter):
    """A Chinese character takes two columns, and a line may end after any of them."""

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        if prefix is not None:
            return super()._format_usage(usage, actions, groups, prefix)
        text = super()._format_usage(usage, actions, groups, _USAGE)  # as wide as what stands there in the end
        return f"{HELP['usage']}: {text.removeprefix(_USAGE)}"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return list(fold(" ".join(text.split()), width))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (line for part in text.split("\n") for line in ([part] if part.startswith(" ") else fold(part, width)))
        return "\n".join(f"{indent}{line}" for line in lines)


def fold(text: str, width: int) -> Iterator[str]:
    """The text in lines of so many columns; words stay whole."""
    line, taken = "", 0
    for token in _TOKEN.findall(text):
        wide = cell_width(token)
        if line and taken + wide > width and token[0] not in _CLOSING:
            kept = line.rstrip("( ")
            yield kept
            line = line[len(kept) :].strip()
            taken = cell_width(line)
        if line or token.strip():
            line, taken = line + token, taken + wide
    yield line.rstrip()


HELP: dict[str, str] = {
    "usage": "用法",
    "positional arguments": "位置参数",
    "options": "选项",
    "output": "输出",
    "examples": "示例",
    "example": "示例",
    "show this help message and exit": "显示这份帮助并退出",
    "one JSON envelope on stdout and nothing else": "标准输出只有一个 JSON 结果",
    "layout of a result": "结果的排版",
    "nothing but ASCII": "只用 ASCII",
    "language of summaries and hints": "显示的语言",
    "language of what is shown": "显示的语言",
    "words that must all occur; the last letters may be missing": "必须全部出现的词; 词尾可以不全",
    "how many, the best first (20)": "最多几个, 最相关的在前 (20)",
    "folder, name or title of a skill; role/name for a role's": "技能的目录、名称或标题; 角色的技能写 role/name",
    "folder, name or title of a skill": "技能的目录、名称或标题",
    "@name, @name:script, ./folder[:script], or SOURCE[@skill][#ref][:script]": (
        "@name、@name:script、./folder[:script], 或 SOURCE[@skill][#ref][:script]"
    ),
    "its params: value, --key value or key=value": "它的参数: value、--key value 或 key=value",
    "seconds that the run may take": "运行最多用多少秒",
    "show what would be started, and start nothing": "只显示将要启动什么, 不启动",
    "a missing param is an error, not a question": "缺少参数时报错, 不询问",
    "run it with everything that you may do yourself": "不用沙箱, 以你自己的全部权限运行",
    "JSON skills: refuse responses that are not quite S3": "JSON 技能: 拒绝不完全符合 S3 的响应",
    "wait for piped input, however long it takes": "一直等待管道输入",
    "let this agent do what a prompt skill says": "让这个智能体执行 prompt 技能的内容",
    "the agent's model": "智能体的模型",
    "skills or worker_agent": "skills 或 worker_agent",
    "what it is about, in a few words": "用几个词说明是什么事",
    "执行 @name [args], or run @name [args]": "执行 @name [args], 或 run @name [args]",
    "idempotency key: the same within 5 seconds runs once": "幂等键: 5 秒内相同的只运行一次",
    "told in the result": "写在结果里",
    "the latest runs": "最近的运行记录",
    "everything that is known of a run, with its log": "一次运行的全部信息和日志",
    "what a run says, until it ends": "跟随一次运行的输出, 直到结束",
    "how many, the latest first (20)": "最多几个, 最近的在前 (20)",
    "the id, or how it starts": "ID, 或它的开头",
    "skills that are tools of their own": "各自作为一个工具的技能",
    "let the agent use the worker, other agents, and jobs": "允许智能体使用 worker、其他智能体和任务",
    "the project's folder (here)": "项目的目录 (当前目录)",
    "only those that failed for good": "只列最终失败的",
    "the latest jobs, finished ones too": "最近的任务, 包括已结束的",
    "everything that is known of a job, with its log": "一个任务的全部信息和日志",
    "take it from the queue, or stop it": "移出队列, 或停止它",
    "one more attempt of a job that failed, as its skill is now": "用现在的技能再试一次失败的任务",
    "have a worker run a skill or a task": "让 worker 运行技能或 Task",
    "Have a worker run a skill or a task.": "让 worker 运行技能或 Task。",
    "schedule a skill or a task": "为技能或 Task 安排计划",
    "Schedule a skill or a task, from now on.": "从现在起为技能或 Task 安排计划。",
    "what recurs here, and when it comes next": "这里的计划和下一次的时间",
    "run a schedule's skill now, and print its result": "立即运行计划里的技能, 并显示结果",
    "let a schedule rest": "暂停一个计划",
    "go on with a schedule, from now": "从现在起恢复一个计划",
    "forget a schedule of `jobs add`": "删除 `jobs add` 建立的计划",
    "the attempts of jobs, the latest first": "任务的各次运行, 最近的在前",
    "a workflow: not from the step that failed": "工作流: 从头开始, 而不是从失败的步骤",
    "@name, @role/name, or flow:NAME for a workflow": "@name、@role/name, 工作流写 flow:NAME",
    "a Task prompt, or words for a backend agent": "Task 提示词, 或交给后端智能体的话",
    "for those words: which agent": "这些话: 交给哪个智能体",
    "for those words: go on with this conversation": "这些话: 接着这个会话",
    "for those words: the agent's model": "这些话: 智能体的模型",
    "what to call it (the skill's name, or `task`)": "叫什么 (技能的名称, 或 `task`)",
    "more attempts after it failed (0)": "失败后再试几次 (0)",
    "seconds that a run may take": "一次运行最多用多少秒",
    "which queue (default)": "哪个队列 (default)",
    "a command or webhook to tell of the last failure": "最终失败时通知的命令或 webhook",
    "until it is done, and print its result": "等到完成, 并显示结果",
    "seconds before it may start": "多少秒之后才能开始",
    '"0 9 * * 1-5", @daily, "every 15m"': '"0 9 * * 1-5"、@daily、"every 15m"',
    "such as Europe/Berlin (this machine's)": "例如 Asia/Shanghai (默认是这台机器的)",
    "ticks that nobody was there for (run-once)": "没有 worker 时错过的怎么办 (run-once)",
    "a tick while the last run goes on (skip)": "上一次还没结束时怎么办 (skip)",
    "start up to so many seconds later": "随机推迟, 最多这么多秒",
    "the schedule's name": "计划的名称",
    "only those of this name": "只列这个名称的",
    "how many (20)": "最多几个 (20)",
    "the workflows of this project, and how each ended last": "这个项目的工作流, 和各自上一次的结果",
    "check workflows: what is wrong, where, and what to do": "检查工作流: 哪里有什么问题, 怎么办",
    "run a workflow and print one result": "运行工作流并显示一个结果",
    "each step of a flow: its state, time and run": "工作流运行的每一步: 状态、用时和运行记录",
    "go on with a flow whose process died": "继续一个进程已死的工作流",
    "print the JSON Schema of workflow.yaml": "输出 workflow.yaml 的 JSON Schema",
    "files, folders or names; all of this project": "文件、目录或名称; 不写则是这个项目的全部",
    "warnings fail too": "警告也算失败",
    "its file, the folder of a workflow.yaml, or its name": "它的文件、workflow.yaml 所在的目录, 或名称",
    "one of its inputs": "它的一个输入",
    "leave it to a worker, and print its id": "交给 worker, 并显示 ID",
    "runs at a time in each queue (1)": "每个队列同时运行几个 (1)",
    "which queues (default)": "哪些队列 (default)",
    "end when nothing is queued any more": "队列空了就结束",
    "at the end, seconds for runs under way (10)": "结束时给正在运行的多少秒 (10)",
    "wait for a database that is not there yet": "等待还没有就绪的数据库",
    "write the service, and start it": "写入服务并启动",
    "whether it is there, and runs": "是否已安装, 是否在运行",
    "stop it, and take the file away": "停止服务并删除文件",
    "runs at a time (1)": "同时运行几个 (1)",
    "show the file, and write nothing": "只显示文件, 不写入",
    "say yes without being asked": "不询问, 直接同意",
    "@name[:script], list or remove": "@name[:script]、list 或 remove",
    "what to remove: a digest, or how it starts": "要删除的: 哈希, 或它的开头",
    "in this conversation only": "只在这个会话里",
    "in every conversation (the default)": "在所有会话里 (默认)",
    "folder, name, title or path of an active skill": "激活的技能的目录、名称、标题或路径",
    "everything that is active there": "那里激活的全部",
    "with what is active in this conversation": "包括这个会话里激活的",
    "what the agent is to do; - reads it from stdin": "要智能体做的事; - 表示从标准输入读取",
    "claude-code, codex, opencode or another backend": "claude-code、codex、opencode 或其他后端",
    "the conversation that it belongs to": "所属的会话",
    "where the agent works; here where it is not given": "智能体工作的目录; 不写则是当前目录",
    "seconds that it may take (3600)": "最多用多少秒 (3600)",
    "show what the agent does while it does it": "实时显示智能体在做什么",
    "show the exact text, and start nothing": "只显示要发送的原文, 不启动",
    "every backend, with its version and its conversations": "全部后端, 及其版本和会话",
    "start it and make it say hello": "启动它并让它应答",
    "keep it warm in the background, for one conversation": "在后台为一个会话保持预热",
    "what was told in a conversation, from its beginning": "一个会话从头开始的内容",
    "end what is running or warm; the conversation can be gone on with": "结束正在运行或预热的; 会话之后可以继续",
    "how many conversations, the latest first (20)": "最多几个会话, 最近的在前 (20)",
    "a backend; all of them where none is named": "后端; 不写则是全部",
    "ask its model one word too, which costs a few tokens": "也向它的模型问一个词, 会用掉少量 token",
    "a backend": "后端",
    "the conversation; a new one where it is not given": "会话; 不写则新建一个",
    "end it after so long a rest (900)": "空闲多少秒后结束 (900)",
    "go on until the turn that runs is over": "一直跟随, 直到当前这一轮结束",
    "a conversation": "会话",
    "what it is called, in any script; its folder is named after it": "叫什么, 任何文字都可以; 目录以它命名",
    "what it is": "类型",
    "what people call it; the name where it is not given": "显示的标题; 不写则是名称",
    "what it does and when to use it, for the agent": "它做什么、何时使用, 写给智能体看",
    "of a JSON skill, with commas: analyze, report, fetch, push, full, or your own": (
        "JSON 技能的动作, 用逗号分隔: analyze, report, fetch, push, full, 或自定义的"
    ),
    "of the program (python), and of the words": "程序的语言 (python), 和文字的语言",
    "the roles of this project": "这个项目的角色",
    "everything that is known of a role": "一个角色的全部信息",
    "write a new role, with a skill that works at once": "创建一个角色, 带一个马上能用的技能",
    "check agent.yaml: what is wrong, where, and what to do": "检查 agent.yaml: 哪里有什么问题, 怎么办",
    "run an action of a role's skill": "运行角色的技能的一个动作",
    "print the JSON Schema of agent.yaml": "输出 agent.yaml 的 JSON Schema",
    "the role": "角色",
    "what it is responsible for": "它负责什么",
    "what its first skill is called (daily_report)": "它的第一个技能叫什么 (daily_report)",
    "roles, or paths of agent.yaml; all of them": "角色, 或 agent.yaml 的路径; 不写则是全部",
    "a param; numbers are numbers": "一个参数; 数字就是数字",
    "all params as one JSON object": "全部参数, 写成一个 JSON 对象",
    "such as user_id=…": "例如 user_id=…",
    "print the S3 response and nothing else": "只输出 S3 响应",
    "a SKILL.md, a skill's folder, or a folder of skills": "SKILL.md、技能的目录, 或放技能的目录",
    "show the notes of files that pass, too": "通过的文件也显示提示",
    "a skill's folder or SKILL.md, or an installed skill": "技能的目录或 SKILL.md, 或已安装的技能",
    "seconds for each request (10)": "每个请求多少秒 (10)",
    "advice fails too": "建议也算失败",
    "a folder, an archive, a git address (…/tree/REF/PATH), owner/repo[/path][@skill][#ref], an http(s) "
    "archive, or …/.well-known/agent-skills/index.json": (
        "目录、压缩包、git 地址 (…/tree/REF/PATH)、owner/repo[/path][@skill][#ref]、http(s) 压缩包, 或 "
        "…/.well-known/agent-skills/index.json"
    ),
    "only this one; can be repeated": "只要这一个; 可以重复",
    "every skill that the source holds": "来源里的全部技能",
    "for every project of yours": "用于你的所有项目",
    "a branch, a tag or a commit of a git source": "git 来源的分支、标签或提交",
    "another name for its folder": "目录另起一个名称",
    "take all of several without being asked": "有多个时全部安装, 不询问",
    "only tell what would be installed": "只说明将要安装什么",
    "folder or name of an installed skill": "已安装的技能的目录或名称",
    "every installed skill": "全部已安装的技能",
    "the user's own skills": "用户自己的技能",
    "only tell what would change": "只说明将有什么变化",
    "keep files that were edited here": "保留在这里改过的文件",
    "replace files that were edited here": "替换在这里改过的文件",
    "everything that came from there, as skillyard.lock spells it": "来自那里的全部, 写法与 skillyard.lock 相同",
    "of the user's own skills": "从用户自己的技能里",
    "do not ask": "不询问",
    "a skill; without one, every installed skill": "技能; 不写则是全部已安装的技能",
    "of claude-code, codex, opencode": "从 claude-code, codex, opencode 里选",
    "the project's skills (the default)": "项目的技能 (默认)",
    "your own skills, for all your projects": "你自己的技能, 用于所有项目",
    "copy instead of a symlink; `update` refreshes it": "复制而不是符号链接; `update` 会更新它",
    "ask the agents what they see, and change nothing": "询问智能体看到了什么, 不做改动",
    "only tell what would be made": "只说明将要建立什么",
    "a linked skill": "已链接的技能",
    "everything that was linked": "链接过的全部",
    "only tell what would go": "只说明将要去掉什么",
    "a SKILL.md, a skill's folder, a folder of skills, or a skill's name": (
        "SKILL.md、技能的目录、放技能的目录, 或技能的名称"
    ),
    "exit with 1 from here on (MEDIUM)": "达到这一级就以 1 退出 (MEDIUM)",
    "a SARIF 2.1.0 document on stdout and nothing else": "标准输出只有一份 SARIF 2.1.0 文档",
    "list where nothing is said": "不写则是 list",
    "as `skillyard review` lists it": "与 `skillyard review` 列出的相同",
    '{"skill": "keep" or "uninstall"}': '{"skill": "keep" 或 "uninstall"}',
    "@name of a skill, or a folder": "技能的 @name, 或目录",
    "@name of a skill, or its folder": "技能的 @name, 或它的目录",
    "the trust in this project's files": "对这个项目的文件的信任",
    "only tell what is asked for, and whether it is trusted": "只说明请求了什么, 是否已信任",
    "write nothing; exit with 1 on drift": "不写入; 有差异时以 1 退出",
    "configure claude-code, codex or opencode to use our server": (
        "配置 claude-code、codex 或 opencode 使用我们的服务器"
    ),
    "with --mcp: write without being asked": "与 --mcp 一起: 不询问, 直接写入",
    "operations": "操作",
    "an exact text becomes another": "把一段原文换成另一段",
    "An exact text becomes another.": "把一段原文换成另一段。",
    "a text at the end; makes the file": "在末尾加文本; 没有文件则建立",
    "A text at the end; makes the file.": "在末尾加文本; 没有文件则建立。",
    "a text at the start": "在开头加文本",
    "A text at the start.": "在开头加文本。",
    "what a pattern matches becomes something else": "替换模式匹配到的内容",
    "What a pattern matches becomes something else.": "替换模式匹配到的内容。",
    "one field of a JSON file": "修改 JSON 文件的一个字段",
    "new lines after the line with a marker": "在标记所在行之后加新行",
    "New lines after the line with a marker.": "在标记所在行之后加新行。",
    "new lines before the line with a marker": "在标记所在行之前加新行",
    "New lines before the line with a marker.": "在标记所在行之前加新行。",
    "the lines between two markers' lines": "删除两个标记行之间的行",
    "The lines between the one with START and the next one with END; these two stay.": (
        "删除 START 所在行与其后 END 所在行之间的行; 这两行保留。"
    ),
    "several edits from a JSON file, all or nothing": "执行 JSON 文件里的多项编辑, 全做或全不做",
    "the file": "文件",
    "every place, where there are several": "有多处时全部",
    "the Nth place": "第 N 处",
    "every line, where there are several": "有多行时全部",
    "the Nth line": "第 N 行",
    "show the difference, write nothing": "只显示差异, 不写入",
    "the text; lines in it may end in any way": "文本; 其中的行尾不限",
    "CONTENT comes from stdin": "CONTENT 来自标准输入",
    "only the first N matches": "只替换前 N 处",
    "^ and $ match at every line": "^ 和 $ 匹配每一行",
    ". matches a newline too": ". 也匹配换行",
    "letters match in either case": "不区分大小写",
    "stop the match after S seconds (5)": "匹配超过 S 秒就停止 (5)",
    'FIELD is a path: a.b, items.0.name, items[0], items[-] (one more), "a.b".c for a key with a dot. What '
    "is missing is made. VALUE is JSON where it parses, else a text. The rest of the file stays as it is.": (
        "FIELD 是路径: a.b、items.0.name、items[0]、items[-] (追加一项), 键里有点时写 "
        '"a.b".c。缺少的会建立。VALUE 能解析则是 JSON, 否则是文本。文件的其余部分不变。'
    ),
    "the two markers' lines go too": "两个标记行也删除",
    "the Nth line with START": "第 N 个 START 所在行",
    'The file holds a list such as [{"operation": "append", "file": "mybox/a.md", "content": "x"}]; the '
    "fields are the names of the arguments and options, with _ for -. `-` reads it from stdin.": (
        '文件里是一个列表, 例如 [{"operation": "append", "file": "mybox/a.md", "content": "x"}]; '
        "字段就是参数和选项的名称, 用 _ 代替 -。`-` 表示从标准输入读取。"
    ),
    "the list of edits": "编辑列表",
    "file_editor | skill_install_workflow | skill_manager | skill_scanner": (
        "file_editor | skill_install_workflow | skill_manager | skill_scanner"
    ),
    "the script's own words": "脚本自己的参数",
    "find and read skills": "查找和阅读技能",
    "run them": "运行技能",
    "hand them to agents": "交给智能体",
    "write them": "编写技能",
    "install them": "安装技能",
    "allow and forbid": "授权与限制",
    "the project": "项目",
    "Find, check and run agent skills, with one typed result.": (
        "查找、检查和运行智能体的技能, 结果是同一种有类型的格式。"
    ),
    "`skillyard COMMAND --help` tells more about each; `skillyard --version` tells the version.": (
        "`skillyard COMMAND --help` 说明每个命令; `skillyard --version` 显示版本。"
    ),
    "List the skills that can be used here.": "列出这里可用的技能。",
    "Search the skills by name, description and tags.": "按名称、描述和标签搜索技能。",
    "Show everything that is known of a skill.": "显示一个技能的全部信息。",
    "Explain a name: who answers to it here and in each agent, and why.": (
        "解释一个名称: 在这里和各个智能体里对应哪个技能, 为什么。"
    ),
    "Read the skill folders and say what changed.": "读取技能目录, 说明有什么变化。",
    "Every other command does this by itself; `sync` shows what it found.": (
        "其他命令都会自动这样做; `sync` 显示读到了什么。"
    ),
    "Run a skill and print one result.": "运行技能并显示一个结果。",
    "Options of ours may stand anywhere before or after the name, unless the skill has a param of that "
    "name; after `@name:script` every word is the script's. Piped input goes to the program.": (
        "我们的选项可以写在名称之前或之后的任何位置, 除非技能有同名的参数; `@name:script` "
        "之后的每个词都属于脚本。管道输入交给程序。"
    ),
    "A word that starts with @ is an installed skill. A folder is run as it is. Anything else with a slash, "
    "or an archive, is SOURCE[@skill][#ref][:script], with the sources of `skillyard add`: it is fetched, "
    "scanned and run, and not installed. What the scan holds back runs only after a key of yours; off a "
    "terminal it does not run (exit code 5). The copy is kept for a month, and used again for the same "
    "commit.": (
        "以 @ 开头的是已安装的技能。目录按原样运行。其他带斜杠的写法或压缩包是 SOURCE[@skill][#ref][:script], "
        "来源与 `skillyard add` 相同: 获取、扫描并运行, 但不安装。被扫描拦下的只有在你按键同意后才运行; "
        "不在终端上则不运行 (退出码 5)。副本保留一个月, 同一提交会再次使用。"
    ),
    "Dispatch a Task to an agent, as a Kernel does, and print one result.": (
        "像 Kernel 那样把 Task 派发给智能体, 并显示一个结果。"
    ),
    "Show what ran.": "显示运行记录。",
    "Serve the skills to an agent over MCP, on stdin and stdout.": "通过 MCP (标准输入输出) 把技能提供给智能体。",
    "The agent finds skills, runs them and reads their files; it can grant nothing, and reaches the worker, "
    "other agents and jobs only with --allow. `skillyard init --mcp` prints what to put into the agent's "
    "configuration.": (
        "智能体可以查找技能、运行技能、读取技能的文件; 它不能授权, 只有用 --allow 才能使用 "
        "worker、其他智能体和任务。`skillyard init --mcp` 显示智能体的配置里要写什么。"
    ),
    "Queue and schedule skills and tasks: list, add, run, cancel and retry their jobs.": (
        "为技能和 Task 排队、安排计划: 列出、添加、运行、取消和重试任务。"
    ),
    "A job is a run that a worker does: `skillyard worker` in this project, on this machine or on another "
    "one. WHEN is five cron fields, @daily and the like, or an interval. Paths in params lie inside the "
    "project. --task is a Task prompt (`run @name`, `run python bin/x.py`); other words go to a backend "
    "agent, and nobody is there to allow it anything.": (
        "任务是由 worker 执行的运行: 这个项目里的 `skillyard worker`, 在这台或另一台机器上。WHEN 是五个 cron "
        "字段、@daily 之类, 或时间间隔。参数里的路径在项目之内。--task 是 Task 提示词 (`run @name`、`run python "
        "bin/x.py`); 其他的话交给后端智能体, 那时没有人能许可它做什么。"
    ),
    "Workflows: several skills, one after the other, that survive a crash.": "工作流: 依次运行几个技能, 崩溃也不丢。",
    "A workflow is a file of steps: workflows/NAME.yaml, the project's workflow.yaml, or any file of the "
    "project by its path. It is checked as a whole before anything starts. A step that ended is not "
    "repeated, whoever dies: a worker takes over the rest, or `flow resume` does. Ctrl-C cancels.": (
        "工作流是写有步骤的文件: workflows/NAME.yaml、项目的 workflow.yaml, "
        "或项目里任何文件的路径。启动之前先整体检查。已结束的步骤不会重复, 无论谁中途死掉: 其余的由 worker "
        "接手, 或用 `flow resume` 继续。Ctrl-C 取消。"
    ),
    "Work off the jobs of this project, and fire what is scheduled.": "执行这个项目的任务, 并按时启动计划。",
    "Any number of workers may serve a project; on PostgreSQL also from other machines. A worker that dies "
    "loses nothing: another one, or the next, takes over what it had. Ctrl-C ends it after the runs under "
    "way, twice at once.": (
        "一个项目可以有任意多个 worker; 用 PostgreSQL 时也可以在其他机器上。worker 死掉不会丢失任何东西: "
        "另一个或下一个会接手。Ctrl-C 在当前的运行结束后退出, 按两次立即退出。"
    ),
    "Keep the worker of this project alive, also after a reboot.": "让这个项目的 worker 一直运行, 重启之后也是。",
    "Writes one file, a systemd unit of yours or a launchd agent on macOS, after showing it. Without it "
    "nothing fires while no `skillyard worker` runs.": (
        "写入一个文件: 你的 systemd 单元, macOS 上则是 launchd 代理, 写入之前会显示。没有它, `skillyard worker` "
        "不运行时计划也不会启动。"
    ),
    "Build the environment that a skill's Python programs need, after showing its packages.": (
        "显示所需的软件包之后, 为技能的 Python 程序构建环境。"
    ),
    "They are named by a PEP 723 block in the program, else by a requirements.txt. Only wheels are "
    "installed, inside the sandbox; a changed skill asks again.": (
        "软件包写在程序的 PEP 723 块里, 否则在 requirements.txt 里。只安装 wheel, 在沙箱内进行; 技能变化后会再次询问。"
    ),
    "Activate skills: from now on they go with every task for an agent.": "激活技能: 此后它们随每个任务交给智能体。",
    "Without --session a skill is active in every conversation: your own skills everywhere, a project's in "
    "that project. To activate one again changes nothing.": (
        "不写 --session 时, 技能在所有会话里激活: 你自己的技能处处有效, 项目的技能在该项目里有效。重复激活没有影响。"
    ),
    "Take skills out of what goes with a task.": "取消激活: 技能不再随任务交出。",
    "Without --session it is about what is active in every conversation; what a conversation activated for "
    "itself stays.": ("不写 --session 时, 针对的是在所有会话里激活的技能; 会话自己激活的保持不变。"),
    "Show the active skills in the order in which they are handed over.": "按交出的顺序显示激活的技能。",
    "With --session those of the conversation are among them. `sent` tells which fit into the limit of "
    "30,000 characters.": ("写上 --session 时, 包括该会话的技能。“发送”一列说明哪些在 30,000 个字符的限制之内。"),
    "Hand a task with the active skills to an agent.": "带着激活的技能把任务交给智能体。",
    "The skills are those of the project that the command is given in; --cwd is where the agent works. "
    "--session names a conversation of ours: what is active in it goes along, and a second task in it goes "
    "on where the first ended.": (
        "技能来自执行命令时所在的项目; --cwd 是智能体工作的目录。--session 是我们的会话的名称: "
        "其中激活的技能一起交出, 同一会话里的第二个任务接着第一个继续。"
    ),
    "What the agent wants to be allowed is asked on the terminal, and refused where nobody is there. Ctrl-C "
    "stops the agent; the conversation can be gone on with.": (
        "智能体请求的许可在终端上询问, 没有人时拒绝。Ctrl-C 停止智能体; 会话之后可以继续。"
    ),
    "The agents: which are there, what they are doing, what they said; keep them warm, stop them.": (
        "后端智能体: 有哪些, 在做什么, 说过什么; 预热和停止它们。"
    ),
    "`check` starts each agent and makes it say hello, without calling a model; with --ask it is asked one "
    "word, which its model must answer. `start` keeps an agent warm for a conversation: the next `dispatch "
    "--session` need not wait for its start. It ends after a while without a task, with a turn that fails "
    "or is stopped, and when a task comes to its conversation that it was not started for (another model, "
    "other settings). `stop` ends what an agent is doing, whichever process started it, and the warm ones.": (
        "`check` 启动每个智能体并让它应答, 不调用模型; 加 --ask 则问一个词, 由它的模型回答。`start` "
        "为一个会话预热智能体: 下一次 `dispatch --session` 不必等它启动。以下情况会结束预热: 一段时间没有任务, "
        "一轮失败或被停止, 或会话里来了不适合它的任务 (另一个模型, 其他设置)。`stop` 结束智能体正在做的事, "
        "无论由哪个进程启动, 也结束预热的智能体。"
    ),
    "Write a new skill that passes its own test at once.": "创建一个新技能, 马上就能通过自己的测试。",
    "It goes into .claude/skills/ of the project: SKILL.md, the program, and a test that needs nothing but "
    "Python. --lang takes the program's language (python, bash, node) and the text's (zh, en); give it "
    "twice for both.": (
        "放在项目的 .claude/skills/ 里: SKILL.md、程序, 和只需要 Python 的测试。--lang 接受程序的语言 "
        "(python、bash、node) 和文字的语言 (zh、en); 两者都要就写两次。"
    ),
    "Roles: agents/<role> with its own JSON skills, schedule, secrets and bounds.": (
        "角色: agents/<role>, 有自己的 JSON 技能、计划、密钥和边界。"
    ),
    "`role run` prints one result, as `skillyard run` does; `--response` prints the skill's own S3 response instead.": (
        "`role run` 像 `skillyard run` 一样显示一个结果; `--response` 则输出技能自己的 S3 响应。"
    ),
    "Check SKILL.md files: what is wrong, where, how bad, and what to do.": (
        "检查 SKILL.md 文件: 哪里有什么问题, 多严重, 怎么办。"
    ),
    "A path is a SKILL.md, a skill's folder, or a folder of skills. Errors fail; with --strict warnings fail too.": (
        "路径是 SKILL.md、技能的目录, 或放技能的目录。有错误则失败; 加 --strict 时警告也算失败。"
    ),
    "Check that a skill behaves as its kind must: every probe, in the sandbox.": (
        "检查技能的行为是否符合它的类型: 在沙箱里做全部探测。"
    ),
    "Bad requests, unknown actions, missing and wrong params, stdout, exit codes, the same request twice: "
    "each probe is listed with what came of it and what to do. It runs in a folder that is thrown away, "
    "with no grants and no record.": (
        "错误的请求、未知动作、缺少和错误的参数、标准输出、退出码、同一请求两次: "
        "列出每项探测的结果和办法。在用完即弃的目录里运行, 没有授权, 也不留记录。"
    ),
    "Install skills from a folder, an archive, a git repository or the web.": (
        "从目录、压缩包、git 仓库或网络安装技能。"
    ),
    "They go into .claude/skills/ of the project, or with --global into the user's own; skillyard.lock says "
    "what came from where. Every file is checked and scanned before anything is written. What looks "
    "doubtful is held back until you decide; --yes never decides that.": (
        "安装到项目的 .claude/skills/, 加 --global 则装到用户自己的目录; skillyard.lock "
        "记录什么来自哪里。写入之前检查并扫描每个文件。可疑的先拦下, 由你决定; --yes 不会替你决定。"
    ),
    "Bring installed skills to what their sources have now, after telling what would change.": (
        "说明变化之后, 把已安装的技能更新到来源的现状。"
    ),
    "Files that you edited are never overwritten unasked: the difference is shown, --keep keeps yours, "
    "--theirs takes the source's. Files that you added stay in any case. What the scan holds back waits for "
    "a decision, as with `add`. Copies that `skillyard link --copy` made follow, but for those that you "
    "edited.": (
        "你改过的文件不会不经询问就被覆盖: 会显示差异, --keep 保留你的, --theirs "
        "采用来源的。你添加的文件总会保留。被扫描拦下的像 `add` 一样等待决定。`skillyard link --copy` "
        "建立的副本随之更新, 你改过的除外。"
    ),
    "Remove installed skills; files that you made or edited stay.": "删除已安装的技能; 你建立或改过的文件会保留。",
    "What `skillyard link` made of them goes too, but for copies that you edited.": (
        "`skillyard link` 为它们建立的也一并去掉, 你改过的副本除外。"
    ),
    "Install exactly what skillyard.lock says, on this machine too.": "在这台机器上也按 skillyard.lock 原样安装。",
    "Skills that are there already stay as they are; files that you edited stay, unless --theirs says "
    "otherwise. A source that has other bytes now is an error: nothing else is installed in its place.": (
        "已有的技能不变; 你改过的文件保留, 除非加 --theirs。来源的内容变了就是错误: 不会装别的来代替。"
    ),
    "Compare the installed skills with skillyard.lock: changed, missing and added files.": (
        "把已安装的技能与 skillyard.lock 比对: 改过、缺少和多出的文件。"
    ),
    "Make installed skills visible to Claude Code, Codex and OpenCode in their own folders.": (
        "让 Claude Code、Codex 和 OpenCode 在各自的目录里看到已安装的技能。"
    ),
    "Without NAME: every skill that skillyard.lock says was installed. Other skills of the project are "
    "linked by name. With --user: your own skills, for all your projects. A symlink is made, or with --copy "
    "a copy; what an agent sees already is told and left alone, and nothing that stands there is "
    "overwritten. `skillyard unlink` undoes exactly this.": (
        "不写 NAME: skillyard.lock 里的全部技能。项目的其他技能按名称链接。加 --user: 你自己的技能, "
        "用于所有项目。建立符号链接, 加 --copy 则是副本; 智能体已经看到的会说明并保持原样, "
        "不覆盖任何已有的东西。`skillyard unlink` 恰好撤销这些。"
    ),
    "--check asks the agents themselves (no model is called, nothing leaves this machine): seen, not seen, "
    "or shadowed by another skill of the same name.": (
        "--check 询问智能体本身 (不调用模型, 不离开这台机器): seen 看到, not seen 没看到, shadowed "
        "被另一个同名的技能遮住。"
    ),
    "Take back what `skillyard link` made, and only that.": "撤销 `skillyard link` 建立的, 只撤销这些。",
    "A copy that you edited stays, and is told; so does whatever somebody else put in its place. Folders "
    "that link made and that are empty now go too.": (
        "你改过的副本会保留并说明; 别人放在那里的东西也一样。link 建立的、现在空了的目录也去掉。"
    ),
    "Scan skills for threats: what in them may harm you, where, and what to do.": (
        "扫描技能的威胁: 哪里有什么可能有害, 怎么办。"
    ),
    "Nothing is run, and nothing is sent anywhere. A path is a SKILL.md, a skill's folder, or a folder of "
    "skills; anything else is the name of a skill that can be used here. Exit code 1 where something is "
    "MEDIUM or worse, or could not be read (UNKNOWN); --fail-on moves that line.": (
        "不运行任何东西, 也不向外发送。路径是 SKILL.md、技能的目录, 或放技能的目录; "
        "其他的是这里可用的技能的名称。有 MEDIUM 或更高的, 或无法读取的 (UNKNOWN), 退出码为 1; --fail-on "
        "改变这条线。"
    ),
    "Decide on skills that were held back: keep installs them, uninstall does not.": (
        "决定被拦下的技能: keep 安装, uninstall 不安装。"
    ),
    "On a terminal `review resume ID` shows three lines for each and takes one key. Off a terminal "
    "--decisions says it, and nothing above MEDIUM is kept; inside an agent nothing is kept at all. What is "
    "not decided stays held back.": (
        "在终端上, `review resume ID` 为每个技能显示三行, 按一个键决定。不在终端上时由 --decisions 说明, 高于 "
        "MEDIUM 的不能保留; 在智能体里一个也不能保留。没有决定的继续拦下。"
    ),
    "Allow a skill more than the rules give it: for this project, and for exactly its bytes.": (
        "给技能规则之外的授权: 只在这个项目里, 只对它现在的内容有效。"
    ),
    "Capabilities: read-project, network, packages, read:PATH, write:PATH, env:NAME. A changed skill has "
    "none of them. A path is taken from the project root, and resolved: what it leads to now is what is granted. What "
    "the agent.yaml of a role asks for is granted all at once by `skillyard trust`.": (
        "能力: read-project、network、packages、read:PATH、write:PATH、env:NAME。技能变化后授权全部失效。"
        "路径从项目根目录算起并解析到实际位置: 授予的是它现在指向的路径。角色的 "
        "agent.yaml 请求的, 由 `skillyard trust` 一次授权。"
    ),
    "Show what was granted in this project, and whether it still counts.": "显示这个项目里的授权, 以及是否仍然有效。",
    "A grant is for exactly the bytes that a skill had; after a change it is void until it is given again.": (
        "授权只对技能当时的内容有效; 变化之后失效, 直到再次授权。"
    ),
    "Take back what was granted to a skill, or the trust in this project.": "撤销对技能的授权, 或对这个项目的信任。",
    "Trust what this project's own files ask for, after seeing the list.": "看过清单之后, 信任这个项目的文件所请求的。",
    "What comes with a clone is not you: until you trust it, a project's files can only narrow what is "
    "allowed. What a role asks for (network, paths, secrets, schedules) counts for exactly the bytes of its "
    "folder, the scripts of bin/ for exactly the bytes of every file in it: what was added, changed or removed "
    "since the last time is listed.": (
        "克隆来的内容不代表你: 在你信任之前, 项目的文件只能收窄许可。角色请求的 (网络、路径、密钥、计划) "
        "只对其目录现在的内容有效, bin/ 的脚本只对其中每个文件现在的内容有效: 会列出自上次以来新增、更改或删除的文件。"
    ),
    "Tell what this machine can guard, and what is missing.": "说明这台机器能防护什么, 缺少什么。",
    "The sandbox uses whatever the system offers; each layer that is not there is named with its reason. The files of "
    "SKILLYARD_HOME are checked too, and nothing is changed.": (
        "沙箱使用系统提供的一切; 缺少的每一层都会说明原因。SKILLYARD_HOME 中的文件也会被检查, 不做任何改动。"
    ),
    "Lay out a project: its folders, bin/ scripts and the agents that a Task reaches.": (
        "建立项目: 目录、bin/ 脚本, 和 Task 能到达的智能体。"
    ),
    "Never overwrites anything. --check writes nothing: it tells what is missing, outdated or different, "
    "and exits with 1 where something is. --mcp lays nothing out: it shows what the agents must read to "
    "start `skillyard mcp` here, and asks on a terminal before it writes that into their files, beside what "
    "is there.": (
        "从不覆盖任何东西。--check 不写入: 只说明什么缺少、过时或不同, 有则以 1 退出。--mcp 不建立项目: "
        "它显示智能体要在这里启动 `skillyard mcp` 需要读取什么, 在终端上询问之后才写进它们的文件, 不动原有内容。"
    ),
    "Edit a text file: atomically, in mybox/ and nowhere else unless you allow it.": (
        "编辑文本文件: 原子写入, 只在 mybox/ 里, 除非你另外允许。"
    ),
    "Encoding, BOM, line ends and mode of the file stay. Any text is taken as it is, also where it starts "
    "with `-`; a text that is also the name of an option goes after `--`. More folders: `[editor] roots` in "
    "SKILLYARD_HOME/config.toml.": (
        "文件的编码、BOM、行尾和权限不变。文本按原样接受, 以 `-` 开头也可以; 与选项同名的文本写在 `--` "
        "之后。更多目录: SKILLYARD_HOME/config.toml 里的 `[editor] roots`。"
    ),
    "exit codes: 0 done, 1 error, 2 marker or text not found, 64 usage": (
        "退出码: 0 完成, 1 错误, 2 未找到标记或文本, 64 用法错误"
    ),
    "Run a script of bin/ without its file, for a Python that has no library.": (
        "不用文件, 直接运行 bin/ 的脚本, 供没有安装本库的 Python 使用。"
    ),
    "The script prints one result in two lines, as it does for the worker; options such as --json are not its own.": (
        "脚本用两行输出一个结果, 与给 worker 的相同; --json 之类的选项不属于它。"
    ),
}
