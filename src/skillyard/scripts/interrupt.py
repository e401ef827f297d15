"""Interrupts of a workflow (S1 §4.1) and its request for a second analysis (§4.2).

The file is data: it is read, checked and shown, and nothing in it is ever executed but a command of two known forms.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import read_below
from skillyard.core.envelope import parse
from skillyard.core.errors import PermissionDenied
from skillyard.core.values import Json, check_value

MARK = "[INTERRUPT]"
FILE = "mybox/temp/langgraph_interrupt.json"
_ANALYSIS = "【LLM 二次分析任务】"
_MAX_BYTES = 1_000_000
_RESUME = re.compile(r"(?:python3? bin/[\w./-]+\.py|skillyard review resume)(?: [^\n\r\0;|&$`<>()\\\\]*)?")

#: (mtime, size, inode) of the file, to tell one that this run wrote from one that was there before.
Stamp = tuple[int, int, int] | None


class Interrupt(NamedTuple):
    """What waits for a decision, and how to go on."""

    skills: tuple[str, ...]
    resume_command: str
    #: Everything else the file says, for whoever decides.
    about: Mapping[str, Json]

    def as_data(self) -> dict[str, Json]:
        return {"interrupted_skills": list(self.skills), "resume_command": self.resume_command}


def stamp_of(root: Path) -> Stamp:
    try:
        status = (root / FILE).lstat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read_interrupt(root: Path, before: Stamp, stdout: str, *, ours: bool = False) -> Interrupt | None:
    """None unless the script said so, wrote the file during this run, and wrote it well.

    Any run can write in that folder. A script of `ours` says the digest of what it wrote, and nothing else counts.
    """
    if MARK not in stdout or stamp_of(root) in {None, before}:
        return None
    try:
        content = read_below(root, FILE, _MAX_BYTES)
        if ours and hashlib.sha256(content).hexdigest() != _told_digest(stdout):
            return None
        fields = json.loads(content)
        check_value(fields)
    except (OSError, ValueError, RecursionError, PermissionDenied):
        return None
    return _checked(fields) if isinstance(fields, Mapping) and len(content) <= _MAX_BYTES else None


def _told_digest(stdout: str) -> Json:
    """What a script of ours says of the file that it wrote, in the result that follows the mark."""
    return parse(stdout.partition(f"{MARK}\n")[2]).meta.get("interrupt_digest")


def _checked(fields: Mapping[str, Json]) -> Interrupt | None:
    skills, command = fields.get("interrupted_skills"), fields.get("resume_command")
    if not isinstance(skills, list) or not skills or not isinstance(command, str):
        return None
    names = tuple(_name(item) for item in skills)
    is_safe = bool(_RESUME.fullmatch(command)) and ".." not in command.split(" ", 2)[1]
    if not all(names) or len(set(names)) != len(names) or not is_safe:
        return None
    known = {"interrupted_skills", "resume_command"}
    return Interrupt(names, command, {key: value for key, value in fields.items() if key not in known})


def _name(item: Json) -> str:
    """A skill is its name, or an object that has one."""
    if isinstance(item, Mapping):
        item = item.get("name") or item.get("skill")
    return item if isinstance(item, str) and item.isprintable() else ""


def find_analysis(stdout: str) -> str | None:
    """The block that asks for a second analysis: from its mark to the end."""
    at = stdout.find(_ANALYSIS)
    return stdout[at:].rstrip("\n") if at >= 0 else None
