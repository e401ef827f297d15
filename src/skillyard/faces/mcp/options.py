"""What the person who starts the server allows it to show and to do."""

from collections.abc import Container
from typing import NamedTuple

from skillyard.core.kinds import Kind
from skillyard.core.messages import Lang
from skillyard.faces.mcp.surface import RUNNABLE, Shown

ALL, ACTIVE = "all", "active"
WORKER, DISPATCH, JOBS = "worker", "dispatch", "jobs"


class Options(NamedTuple):
    #: Names of the skills that are tools of their own; `all` is every one, `active` those that go with a task.
    exposed: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    lang: Lang = Lang.EN

    def exposes(self, shown: Shown, active: Container[str]) -> bool:
        """`active` has the files of the active skills."""
        if shown.entry.kind not in RUNNABLE:
            return False
        names: Container[str] = self.exposed
        if ACTIVE in names and shown.entry.file in active:
            return True
        return ALL in names or shown.address in names or shown.entry.name in names

    def changes_tools(self, kinds: frozenset[Kind]) -> bool:
        return bool(self.exposed and kinds & RUNNABLE)
