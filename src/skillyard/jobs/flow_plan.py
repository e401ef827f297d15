"""The workflows of a project: finds them, checks them against the skills that exist, and makes jobs of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.fingerprint import fingerprint
from skillyard.catalog.flowfile import FOLDER, WorkflowFile, WorkflowStep, is_of_type, list_workflows, read_workflow
from skillyard.catalog.references import as_text, fill, nearest, references, walk
from skillyard.catalog.schema_check import SchemaProblem, expected
from skillyard.core.errors import InvalidArgs, InvalidParam, ParamMissing, SkillError, WorkflowInvalid
from skillyard.core.messages import Message
from skillyard.core.request import Request
from skillyard.core.skill import Severity, Skill, first_of
from skillyard.core.values import Json
from skillyard.jobs.flow import FlowSource
from skillyard.jobs.jobs import Job
from skillyard.jobs.schedule import PREFIX
from skillyard.runtime.check import OUTPUT, as_typed, bind

_YAML = (".yaml", ".yml")
_LISTED = Message("`skillyard flow` lists them")
_WRITE_ONE = Message("write one into workflows/NAME.yaml; `skillyard flow schema` says what goes in")


class Workflows(NamedTuple):
    """The workflows of one project. `resolve` finds the skill of a request."""

    root: Path
    resolve: Callable[[Request], Skill]

    def list(self) -> tuple[WorkflowFile, ...]:
        """Return the workflows that have a name here, each checked against the skills."""
        return tuple(map(self._checked, list_workflows(self.root)))

    def find(self, text: str, cwd: Path) -> WorkflowFile:
        """Return the workflow by the path of its file or folder, or by its name. Raise InvalidArgs if there is none."""
        path = cwd / text
        if "/" in text or text.endswith(_YAML) or (text in {".", ".."}):
            if not path.resolve().is_relative_to(self.root.resolve()):
                raise InvalidArgs(
                    Message(
                        "{text} lies outside the project {root}: a workflow is run where its skills are",
                        text=text,
                        root=self.root,
                    )
                )
            if not path.exists():
                raise InvalidArgs(Message("there is no {path}", path=text))
            return self._checked(read_workflow(path.resolve()))
        known = list_workflows(self.root)
        found = [workflow for workflow in known if workflow.name == text]
        if len(found) == 1:
            return self._checked(found[0])
        if found:
            files = ", ".join(self._shown(workflow.path) for workflow in found)
            raise InvalidArgs(
                Message("several workflows are called {text!r}: {files}; name the file", text=text, files=files)
            )
        told = nearest(text, [workflow.name for workflow in known])
        raise InvalidArgs(
            Message("no workflow {text!r} in {folder}/; {told}", text=text, folder=FOLDER, told=told),
            advice=_LISTED if known else _WRITE_ONE,
        )

    def complete(self, job: Job) -> Job:
        """Return the job of `flow:NAME` with what it means now."""
        workflow = self.find(job.skill.removeprefix(PREFIX), self.root)
        return self.make_job(workflow, {**_words(job.args), **job.params}, job)

    def make_job(self, workflow: WorkflowFile, given: Mapping[str, Json], job: Job) -> Job:
        """Return the job that runs the workflow. Raise unless it can run as a whole."""
        if wrong := [finding for finding in workflow.findings if finding.severity is Severity.ERROR]:
            file = self._shown(workflow.path)

            findings: list[Json] = [finding.as_dict() for finding in workflow.findings]
            raise WorkflowInvalid(first_of(wrong, file), details={"file": file, "findings": findings})
        skills = self._skills(workflow)
        inputs = inputs_of(workflow, given)
        for step in workflow.steps:  # now with what was given
            for problem in _step_problems(skills[step.skill], step, inputs):
                raise InvalidParam(
                    Message("step {id}: `{shown}` {message}", id=step.id, shown=problem.shown, message=problem.message)
                )
        found = {name: skill for name, skill in skills.items() if isinstance(skill, Skill)}
        source = FlowSource(
            file=self._shown(workflow.path),
            digest=workflow.digest,
            skills={name: fingerprint(skill.folder) for name, skill in found.items()},
            commands=tuple(name for name, skill in found.items() if skill.kind.takes_text),
            steps=tuple(step.id for step in workflow.steps),
        )
        name = job.name or workflow.name
        return job._replace(
            skill=f"{PREFIX}{workflow.name}", name=name, args=(), params=inputs, flow=source.as_mapping()
        )

    def _checked(self, workflow: WorkflowFile) -> WorkflowFile:
        """Add everything that can be known before it starts: skills, actions, params and their types."""
        inputs: Mapping[str, Json] = {each.name: each.default for each in workflow.inputs if not each.required}
        skills = self._skills(workflow)
        wrong = [problem for step in workflow.steps for problem in _step_problems(skills[step.skill], step, inputs)]
        return workflow.with_problems(wrong)

    def _skills(self, workflow: WorkflowFile) -> dict[str, Skill | SkillError]:
        """Return each skill that a step names, or why there is none."""
        found: dict[str, Skill | SkillError] = {}
        for name in dict.fromkeys(step.skill for step in workflow.steps):
            try:
                found[name] = self.resolve(Request(name=name))
            except SkillError as error:
                found[name] = error
        return found

    def _shown(self, path: Path) -> str:
        root, resolved = self.root.resolve(), path.resolve()
        return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(path)


def _step_problems(
    skill: Skill | SkillError, step: WorkflowStep, inputs: Mapping[str, Json]
) -> Iterator[SchemaProblem]:
    if isinstance(skill, SkillError):
        yield _wrong(
            step, "skill", Message("is {skill!r}: {msg}", skill=step.skill, msg=skill.msg), skill.hint_message()
        )
        return
    yield from _action_problems(skill, step)
    yield from _param_problems(skill, step, inputs)


def _action_problems(skill: Skill, step: WorkflowStep) -> Iterator[SchemaProblem]:
    if not skill.kind.has_actions:
        if step.action:
            yield _wrong(
                step,
                "action",
                Message("is given, but {skill} is a {kind} skill and has none", skill=step.skill, kind=skill.kind),
                "",
            )
    elif step.action and skill.actions and step.action not in skill.actions:
        yield _wrong(
            step,
            "action",
            Message("is {action!r}, which {skill} has not", action=step.action, skill=step.skill),
            nearest(step.action, list(skill.actions)),
        )
    elif not step.action and not step.args and len(skill.actions) != 1:
        known = ", ".join(skill.actions)
        yield _wrong(
            step,
            "action",
            Message("is missing: {skill} needs one", skill=step.skill),
            Message("one of {enum}", enum=known) if known else "",
        )


def _param_problems(skill: Skill, step: WorkflowStep, inputs: Mapping[str, Json]) -> Iterator[SchemaProblem]:
    declared = {param.name: param for param in skill.params}
    given: dict[str, Json] = dict(step.params)
    if step.args and not skill.kind.takes_words:
        words = tuple(map(as_text, step.args))
        try:
            given = {**bind(skill, words[1:] if skill.kind.has_actions and not step.action else words), **given}
        except InvalidParam as error:
            yield _wrong(step, "args", Message("do not fit: {msg}", msg=error.msg), _listed(declared))
            return
    for name, value in given.items():
        where = "params" if name in step.params else "args"
        if name in declared:
            try:
                as_typed(declared[name], _known(value, inputs, skill))
            except InvalidParam as error:
                yield _wrong(step, (where, name), Message("is wrong: {msg}", msg=error.msg), declared[name].description)
            except LookupError:
                pass  # only a run will tell
        elif skill.kind.takes_only_declared and name != OUTPUT:
            yield _wrong(
                step, (where, name), Message("is no param of {skill}", skill=step.skill), nearest(name, list(declared))
            )
    missing = [name for name, param in declared.items() if param.required and param.default is None]
    for name in missing if not skill.kind.takes_words else ():
        if given.get(name) is None:
            yield _wrong(
                step,
                "params",
                Message("lacks `{name}`, which {skill} needs", name=name, skill=step.skill),
                declared[name].description,
            )


def _known(value: Json, inputs: Mapping[str, Json], skill: Skill) -> Json:
    """The value where the file alone decides it; LookupError where an earlier step or a person does."""
    for _, found in references(value):
        if isinstance(found, ValueError) or found.name != "inputs" or found.path[0] not in inputs:
            raise LookupError
    filled = fill(value, lambda reference: walk(inputs, reference.path))
    return as_text(filled) if skill.kind.takes_text and isinstance(filled, list | Mapping) else filled


def inputs_of(workflow: WorkflowFile, given: Mapping[str, Json]) -> dict[str, Json]:
    """Every input with its value, typed; ParamMissing and InvalidParam name what is wrong."""
    declared = {each.name: each for each in workflow.inputs}
    for name in given:
        if name not in declared:
            raise InvalidParam(
                Message(
                    "{workflow} has no input '{name}'; {nearest}",
                    workflow=workflow.name,
                    name=name,
                    nearest=nearest(name, list(declared)),
                )
            )
    values: dict[str, Json] = {}
    for name, each in declared.items():
        value = _typed(given[name], each.type) if name in given else each.default
        if value is None:
            continue
        if not is_of_type(value, each.type):
            wanted = expected({"type": each.type})
            raise InvalidParam(
                Message(
                    "the input '{name}' takes {wanted}, not {value!r}", name=name, wanted=wanted, value=str(value)[:80]
                )
            )
        values[name] = value
    missing = tuple(name for name in declared if name not in values)
    if missing:
        optional = tuple(name for name in declared if name in values)
        raise ParamMissing(missing, optional, {name: declared[name].description for name in missing})
    return values


def _typed(value: Json, kind: str) -> Json:
    """What was typed as words, as the input wants it."""
    if not isinstance(value, str) or kind == "string":
        return value
    try:
        read: Json = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return read


def _words(args: tuple[str, ...]) -> dict[str, Json]:
    given: dict[str, Json] = {}
    for word in args:
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals or not name:
            raise InvalidArgs(Message("{word!r} is no input; write name=value", word=word))
        given[name] = value
    return given


def _wrong(step: WorkflowStep, where: str | tuple[str, ...], message: str, advice: str) -> SchemaProblem:
    path: tuple[Any, ...] = ("steps", step.at, *((where,) if isinstance(where, str) else where))
    return SchemaProblem(path, message, advice)


def _listed(declared: Mapping[str, object]) -> str:
    return f"it takes {', '.join(declared) or 'nothing'}"
