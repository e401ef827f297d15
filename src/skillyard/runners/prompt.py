"""Prompt skills: the whole SKILL.md, handed over; nothing is executed."""

from skillyard.core.errors import MetadataMissing
from skillyard.core.phrases import PROMPT_LOADED
from skillyard.core.request import Call, Outcome
from skillyard.sandbox.launch import Sandbox


def plan(call: Call) -> None:
    """Nothing is started."""
    del call


def run(call: Call, sandbox: Sandbox) -> Outcome:
    del sandbox  # a prompt never runs
    try:
        content = call.skill.path.read_text("utf-8", "replace")
    except OSError as error:
        raise MetadataMissing(f"{call.skill.path}: {error.strerror}") from None
    return Outcome(
        data={
            "skill": call.asked_as,
            "type": "prompt",
            "name": call.skill.name,
            "description": call.skill.description,
            "content": content,
            "executable": False,
        },
        says=PROMPT_LOADED,
        words={"skill": call.asked_as},
    )
