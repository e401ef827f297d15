"""Names of table columns and page lines in the reader's language: one word for one idea, everywhere."""

from collections.abc import Mapping

from skillyard.core.messages import Lang, render, translate
from skillyard.core.values import Json

LABELS = (
    "  backup",
    "  set aside",
    "action",
    "actions",
    "added",
    "agent",
    "allowed_tools",
    "args",
    "attempt",
    "backend",
    "built",
    "capability",
    "change",
    "changed",
    "characters",
    "choices",
    "claude",
    "code",
    "column",
    "command",
    "counts",
    "created",
    "default",
    "description",
    "detail",
    "digest",
    "entry",
    "file",
    "findings",
    "folder",
    "from",
    "granted",
    "grants",
    "held back",
    "home",
    "id",
    "job",
    "jobs database",
    "jobs",
    "kind",
    "last",
    "launch",
    "left out",
    "line",
    "log",
    "max_turns",
    "message",
    "missing",
    "model",
    "name",
    "next",
    "note",
    "ok",
    "owner_team",
    "packages",
    "params",
    "part",
    "path",
    "problems",
    "project",
    "python",
    "queue",
    "removed",
    "request",
    "required",
    "result",
    "retries",
    "role",
    "run",
    "sandbox",
    "schedule",
    "seconds",
    "secrets",
    "security",
    "sent",
    "session",
    "severity",
    "size",
    "skill",
    "skills",
    "standing",
    "started",
    "state",
    "step",
    "steps",
    "summary",
    "tags",
    "task",
    "time",
    "timeout",
    "title",
    "told",
    "trusted",
    "type",
    "updated",
    "uses",
    "uuid",
    "version",
    "visibility",
    "warm",
    "what",
    "when",
    "where",
    "workspace",
)


def label(name: str, lang: Lang) -> str:
    """Return the name as it is if it has no translation: somebody else's, such as a field of a file."""
    return translate(name, lang, "label")


def as_words(value: Json, lang: Lang) -> str:
    """Return it on one line, without what is empty."""
    if isinstance(value, Mapping):
        held = ((key, item) for key, item in value.items() if item not in (None, "", [], {}))
        return ", ".join(f"{label(key, lang)}: {_inside(as_words(item, lang), item)}" for key, item in held)
    if isinstance(value, list):
        return ", ".join(as_words(item, lang) for item in value)
    if isinstance(value, bool):
        return yes_or_no(value, lang)
    return render(value, lang) if isinstance(value, str) else str(value)


def _inside(words: str, value: Json) -> str:
    """A list among other things has its brackets."""
    return f"[{words}]" if isinstance(value, list) else words


def yes_or_no(claim: object, lang: Lang) -> str:
    return ("是" if claim else "否") if lang is Lang.ZH else ("yes" if claim else "no")
