"""Reads agents/<role>/agent.yaml: a role, its JSON skills, its schedules and what bounds it.

The schema is agent.schema.json beside this file, the same that editors complete with. `null` means not given. A part
that is wrong is left out and reported, and a skill with such a part does not run. What bounds the sandbox is never
guessed: a role with a mistake there runs nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from skillyard.catalog.bounds import BOUNDS, LONGEST_NAME, SECTIONS
from skillyard.catalog.files import read_plain
from skillyard.catalog.findings import START, KeyPath, Position, make_finding
from skillyard.catalog.frontmatter import locate, read_block
from skillyard.catalog.roots import AGENT_FILE
from skillyard.catalog.schema_check import SchemaProblem, as_findings, problems, read_schema
from skillyard.catalog.skill_text import decode
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Kind, Severity, Skill, first_of
from skillyard.core.values import NOTHING, Json

CLAUDE_FILE = "CLAUDE.md"
SCHEMA_FILE = Path(__file__).with_name("agent.schema.json")
agent_schema = partial(read_schema, SCHEMA_FILE)
MAX_BYTES = 1_000_000
#: The field of a role's skill with the uuid of its agent, for the context of a request.
AGENT_ID = "agent_id"
_Errors: TypeAlias = Mapping[KeyPath, SchemaProblem]
#: Checks what an entry of `schedule` names outside the role. Yields a key, a finding's code and its values.
EntryCheck: TypeAlias = Callable[[Mapping[str, Json]], Iterable[tuple[str, str, Mapping[str, Json]]]]


class Role(NamedTuple):
    """A role, as far as its file can be read."""

    name: str
    path: Path
    #: id, uuid, name, description, model, visibility and owner_team, if given.
    metadata: Mapping[str, Json] = NOTHING
    skills: tuple[Skill, ...] = ()
    #: Schedules as written; those with a mistake are left out.
    schedule: tuple[Mapping[str, Json], ...] = ()
    allowed_tools: tuple[str, ...] = ()
    max_turns: int | None = None
    #: workspace, security and secrets, or why they cannot be read: see `bounds.read_bounds`.
    bounds: Mapping[str, Json] = NOTHING
    findings: tuple[Finding, ...] = ()
    #: Why skills of the file are not in `skills`: its first mistake, with its line.
    unread: str = ""
    #: The same of `schedule`.
    unscheduled: str = ""

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def model(self) -> str:
        return str(self.metadata.get("model") or "")

    @property
    def claude_text(self) -> Path | None:
        file = self.folder / CLAUDE_FILE
        return file if file.is_file() and is_inside(self.folder, CLAUDE_FILE) else None

    @property
    def usable(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def list_roles(agents: Path, check: EntryCheck | None = None) -> tuple[Role, ...]:
    return tuple(read_role(file, check) for file in sorted(agents.glob(f"*/{AGENT_FILE}")))


def read_role(path: Path, check: EntryCheck | None = None) -> Role:
    """Return a role from its folder or its file. Never raises: the findings say what is wrong."""
    file = path / AGENT_FILE if path.is_dir() else path
    try:
        return parse_role(b"" if _is_outside(file) else read_plain(file, MAX_BYTES), file, check)
    except OSError as error:
        return _unusable(file, make_finding("role-unreadable", reason=error.strerror))


def parse_role(content: bytes, path: Path, check: EntryCheck | None = None) -> Role:
    if _is_outside(path):
        return _unusable(path, make_finding("role-outside"))
    if len(content) > MAX_BYTES:
        reason = Message("it has more than {max_bytes} bytes", max_bytes=MAX_BYTES)
        return _unusable(path, make_finding("role-unreadable", reason=reason))
    text = decode(content).text
    block = read_block(text)
    if block.failed:
        return _unusable(path, *block.findings)
    fields = {key: _given(value) for key, value in block.fields.items() if value is not None}
    found = [*problems(fields, agent_schema()), *_name_problems(fields), *_time_problems(fields)]
    positions = locate(text) if found or "schedule" in fields or "skills" in fields else {}
    findings = [*block.findings, *as_findings(found, positions, "role")]
    flows = {at: flow for at, item in _items(fields, "schedule") if isinstance(flow := item.get("flow"), str)}
    if flows:
        from skillyard.catalog.flowfile import list_workflows  # noqa: PLC0415  (few roles schedule one)

        known = {workflow.name for workflow in list_workflows(path.parent.parent.parent)}
        for at, flow in flows.items():
            if flow not in known:  # only a warning: the workflow may be written after the role
                position = positions.get(("schedule", at, "flow"), START)
                findings.append(make_finding("role-flow-missing", *position, name=flow))
    for at, item in _items(fields, "schedule") if check else ():
        for key, code, values in check(item) if check else ():
            findings.append(make_finding(code, *positions.get(("schedule", at, key), START), **values))
    errors = {problem.path: problem for problem in found if problem.severity is Severity.ERROR}
    return _as_role(path, fields, errors, findings, positions)


def _unusable(path: Path, *findings: Finding) -> Role:
    mistake = _first_mistake(path, findings)
    return Role(path.parent.name, path, findings=findings, unread=mistake, unscheduled=mistake)


def _first_mistake(path: Path, findings: Sequence[Finding]) -> str:
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    return first_of(wrong, _where(path)) if wrong else ""


def _where(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.parent.name}/{AGENT_FILE}"


def _given(value: Json) -> Json:
    """Leave out the keys without a value, but not those of `params`, which are the skill's."""
    if isinstance(value, Mapping):
        rest = ((key, item) for key, item in value.items() if item is not None)
        return {key: item if key == "params" else _given(item) for key, item in rest}
    return [_given(item) for item in value] if isinstance(value, list) else value


def _is_outside(file: Path) -> bool:
    """Whether a link makes it a file outside the project."""
    return not file.resolve().is_relative_to(file.parent.parent.parent.resolve())


def _as_role(
    path: Path,
    fields: Mapping[str, Json],
    errors: _Errors,
    findings: list[Finding],
    positions: Mapping[KeyPath, Position],
) -> Role:
    bounds = _bounds(path, fields, errors, findings, positions)
    metadata = fields.get("metadata")
    given = metadata.items() if isinstance(metadata, Mapping) else ()
    about = {key: value for key, value in given if ("metadata", key) not in errors}
    agent_id = str(about.get("uuid") or "")
    skills: list[Skill] = []
    listed = fields.get("skills")
    unread = listed is not None and not isinstance(listed, list)
    for at, item in enumerate(listed if isinstance(listed, list) else ()):
        broken = _broken((("skills", at),), errors, path, positions)
        own: dict[str, Json] = {AGENT_ID: agent_id, BOUNDS: bounds if "broken" in bounds else broken or bounds}
        skill = _as_skill(item, at, path, own, errors) if isinstance(item, Mapping) else None
        if skill and is_inside(path.parent, skill.entry):
            skills.append(skill)
            continue
        unread = True
        if skill:
            findings.append(make_finding("role-entry", *positions.get(("skills", at, "entry"), START), name=skill.name))
    missing = (skill for skill in skills if not (skill.folder / skill.entry).is_file())
    findings += [make_finding("role-entry-missing", name=skill.name, entry=skill.entry) for skill in missing]
    turns, tools = fields.get("max_turns"), fields.get("allowed_tools")
    if not isinstance(tools, list) or _has_error(errors, "allowed_tools"):
        tools = []
    return Role(
        name=path.parent.name,
        path=path,
        metadata=about,
        skills=tuple(skills),
        schedule=tuple(item for at, item in _items(fields, "schedule") if not _has_error(errors, "schedule", at)),
        allowed_tools=tuple(map(str, tools)),
        max_turns=int(turns) if isinstance(turns, int | float) and ("max_turns",) not in errors else None,
        bounds=bounds,
        findings=tuple(findings),
        unread=_first_mistake(path, findings) if unread else "",
        unscheduled=str(_broken((("schedule",),), errors, path, positions).get("broken", "")),
    )


def _bounds(
    path: Path,
    fields: Mapping[str, Json],
    errors: _Errors,
    findings: list[Finding],
    positions: Mapping[KeyPath, Position],
) -> dict[str, Json]:
    """Return what bounds the sandbox, or why nothing of the role may run."""
    if broken := _broken(((section,) for section in SECTIONS), errors, path, positions):
        return broken
    for finding in findings:
        if finding.code == "yaml-duplicate":
            place = f"{_where(path)}:{finding.line}"
            return {"broken": Message("{place}: {reason}", place=place, reason=finding.message)}
    return {section: fields[section] for section in SECTIONS if fields.get(section)}


def _broken(
    below: Iterable[KeyPath], errors: _Errors, path: Path, positions: Mapping[KeyPath, Position]
) -> dict[str, Json]:
    """Return the mistakes in these places or in the file as a whole, as bounds that nothing runs with."""
    places = tuple(below)
    wrong = [each for at, each in errors.items() if not at or any(at[: len(place)] == place for place in places)]
    return {"broken": first_of([*as_findings(wrong, positions, "role")], _where(path))} if wrong else {}


def _as_skill(item: Mapping[str, Json], at: int, path: Path, own: Mapping[str, Json], errors: _Errors) -> Skill | None:
    """Return the skill, or None if the schema check already reported it."""
    right = {key: value for key, value in item.items() if not _has_error(errors, "skills", at, key)}
    name, entry, timeout, actions = (right.get(key) for key in ("name", "entry", "timeout", "actions"))
    if ("skills", at) in errors or not isinstance(name, str) or not isinstance(entry, str):
        return None
    return Skill(
        name=name,
        path=path,
        kind=Kind.JSON,
        description=str(right.get("description") or ""),
        entry=entry,
        actions=tuple(map(str, actions)) if isinstance(actions, list) else (),
        timeout_seconds=float(timeout) if isinstance(timeout, int | float) else None,
        role=path.parent.name,
        fields={**item, **own},
    )


def _items(fields: Mapping[str, Json], section: str) -> list[tuple[int, Mapping[str, Json]]]:
    """Return the mappings in a list, with their positions."""
    listed = fields.get(section)
    return [(at, item) for at, item in enumerate(listed if isinstance(listed, list) else ()) if isinstance(item, dict)]


def _has_error(errors: _Errors, *path: str | int) -> bool:
    """Whether something is wrong at the path or below it."""
    return any(at[: len(path)] == path for at in errors)


def _name_problems(fields: Mapping[str, Json]) -> Iterator[SchemaProblem]:
    """Find what a schema cannot: names that are there twice, and schedules of missing skills."""
    names: dict[str, set[str]] = {}
    for section in ("skills", "secrets", "schedule"):
        seen = names.setdefault(section, set())
        for at, item in _items(fields, section):
            name = item.get("name")
            if isinstance(name, str) and name in seen:
                message = Message("is {name!r} again", name=name)
                yield SchemaProblem((section, at, "name"), message, Message("name each once"))
            elif isinstance(name, str):
                seen.add(name)
    actions = {item.get("name"): item["actions"] for _, item in _items(fields, "skills") if item.get("actions")}
    for at, item in _items(fields, "schedule"):
        skill, action = item.get("skill"), item.get("action")
        listed = actions.get(skill) if isinstance(skill, str) else None
        if isinstance(action, str) and isinstance(listed, list) and action not in listed:
            message = Message("is {action!r}, which is no action of {skill}", action=action, skill=skill)
            known = ", ".join(map(str, listed[:20]))
            yield SchemaProblem(("schedule", at, "action"), message, Message("its actions: {known}", known=known))
        if isinstance(skill, str) and skill not in names["skills"]:
            known = ", ".join(sorted(names["skills"])[:20]) or "none"
            message = Message("is {skill!r}, which is no skill of this role", skill=skill)
            yield SchemaProblem(("schedule", at, "skill"), message, Message("its skills: {known}", known=known))


def _time_problems(fields: Mapping[str, Json]) -> Iterator[SchemaProblem]:
    """Find what a schema cannot: schedules whose times or zones do not exist, or contradict each other."""
    from skillyard.catalog.cron import parse_when, parse_zone  # noqa: PLC0415  (most roles have no schedule)

    for at, item in _items(fields, "schedule"):
        for key, read in (("cron", parse_when), ("interval", parse_when), ("timezone", parse_zone)):
            value = item.get(key)
            if isinstance(value, bool) or not isinstance(value, str if key != "interval" else str | int | float):
                continue
            try:
                read(as_interval(value) if key == "interval" else str(value))
            except InvalidArgs as error:
                yield SchemaProblem(("schedule", at, key), Message("cannot be read: {msg}", msg=error.msg))
        if str(item.get("misfire")).replace("_", "-") == "run-all" and item.get("overlap") not in (None, "queue"):
            message = Message("is {overlap!r} beside misfire run-all", overlap=item["overlap"])
            advice = Message("missed runs follow each other: overlap queue, or leave it out")
            yield SchemaProblem(("schedule", at, "overlap"), message, advice)


def as_interval(value: object) -> str:
    """Return `15m`, or the number 900 that means the same, as a schedule is written elsewhere."""
    return f"every {value}s" if isinstance(value, int | float) else f"every {str(value).removeprefix('every ')}"


def is_inside(folder: Path, entry: str) -> bool:
    """Whether the path stays in the folder, links followed."""
    path = Path(entry)
    too_long = any(len(part.encode()) > LONGEST_NAME for part in path.parts)
    if not entry or "\0" in entry or path.is_absolute() or too_long:
        return False
    try:
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return False
