"""What a person allows in one project, as the commands grant, grants, revoke and trust ask for it.

Only a person grants, by a command of its own or by answering a question on a terminal. Inside an agent (where the depth
counter is set) nothing is granted at all.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import is_utf8
from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.capability import NETWORK, PLAIN, READ, WITH_ARGUMENT, WRITE, is_capability
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.sandbox.hosts import parse_rule
from skillyard.store.grants import Grant, Grants
from skillyard.trust import consent
from skillyard.trust.mcp_servers import McpServers, is_server
from skillyard.trust.run_policy import mark_of_skill, resolve_output


class Permissions(NamedTuple):
    grants: Grants
    root: Path
    user_home: Path

    def as_capabilities(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return them in their one spelling, with every path resolved. Raise InvalidArgs for an unknown one."""
        return resolve_paths(as_capabilities(words), self.root, self.user_home)

    def mark_of(self, skill: Skill) -> str:
        """Return what names the bytes of a skill. Take it before the question: the answer is for these bytes."""
        return mark_of_skill(skill)

    def grant(self, skill: Skill, capabilities: tuple[str, ...], mark: str) -> None:
        grant(self.grants, skill, capabilities, mark)

    def list(self) -> list[tuple[Grant, bool]]:
        """Return each grant, and whether it still counts."""
        servers = McpServers(self.root, self.user_home, self.grants, {})
        return [(each, servers.counts(each) if is_server(each) else _counts(each)) for each in self.grants.list()]

    def revoke(self, folder: str, capability: str | None) -> int:
        """Return how many grants were taken back; all of the folder's without a capability."""
        if not capability:
            return self.grants.revoke(folder, None)
        # As it was typed, or as `grant` stores it.
        forms = dict.fromkeys((*as_capabilities((capability,)), *self.as_capabilities((capability,))))
        return sum(self.grants.revoke(folder, each) for each in forms)

    def show_wants(self) -> consent.ShownWants:
        return consent.show_wants(self.grants, self.root)

    def list_coverage(self) -> tuple[consent.Coverage, ...]:
        return consent.list_coverage(self.root)

    def trust(self, shown: consent.ShownWants) -> None:
        consent.trust(self.grants, self.root, shown)

    def distrust(self) -> None:
        consent.distrust(self.grants, self.root)

    def is_trusted(self) -> bool:
        """Whether everything that the project and its roles ask for is trusted."""
        return consent.is_trusted(self.grants, self.root) and not self.untrusted_roles()

    def untrusted_roles(self) -> tuple[str, ...]:
        return consent.untrusted_roles(self.grants, self.root)


def _counts(grant: Grant) -> bool:
    folder = Path(grant.skill)
    try:
        return folder.is_dir() and fingerprint(folder, in_role=folder.parent.name == "agents") == grant.fingerprint
    except SkillError:
        return False  # it cannot be read, so nothing that was granted to it counts


def as_capabilities(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the capabilities in their one spelling. Raise InvalidArgs for an unknown one."""
    found: dict[str, None] = {}
    for word in words:
        if not is_capability(word):
            known = ", ".join((*PLAIN, *(f"{name}:…" for name in (NETWORK, *WITH_ARGUMENT))))
            raise InvalidArgs(Message("{word!r} is no capability; there are {known}", word=word, known=known))
        name, colon, argument = word.partition(":")
        try:
            found[f"{NETWORK}:{parse_rule(argument)}" if name == NETWORK and colon else word] = None
        except ValueError as error:
            raise InvalidArgs(Message("{word!r} names no host: {error}", word=word, error=error)) from None
    return tuple(found)


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
        told = Message("{argument!r} names no path: it holds characters that are no text", argument=argument)
        raise InvalidArgs(told)
    if name == WRITE:
        return f"{WRITE}:{resolve_output(argument, root)}"
    try:
        return f"{READ}:{os.path.realpath(root / argument)}"
    except (OSError, ValueError):
        raise InvalidArgs(Message("{argument!r} names no path", argument=argument)) from None


def grant(grants: Grants, skill: Skill, capabilities: tuple[str, ...], mark: str = "") -> None:
    """`mark`: the fingerprint that the folder had when the person was asked."""
    refuse_inside_agents()
    mark = mark or mark_of_skill(skill)
    for capability in as_capabilities(capabilities):
        grants.add(Grant(str(skill.folder), mark, capability, time.time()))
