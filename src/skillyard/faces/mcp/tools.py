"""Our own tools, and the skills that are tools of their own."""

from collections.abc import Container, Mapping
from typing import Any

import mcp_types as types

from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.faces.mcp.options import DISPATCH, JOBS
from skillyard.faces.mcp.schema import signature_of
from skillyard.faces.mcp.surface import Shown
from skillyard.faces.mcp.text import clean

_DESCRIPTION = 1_000
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


def own_tools(allowed: Container[str]) -> tuple[types.Tool, ...]:
    """Those that everybody has, and those that the person allowed."""
    more = ((DISPATCH, _dispatch_tool), (JOBS, _job_tool))
    return (*_common_tools(), *(make() for name, make in more if name in allowed))


def _job_tool() -> types.Tool:
    return _tool(
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


def _dispatch_tool() -> types.Tool:
    return _tool(
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


def _common_tools() -> tuple[types.Tool, ...]:
    return (
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


def skill_tool(shown: Shown, skill: Skill) -> types.Tool:
    said = clean(skill.description, _DESCRIPTION) or "A skill without a description."
    return types.Tool(
        name=shown.name,
        title=clean(skill.title or shown.address, _TITLE) or shown.name,
        description=said,
        input_schema=dict(signature_of(skill).schema),
        annotations=types.ToolAnnotations(read_only_hint=False, open_world_hint=True),
    )
