"""Reads SKILL.md: bytes → text → fence → fields → skill.

Strictly first, with repairs only if that fails. Whatever the bytes are, there is an answer and never a traceback.
Findings that only `validate` shows are made in `lint`, so that a scan of ten thousand files does not pay for them.
A skill always has a name and a description: if the frontmatter has none, its folder and its text give them.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple, TypeAlias

from skillyard.catalog.files import read_plain
from skillyard.catalog.findings import Position, make_finding
from skillyard.catalog.frontmatter import Block, read_block, repair
from skillyard.catalog.skill_text import Fence, as_text, decode, earlier_close, find_fence, plain_fence
from skillyard.core.messages import Message
from skillyard.core.skill import KINDS, OWN_SLOTS, SLOT, Finding, Kind, Param, ParamType, Severity, Skill, as_exit_codes
from skillyard.core.values import Json

#: A larger SKILL.md is refused, and read no further than to see that.
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_FRONTMATTER_BYTES = 64 * 1024
#: Bytes or characters of the body that the index takes.
_SEARCHED = 12_000
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
_DURATION = re.compile(r"(\d+(?:\.\d+)?)[ \t]*(ms|s|sec|seconds?|m|min|minutes?|h|hours?)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PARAM_NAME = re.compile(r"[^\W\d][\w.-]*")
_TYPES = {
    **{str(kind): kind for kind in ParamType},
    **dict.fromkeys(("str", "text", "url", "email", "date"), ParamType.STRING),
    **dict.fromkeys(("file", "filepath", "file_path", "dir", "directory", "folder"), ParamType.PATH),
    **dict.fromkeys(("float", "double"), ParamType.NUMBER),
    **dict.fromkeys(("boolean", "flag"), ParamType.BOOL),
    **dict.fromkeys(("choice", "select"), ParamType.ENUM),
    **dict.fromkeys(("dict", "map", "mapping"), ParamType.OBJECT),
    "list": ParamType.ARRAY,
    "integer": ParamType.INT,
}
_CLASSES = {
    ParamType.BOOL: bool,
    ParamType.INT: int,
    ParamType.NUMBER: int | float,
    ParamType.OBJECT: Mapping,
    ParamType.ARRAY: list,
}
#: What of a JSON Schema says what an object or an array holds.
_INSIDE = ("properties", "required", "additionalProperties", "items", "minItems", "maxItems")
_IMPLIED_VALIDATION = {"url": "url_format", "email": "email"}
#: Called with a code and its values: adds a finding at the field that is read.
_Report: TypeAlias = Callable[..., None]


class Reading(NamedTuple):
    """One parse with two answers: `skill` is the tolerant reading, `ok` the strict verdict."""

    path: Path
    skill: Skill | None
    findings: tuple[Finding, ...] = ()
    fence: Fence = Fence("", "", 1, 0, 1)
    #: Line and column of each field in the file.
    positions: Mapping[str, Position] = {}
    #: Broken fields that decide what may run or who may call, which were therefore not used.
    refused: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The text below the frontmatter, exactly, with LF line ends."""
        return self.fence.body

    @property
    def beginning(self) -> str:
        """Enough of the body to be searched; a scan decodes no more."""
        start = self.fence.source[self.fence.body_start : self.fence.body_start + _SEARCHED]
        return start.decode("utf-8", "ignore") if isinstance(start, bytes) else start

    @property
    def text(self) -> str:
        return as_text(self.fence.source)

    @property
    def ok(self) -> bool:
        """Whether there are no errors: other agents read the file as we do."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def read_skill(path: Path) -> Reading:
    """Read one SKILL.md from the disk. A file that cannot be read gives a finding."""
    try:
        content = read_plain(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Reading(path, None, (make_finding("file-unreadable", reason=reason),))
    return parse_skill(content, path)


def parse_skill(content: bytes, path: Path) -> Reading:
    """Return the skill in these bytes, and the findings about them. Pure: nothing is read or written."""
    if len(content) > MAX_FILE_BYTES:
        return Reading(path, None, (make_finding("file-too-large", limit=MAX_FILE_BYTES),))
    plain = plain_fence(content)
    if plain and len(plain.block) * 4 <= MAX_FRONTMATTER_BYTES:
        block = read_block(plain.block, plain.block_line)
        if not block.failed:
            return _as_reading(path, plain, block)
    return _parse_tolerantly(content, path)


def _parse_tolerantly(content: bytes, path: Path) -> Reading:
    """Read a file that is not quite as the standard wants it: decode all of it, search it, repair it."""
    text, findings = decode(content)
    fence = find_fence(text)
    if len(fence.block) * 4 > MAX_FRONTMATTER_BYTES and len(fence.block.encode()) > MAX_FRONTMATTER_BYTES:
        too_large = make_finding("frontmatter-too-large", fence.block_line, limit=MAX_FRONTMATTER_BYTES)
        return Reading(path, None, (*findings, too_large), fence)
    if not fence.found and not fence.body:
        return Reading(path, None, (*findings, *fence.findings))
    block = Block({}, {}, [])
    if fence.found:  # strictly, else with an earlier closing fence, else repaired
        block = read_block(fence.block, fence.block_line)
        if block.failed and (shorter := earlier_close(fence)):
            again = read_block(shorter.block, shorter.block_line)
            fence, block = (fence, block) if again.failed else (shorter, again)
        if block.failed or not fence.sure:
            repaired = repair(fence.block, fence.block_line, sure=fence.sure)
            block = repaired._replace(findings=list(dict.fromkeys((*block.findings, *repaired.findings))))
    return _as_reading(path, fence, block._replace(findings=[*findings, *fence.findings, *block.findings]))


def _as_reading(path: Path, fence: Fence, block: Block) -> Reading:
    fields = block.fields
    name, description = _read_name(block, path), _read_description(block)
    timeout = _read_timeout(block)
    kind, command, entry = _read_run_fields(block)
    _report_unsure(block, kind)
    has_params = command or not fields.keys().isdisjoint(PARAM_FIELDS)
    title = fields.get("title")
    skill = Skill(
        name=name,
        path=path,
        kind=kind,
        description=first_paragraph(fence.body) if description is None else description,
        title=title if isinstance(title, str) else "",
        tags=_read_tags(fields),
        params=read_params(block, command) if has_params else (),
        command=command,
        entry=entry,
        actions=_read_actions(fields.get("actions")),
        timeout_seconds=timeout,
        success_exit_codes=_read_success_exit_codes(block),
        fields=fields,
        findings=tuple(block.findings),  # the last: reading the other values adds some
    )
    return Reading(path, skill, skill.findings, fence, block.positions, block.refused)


def _read_name(block: Block, path: Path) -> str:
    folder = path.parts[-2] if len(path.parts) > 1 else ""
    given = block.fields.get("name")
    name = given.strip() if isinstance(given, str) else ""
    if not name:
        code = "name-missing" if given is None or given == name else "name-not-text"
        block.report("name", code, name=folder)
        return folder or path.stem
    if not _NAME.fullmatch(name):
        better = _NOT_NAME.sub("-", name.lower()).strip("-")[:MAX_NAME].rstrip("-")
        block.report("name", "name-invalid", name=name, better=better or Message("a name in a-z, 0-9 and hyphens"))
    if len(name) > MAX_NAME:
        block.report("name", "name-too-long", count=len(name), limit=MAX_NAME)
    if folder and name != folder:
        block.report("name", "name-not-folder", name=name, folder=folder)
    return name


def _read_description(block: Block) -> str | None:
    """Return the description as written, outer blanks included, or None if there is none."""
    given = block.fields.get("description")
    if isinstance(given, str) and given.strip():
        if len(given.strip()) > MAX_DESCRIPTION:
            block.report("description", "description-too-long", count=len(given.strip()), limit=MAX_DESCRIPTION)
        return given
    missing = given is None or isinstance(given, str)
    block.report("description", "description-missing" if missing else "description-not-text")
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


def _read_run_fields(block: Block) -> tuple[Kind, str, str]:
    """Return the kind with its command or entry: a usable command, else what `protocol:` names, else a prompt."""
    if "command" in block.fields and (command := _read_command(block)):
        return Kind.COMMAND, command, ""
    if "protocol" not in block.fields:
        return Kind.PROMPT, "", ""
    protocol, entry = block.fields["protocol"], block.fields.get("entry")
    kind = KINDS.get(protocol.strip().lower()) if isinstance(protocol, str) else None
    if kind is None or not kind.by_protocol:
        block.report("protocol", "protocol-unknown", name=protocol)
    elif not kind.has_entry:
        return kind, "", ""
    elif not isinstance(entry, str) or not entry.strip():
        block.report("protocol", "entry-missing")
    elif not _is_inside(entry.strip()):
        block.report("entry", "entry-outside", name=entry)
    else:
        return kind, "", entry.strip()
    return Kind.PROMPT, "", ""


def _report_unsure(block: Block, kind: Kind) -> None:
    """Report the first field that decides what runs and is there, but cannot be read for sure."""
    deciding = ("command", "entry", "protocol", *(PARAM_FIELDS if kind.starts_program else ()))
    if field := next((field for field in deciding if field in block.refused), ""):
        block.report(field, "run-unsure", field=field)


def _read_command(block: Block) -> str:
    command = block.fields["command"]
    if isinstance(command, list):
        command = _as_command_line(command)
    if command is not None and not isinstance(command, str):
        block.report("command", "command-not-text", shape=describe_type(command))
        return ""
    command = (command or "").strip()
    if not command:
        block.report("command", "command-empty")
        return ""
    if _SLASH_COMMAND.fullmatch(command) and not _PROGRAM_ROOTS.match(command):
        block.report("command", "command-slash", name=command.split()[0])
        return ""
    # Shell syntax is reported, but the command stays, so that a run can say the same.
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.commenters, words.whitespace_split = "", True
    try:
        operators = [word for word in words if word and set("();<>|&").issuperset(word)]
        if found := operators or _SUBSTITUTION.findall(command):
            block.report("command", "command-shell", shown=found[0])
    except ValueError:
        block.report("command", "command-quotes")
    return command


def _as_command_line(words: list[Json]) -> Json:
    """Return the command line that a list means: its words, or the only item. Several command lines mean none."""
    if not words or not all(isinstance(word, str | int | float) and not isinstance(word, bool) for word in words):
        return words
    texts = [str(word) for word in words]
    if len(texts) == 1:
        return texts[0]
    return words if len(texts[0].split()) != 1 else shlex.join(texts)


def _is_inside(entry: str) -> bool:
    """Whether the path stays in its folder, by its parts alone; links are checked when it runs."""
    windows = PureWindowsPath(entry)
    absolute = PurePosixPath(entry).is_absolute() or windows.drive or windows.root
    return not absolute and ".." not in windows.parts and not entry.startswith("~") and "\0" not in entry


def _read_tags(fields: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the tags, triggers and keywords, also those in metadata."""
    metadata = fields.get("metadata")
    words: list[str] = []
    for source in (fields, metadata) if isinstance(metadata, Mapping) else (fields,):
        for value in map(source.get, ("tags", "triggers", "keywords")):
            if isinstance(value, str):
                words += re.split("[,，、]", value)
            elif isinstance(value, list):
                words += [str(item) for item in value if isinstance(item, str | int) and not isinstance(item, bool)]
    return tuple(dict.fromkeys(filter(None, map(str.strip, words))))


def _read_actions(value: Json) -> tuple[str, ...]:
    """Return the names from a list of names, or from a mapping or list of descriptions."""
    if isinstance(value, Mapping):
        return tuple(value)
    items = value if isinstance(value, list) else ()
    names = (item.get("name") if isinstance(item, Mapping) else item for item in items)
    return tuple(name for name in names if isinstance(name, str) and name)


def _read_timeout(block: Block) -> float | None:
    """Return the seconds of a number, `90s` or `2m`."""
    field = "timeout" if "timeout" in block.fields else "timeout_seconds"
    value = block.fields.get(field)
    if value is None:
        return None
    seconds = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        unit = (found[2] or "s").lower()
        seconds = float(found[1]) * _SECONDS["ms" if unit == "ms" else unit[0]]
    if 0 < seconds < float("inf"):
        return seconds
    block.report(field, "timeout-invalid", name=value)
    return None


def _read_success_exit_codes(block: Block) -> tuple[int, ...]:
    """Return the exit codes that are no failure, also those in metadata."""
    metadata = block.fields.get("metadata")
    inner = metadata.get("success_exit_codes") if isinstance(metadata, Mapping) else None
    value = block.fields.get("success_exit_codes", inner)
    codes = (0,) if value is None else as_exit_codes(value)
    if codes is None:
        field = "success_exit_codes" if "success_exit_codes" in block.fields else "metadata"
        block.report(field, "exit-codes-invalid", name=value)
    return codes or (0,)


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
                report("param-twice", name=name)
            else:
                found[name] = _read_param(name, spec, required, report)
    names = slots(command)
    for name in found:  # a param without a slot would never arrive
        if command and name not in names and name not in OWN_SLOTS:
            block.report("command", "param-unused", name=name)
    undeclared = [name for name in names if name not in found]
    for name in undeclared if found else ():
        block.report("command", "param-undeclared", name=name)
    return (*found.values(), *(Param(name=name, required=True) for name in undeclared))


def slots(command: str) -> tuple[str, ...]:
    """Return the names of the slots that a caller fills, each once."""
    return tuple(dict.fromkeys(name for name in SLOT.findall(command) if name not in OWN_SLOTS))


def _declared(field: str, value: Json, report: _Report) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the name and the declaration of each param."""
    items: list[tuple[Json, Json]] = []
    if isinstance(value, Mapping):
        items = list(_properties(value).items())
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping):
                is_single = len(item) == 1 and "name" not in item
                items += item.items() if is_single else [(item.get("name"), item)]
            else:
                items.append((item, None))
    elif value is not None:
        report("params-shape", field=field, shape=describe_type(value))
    for name, spec in items:
        if not isinstance(name, str) or not _PARAM_NAME.fullmatch(name):
            report("param-name")
        elif isinstance(spec, str):  # `input: path` gives a type, and any other text is a description
            yield name, {"type" if spec.lower() in _TYPES else "description": spec}
        elif isinstance(spec, Mapping) or spec is None or isinstance(value, list):
            yield name, spec if isinstance(spec, Mapping) else {}
        else:
            report("param-shape", name=name, shape=describe_type(spec))


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


def _read_param(name: str, spec: Mapping[str, Json], required: bool, report: _Report) -> Param:
    given, default = spec.get("type"), spec.get("default")
    listed = spec.get("choices", spec.get("enum", spec.get("options")))
    plain = (item for item in (listed if isinstance(listed, list) else ()) if isinstance(item, str | int | float))
    choices = tuple(map(_word, plain))
    kind = _TYPES.get(given.lower()) if isinstance(given, str) else None
    if given is not None and kind is None:
        report("param-type", name=name, type=given, known=", ".join(ParamType))
    elif choices and kind in {None, ParamType.STRING}:
        kind = ParamType.ENUM
    elif kind is ParamType.ENUM and not choices:
        report("param-choices", name=name)
        kind = None
    kind = kind or ParamType.STRING
    if default is not None and not _fits(default, kind, choices):
        report("param-default", name=name, type=kind)
        default = None
    # In a nested JSON Schema `required` lists what the object holds.
    is_required = (
        required if isinstance(spec.get("required"), list) else _flag(name, spec, "required", required, report)
    )
    check = spec.get("validation", spec.get("validate"))
    if check is None:
        check = _IMPLIED_VALIDATION.get(given.lower()) if isinstance(given, str) else None
    elif not isinstance(check, str) or check not in VALIDATIONS:
        report("param-validation", name=name, check=check, known=", ".join(sorted(VALIDATIONS)))
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
        inside=_inside(spec) if kind in {ParamType.OBJECT, ParamType.ARRAY} else None,
    )


def _inside(spec: Mapping[str, Json]) -> dict[str, Json] | None:
    found = {key: spec[key] for key in _INSIDE if key in spec and not isinstance(spec[key], bool)}
    return found or None


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
    report("param-flag", name=name, flag=flag)
    return otherwise
