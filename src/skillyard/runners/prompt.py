"""Prompt skills: the whole SKILL.md, handed over; nothing is executed.

With arguments there is also `rendered`: the body with Claude Code's placeholders filled. A `!` line that Claude Code
would run before it reads the text stays as it is.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skillyard.core.errors import MetadataMissing
from skillyard.core.messages import PROMPT_LOADED, Message
from skillyard.core.result import Call, Outcome
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runners.kind import Prepared
from skillyard.sandbox.launch import Sandbox

if TYPE_CHECKING:
    from skillyard.catalog.manifest import Reading
    from skillyard.runners.probes import Probe, Trial

_PLACE = re.compile(
    r"\$ARGUMENTS\[(?P<index>[0-9]{1,3})\]|\$(?P<all>ARGUMENTS)(?![A-Za-z0-9_])"
    r"|\$(?P<number>[0-9]{1,3})(?![0-9])|\$\{(?P<own>CLAUDE_SKILL_DIR)\}|\$(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
)


def plan(call: Call) -> None:
    """A prompt starts nothing."""
    del call


def run(prepared: Prepared, sandbox: Sandbox) -> Outcome:
    del sandbox  # a prompt starts nothing
    call = prepared.call
    reading = _read(call.skill)
    about = {"skill": call.asked_as, "type": "prompt", "name": call.skill.name, "description": call.skill.description}
    data: dict[str, Json] = {**about, "content": reading.text, "executable": False}
    if call.args:
        data["rendered"] = render(reading.body, call.args, call.skill)
    return Outcome(data=data, says=PROMPT_LOADED, words={"skill": call.asked_as})


def find_program(skill: Skill, script: str) -> None:
    """A prompt has no program."""
    del skill, script


def probe(skill: Skill, trial: "Trial") -> "Iterator[Probe]":
    """Everything that a prompt promises is in its text, which every kind is checked for."""
    del skill, trial
    return iter(())


def as_task(call: Call) -> str:
    """Return the text for an agent that is to follow the skill: the body with its arguments."""
    return render(_read(call.skill).body, call.args, call.skill) if call.args else read_body(call.skill)


def read_body(skill: Skill) -> str:
    """Return the text for an agent where there are no arguments."""
    return _read(skill).body.replace("${CLAUDE_SKILL_DIR}", str(skill.folder))


def _read(skill: Skill) -> "Reading":
    from skillyard.catalog.manifest import read_skill  # noqa: PLC0415  (only a prompt is read again: no YAML elsewhere)

    reading = read_skill(skill.path)
    if reading.skill is None:
        reason = reading.findings[0].message if reading.findings else "it cannot be read"
        raise MetadataMissing(Message("{place}: {reason}", place=skill.path, reason=reason))
    return reading


def render(body: str, words: Sequence[str], skill: Skill) -> str:
    """Claude Code's rules: `$ARGUMENTS` is everything, `$0` the first word, `$name` the word in its place.

    The names are the frontmatter's `arguments`, in the order of the words. A place without a word stays as it is; a
    text without any place gets the arguments at its end.
    """
    names = skill.fields.get("arguments")
    names = names.split() if isinstance(names, str) else names if isinstance(names, list) else []
    everything = shlex.join(words) if any(word.split() != [word] for word in words) else " ".join(words)
    values = {**dict(zip(map(str, names), words, strict=False)), "ARGUMENTS": everything}
    values |= {str(number): word for number, word in enumerate(words)}
    placed = False

    def fill(found: re.Match[str]) -> str:
        nonlocal placed
        if found["own"]:
            return str(skill.folder)
        value = values.get(found["all"] or found["name"] or str(int(found["index"] or found["number"])))
        placed = placed or value is not None
        return found[0] if value is None else value

    rendered = _PLACE.sub(fill, body)
    return rendered if placed else f"{rendered.rstrip()}\n\nARGUMENTS: {everything}\n"
