"""Reads workflow.yaml: which skills run, in which order, and what each gets from the earlier ones.

The schema is workflow.schema.json beside us, the same that editors complete with. A file with an error in it is never
run in part: a workflow that stops in the middle because of a typing mistake has done half of its work.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from skillyard.catalog import schema_check
from skillyard.catalog.encoding import decode
from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Place, locate, read_block
from skillyard.catalog.plainfile import read_plain
from skillyard.catalog.references import Reference, is_word, nearest, references
from skillyard.catalog.schema_check import Problem
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity
from skillyard.core.values import NOTHING, Json

WORKFLOW_FILE = "workflow.yaml"
FOLDER = "workflows"
SCHEMA_FILE = Path(__file__).parent / "workflow.schema.json"
MAX_BYTES = 1_000_000
MAX_STEPS = 1000
#: Names that a step cannot have, because references use them.
RESERVED = ("inputs", "item", "index")
#: What a reference finds below a step.
OFFERED = ("data", "state", "summary", "run")
_MOST_PROBLEMS = 100


class Input(NamedTuple):
    name: str
    type: str = "string"
    default: Json = None
    required: bool = True
    description: str = ""


class Step(NamedTuple):
    """One step as it is written; nothing in it is filled in yet."""

    id: str
    skill: str
    action: str = ""
    params: Mapping[str, Json] = NOTHING
    args: tuple[Json, ...] = ()
    #: None: the step runs once.
    for_each: Json = None
    at_once: int = 1
    retries: int = 0
    timeout_seconds: float | None = None
    goes_on: bool = False
    #: Where it stands in the file's list: what cannot be read is left out here.
    at: int = 0


class Workflow(NamedTuple):
    """One file, as far as it can be read; `usable` where it can be run."""

    name: str
    path: Path
    description: str = ""
    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()
    #: Of the file's bytes: a flow that goes on after a crash runs what was started, or nothing.
    digest: str = ""
    #: Where each key stands.
    places: Mapping[schema_check.Path, Place] = MappingProxyType({})

    @property
    def usable(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def with_problems(self, problems: Sequence[Problem]) -> "Workflow":
        """What others found out about it, each where it stands."""
        findings = (*self.findings, *as_findings(problems, self.places))
        return self._replace(findings=tuple(sorted(findings, key=lambda finding: (finding.line, finding.column))))


@cache
def workflow_schema() -> dict[str, Any]:
    import json  # noqa: PLC0415  (only flows need it)

    schema: dict[str, Any] = json.loads(SCHEMA_FILE.read_text("utf-8"))
    return schema


def list_workflows(root: Path) -> tuple[Workflow, ...]:
    """Those of workflows/ and the project's own workflow.yaml, by name."""
    files = [root / WORKFLOW_FILE, *(root / FOLDER).glob("*.yaml"), *(root / FOLDER).glob("*.yml")]
    found = (read_workflow(file) for file in files if file.is_file())
    return tuple(sorted(found, key=lambda workflow: (workflow.name, str(workflow.path))))


def read_workflow(path: Path) -> Workflow:
    """From its file, or from the folder that has it. Never raises: the findings say what is wrong."""
    file = path / WORKFLOW_FILE if path.is_dir() else path
    try:
        content = read_plain(file, MAX_BYTES)
    except OSError as error:
        return _unreadable(file, str(error.strerror))
    return parse_workflow(content, file)


def parse_workflow(content: bytes, path: Path) -> Workflow:
    if len(content) > MAX_BYTES:
        return _unreadable(path, Message("it has more than {max_bytes} bytes", max_bytes=MAX_BYTES))
    text = decode(content).text
    block = read_block(text)
    if block.failed:
        return Workflow(_name_of(path), path, findings=tuple(block.findings))
    fields, places = block.fields, locate(text)
    wrong = list(islice(schema_check.problems(fields, workflow_schema()), _MOST_PROBLEMS))
    bad = {problem.path for problem in wrong if problem.severity is Severity.ERROR}
    inputs = tuple(_inputs(fields, bad))
    steps = tuple(_steps(fields, bad))
    listed = fields.get("steps")
    if isinstance(listed, list) and len(listed) > MAX_STEPS:
        wrong.append(
            Problem(
                ("steps",),
                Severity.ERROR,
                Message("has more than {max_steps} items", max_steps=MAX_STEPS),
                Message("use `for_each`"),
            )
        )
    wrong += islice((*_input_problems(inputs), *_id_problems(steps), *_reference_problems(steps, inputs)), 100)
    name = fields.get("name")
    return Workflow(
        name=name if isinstance(name, str) and name and ("name",) not in bad else _name_of(path),
        path=path,
        description=str(fields.get("description") or ""),
        inputs=inputs,
        steps=steps,
        findings=(*block.findings, *as_findings(wrong, places)),
        digest=hashlib.blake2b(content, digest_size=20).hexdigest(),
        places=places,
    )


def as_findings(wrong: Sequence[Problem], places: Mapping[schema_check.Path, Place]) -> Iterator[Finding]:
    for problem in wrong:
        rule = Rule.FLOW_VALUE if problem.severity is Severity.ERROR else Rule.FLOW_KEY
        finding = rule.at(*_nearest_place(problem.path, places))
        yield finding._replace(
            message=schema_check.one_line(Message("`{place}` {reason}", place=problem.shown, reason=problem.message)),
            advice=problem.advice,
        )


def _nearest_place(path: schema_check.Path, places: Mapping[schema_check.Path, Place]) -> Place:
    """Where it stands, or what it would stand in."""
    while path and path not in places:
        path = path[:-1]
    return places.get(path, (1, 1))


def _inputs(fields: Mapping[str, Json], bad: set[schema_check.Path]) -> Iterator[Input]:
    given = fields.get("inputs")
    for name, says in (given if isinstance(given, Mapping) else NOTHING).items():
        said: Mapping[str, Json] = says if isinstance(says, Mapping) else NOTHING
        kind = said.get("type")
        yield Input(
            name=name,
            type=kind if isinstance(kind, str) and ("inputs", name, "type") not in bad else "string",
            default=said.get("default"),
            required=said.get("default") is None,
            description=str(said.get("description") or ""),
        )


def _steps(fields: Mapping[str, Json], bad: set[schema_check.Path]) -> Iterator[Step]:
    """Those that can be read; the schema has told of the others."""
    listed = fields.get("steps")
    for position, item in enumerate(islice(listed, MAX_STEPS) if isinstance(listed, list) else ()):
        if not isinstance(item, Mapping):
            continue
        said: dict[str, Any] = {key: value for key, value in item.items() if ("steps", position, key) not in bad}
        skill = said.get("skill")
        if not isinstance(skill, str):
            continue
        skill = skill.removeprefix("@")
        yield Step(
            id=said.get("id") or skill.rpartition("/")[2],
            skill=skill,
            action=said.get("action") or "",
            params=said.get("params") or {},
            args=tuple(said.get("args") or ()),
            for_each=said.get("for_each"),
            at_once=int(said.get("at_once", 1)),
            retries=int(said.get("retries", 0)),
            timeout_seconds=float(said["timeout"]) if "timeout" in said else None,
            goes_on=said.get("on_failure") == "continue",
            at=position,
        )


def _input_problems(inputs: Sequence[Input]) -> Iterator[Problem]:
    for each in inputs:
        if not is_word(each.name):
            yield _error(("inputs", each.name), Message("is no name that a reference can have"), Message("use a word"))
        if each.default is not None and not is_of_type(each.default, each.type):
            wanted = schema_check.expected({"type": each.type})
            yield _error(
                ("inputs", each.name, "default"), Message("should be {wanted}, as `type` says", wanted=wanted), ""
            )


def _id_problems(steps: Sequence[Step]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    pattern = workflow_schema()["definitions"]["step"]["properties"]["id"]
    for step in steps:
        where = ("steps", step.at, "id")
        if step.id in RESERVED:
            yield _error(
                where,
                Message("is {id!r}, which references use for something else", id=step.id),
                Message("give it another id"),
            )
        elif step.id in seen:
            yield _error(
                where,
                Message("is {id!r} again, like step {seen}", id=step.id, seen=seen[step.id]),
                Message("give each step an `id` of its own"),
            )
        elif any(schema_check.problems(step.id, pattern)):
            yield _error(
                where,
                Message("is missing, and {id!r} cannot stand in for it", id=step.id),
                Message("give the step an `id`"),
            )
        seen.setdefault(step.id, step.at + 1)


def _reference_problems(steps: Sequence[Step], inputs: Sequence[Input]) -> Iterator[Problem]:
    names = [step.id for step in steps]
    before: list[str] = []
    for step in steps:
        for key in ("for_each", "params", "args"):
            value = step.for_each if key == "for_each" else step.params if key == "params" else list(step.args)
            for path, found in references(value):
                where = ("steps", step.at, key, *path)
                if isinstance(found, ValueError):
                    yield _error(where, Message("holds what is no reference: {found}", found=found), "")
                elif wrong := _wrong(found, key, step, before, names, inputs):
                    yield _error(
                        where, Message("refers to {shown}: {wrong}", shown=found.shown, wrong=wrong[0]), wrong[1]
                    )
        if isinstance(step.for_each, str) and not any(True for _ in references(step.for_each)):
            yield _error(
                ("steps", step.at, "for_each"),
                Message("is a text"),
                Message('write a list, or a reference: "${{step.data.files}}"'),
            )
        if step.at_once > 1 and step.for_each is None:
            yield Problem(
                ("steps", step.at, "at_once"), Severity.WARNING, Message("does nothing without `for_each`"), ""
            )
        before.append(step.id)


def _wrong(
    found: Reference, key: str, step: Step, before: Sequence[str], names: Sequence[str], inputs: Sequence[Input]
) -> tuple[str, str] | None:
    """Why it leads nowhere, and what to do."""
    name, path = found
    if name in {"item", "index"}:
        if step.for_each is None or key == "for_each":
            return Message("only the params of a step with `for_each` have it"), Message(
                "add `for_each`, or name an earlier step"
            )
        return (
            None
            if name == "item" or not path
            else (Message("there is nothing below a number"), Message("write `${{index}}`"))
        )
    if name == "inputs":
        known = [each.name for each in inputs]
        if not path or path[0] not in known:
            return Message("there is no such input"), nearest(str(path[0]) if path else "", known)
        return None
    if name not in before:
        if name in names:
            return Message("that step comes later, or is this one"), Message("only earlier steps can be referred to")
        return Message("there is no such step"), nearest(
            name, [*before, "inputs", *(RESERVED[1:] if step.for_each else ())]
        )
    if not path or path[0] not in OFFERED:
        return Message("a step has {offered}", offered=", ".join(OFFERED)), Message(
            "write `${{{name}.data…}}`", name=name
        )
    return None


def is_of_type(value: Json, kind: str) -> bool:
    return not any(schema_check.problems(value, {"type": kind}))


def _error(path: schema_check.Path, message: str, advice: str) -> Problem:
    return Problem(path, Severity.ERROR, message, advice)


def _name_of(path: Path) -> str:
    return path.absolute().parent.name if path.name == WORKFLOW_FILE else path.stem


def _unreadable(path: Path, reason: str) -> Workflow:
    return Workflow(_name_of(path), path, findings=(Rule.FLOW_UNREADABLE.at(reason=reason),))
