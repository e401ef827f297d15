"""What the commands about new skills and roles use: templates, the roles that there are, and what they name."""

from collections.abc import Iterator, Mapping

from skillyard.app.project import Project
from skillyard.catalog.agentfile import list_roles
from skillyard.catalog.bounds import read_bounds
from skillyard.catalog.roots import ROLES_FOLDER
from skillyard.core.errors import SkillError
from skillyard.core.values import Json
from skillyard.install.new_skill import ProgramLanguage, create_role, create_skill, make_draft, resolve_role
from skillyard.jobs.jobs import AgentTask, Job, with_task
from skillyard.scripts.prompt_grammar import parse_script_calls


def check_scheduled(project: Project, entry: Mapping[str, Json]) -> Iterator[tuple[str, str, dict[str, Json]]]:
    """Find what an entry of `schedule` names and is not here: an `EntryCheck`."""
    task, to, session = (str(entry.get(key) or "") for key in ("task", "to", "session"))
    if to and to not in project.drivers:
        yield "to", "role-backend", {"name": to, "known": ", ".join(project.drivers)}
    try:
        job = with_task(Job(""), AgentTask(task, to=to, session=session), project.catalog.knows) if task else Job("")
    except SkillError as error:
        yield "task", "role-task", {"reason": error.msg}
        return
    if job.skill and not project.catalog.knows(job.skill):
        yield "task", "role-skill-missing", {"name": job.skill}
    for call in parse_script_calls(task) if job.task and job.task.scripts else ():
        if not (project.root / call.script).is_file():
            yield "task", "role-script-missing", {"name": call.script}
