"""Tasks for backends as functions that open the project of the working directory themselves."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.backend_events import Ask, Tell, ignore, refuse
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import SkillError
from skillyard.core.messages import Lang
from skillyard.core.result import Clock, Result, error_result
from skillyard.dispatch.activation import DEFAULT_USER
from skillyard.dispatch.text import ActiveSkill

if TYPE_CHECKING:
    from skillyard.core.cancel_token import CancelToken


def active_skills(user: str = DEFAULT_USER, conversation: str | None = None) -> tuple[ActiveSkill, ...]:
    """Return the active skills with their texts."""
    with open_project() as project:
        return project.contents.active(conversation, user).skills


def dispatch_task(
    task: str,
    *,
    to: str | None = None,
    session: str | None = None,
    model: str | None = None,
    cwd: Path | None = None,
    limit_seconds: float | None = None,
    permissions: PermissionProfile | None = None,
    lang: Lang | None = None,
    tell: Tell | None = None,
    ask: Ask | None = None,
    stop: "CancelToken | None" = None,
    project: Project | None = None,
) -> Result:
    """Send a task with the active skills to a backend and wait for its answer, as `skillyard dispatch` does.

    `tell` gets every event as it comes. What the backend wants beyond `permissions` (else the settings') goes to `ask`;
    without one it is refused.
    """
    clock = Clock()
    with nullcontext(project) if project else open_project() as opened:
        chosen = lang or opened.lang
        try:
            request = opened.make_dispatch_request(task, session, cwd)
        except SkillError as error:
            return error_result(error, "skillyard", chosen, clock.meta("skillyard"))
        request = request._replace(to=to, model=model, limit_seconds=limit_seconds, lang=chosen, profile=permissions)
        return opened.dispatcher.dispatch(request, tell or ignore, ask or refuse, stop)
