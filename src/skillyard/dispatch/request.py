"""A task for a backend with everything that is decided before a backend is looked for."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import is_utf8
from skillyard.core.child_process import DEPTH, PROFILE
from skillyard.core.dispatch_settings import DispatchSettings, PermissionProfile
from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.messages import Lang, Message
from skillyard.core.values import NOTHING, Json
from skillyard.dispatch.activation import Contents, Unreadable
from skillyard.dispatch.text import EnhancedTask, enhance


class PromptSkill(NamedTuple):
    """The prompt skill whose text is the task: the run counts as a run of it."""

    #: By its frontmatter, as the caller named it, and what a person calls it.
    name: str
    asked_as: str
    label: str


class DispatchRequest(NamedTuple):
    """Everything that is decided before a backend is looked for."""

    #: As the caller wrote it; the backend gets `enhanced.text`.
    task: str
    enhanced: EnhancedTask
    #: The backend's working directory.
    folder: Path
    #: Its name; None for a task that nothing follows.
    conversation: str | None = None
    #: A backend's name; None for the first one in the configured order that works.
    to: str | None = None
    model: str | None = None
    limit_seconds: float | None = None
    lang: Lang = Lang.EN
    #: Active skills that could not be read, and so are not included.
    unreadable: tuple[Unreadable, ...] = ()
    prompt: PromptSkill | None = None
    #: No tools at all: nothing is allowed, and a backend that uses one anyway is stopped.
    without_tools: bool = False
    #: What the backend may do unasked; None for what the settings say.
    profile: PermissionProfile | None = None
    #: Tools that need no permission, beside those that the user allows this backend.
    allowed_tools: tuple[str, ...] = ()
    #: How often the backend may call its model, if it accepts a limit.
    max_turns: int | None = None
    #: The id of the run, if the caller has one already; and the job that it is an attempt of.
    run: str = ""
    job: Mapping[str, Json] = NOTHING

    @property
    def agent(self) -> str:
        """The `agent` of the result."""
        return "skills" if self.prompt else "skillyard"

    def as_data(self) -> dict[str, Json]:
        """Return what is known before the task is sent; the same in a dry run and in a result."""
        enhanced = self.enhanced
        return {
            "text": enhanced.text,
            "skills": [
                {"name": name, "path": path, "session": conversation or None, "characters": len(content)}
                for name, content, path, conversation, _ in enhanced.skills
            ],
            "earlier": [turn._asdict() for turn in enhanced.earlier],
            "omitted": [skill.name for skill in enhanced.omitted],
            "marked": [
                {"name": skill.name, "path": skill.path, "imitates": list(skill.imitates)} for skill in enhanced.marked
            ],
            "unreadable": [skill._asdict() for skill in self.unreadable],
            "characters": enhanced.characters,
            "newline_added": enhanced.shielded,
            "to": self.to,
            "session": self.conversation,
            "model": self.model,
            "cwd": str(self.folder),
            "permissions": self.profile,
        }


def choose_profile(
    settings: DispatchSettings, asked: PermissionProfile | None, env: Mapping[str, str] = os.environ
) -> PermissionProfile:
    """Return what was asked for, else what the settings say. Raise PermissionDenied for more, inside an agent.

    An agent that starts another one may not give it more than it was given itself.
    """
    usual = settings.own_profile
    if not env.get(DEPTH):
        return asked or usual
    outer = env.get(PROFILE, "")
    known = PermissionProfile(outer) if outer in set(PermissionProfile) else usual
    most = min(usual, known, key=lambda each: each.rank)
    if asked and asked.rank > most.rank:
        msg = Message("inside an agent no more than {most} can be allowed, not {asked}", most=most, asked=asked)
        raise PermissionDenied(msg)
    return asked or most


def make_request(contents: Contents, task: str, conversation: str | None, cwd: Path | None) -> DispatchRequest:
    """Return the task with the active skills of its conversation. Raise InvalidArgs. Nothing is started."""
    folder = working_folder(cwd)
    check_task(task)
    active = contents.active(conversation)
    return DispatchRequest(task, enhance(task, active.skills), folder, conversation, unreadable=active.unreadable)


def check_task(task: str) -> None:
    if not task.strip():
        raise InvalidArgs(Message("the task is empty"))
    if "\0" in task or not is_utf8(task):
        raise InvalidArgs(Message("the task is no text: it holds NUL or bytes that are not UTF-8"))


def working_folder(cwd: Path | None) -> Path:
    """Return the real path: by another path to the folder a backend would not find its session again."""
    folder = (cwd or Path.cwd()).absolute()
    if not folder.is_dir():
        raise InvalidArgs(Message("{folder} is no folder that an agent could work in", folder=folder))
    return folder.resolve()
