"""What a skill runs: its kind, and whether the command or the entry it names is one."""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Place
from skillyard.catalog.params import shape
from skillyard.core.kinds import KINDS, Kind
from skillyard.core.skill import Finding
from skillyard.core.values import Json

_SLASH_COMMAND = re.compile(r"/[\w.-]+(?::[\w.:-]+)?(?:\s.*)?", re.DOTALL)
#: Folders that programs live in: a command that starts in one of them is a path after all.
_PROGRAM_ROOTS = re.compile(r"/(?:bin|sbin|usr|opt|etc|home|root|tmp|var|nix|snap|Users|Library|Applications)\b(?=/)")
_SUBSTITUTION = re.compile(r"\$\(|`")
_OPERATORS = frozenset("();<>|&")


class Program(NamedTuple):
    kind: Kind
    command: str = ""
    entry: str = ""
    findings: tuple[Finding, ...] = ()


def read_program(fields: Mapping[str, Json], places: Mapping[str, Place]) -> Program:
    """A usable command, else a JSON entry, else a prompt. Never raises."""
    if "command" not in fields and "protocol" not in fields:
        return Program(Kind.PROMPT)
    findings: list[Finding] = []
    command = _command(fields, places.get("command", (1, 1)), findings) if "command" in fields else ""
    if command:
        return Program(Kind.COMMAND, command=command, findings=tuple(findings))
    if "protocol" not in fields:
        return Program(Kind.PROMPT, findings=tuple(findings))
    kind, entry = _by_protocol(fields, places, findings)
    return Program(kind, entry=entry, findings=tuple(findings))


def _command(fields: Mapping[str, Json], place: Place, findings: list[Finding]) -> str:
    command = fields["command"]
    if command is not None and not isinstance(command, str):
        findings.append(Rule.COMMAND_NOT_TEXT.at(*place, shape=shape(command)))
        return ""
    command = (command or "").strip()
    if not command:
        findings.append(Rule.COMMAND_EMPTY.at(*place))
        return ""
    if _SLASH_COMMAND.fullmatch(command) and not _PROGRAM_ROOTS.match(command):
        findings.append(Rule.COMMAND_SLASH.at(*place, name=command.split()[0]))
        return ""
    findings += _check_shell(command, place)
    return command


def _check_shell(command: str, place: Place) -> list[Finding]:
    """What only a shell could do. The command stays, so that a run can say the same."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.commenters = ""
    words.whitespace_split = True
    try:
        found = [word for word in words if word and _OPERATORS.issuperset(word)]
    except ValueError:
        return [Rule.COMMAND_QUOTES.at(*place)]
    found = found or _SUBSTITUTION.findall(command)
    return [Rule.COMMAND_SHELL.at(*place, shown=found[0])] if found else []


def _by_protocol(fields: Mapping[str, Json], places: Mapping[str, Place], findings: list[Finding]) -> tuple[Kind, str]:
    """The kind that `protocol:` names, with its entry; a prompt if something is wrong."""
    protocol, entry = fields["protocol"], fields.get("entry")
    place = places.get("protocol", (1, 1))
    kind = KINDS.get(protocol.strip().lower()) if isinstance(protocol, str) else None
    if kind is None or not kind.by_protocol:
        findings.append(Rule.PROTOCOL_UNKNOWN.at(*place, name=protocol))
        return Kind.PROMPT, ""
    if not kind.has_entry:
        return kind, ""
    if not isinstance(entry, str) or not entry.strip():
        findings.append(Rule.ENTRY_MISSING.at(*place))
        return Kind.PROMPT, ""
    if not is_inside(entry.strip()):
        findings.append(Rule.ENTRY_OUTSIDE.at(*places.get("entry", place), name=entry))
        return Kind.PROMPT, ""
    return kind, entry.strip()


def is_inside(entry: str) -> bool:
    """By its words alone; that no link leads out is checked when it runs."""
    windows = PureWindowsPath(entry)
    absolute = PurePosixPath(entry).is_absolute() or windows.drive or windows.root
    return not absolute and ".." not in windows.parts and not entry.startswith("~") and "\0" not in entry
