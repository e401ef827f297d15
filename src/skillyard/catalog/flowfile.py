"""Reads workflow.yaml: which skills run, in which order, and what each gets from the earlier ones.

The schema is workflow.schema.json beside this file, the same that editors complete with. A file with an error is never
run in part: a workflow that stops in the middle because of a typing mistake has done half of its work.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from skillyard.catalog.files import read_plain
from skillyard.catalog.findings import KeyPath, Position, make_finding
from skillyard.catalog.frontmatter import locate, read_block
from skillyard.catalog.references import Reference, is_word, nearest, references
from skillyard.catalog.schema_check import MAX_PROBLEMS, SchemaProblem, as_findings, expected, problems, read_schema
from skillyard.catalog.skill_text import decode
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity
from skillyard.core.values import NOTHING, Json

WORKFLOW_FILE = "workflow.yaml"
FOLDER = "workflows"
SCHEMA_FILE = Path(__file__).with_name("workflow.schema.json")
workflow_schema = partial(read_schema, SCHEMA_FILE)
MAX_BYTES = 1_000_000
MAX_STEPS = 1000
#: Names that a step cannot have, because references use them.
RESERVED = ("inputs", "item", "index")
#: What a reference finds below a step.
OFFERED = ("data", "state", "summary", "run")


class WorkflowInput(NamedTuple):
    name: str
    type: str = "string"
    default: Json = None
    required: bool = True
    description: str = ""


class WorkflowStep(NamedTuple):
    """One step as it is written, with its references."""

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
    #: Its index in the file, where steps that cannot be read count too.
    at: int = 0


class WorkflowFile(NamedTuple):
    """One workflow, as far as it can be read; `usable` if it can be run."""

    name: str
    path: Path
    description: str = ""
    inputs: tuple[WorkflowInput, ...] = ()
    steps: tuple[WorkflowStep, ...] = ()
    findings: tuple[Finding, ...] = ()
    #: Digest of the file: a flow that is resumed after a crash runs what was started, or nothing.
    digest: str = ""
    #: Line and column of each key.
    positions: Mapping[KeyPath, Position] = MappingProxyType({})

    @property
    def usable(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def with_problems(self, found: Sequence[SchemaProblem]) -> "WorkflowFile":
        """Return the workflow with more findings, in the order of the file."""
        findings = (*self.findings, *as_findings(found, self.positions, "flow"))
        return self._replace(findings=tuple(sorted(findings, key=lambda finding: (finding.line, finding.column))))


def list_workflows(root: Path) -> tuple[WorkflowFile, ...]:
    """Return the workflows of workflows/ and the project's own workflow.yaml, by name."""
    files = [root / WORKFLOW_FILE, *(root / FOLDER).glob("*.yaml"), *(root / FOLDER).glob("*.yml")]
    found = (read_workflow(file) for file in files if file.is_file())
    return tuple(sorted(found, key=lambda workflow: (workflow.name, str(workflow.path))))


def read_workflow(path: Path) -> WorkflowFile:
    """Return a workflow from its file or its folder. Never raises: the findings say what is wrong."""
    file = path / WORKFLOW_FILE if path.is_dir() else path
    try:
        return parse_workflow(read_plain(file, MAX_BYTES), file)
    except OSError as error:
        return _unreadable(file, make_finding("flow-unreadable", reason=str(error.strerror)))


def parse_workflow(content: bytes, path: Path) -> WorkflowFile:
    if len(content) > MAX_BYTES:
        reason = Message("it has more than {max_bytes} bytes", max_bytes=MAX_BYTES)
        return _unreadable(path, make_finding("flow-unreadable", reason=reason))
    text = decode(content).text
    block = read_block(text)
    if block.failed:
        return _unreadable(path, *block.findings)
    fields, positions = block.fields, locate(text)
    wrong = list(problems(fields, workflow_schema()))
    bad = {problem.path for problem in wrong if problem.severity is Severity.ERROR}
    inputs, steps = tuple(_inputs(fields, bad)), tuple(_steps(fields, bad))
    listed = fields.get("steps")
    if isinstance(listed, list) and len(listed) > MAX_STEPS:
        too_many = Message("has more than {max_steps} items", max_steps=MAX_STEPS)
        wrong.append(SchemaProblem(("steps",), too_many, Message("use `for_each`")))
    wrong += islice((*_input_problems(inputs), *_id_problems(steps), *_reference_problems(steps, inputs)), MAX_PROBLEMS)
    name = fields.get("name")
    return WorkflowFile(
        name=name if isinstance(name, str) and name and ("name",) not in bad else _name_of(path),
        path=path,
        description=str(fields.get("description") or ""),
        inputs=inputs,
        steps=steps,
        findings=(*block.findings, *as_findings(wrong, positions, "flow")),
        digest=hashlib.blake2b(content, digest_size=20).hexdigest(),
        positions=positions,
    )


def _unreadable(path: Path, *findings: Finding) -> WorkflowFile:
    return WorkflowFile(_name_of(path), path, findings=findings)


def _name_of(path: Path) -> str:
    return path.absolute().parent.name if path.name == WORKFLOW_FILE else path.stem


def _inputs(fields: Mapping[str, Json], bad: set[KeyPath]) -> Iterator[WorkflowInput]:
    given = fields.get("inputs")
    for name, item in given.items() if isinstance(given, Mapping) else ():
        spec: Mapping[str, Json] = item if isinstance(item, Mapping) else NOTHING
        kind, default = spec.get("type"), spec.get("default")
        kind = kind if isinstance(kind, str) and ("inputs", name, "type") not in bad else "string"
        yield WorkflowInput(name, kind, default, default is None, str(spec.get("description") or ""))


def _steps(fields: Mapping[str, Json], bad: set[KeyPath]) -> Iterator[WorkflowStep]:
    """Return the steps that can be read; the schema check reported the others."""
    listed = fields.get("steps")
    for position, item in enumerate(islice(listed, MAX_STEPS) if isinstance(listed, list) else ()):
        given = item.items() if isinstance(item, Mapping) else ()
        spec: dict[str, Any] = {key: value for key, value in given if ("steps", position, key) not in bad}
        if not isinstance(skill := spec.get("skill"), str):
            continue
        skill = skill.removeprefix("@")
        yield WorkflowStep(
            id=spec.get("id") or skill.rpartition("/")[2],
            skill=skill,
            action=spec.get("action") or "",
            params=spec.get("params") or {},
            args=tuple(spec.get("args") or ()),
            for_each=spec.get("for_each"),
            at_once=int(spec.get("at_once", 1)),
            retries=int(spec.get("retries", 0)),
            timeout_seconds=float(spec["timeout"]) if "timeout" in spec else None,
            goes_on=spec.get("on_failure") == "continue",
            at=position,
        )


def _input_problems(inputs: Sequence[WorkflowInput]) -> Iterator[SchemaProblem]:
    for name, kind, default, *_ in inputs:
        if not is_word(name):
            wrong = Message("is no name that a reference can have")
            yield SchemaProblem(("inputs", name), wrong, Message("use a word"))
        if default is not None and not is_of_type(default, kind):
            message = Message("should be {wanted}, as `type` says", wanted=expected({"type": kind}))
            yield SchemaProblem(("inputs", name, "default"), message)


def _id_problems(steps: Sequence[WorkflowStep]) -> Iterator[SchemaProblem]:
    seen: dict[str, int] = {}
    schema = workflow_schema()["definitions"]["step"]["properties"]["id"]
    for step in steps:
        where = ("steps", step.at, "id")
        if step.id in RESERVED:
            message = Message("is {id!r}, which references use for something else", id=step.id)
            yield SchemaProblem(where, message, Message("give it another id"))
        elif step.id in seen:
            message = Message("is {id!r} again, like step {seen}", id=step.id, seen=seen[step.id])
            yield SchemaProblem(where, message, Message("give each step an `id` of its own"))
        elif any(problems(step.id, schema)):
            message = Message("is missing, and {id!r} cannot stand in for it", id=step.id)
            yield SchemaProblem(where, message, Message("give the step an `id`"))
        seen.setdefault(step.id, step.at + 1)


def _reference_problems(steps: Sequence[WorkflowStep], inputs: Sequence[WorkflowInput]) -> Iterator[SchemaProblem]:
    names = [step.id for step in steps]
    for number, step in enumerate(steps):
        for key, value in (("for_each", step.for_each), ("params", step.params), ("args", step.args)):
            for path, found in references(value):
                where = ("steps", step.at, key, *path)
                if isinstance(found, ValueError):
                    yield SchemaProblem(where, Message("holds what is no reference: {found}", found=found))
                elif wrong := _wrong(found, step, names[:number], names, [each.name for each in inputs], key):
                    message = Message("refers to {shown}: {wrong}", shown=found.shown, wrong=wrong[0])
                    yield SchemaProblem(where, message, wrong[1])
        if isinstance(step.for_each, str) and not any(True for _ in references(step.for_each)):
            advice = Message('write a list, or a reference: "${{step.data.files}}"')
            yield SchemaProblem(("steps", step.at, "for_each"), Message("is a text"), advice)
        if step.at_once > 1 and step.for_each is None:
            message = Message("does nothing without `for_each`")
            yield SchemaProblem(("steps", step.at, "at_once"), message, severity=Severity.WARNING)


def _wrong(
    found: Reference, step: WorkflowStep, before: Sequence[str], names: Sequence[str], inputs: list[str], key: str
) -> tuple[str, str] | None:
    """Return why a reference leads nowhere and what to do, or None if it is right."""
    name, path = found
    if name in {"item", "index"}:
        if step.for_each is None or key == "for_each":
            wrong = Message("only the params of a step with `for_each` have it")
            return wrong, Message("add `for_each`, or name an earlier step")
        if name == "index" and path:
            return Message("there is nothing below a number"), Message("write `${{index}}`")
    elif name == "inputs":
        if not path or path[0] not in inputs:
            return Message("there is no such input"), nearest(str(path[0]) if path else "", inputs)
    elif name not in before:
        if name in names:
            return Message("that step comes later, or is this one"), Message("only earlier steps can be referred to")
        known = [*before, "inputs", *(RESERVED[1:] if step.for_each else ())]
        return Message("there is no such step"), nearest(name, known)
    elif not path or path[0] not in OFFERED:
        wrong = Message("a step has {offered}", offered=", ".join(OFFERED))
        return wrong, Message("write `${{{name}.data…}}`", name=name)
    return None


def is_of_type(value: Json, kind: str) -> bool:
    return not any(problems(value, {"type": kind}))
