"""Jobs that are tasks: for a backend, or scripts of bin/ for the worker agent.

A backend gets the role's CLAUDE.md, a line `---` and the task, with the active skills before it as every other task. It
works in the role's folder. Nobody is there to be asked: what it would have to ask for is refused.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.catalog.agentfile import Role, read_role
from skillyard.catalog.bounds import read_bounds
from skillyard.catalog.skill_text import decode
from skillyard.core.capability import ALLOWED_TOOLS, SCHEDULE
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result
from skillyard.core.values import Json
from skillyard.dispatch.request import check_task
from skillyard.scripts.prompt_grammar import Addressee, addressee, parse_prompt, parse_script_calls

if TYPE_CHECKING:
    from skillyard.dispatch.request import DispatchRequest
    from skillyard.jobs.jobs import Job
    from skillyard.sandbox.cancel_token import CancelToken
    from skillyard.scripts.worker import Worker

_LABEL_CHARACTERS = 40
#: A text for an agent is no archive.
_MOST_BYTES = 200_000


class AgentTask(NamedTuple):
    """In plain JSON values: it travels with the job."""

    text: str
    #: Whether it names scripts of bin/; otherwise it is for a backend, and the rest counts.
    scripts: bool = False
    #: The role whose CLAUDE.md goes before it, and in whose folder the backend works; empty for the project's.
    role: str = ""
    #: A backend; empty for the first that is installed.
    to: str = ""
    #: The conversation that every run resumes; empty for one of its own.
    session: str = ""
    model: str = ""

    @property
    def label(self) -> str:
        words = " ".join(self.text.split())
        return words if len(words) <= _LABEL_CHARACTERS else words[: _LABEL_CHARACTERS - 1] + "…"

    def as_mapping(self) -> dict[str, Json]:
        return {name: value for name, value in self._asdict().items() if value}

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> "AgentTask":
        return cls(**{"text": "", **{name: value for name, value in fields.items() if name in cls._fields}})


def with_task(job: "Job", task: AgentTask, knows: Callable[[str], bool]) -> "Job":
    """Return the job for a task. What looks like a prompt is parsed as one: its mistakes raise, and reach no backend.

    `knows` tells whether a name is a skill's.
    """
    check_task(task.text)
    whom = addressee(task.text)
    if whom is Addressee.BACKEND:
        return job._replace(task=task.as_mapping())
    if task.to or task.session or task.model:
        raise InvalidArgs(Message("this task is for {whom}: no backend, session or model goes with it", whom=whom))
    if whom is Addressee.WORKER:
        parse_script_calls(task.text)
        return job._replace(task=AgentTask(task.text, scripts=True).as_mapping())
    asked = parse_prompt(task.text, knows)
    if asked.script:
        raise InvalidArgs(Message("a job runs a skill, not one of its scripts"))
    return job._replace(skill=asked.name, args=asked.args)


def refuse_loops(job: "Job", env: Mapping[str, str] = os.environ) -> None:
    """Raise PermissionDenied if an agent queues a task for an agent: a worker does not know how deep the asker is."""
    if job.task and not AgentTask.from_mapping(job.task).scripts and env.get(DEPTH):
        msg = Message("an agent cannot queue tasks for agents: `skillyard dispatch` hands one over now")
        raise PermissionDenied(msg)


class TaskRunner(NamedTuple):
    """Runs jobs that are tasks."""

    root: Path
    #: Whether a role's folder is trusted with a capability.
    is_role_trusted: Callable[[Path, str], bool]
    worker: "Callable[[Lang], Worker]"
    make_request: "Callable[..., DispatchRequest]"
    dispatch: "Callable[[DispatchRequest, CancelToken], Result]"

    def run(self, run_id: str, job: "Job", stop: "CancelToken") -> Result:
        """Make one attempt under this id. Raise what is known before anything starts."""
        task = AgentTask.from_mapping(job.task)
        if not task.scripts:
            return self.dispatch(self._request(task, job)._replace(task=task.text, run=run_id, job=job.about()), stop)
        worker = self.worker(Lang(job.lang))._replace(stop=stop)
        if job.timeout_seconds is not None:
            worker = worker._replace(limit_seconds=job.timeout_seconds)
        if len(parse_script_calls(task.text)) == 1:  # each of several is a run of its own, and the job's row is theirs
            worker = worker._replace(new_id=lambda: run_id, job=job.about())
        return worker.run(task.text)

    def _request(self, task: AgentTask, job: "Job") -> "DispatchRequest":
        role = self._trusted_role(task.role) if task.role else None
        request = self.make_request(
            _with_role(role, task.text) if role else task.text,
            to=task.to or None,
            session=task.session or None,
            model=task.model or (role.model if role else "") or None,
            cwd=role.folder if role else self.root,
            limit_seconds=job.timeout_seconds,
            lang=Lang(job.lang),
        )
        if not role:
            return request
        allowed = role.allowed_tools if self.is_role_trusted(role.folder, ALLOWED_TOOLS) else ()
        return request._replace(allowed_tools=allowed, max_turns=role.max_turns)

    def _trusted_role(self, name: str) -> Role:
        """Return the role as it is now. Raise NotGranted if it has changed since a person trusted it."""
        folder = self.root / "agents" / name
        if not self.is_role_trusted(folder, SCHEDULE):
            raise NotGranted(Message("the schedule of the role {name}", name=name), "skillyard trust")
        role = read_role(folder)
        read_bounds(role.bounds)  # a role with a mistake there runs nothing
        return role


def _with_role(role: Role, task: str) -> str:
    file = role.claude_text
    if file is None:
        return task
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        path = f"agents/{role.name}/{file.name}"
        raise InvalidArgs(Message("{path} has more than {most_bytes} bytes", path=path, most_bytes=_MOST_BYTES))
    said = decode(content).text.strip()
    return f"{said}\n\n---\n\n{task}" if said else task
