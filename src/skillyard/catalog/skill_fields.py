"""Reads the fields of a skill: name and description, command or entry, tags, actions and time limit.

Each function takes the block of the frontmatter and adds findings to it. A skill always has a name and a description:
if the frontmatter has none, its folder and its text give them.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Block
from skillyard.catalog.params import describe_type
from skillyard.core.messages import Message
from skillyard.core.skill import Kind
from skillyard.core.values import Json

MAX_NAME = 64
MAX_DESCRIPTION = 1024

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_HEADING = re.compile(r"#{1,6}[ \t]+(.+)")
_SLASH_COMMAND = re.compile(r"/[\w.-]+(?::[\w.:-]+)?(?:\s.*)?", re.DOTALL)
#: Folders with programs: a command that starts with one of them is a path, not a slash command.
_PROGRAM_ROOTS = re.compile(r"/(?:bin|sbin|usr|opt|etc|home|root|tmp|var|nix|snap|Users|Library|Applications)\b(?=/)")
_SUBSTITUTION = re.compile(r"\$\(|`")
_OPERATORS = frozenset("();<>|&")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)[ \t]*(ms|s|sec|seconds?|m|min|minutes?|h|hours?)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_COMMAS = re.compile(r"[,，、]")


class RunFields(NamedTuple):
    """What a skill runs."""

    kind: Kind
    command: str = ""
    entry: str = ""


def read_name(block: Block, path: Path) -> str:
    folder = path.parts[-2] if len(path.parts) > 1 else ""
    given = block.fields.get("name")
    name = given.strip() if isinstance(given, str) else ""
    if not name:
        rule = Rule.NAME_MISSING if given is None or given == name else Rule.NAME_NOT_TEXT
        block.report("name", rule, name=folder)
        return folder or path.stem
    if not _NAME.fullmatch(name):
        better = _NOT_NAME.sub("-", name.lower()).strip("-")[:MAX_NAME].rstrip("-")
        block.report("name", Rule.NAME_INVALID, name=name, better=better or Message("a name in a-z, 0-9 and hyphens"))
    if len(name) > MAX_NAME:
        block.report("name", Rule.NAME_TOO_LONG, count=len(name), limit=MAX_NAME)
    if folder and name != folder:
        block.report("name", Rule.NAME_NOT_FOLDER, name=name, folder=folder)
    return name


def read_description(block: Block) -> str | None:
    """Return the description as written, outer blanks included, or None if there is none."""
    given = block.fields.get("description")
    if isinstance(given, str) and given.strip():
        if len(given.strip()) > MAX_DESCRIPTION:
            block.report("description", Rule.DESCRIPTION_TOO_LONG, count=len(given.strip()), limit=MAX_DESCRIPTION)
        return given
    missing = given is None or isinstance(given, str)
    block.report("description", Rule.DESCRIPTION_MISSING if missing else Rule.DESCRIPTION_NOT_TEXT)
    return None


def first_paragraph(body: str) -> str:
    """Return the first text that is no heading, else the first heading: one line, no longer than a description."""
    heading = ""
    lines: list[str] = []
    for line in body.split("\n"):
        words = line.strip()
        if found := _HEADING.match(words):
            heading = heading or found[1].rstrip(" \t#")
        elif words and words.strip("-=*_`"):
            lines.append(words)
            continue
        if lines:
            break
    return " ".join(lines)[:MAX_DESCRIPTION] or heading[:MAX_DESCRIPTION]


def read_run_fields(block: Block) -> RunFields:
    """Return a usable command, else a JSON entry, else a prompt."""
    if "command" in block.fields and (command := _read_command(block)):
        return RunFields(Kind.COMMAND, command=command)
    if "protocol" in block.fields and (entry := _read_entry(block)):
        return RunFields(Kind.JSON, entry=entry)
    return RunFields(Kind.PROMPT)


def _read_command(block: Block) -> str:
    command = block.fields["command"]
    if command is not None and not isinstance(command, str):
        block.report("command", Rule.COMMAND_NOT_TEXT, shape=describe_type(command))
        return ""
    command = (command or "").strip()
    if not command:
        block.report("command", Rule.COMMAND_EMPTY)
        return ""
    if _SLASH_COMMAND.fullmatch(command) and not _PROGRAM_ROOTS.match(command):
        block.report("command", Rule.COMMAND_SLASH, name=command.split()[0])
        return ""
    # Shell syntax is reported, but the command stays, so that a run can say the same.
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.commenters = ""
    words.whitespace_split = True
    try:
        found = [word for word in words if word and _OPERATORS.issuperset(word)] or _SUBSTITUTION.findall(command)
    except ValueError:
        block.report("command", Rule.COMMAND_QUOTES)
    else:
        if found:
            block.report("command", Rule.COMMAND_SHELL, shown=found[0])
    return command


def _read_entry(block: Block) -> str:
    protocol, entry = block.fields["protocol"], block.fields.get("entry")
    if not isinstance(protocol, str) or protocol.strip().lower() != "json":
        block.report("protocol", Rule.PROTOCOL_UNKNOWN, name=protocol)
    elif not isinstance(entry, str) or not entry.strip():
        block.report("protocol", Rule.ENTRY_MISSING)
    elif not _is_inside(entry.strip()):
        block.report("entry", Rule.ENTRY_OUTSIDE, name=entry)
    else:
        return entry.strip()
    return ""


def _is_inside(entry: str) -> bool:
    """Whether the path stays in its folder, by its parts alone; links are checked when it runs."""
    windows = PureWindowsPath(entry)
    absolute = PurePosixPath(entry).is_absolute() or windows.drive or windows.root
    return not absolute and ".." not in windows.parts and not entry.startswith("~") and "\0" not in entry


def read_tags(fields: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the tags, triggers and keywords, also those in metadata."""
    metadata = fields.get("metadata")
    found: dict[str, None] = {}
    for source in (fields, metadata) if isinstance(metadata, Mapping) else (fields,):
        for field in ("tags", "triggers", "keywords"):
            value = source.get(field)
            listed = _COMMAS.split(value) if isinstance(value, str) else value if isinstance(value, list) else ()
            words = (str(item).strip() for item in listed if isinstance(item, str | int) and not isinstance(item, bool))
            found.update(dict.fromkeys(filter(None, words)))
    return tuple(found)


def read_actions(value: Json) -> tuple[str, ...]:
    """Return the names from a list of names, or from a mapping or list of descriptions."""
    if isinstance(value, Mapping):
        return tuple(value)
    if not isinstance(value, list):
        return ()
    names = (item.get("name") if isinstance(item, Mapping) else item for item in value)
    return tuple(name for name in names if isinstance(name, str) and name)


def read_timeout(block: Block) -> float | None:
    """Return the seconds of a number, `90s` or `2m`."""
    field = "timeout" if "timeout" in block.fields else "timeout_seconds"
    value = block.fields.get(field)
    if value is None:
        return None
    seconds = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif found := _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None:
        unit = (found[2] or "s").lower()
        seconds = float(found[1]) * _SECONDS["ms" if unit == "ms" else unit[0]]
    if seconds is None or not 0 < seconds < float("inf"):
        block.report(field, Rule.TIMEOUT_INVALID, name=value)
        return None
    return seconds
