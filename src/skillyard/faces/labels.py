"""What the columns of tables and the lines of pages are called in Chinese: one word for one idea, everywhere."""

from collections.abc import Mapping

from skillyard.core.phrases import Lang, as_read
from skillyard.core.values import Json

_CHINESE = {
    "action": "动作",
    "actions": "动作",
    "added": "新增",
    "agent": "智能体",
    "allowed_tools": "免确认的工具",
    "args": "参数",
    "attempt": "次数",
    "backend": "后端",
    "built": "构建时间",
    "capability": "能力",
    "change": "变化",
    "changed": "有改动",
    "characters": "字符数",
    "choices": "可选值",
    "claude": "CLAUDE.md",
    "code": "规则",
    "column": "列",
    "command": "命令",
    "counts": "有效",
    "created": "创建时间",
    "default": "默认值",
    "description": "描述",
    "detail": "详情",
    "digest": "哈希",
    "entry": "入口",
    "file": "文件",
    "findings": "检查结果",
    "folder": "目录",
    "from": "来自",
    "granted": "授权时间",
    "grants": "授权",
    "held back": "被拦下的技能",
    "home": "主目录",
    "  backup": "  备份",
    "  set aside": "  损坏并保留",
    "jobs database": "任务数据库",
    "id": "ID",
    "job": "任务",
    "jobs": "任务",
    "kind": "类型",
    "last": "最近",
    "launch": "启动",
    "left out": "略过",
    "line": "行",
    "log": "日志",
    "max_turns": "最多轮数",
    "message": "说明",
    "missing": "缺少",
    "model": "模型",
    "name": "名称",
    "next": "下一次",
    "note": "说明",
    "ok": "正常",
    "owner_team": "所属团队",
    "packages": "软件包",
    "params": "参数",
    "part": "项",
    "path": "路径",
    "problems": "问题数",
    "project": "项目",
    "python": "Python",
    "queue": "队列",
    "removed": "移除",
    "request": "请求",
    "required": "必需",
    "result": "结果",
    "retries": "重试",
    "role": "角色",
    "run": "运行记录",
    "sandbox": "沙箱",
    "schedule": "计划",
    "seconds": "秒",
    "secrets": "密钥",
    "security": "限制",
    "sent": "发送",
    "session": "会话",
    "severity": "级别",
    "size": "大小",
    "skill": "技能",
    "skills": "技能",
    "standing": "状况",
    "started": "开始时间",
    "state": "状态",
    "step": "步骤",
    "steps": "步骤",
    "summary": "摘要",
    "tags": "标签",
    "task": "Task",
    "time": "用时",
    "timeout": "超时(秒)",
    "title": "标题",
    "told": "通知",
    "trusted": "已信任",
    "type": "类型",
    "updated": "更新",
    "uses": "使用次数",
    "uuid": "UUID",
    "version": "版本",
    "visibility": "可见范围",
    "warm": "预热",
    "what": "状况",
    "when": "时间",
    "where": "位置",
    "workspace": "文件范围",
}


def label(name: str, lang: Lang) -> str:
    """The name where nothing else is known: it is somebody else's, such as a field of a file."""
    return _CHINESE.get(name, name) if lang is Lang.ZH else name


def as_words(value: Json, lang: Lang, *, says: bool = False) -> str:
    """On one line, without what is empty. `says`: its texts are messages of ours."""
    if isinstance(value, Mapping):
        held = ((key, item) for key, item in value.items() if item not in (None, "", [], {}))
        return ", ".join(f"{label(key, lang)}: {_inside(as_words(item, lang, says=says), item)}" for key, item in held)
    if isinstance(value, list):
        return ", ".join(as_words(item, lang, says=says) for item in value)
    if isinstance(value, bool):
        return yes_or_no(value, lang)
    return as_read(str(value), lang) if says else str(value)


def _inside(words: str, value: Json) -> str:
    """A list among other things has its brackets."""
    return f"[{words}]" if isinstance(value, list) else words


def yes_or_no(claim: object, lang: Lang) -> str:
    return ("是" if claim else "否") if lang is Lang.ZH else ("yes" if claim else "no")
