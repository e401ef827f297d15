"""The workflows of a project: finds them, checks them against the skills that exist, and makes jobs of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import fingerprint
from skillyard.catalog.flowfile import FOLDER, WorkflowFile, WorkflowStep, is_of_type, list_workflows, read_workflow
from skillyard.catalog.references import as_text, fill, nearest, references, walk
from skillyard.catalog.schema_check import SchemaProblem, expected
from skillyard.core.errors import InvalidArgs, InvalidParam, ParamMissing, SkillError, WorkflowInvalid
from skillyard.core.messages import Message
from skillyard.core.result import Request
from skillyard.core.skill import Severity, Skill, first_of
from skillyard.core.values import Json
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
        if "/" in text or text.endswith(_YAML) or text in {".", ".."}:
            if not path.resolve().is_relative_to(root := self.root.resolve()):
                msg = Message("{text} is outside {root}: a workflow runs where its skills are", text=text, root=root)
                raise InvalidArgs(msg)
            if not path.exists():
                raise InvalidArgs(Message("there is no {path}", path=text))
            return self._checked(read_workflow(path.resolve()))
        known = list_workflows(self.root)
        found = [workflow for workflow in known if workflow.name == text]
        if len(found) == 1:
            return self._checked(found[0])
        if found:
            files = ", ".join(self._shown(workflow.path) for workflow in found)
            msg = Message("several workflows are called {text!r}: {files}; name the file", text=text, files=files)
            raise InvalidArgs(msg)
        told = nearest(text, [workflow.name for workflow in known])
        msg = Message("no workflow {text!r} in {folder}/; {told}", text=text, folder=FOLDER, told=told)
        raise InvalidArgs(msg, advice=_LISTED if known else _WRITE_ONE)

    def complete(self, job: Job) -> Job:
        """Return the job of `flow:NAME` with what it means now."""
        workflow = self.find(job.skill.removeprefix(PREFIX), self.root)
        given: dict[str, Json] = {}
        for word in job.args:
            name, equals, value = word.removeprefix("--").partition("=")
            if not equals or not name:
                raise InvalidArgs(Message("{word!r} is no input; write name=value", word=word))
            given[name] = value
        return self.make_job(workflow, {**given, **job.params}, job)

    def make_job(self, workflow: WorkflowFile, given: Mapping[str, Json], job: Job) -> Job:
        """Return the job that runs the workflow. Raise unless it can run as a whole."""
        file = self._shown(workflow.path)
        if wrong := [finding for finding in workflow.findings if finding.severity is Severity.ERROR]:
            findings: list[Json] = [finding.as_dict() for finding in workflow.findings]
            raise WorkflowInvalid(first_of(wrong, file), details={"file": file, "findings": findings})
        skills = self._skills(workflow)
        inputs = inputs_of(workflow, given)
        for step in workflow.steps:  # now with what was given
            for problem in _step_problems(skills[step.skill], step, inputs):
                shown, message = problem.shown, problem.message
                raise InvalidParam(Message("step {id}: `{shown}` {message}", id=step.id, shown=shown, message=message))
        found = {name: skill for name, skill in skills.items() if isinstance(skill, Skill)}
        return job._replace(
            skill=f"{PREFIX}{workflow.name}",
            name=job.name or workflow.name,
            args=(),
            params=inputs,
            flow={
                "file": file,
                "digest": workflow.digest,
                "skills": {name: fingerprint(skill.folder) for name, skill in found.items()},
                "commands": [name for name, skill in found.items() if skill.kind.takes_text],
                "steps": [step.id for step in workflow.steps],
            },
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


#: The keys below the step, what is wrong there, and what to do.
_Problem = tuple[tuple[str, ...], str, str]


def _step_problems(
    skill: Skill | SkillError, step: WorkflowStep, inputs: Mapping[str, Json]
) -> Iterator[SchemaProblem]:
    found: list[_Problem]
    if isinstance(skill, SkillError):
        missing = Message("is {skill!r}: {msg}", skill=step.skill, msg=skill.msg)
        found = [(("skill",), missing, skill.hint_message())]
    else:
        found = [*_action_problems(skill, step), *_param_problems(skill, step, inputs)]
    for keys, message, advice in found:
        yield SchemaProblem(("steps", step.at, *keys), message, advice)


def _action_problems(skill: Skill, step: WorkflowStep) -> Iterator[_Problem]:
    keys, name, action = ("action",), step.skill, step.action
    if not skill.kind.has_actions:
        if action:
            msg = Message("is given, but {skill} is a {kind} skill and has none", skill=name, kind=skill.kind)
            yield keys, msg, ""
    elif action and skill.actions and action not in skill.actions:
        msg = Message("is {action!r}, which {skill} has not", action=action, skill=name)
        yield keys, msg, nearest(action, list(skill.actions))
    elif not action and not step.args and len(skill.actions) != 1:
        known = ", ".join(skill.actions)
        advice = Message("one of {enum}", enum=known) if known else ""
        yield keys, Message("is missing: {skill} needs one", skill=name), advice


def _param_problems(skill: Skill, step: WorkflowStep, inputs: Mapping[str, Json]) -> Iterator[_Problem]:
    declared = {param.name: param for param in skill.params}
    given: dict[str, Json] = dict(step.params)
    if step.args and not skill.kind.takes_words:
        words = tuple(map(as_text, step.args))
        try:
            given = {**bind(skill, words[1:] if skill.kind.has_actions and not step.action else words), **given}
        except InvalidParam as error:
            takes = f"it takes {', '.join(declared) or 'nothing'}"
            yield ("args",), Message("do not fit: {msg}", msg=error.msg), takes
            return
    for name, value in given.items():
        keys = ("params" if name in step.params else "args", name)
        if name in declared:
            try:
                as_typed(declared[name], _known(value, inputs, skill))
            except InvalidParam as error:
                yield keys, Message("is wrong: {msg}", msg=error.msg), declared[name].description
            except LookupError:
                pass  # only a run will tell
        elif skill.kind.takes_only_declared and name != OUTPUT:
            yield keys, Message("is no param of {skill}", skill=step.skill), nearest(name, list(declared))
    for name, param in declared.items() if not skill.kind.takes_words else ():
        if param.required and param.default is None and given.get(name) is None:
            msg = Message("lacks `{name}`, which {skill} needs", name=name, skill=step.skill)
            yield ("params",), msg, param.description


def _known(value: Json, inputs: Mapping[str, Json], skill: Skill) -> Json:
    """Return the value if the file alone decides it. Raise LookupError if an earlier step or a person does."""
    for _, found in references(value):
        if isinstance(found, ValueError) or found.name != "inputs" or found.path[0] not in inputs:
            raise LookupError
    filled = fill(value, lambda reference: walk(inputs, reference.path))
    return as_text(filled) if skill.kind.takes_text and isinstance(filled, list | Mapping) else filled


def inputs_of(workflow: WorkflowFile, given: Mapping[str, Json]) -> dict[str, Json]:
    """Return every input with its value, typed. Raise ParamMissing or InvalidParam if one is missing or wrong."""
    declared = {each.name: each for each in workflow.inputs}
    for name in given:
        if name not in declared:
            told = nearest(name, list(declared))
            msg = Message("{workflow} has no input '{name}'; {told}", workflow=workflow.name, name=name, told=told)
            raise InvalidParam(msg)
    values: dict[str, Json] = {}
    for name, each in declared.items():
        value = _typed(given[name], each.type) if name in given else each.default
        if value is None:
            continue
        if not is_of_type(value, each.type):
            wanted, value = expected({"type": each.type}), str(value)[:80]
            msg = Message("the input '{name}' takes {wanted}, not {value!r}", name=name, wanted=wanted, value=value)
            raise InvalidParam(msg)
        values[name] = value
    if missing := tuple(name for name in declared if name not in values):
        raise ParamMissing(missing, tuple(values), {name: declared[name].description for name in missing})
    return values


def _typed(value: Json, kind: str) -> Json:
    """Return what was typed as words, as the input wants it."""
    if not isinstance(value, str) or kind == "string":
        return value
    try:
        read: Json = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return read
