"""The rules of grants: how a capability is written, who may grant it, and for which bytes.

Only a person grants, by a command of its own or by answering a question on a terminal. Inside an agent (where the depth
counter is set) nothing is granted at all.
"""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from skillyard.catalog.files import is_utf8
from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.capability import NETWORK, PLAIN, READ, WITH_ARGUMENT, WRITE, is_capability
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import Skill
from skillyard.sandbox.hosts import parse_rule
from skillyard.store.grants import Grant, Grants
from skillyard.trust.run_policy import resolve_output


def refuse_inside_agents(env: Mapping[str, str] = os.environ) -> None:
    if env.get(DEPTH):
        raise PermissionDenied(Message("an agent cannot grant anything: a person must do it, outside"))


def as_capabilities(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the capabilities in their one spelling. Raise InvalidArgs for an unknown one."""
    return tuple(dict.fromkeys(map(_as_capability, words)))


def _as_capability(word: str) -> str:
    if not is_capability(word):
        known = ", ".join((*PLAIN, *(f"{name}:…" for name in (NETWORK, *WITH_ARGUMENT))))
        raise InvalidArgs(Message("{word!r} is no capability; there are {known}", word=word, known=known))
    name, colon, argument = word.partition(":")
    if name != NETWORK or not colon:
        return word
    try:
        return f"{NETWORK}:{parse_rule(argument)}"
    except ValueError as error:
        raise InvalidArgs(Message("{word!r} names no host: {error}", word=word, error=error)) from None


def resolve_paths(capabilities: Sequence[str], root: Path, user_home: Path) -> tuple[str, ...]:
    """Return the capabilities with every path resolved from the project root, as they are asked, stored and opened."""
    return tuple(_resolved(text, root, user_home) for text in capabilities)


def _resolved(text: str, root: Path, user_home: Path) -> str:
    name, _, argument = text.partition(":")
    if name not in {READ, WRITE} or not argument:
        return text
    if argument == "~" or argument.startswith("~/"):
        argument = str(user_home) + argument[1:]
    if "\0" in argument or not is_utf8(argument):
        msg = Message("{argument!r} names no path: it holds characters that are no text", argument=argument)
        raise InvalidArgs(msg)
    if name == WRITE:
        return f"{WRITE}:{resolve_output(argument, root)}"
    try:
        return f"{READ}:{os.path.realpath(root / argument)}"
    except (OSError, ValueError):
        raise InvalidArgs(Message("{argument!r} names no path", argument=argument)) from None


def grant(grants: Grants, skill: Skill, capabilities: tuple[str, ...], mark: str = "") -> None:
    """`mark`: the fingerprint that the folder had when the person was asked."""
    refuse_inside_agents()
    capabilities = as_capabilities(capabilities)
    mark = mark or mark_of_skill(skill)
    for capability in capabilities:
        grants.add(Grant(str(skill.folder), mark, capability, time.time()))


def mark_of_skill(skill: Skill) -> str:
    return fingerprint(skill.folder, in_role=bool(skill.role))


def not_granted(call: Call, missing: tuple[str, ...]) -> NotGranted:
    """Return the error for missing capabilities, with the command that a person must run."""
    command = "skillyard trust" if call.skill.role else grant_command(call, missing)
    return NotGranted(" ".join(missing), command, details={"capabilities": list(missing)})


def grant_command(call: Call, capabilities: tuple[str, ...]) -> str:
    """Return the grant command that a person would type, quoted for a shell."""
    return shlex.join(("skillyard", "grant", spoken(call.known_as or call.asked_as), *capabilities))


def spoken(name: str) -> str:
    """Return what a person types for a skill: `@name`, or its folder as it is."""
    return name if name.startswith((".", "/", "~")) else f"@{name}"
