"""Prompt skills as prompts: listed with their arguments, filled in when somebody asks for one."""

import shlex
from collections.abc import Mapping, Sequence

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.core.messages import Lang
from skillyard.core.request import Request
from skillyard.core.skill import Skill
from skillyard.faces.mcp.listing import Shown, clean, safe_names

#: What a prompt takes that declares no names: everything that stands for $ARGUMENTS.
EVERYTHING = "arguments"
_MOST = 32


def as_prompt(shown: Shown, skill: Skill) -> types.Prompt:
    return types.Prompt(
        name=shown.name,
        title=clean(skill.title or shown.address, 80) or shown.name,
        description=clean(skill.description, 500) or None,
        arguments=_arguments(skill),
    )


def _arguments(skill: Skill) -> list[types.PromptArgument]:
    hint = clean(str(skill.fields.get("argument-hint") or ""), 200) or None
    names = _names(skill)
    if not names:
        return [types.PromptArgument(name=EVERYTHING, description=hint, required=False)]
    safe = safe_names(names)
    return [types.PromptArgument(name=safe[name], description=hint, required=False) for name in names]


def _names(skill: Skill) -> Sequence[str]:
    """The frontmatter's `arguments`, in the order of the words."""
    declared = skill.fields.get("arguments")
    names = declared.split() if isinstance(declared, str) else declared if isinstance(declared, list) else []
    return list(dict.fromkeys(str(name) for name in names))[:_MOST]


def read(yard: Project, shown: Shown, given: Mapping[str, str], lang: Lang) -> types.GetPromptResult:
    yard.catalog.sync()
    try:
        skill = yard.catalog.resolve(shown.address)
    except SkillError as error:
        raise MCPError(types.INVALID_PARAMS, error.msg) from None
    result = yard.runtime.run(Request(name=shown.address, args=_words(skill, given), lang=lang))
    if not result.ok:
        raise MCPError(types.INVALID_PARAMS, result.summary, {"hint": result.meta.get("hint")})
    text = result.data.get("rendered") or result.data.get("content")
    message = types.PromptMessage(role="user", content=types.TextContent(text=str(text)))
    return types.GetPromptResult(description=clean(skill.description, 500) or None, messages=[message])


def _words(skill: Skill, given: Mapping[str, str]) -> tuple[str, ...]:
    """The words in their places; those after the last that was given are left open."""
    names = _names(skill)
    safe = safe_names(names)
    unknown = sorted(set(given) - ({*safe.values()} if names else {EVERYTHING}))
    if unknown:
        raise MCPError(types.INVALID_PARAMS, f"the prompt takes no {', '.join(unknown)[:200]}")
    if not names:
        return _split(given.get(EVERYTHING, ""))
    words = [given.get(safe[name], "") for name in names]
    while words and not words[-1]:
        words.pop()
    return tuple(words)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # a quote that nobody closed is an apostrophe
        return tuple(text.split())
