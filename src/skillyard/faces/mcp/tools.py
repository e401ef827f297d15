"""Our own tools, the skills that are tools of their own, and their params as JSON Schema."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import mcp_types as types

from skillyard.core.skill import Param, ParamType, Skill
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.mcp.listing import DISPATCH, JOBS, Shown, clean, safe_names

ACTION = "action"
#: More than a model could use, and less than a hostile file could hold.
_MOST_PARAMS = 64
_MOST_CHOICES = 100
_DESCRIPTION = 300
_TYPES = {
    ParamType.STRING: "string",
    ParamType.PATH: "string",
    ParamType.ENUM: "string",
    ParamType.INT: "integer",
    ParamType.NUMBER: "number",
    ParamType.BOOL: "boolean",
}
_FORMATS = {"email": "email", "url_format": "uri"}


class Signature(NamedTuple):
    """What a tool takes, and which param of the skill each property stands for."""

    schema: Mapping[str, Any]
    params: Mapping[str, str]


def signature_of(skill: Skill) -> Signature:
    """The params of a skill. Their names are made safe too: for one bad name, model APIs refuse all tools at once."""
    params = skill.params[:_MOST_PARAMS]
    own = {ACTION: _action(skill)} if skill.kind.has_actions else {}
    names = safe_names((param.name for param in params), frozenset(own))
    properties: dict[str, Any] = {**own}
    required = [ACTION] if len(skill.actions) > 1 else []
    for param in params:
        properties[names[param.name]] = _property(param)
        if param.required and param.default is None:
            required.append(names[param.name])
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if skill.kind.takes_only_declared:
        schema["additionalProperties"] = False
    return Signature(schema, {safe: name for name, safe in names.items()})


def form_of(skill: Skill, missing: Sequence[str], prompts: Mapping[str, Json]) -> Signature:
    """The same for the missing ones alone: flat, and with primitive types only, as a form must be."""
    declared = {param.name: param for param in skill.params}
    names = safe_names(missing)
    properties: dict[str, Any] = {}
    for name in missing:
        param = declared.get(name) or Param(name=name, required=True)
        shown = _action(skill) if name == ACTION and name not in declared else _property(param)
        said = clean(str(prompts.get(name) or ""), _DESCRIPTION)
        properties[names[name]] = {**shown, "title": clean(name, 80), **({"description": said} if said else {})}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Signature(schema, {safe: name for name, safe in names.items()})


def _action(skill: Skill) -> dict[str, Any]:
    return {"type": "string", "description": "what the skill is to do", **_choices(skill.actions)}


def _property(param: Param) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": _TYPES[param.type]}
    if said := clean(param.description or param.prompt, _DESCRIPTION):
        shown["description"] = said
    shown |= _choices(param.choices)
    if param.validation in _FORMATS and param.type is ParamType.STRING:
        shown["format"] = _FORMATS[param.validation]
    default = param.default
    if isinstance(default, bool | int | float) or (
        isinstance(default, str) and clean(default, _DESCRIPTION) == default
    ):
        shown["default"] = default
    return shown


def _choices(choices: Sequence[str]) -> dict[str, Any]:
    """Values are sent back as they are: one that cannot be shown as it is would be another one."""
    plain = [choice for choice in choices if choice and clean(choice, 200) == choice]
    return {"enum": plain} if 0 < len(plain) <= _MOST_CHOICES else {}


_TOOL_DESCRIPTION = 1_000
_TITLE = 80
_MOST_WAIT = 3600

#: The envelope, as far as a client needs it: the whole of it is docs/reference/envelope.schema.json.
_ENVELOPE: Mapping[str, Any] = {
    "type": "object",
    "required": ["agent", "state", "summary", "data", "meta"],
    "properties": {
        "agent": {"type": "string"},
        "state": {"type": "string", "enum": [str(state) for state in State]},
        "summary": {"type": "string"},
        "data": {"type": "object"},
        "meta": {"type": "object"},
    },
}


def _text(says: str) -> dict[str, Any]:
    return {"type": "string", "description": says}


def _limit(says: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": says}


def _tool(
    called: str, title: str, says: str, required: list[str], *, reads: bool, **properties: dict[str, Any]
) -> types.Tool:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return types.Tool(
        name=called,
        title=title,
        description=says,
        input_schema={**schema, "required": required} if required else schema,
        output_schema=dict(_ENVELOPE),
        annotations=types.ToolAnnotations(read_only_hint=reads, open_world_hint=not reads),
    )


_JOB_TOOL = _tool(
    "job_run",
    "Run a job",
    "Queue a schedule of this project by its name, or a skill, for a worker (`skillyard worker`); data.job has its "
    "id and state. Without wait it answers at once; with wait it gives the result as soon as there is one. The job "
    "goes on also when nobody waits any more: runs shows what came of it.",
    [],
    reads=False,
    name=_text("the name of a schedule; either this or skill"),
    skill=_text("the name of a skill, role/name, or flow:NAME for a workflow"),
    params={"type": "object", "description": "the skill's params by name", "additionalProperties": True},
    action=_text("for a JSON skill: what it is to do"),
    wait={"type": "integer", "minimum": 1, "maximum": _MOST_WAIT, "description": "seconds to wait for the result"},
)


_DISPATCH_TOOL = _tool(
    "agent_dispatch",
    "Hand a task to an agent",
    "Hand a task with the active skills to another agent and wait for its answer, which is data.content. What it "
    "would have to ask a person for is refused, and listed in data.refused.",
    ["task"],
    reads=False,
    task=_text("what the agent is to do"),
    to=_text("claude-code, codex, opencode or another backend; the first that is installed"),
    session=_text("the conversation that it belongs to: a second task in it goes on where the first ended"),
    model=_text("the agent's model"),
    cwd=_text("where the agent works, inside the project; the project's folder"),
)


_COMMON_TOOLS = (
    _tool(
        "skill_search",
        "Search skills",
        "Find skills of this project by name, description and tags; the best first. Use it before skill_run when "
        "you do not know the exact name.",
        ["query"],
        reads=True,
        query=_text("words that must all occur, in any language"),
        limit=_limit("how many"),
    ),
    _tool(
        "skill_show",
        "Show a skill",
        "Everything that is known of one skill: kind, params with their types, actions, and the addresses of its "
        "files, which can be read as resources.",
        ["name"],
        reads=True,
        name=_text("name of the skill, or role/name"),
    ),
    _tool(
        "skill_run",
        "Run a skill",
        "Run one skill and get one result. A prompt skill gives its text in data.content: follow it. State "
        "`pending` names the missing params: ask the user, then call again. Paths must lie inside the project.",
        ["name"],
        reads=False,
        name=_text("name of the skill; name:scripts/x.py runs a program that it ships"),
        params={"type": "object", "description": "its params by name", "additionalProperties": True},
        args={"type": "array", "items": {"type": "string"}, "description": "words, for a program or a prompt"},
        action=_text("for a JSON skill: what it is to do"),
    ),
    _tool(
        "Task",
        "Dispatch a Task",
        "Dispatch a Task to an agent of this project. `skills` takes one skill call: run @name [args].",
        ["subagent_type", "description", "prompt"],
        reads=False,
        subagent_type=_text("skills, or worker_agent where it was allowed"),
        description=_text("what it is about, in a few words"),
        prompt=_text("执行 @name [args], or run @name [args]"),
        model=_text("told in the result"),
        idempotency_key=_text("the same key within 5 seconds runs once"),
    ),
    _tool(
        "runs",
        "Show what ran",
        "The latest runs of this project; with run_id everything that is known of one, with its log.",
        [],
        reads=True,
        run_id=_text("the id of a run, or how it starts"),
        limit=_limit("how many, the latest first"),
    ),
)


def own_tools(allowed: Container[str]) -> tuple[types.Tool, ...]:
    """Those that everybody has, and those that the person allowed."""
    more = {DISPATCH: _DISPATCH_TOOL, JOBS: _JOB_TOOL}
    return (*_COMMON_TOOLS, *(tool for name, tool in more.items() if name in allowed))


def skill_tool(shown: Shown, skill: Skill) -> types.Tool:
    said = clean(skill.description, _TOOL_DESCRIPTION) or "A skill without a description."
    return types.Tool(
        name=shown.name,
        title=clean(skill.title or shown.address, _TITLE) or shown.name,
        description=said,
        input_schema=dict(signature_of(skill).schema),
        annotations=types.ToolAnnotations(read_only_hint=False, open_world_hint=True),
    )
