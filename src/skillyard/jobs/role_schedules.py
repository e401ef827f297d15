"""The schedules that stand in agents/<role>/agent.yaml, read again when a file changes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from skillyard.catalog.agentfile import read_role
from skillyard.catalog.roots import AGENT_FILE
from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.core.skill import Severity, first_of
from skillyard.jobs.schedule import Schedule, from_agent

Stamp = tuple[int, int, int]


class RoleSchedules:
    """The schedules of all roles. An entry with a mistake is left out, a file without any entry that can be read keeps
    what it said before; either way somebody is told."""

    def __init__(self, root: Path, zone: str, tell: Callable[[str], None]) -> None:
        self._root, self._zone, self._tell = root, zone, tell
        self._read: dict[Path, tuple[Stamp, tuple[Schedule, ...]]] = {}

    def list(self) -> tuple[Schedule, ...]:
        files = _files(self._root)
        for gone in set(self._read) - set(files):
            del self._read[gone]
        for file in files:
            self._look(file)
        return tuple(schedule for _, found in self._read.values() for schedule in found)

    def _look(self, file: Path) -> None:
        stamp = _stamp(file)
        known, before = self._read.get(file, ((0, 0, 0), ()))
        if stamp == known:
            return
        role = read_role(file)
        try:
            found = from_agent(role.schedule, role.name, self._zone)
        except SkillError as error:
            self._tell(error.msg)
            found = before
        if wrong := [finding for finding in role.findings if finding.severity is Severity.ERROR]:
            self._tell(
                Message(
                    "{first}; `skillyard role validate {role}` tells what to do",
                    first=first_of(wrong, f"agents/{role.name}/{AGENT_FILE}"),
                    role=role.name,
                )
            )
            found = found or before
        self._read[file] = (stamp, found)


def _files(root: Path) -> Sequence[Path]:
    return sorted((root / "agents").glob(f"*/{AGENT_FILE}"))


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return (0, 0, 1)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
