"""What the settings say about the agents: a module of its own, because every command reads the settings."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class PermissionProfile(StrEnum):
    """What a backend may do in its folder unasked, the narrowest first. For anything more it asks."""

    #: What only reads.
    READ = "read"
    #: Changing files, too.
    EDIT = "edit"
    #: Everything.
    FULL = "full"

    @property
    def rank(self) -> int:
        return list(PermissionProfile).index(self)


class DispatchSettings(NamedTuple):
    """`[dispatch]` and `[backends.NAME]`: which agents there are, and what holds for every task for one."""

    #: Which one is taken where nobody says; the rest of them never. Empty: all that we know, in our order.
    order: tuple[str, ...] = ()
    limit_seconds: float = 3600.0
    silent_seconds: float = 300.0
    at_once: int = 4
    #: Agents beside those that we know, by name: the command line of each, which must speak ACP.
    commands: Mapping[str, tuple[str, ...]] = {}
    #: What an agent may do unasked, by its name.
    allowed_tools: Mapping[str, tuple[str, ...]] = {}
    #: What an agent may do where nobody says; None where the file does not.
    profile: PermissionProfile | None = None
    #: The backend that decides on interrupts where no person can.
    decider: str = ""

    def over(self, other: "DispatchSettings") -> "DispatchSettings":
        """Return ours where they are set, else the other's; an agent that both name is ours."""
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        given.pop("profile", None)
        given["commands"] = {**other.commands, **self.commands}
        given["allowed_tools"] = {**other.allowed_tools, **self.allowed_tools}
        return other._replace(**given, profile=self.profile)

    def narrowed(self, profile: PermissionProfile | None) -> "DispatchSettings":
        """Return them with this profile if it is narrower: a project's file can take away, and never give."""
        return self._replace(profile=min(self.own_profile, profile or self.own_profile, key=lambda each: each.rank))

    @property
    def own_profile(self) -> PermissionProfile:
        return self.profile or PermissionProfile.READ
