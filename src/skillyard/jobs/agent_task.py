"""Tasks of jobs: whom one is for, and how an agent gets it when its time has come.

What an agent gets is the role's CLAUDE.md, a line `---` and the task, as every other task with the active skills before
it. It works in the role's folder. Nobody is there to be asked: what it would have to ask for is refused.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skillyard.catalog.agentfile import Role, read_role
from skillyard.catalog.bounds import read_bounds
from skillyard.catalog.encoding import decode
from skillyard.core.capability import ALLOWED_TOOLS, SCHEDULE
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result
from skillyard.dispatch.delivery import check_task
from skillyard.jobs.agent_job import Errand
from skillyard.jobs.jobs import Job, about
from skillyard.scripts.prompt_grammar import Addressee, addressee, parse_prompt
from skillyard.scripts.worker_prompt import parse_orders
from skillyard.trust.consent import is_role_trusted

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.sandbox.cancel_token import CancelToken

#: A text for an agent is no archive.
_MOST_BYTES = 200_000


def with_task(yard: "Project", job: Job, errand: Errand) -> Job:
    """The job that a `task` means. What looks like a prompt is one: its mistakes are told, never handed to an agent."""
    check_task(errand.text)
    whom = addressee(errand.text)
    if whom is Addressee.BACKEND:
        return job._replace(errand=errand.as_mapping())
    if errand.to or errand.session or errand.model:
        raise InvalidArgs(Message("this task is for {whom}: no backend, session or model goes with it", whom=whom))
    if whom is Addressee.WORKER:
        parse_orders(errand.text)
        return job._replace(errand=Errand(errand.text, scripts=True).as_mapping())
    asked = parse_prompt(errand.text, yard.catalog.knows)
    if asked.script:
        raise InvalidArgs(Message("a job runs a skill, not one of its scripts"))
    return job._replace(skill=asked.name, args=asked.args)


def refuse_loops(job: Job, env: Mapping[str, str] = os.environ) -> None:
    """A worker does not know how deep the agent is that asks: agents would start agents without an end."""
    if job.errand and not Errand.from_mapping(job.errand).scripts and env.get(DEPTH):
        raise PermissionDenied(
            Message("an agent cannot queue tasks for agents: `skillyard dispatch` hands one over now")
        )


def do_errand(yard: "Project", run_id: str, job: Job, stop: "CancelToken") -> Result:
    """One attempt, under this id. Raises what is known before anything starts."""
    errand = Errand.from_mapping(job.errand)
    # A Project of its own: the settings and the trust of now, not those from when the worker started.
    with yard.reopen() as own:
        return _run_scripts(own, run_id, job, errand, stop) if errand.scripts else _hand(own, run_id, job, errand, stop)


def _run_scripts(yard: "Project", run_id: str, job: Job, errand: Errand, stop: "CancelToken") -> Result:
    worker = yard.worker(Lang(job.lang), yard.decider)._replace(stop=stop)
    if job.timeout_seconds is not None:
        worker = worker._replace(limit_seconds=job.timeout_seconds)
    if len(parse_orders(errand.text)) == 1:  # of several, each is a run of its own, and the job's row is of them all
        worker = worker._replace(new_id=lambda: run_id, job=about(job))
    return worker.run(errand.text)


def _hand(yard: "Project", run_id: str, job: Job, errand: Errand, stop: "CancelToken") -> Result:
    role = _trusted_role(yard, errand.role) if errand.role else None
    request = yard.make_dispatch_request(
        _text_for(role, errand.text) if role else errand.text,
        to=errand.to or None,
        session=errand.session or None,
        model=errand.model or (role.model if role else "") or None,
        cwd=role.folder if role else yard.root,
        limit_seconds=job.timeout_seconds,
        lang=Lang(job.lang),
    )
    if role:
        allowed = is_role_trusted(yard.grants, role.folder, ALLOWED_TOOLS)
        request = request._replace(allowed_tools=role.allowed_tools if allowed else (), max_turns=role.max_turns)
    return yard.dispatcher.dispatch(request._replace(task=errand.text, run=run_id, job=about(job)), stop=stop)


def _trusted_role(yard: "Project", name: str) -> Role:
    """As it is now: what was changed since a person looked at it is no text for an agent."""
    folder = yard.root / "agents" / name
    if not is_role_trusted(yard.grants, folder, SCHEDULE):
        raise NotGranted(Message("the schedule of the role {name}", name=name), "skillyard trust")
    role = read_role(folder)
    read_bounds(role.bounds)  # a role with a mistake there runs nothing
    return role


def _text_for(role: Role, task: str) -> str:
    file = role.claude_text
    if file is None:
        return task
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InvalidArgs(
            Message(
                "agents/{role}/{name} has more than {most_bytes} bytes",
                role=role.name,
                name=file.name,
                most_bytes=_MOST_BYTES,
            )
        )
    said = decode(content).text.strip()
    return f"{said}\n\n---\n\n{task}" if said else task
