"""Prompt skills as prompts: listed with their arguments, filled in when somebody asks for one."""

import shlex
from collections.abc import Mapping

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.core.messages import Lang
from skillyard.core.result import Request
from skillyard.core.skill import Skill
from skillyard.faces.mcp.listing import Shown, clean, safe_names

#: What a prompt takes that declares no names: everything that stands for $ARGUMENTS.
EVERYTHING = "arguments"
_MOST = 32


def as_prompt(shown: Shown, skill: Skill) -> types.Prompt:
    hint = clean(str(skill.fields.get("argument-hint") or ""), 200) or None
    names = _names(skill) or [EVERYTHING]
    return types.Prompt(
        name=shown.name,
        title=clean(skill.title or shown.address, 80) or shown.name,
        description=clean(skill.description, 500) or None,
        arguments=[types.PromptArgument(name=name, description=hint, required=False) for name in names],
    )


def _names(skill: Skill) -> list[str]:
    """The frontmatter's `arguments`, in the order of the words, made safe."""
    declared = skill.fields.get("arguments")
    words = declared.split() if isinstance(declared, str) else declared if isinstance(declared, list) else []
    names = list(dict.fromkeys(str(word) for word in words))[:_MOST]
    safe = safe_names(names)
    return [safe[name] for name in names]


def read(project: Project, shown: Shown, given: Mapping[str, str], lang: Lang) -> types.GetPromptResult:
    project.catalog.sync()
    try:
        skill = project.catalog.resolve(shown.address)
    except SkillError as error:
        raise MCPError(types.INVALID_PARAMS, error.msg) from None
    result = project.runtime.run(Request(name=shown.address, args=_words(skill, given), lang=lang))
    if not result.ok:
        raise MCPError(types.INVALID_PARAMS, result.summary, {"hint": result.meta.get("hint")})
    text = result.data.get("rendered") or result.data.get("content")
    message = types.PromptMessage(role="user", content=types.TextContent(text=str(text)))
    return types.GetPromptResult(description=clean(skill.description, 500) or None, messages=[message])


def _words(skill: Skill, given: Mapping[str, str]) -> tuple[str, ...]:
    """The words in their places; those after the last that was given are left open."""
    names = _names(skill)
    if unknown := sorted(set(given) - {*(names or [EVERYTHING])}):
        raise MCPError(types.INVALID_PARAMS, f"the prompt takes no {', '.join(unknown)[:200]}")
    if not names:
        text = given.get(EVERYTHING, "")
        try:
            return tuple(shlex.split(text))
        except ValueError:  # a quote that nobody closed is an apostrophe
            return tuple(text.split())
    words = [given.get(name, "") for name in names]
    while words and not words[-1]:
        words.pop()
    return tuple(words)
