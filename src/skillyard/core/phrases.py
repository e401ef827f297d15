"""What we say to people, in Chinese and in English. The Chinese summaries are the seeds', to the letter."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Lang(StrEnum):
    ZH = "zh"
    EN = "en"

    @classmethod
    def of_locale(cls, locale: str) -> "Lang":
        return cls.ZH if locale.lower().startswith("zh") else cls.EN

    @classmethod
    def choose(cls, asked: str | None, env: Mapping[str, str]) -> "Lang":
        """What was asked for, SKILLYARD_LANG, else the locale."""
        names = (asked, *(env.get(name) for name in ("SKILLYARD_LANG", "LC_ALL", "LC_MESSAGES", "LANG")))
        return cls.of_locale(next(filter(None, names), ""))


class Text(NamedTuple):
    """One thing to say, in both languages, with {slots}."""

    zh: str
    en: str

    def fill(self, lang: Lang, **words: object) -> str:
        return (self.zh if lang is Lang.ZH else self.en).format_map(words)


def as_read(text: str, lang: Lang) -> str:
    """A message that is English for programs, as the person reads it; somebody else's words stay as they are."""
    if lang is Lang.EN:
        return text
    from skillyard.core.chinese import in_chinese  # noqa: PLC0415  (only a Chinese message needs them)

    return in_chinese(text)


RAN = Text("执行成功: {label}", "ran: {label}")
RAN_TO = Text("执行成功: {label} → {path}", "ran: {label} → {path}")
PLANNED = Text("将要执行: {label} (未执行)", "would run: {label} (nothing was started)")
PROMPT_LOADED = Text("提示词加载: {skill}", "prompt loaded: {skill}")
WAITING = Text("等待参数: 需要 {names}", "waiting for: {names}")
CACHE_HIT = Text("缓存命中: 使用最近结果 (<{seconds:g}s)", "cached: the latest result (<{seconds:g}s)")
PARTLY = Text("部分完成: {done}/{total} 个脚本执行成功", "partly done: {done}/{total} scripts succeeded")
RAN_ALL = Text("执行成功: {done}/{total} 个脚本", "ran: {done}/{total} scripts")
PAUSED = Text("工作流已暂停: {count} 个技能需 LLM 分析", "workflow paused: {count} skills need a decision")
