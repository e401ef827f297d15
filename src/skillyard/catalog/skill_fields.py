"""Reads the fields of a skill: name, description, command or entry, tags, actions, time limit and params.

Each function takes the block of the frontmatter and adds findings to it. A skill always has a name and a description:
if the frontmatter has none, its folder and its text give them.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeAlias, TypeGuard

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Block
from skillyard.core.messages import Message
from skillyard.core.skill import KINDS, OWN_SLOTS, SLOT, Kind, Param, ParamType
from skillyard.core.values import Json

MAX_NAME = 64
MAX_DESCRIPTION = 1024
PARAM_FIELDS = ("params", "parameters", "required_params")
VALIDATIONS = frozenset({"not_empty", "url_format", "email", "file_exists"})

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
_PARAM_NAME = re.compile(r"[^\W\d][\w.-]*")
_TYPES = {
    **{str(kind): kind for kind in ParamType},
    **dict.fromkeys(("str", "text", "url", "email", "date"), ParamType.STRING),
    **dict.fromkeys(("file", "filepath", "file_path", "dir", "directory", "folder"), ParamType.PATH),
    "integer": ParamType.INT,
    "float": ParamType.NUMBER,
    "double": ParamType.NUMBER,
    "boolean": ParamType.BOOL,
    "flag": ParamType.BOOL,
    "choice": ParamType.ENUM,
    "select": ParamType.ENUM,
}
_CLASSES = {ParamType.BOOL: bool, ParamType.INT: int, ParamType.NUMBER: int | float}
_IMPLIED_VALIDATION = {"url": "url_format", "email": "email"}
#: Called with a rule and its values: adds a finding at the field that is read.
_Report: TypeAlias = Callable[..., None]


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


def read_run_fields(block: Block) -> tuple[Kind, str, str]:
    """Return the kind with its command or entry: a usable command, else what `protocol:` names, else a prompt."""
    if "command" in block.fields and (command := _read_command(block)):
        return Kind.COMMAND, command, ""
    if "protocol" not in block.fields:
        return Kind.PROMPT, "", ""
    protocol, entry = block.fields["protocol"], block.fields.get("entry")
    kind = KINDS.get(protocol.strip().lower()) if isinstance(protocol, str) else None
    if kind is None or not kind.by_protocol:
        block.report("protocol", Rule.PROTOCOL_UNKNOWN, name=protocol)
    elif not kind.has_entry:
        return kind, "", ""
    elif not isinstance(entry, str) or not entry.strip():
        block.report("protocol", Rule.ENTRY_MISSING)
    elif not _is_inside(entry.strip()):
        block.report("entry", Rule.ENTRY_OUTSIDE, name=entry)
    else:
        return kind, "", entry.strip()
    return Kind.PROMPT, "", ""


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


_SHAPES = (
    (bool, Message("true or false")),
    (int | float, Message("a number")),
    (str, "text"),
    (Mapping, Message("a mapping")),
    (list, Message("a list")),
)


def describe_type(value: Json) -> str:
    """Return what a value is, for people."""
    return next((name for kind, name in _SHAPES if isinstance(value, kind)), "empty")


def read_params(block: Block, command: str) -> tuple[Param, ...]:
    """Return the declared params in their order, then the command's other slots. Never raises.

        params: {input: {required: true, type: path, default: a.txt, description: …}}
        params: [{name: input, required: true, prompt: …, validation: not_empty}]
        command: ./run.sh {input} --to ${format}

    A bad declaration gives a finding, and as much of the param as can be read is kept.
    """
    found: dict[str, Param] = {}
    for field in PARAM_FIELDS:
        report, value = partial(block.report, field), block.fields.get(field)
        required = field == "required_params" and isinstance(value, list)
        for name, spec in _declared(field, value, report):
            if name in found:
                report(Rule.PARAM_TWICE, name=name)
            else:
                found[name] = _read_param(name, spec, required, report)
    if command:
        _match_slots(found, command, partial(block.report, "command"))
    return tuple(found.values())


def slots(command: str) -> tuple[str, ...]:
    """Return the names of the slots that a caller fills, each once."""
    return tuple(dict.fromkeys(name for name in SLOT.findall(command) if name not in OWN_SLOTS))


def _match_slots(found: dict[str, Param], command: str, report: _Report) -> None:
    """Add a required param for each slot without a declaration; a param without a slot would never arrive."""
    names, has_declared = slots(command), bool(found)
    for name in found:
        if name not in names and name not in OWN_SLOTS:
            report(Rule.PARAM_UNUSED, name=name)
    for name in names:
        if name not in found:
            found[name] = Param(name=name, required=True)
            if has_declared:
                report(Rule.PARAM_UNDECLARED, name=name)


def _declared(field: str, value: Json, report: _Report) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the name and the declaration of each param."""
    if isinstance(value, Mapping):
        for name, spec in _properties(value).items():
            if not _is_param_name(name):
                report(Rule.PARAM_NAME)
            elif spec is None or isinstance(spec, str | Mapping):
                yield name, _as_spec(spec)
            else:
                report(Rule.PARAM_SHAPE, name=name, shape=describe_type(spec))
    elif isinstance(value, list):
        for item in value:
            given, about = (item.get("name"), item) if isinstance(item, Mapping) else (item, None)
            if isinstance(item, Mapping) and len(item) == 1 and "name" not in item:
                ((given, about),) = item.items()
            if _is_param_name(given):
                yield given, _as_spec(about)
            else:
                report(Rule.PARAM_NAME)
    elif value is not None:
        report(Rule.PARAMS_SHAPE, field=field, shape=describe_type(value))


def _properties(value: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the params by name, also those of a JSON Schema: `{type: object, properties: {…}, required: […]}`."""
    properties, required = value.get("properties"), value.get("required")
    if value.get("type") != "object" or not isinstance(properties, Mapping):
        return value
    names = required if isinstance(required, list) else []
    return {
        name: {**spec, "required": name in names} if isinstance(spec, Mapping) else spec
        for name, spec in properties.items()
    }


def _is_param_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(_PARAM_NAME.fullmatch(value))


def _as_spec(value: Json) -> Mapping[str, Json]:
    """Return a declaration: `input: path` gives a type, and any other text is a description."""
    if isinstance(value, str):
        return {"type" if value.lower() in _TYPES else "description": value}
    return value if isinstance(value, Mapping) else {}


def _read_param(name: str, spec: Mapping[str, Json], required: bool, report: _Report) -> Param:
    given, default = spec.get("type"), spec.get("default")
    listed = spec.get("choices", spec.get("enum", spec.get("options")))
    plain = (item for item in (listed if isinstance(listed, list) else ()) if isinstance(item, str | int | float))
    choices = tuple(map(_word, plain))
    kind = _TYPES.get(given.lower()) if isinstance(given, str) else None
    if given is not None and kind is None:
        report(Rule.PARAM_TYPE, name=name, type=given, known=", ".join(ParamType))
    elif choices and kind in {None, ParamType.STRING}:
        kind = ParamType.ENUM
    elif kind is ParamType.ENUM and not choices:
        report(Rule.PARAM_CHOICES, name=name)
        kind = None
    kind = kind or ParamType.STRING
    if default is not None and not _fits(default, kind, choices):
        report(Rule.PARAM_DEFAULT, name=name, type=kind)
        default = None
    is_required = _flag(name, spec, "required", required, report)
    check = spec.get("validation", spec.get("validate"))
    if check is None:
        check = _IMPLIED_VALIDATION.get(given.lower()) if isinstance(given, str) else None
    elif not isinstance(check, str) or check not in VALIDATIONS:
        report(Rule.PARAM_VALIDATION, name=name, check=check, known=", ".join(sorted(VALIDATIONS)))
        check = None
    description, prompt = spec.get("description"), spec.get("prompt")
    return Param(
        name=name,
        required=is_required and default is None,
        type=kind,
        default=default,
        description=description if isinstance(description, str) else "",
        prompt=prompt if isinstance(prompt, str) else "",
        choices=choices,
        validation=check or "",
        option=_flag(name, spec, "option", False, report),
    )


def _word(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fits(default: Json, kind: ParamType, choices: tuple[str, ...]) -> bool:
    if kind is ParamType.ENUM:
        return isinstance(default, str | int | float) and _word(default) in choices
    if isinstance(default, bool):
        return kind not in {ParamType.INT, ParamType.NUMBER}
    return isinstance(default, _CLASSES.get(kind, str | int | float))


def _flag(name: str, spec: Mapping[str, Json], flag: str, otherwise: bool, report: _Report) -> bool:
    given = spec.get(flag, otherwise)
    if isinstance(given, bool):
        return given
    report(Rule.PARAM_FLAG, name=name, flag=flag)
    return otherwise
