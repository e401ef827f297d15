"""What goes to an agent: the active skills of a project and the text made of them; and that it goes there."""

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.phrases import Lang
from skillyard.core.result import Result, error_result, make_meta
from skillyard.dispatch.activation import DEFAULT_USER, as_conversation, is_text
from skillyard.dispatch.contents import Active
from skillyard.dispatch.text import ActiveSkill, Enhanced, enhance

if TYPE_CHECKING:
    from skillyard.backends.driver import Ask
    from skillyard.core.request import Request
    from skillyard.dispatch.order import Order, Tell
    from skillyard.sandbox.cancel_token import Stop


def active_skills(user: str = DEFAULT_USER, conversation: str | None = None) -> tuple[ActiveSkill, ...]:
    """S4's getActiveSkillContents, for the project that the working directory belongs to."""
    with open_project() as yard:
        return find_active(yard, user, conversation).skills


def find_active(yard: Project, user: str = DEFAULT_USER, conversation: str | None = None) -> Active:
    """A home where nothing was ever kept stays untouched."""
    as_conversation(conversation)
    return yard.contents.active(user, conversation) if yard.places.database.exists() else Active()


def prepare(yard: Project, task: str, conversation: str | None, user: str = DEFAULT_USER) -> tuple[Enhanced, Active]:
    """The exact text for an agent. Pass-through of bytes that are no text is refused here, once for all faces."""
    check_task(task)
    active = find_active(yard, user, conversation)
    return enhance(task, active.skills), active


def check_task(task: str) -> None:
    if not task.strip():
        raise InvalidArgs("the task is empty")
    if "\0" in task or not is_text(task):
        raise InvalidArgs("the task is no text: it holds NUL or bytes that are not UTF-8")


def forget_skills(yard: Project, folders: Sequence[Path]) -> None:
    """Skills that were removed are active nowhere, for nobody."""
    if yard.places.database.exists():
        yard.activations.forget([str(folder) for folder in folders])


def make_order(
    yard: Project,
    task: str,
    *,
    to: str | None = None,
    session: str | None = None,
    model: str | None = None,
    cwd: Path | None = None,
    limit_seconds: float | None = None,
    lang: Lang = Lang.EN,
    user: str = DEFAULT_USER,
) -> "Order":
    """A task with everything that goes along; nothing is started. Raises InvalidArgs."""
    from skillyard.dispatch.order import Order

    folder = working_folder(cwd)
    enhanced, active = prepare(yard, task, session, user)
    return Order(
        task=task,
        enhanced=enhanced,
        folder=folder,
        conversation=session,
        to=to,
        model=model,
        limit_seconds=limit_seconds,
        lang=lang,
        unreadable=active.unreadable,
    )


def working_folder(cwd: Path | None) -> Path:
    """The real one: by another way to it an agent would not find its session again."""
    folder = (cwd or Path.cwd()).absolute()
    if not folder.is_dir():
        raise InvalidArgs(f"{folder} is no folder that an agent could work in")
    return folder.resolve()


def dispatch_task(
    task: str,
    *,
    to: str | None = None,
    session: str | None = None,
    model: str | None = None,
    cwd: Path | None = None,
    limit_seconds: float | None = None,
    lang: Lang | None = None,
    tell: "Tell | None" = None,
    ask: "Ask | None" = None,
    stop: "Stop | None" = None,
    yard: Project | None = None,
) -> Result:
    """Hand a task with the active skills to an agent and wait for its answer; what `skillyard dispatch` does.

    `tell` gets every event as it comes. What the agent asks leave for goes to `ask`; without one it is refused.
    """
    chosen = lang or Lang.choose(None, os.environ)
    started, moment = time.monotonic(), datetime.now(UTC)
    with nullcontext(yard) if yard else open_project() as opened:
        try:
            order = make_order(
                opened, task, to=to, session=session, model=model, cwd=cwd, limit_seconds=limit_seconds, lang=chosen
            )
        except SkillError as error:
            return error_result(error, "skillyard", chosen, make_meta("skillyard", time.monotonic() - started, moment))
        return hand_over(opened, order, tell, ask, stop)


def hand_over(yard: Project, order: "Order", tell: "Tell | None", ask: "Ask | None", stop: "Stop | None") -> Result:
    from skillyard.backends.driver import refuse
    from skillyard.dispatch.order import tell_nobody

    return yard.dispatcher(order, tell or tell_nobody, ask or refuse, stop)


def run_by_agent(
    yard: Project,
    request: "Request",
    *,
    to: str,
    model: str | None = None,
    tell: "Tell | None" = None,
    ask: "Ask | None" = None,
    stop: "Stop | None" = None,
) -> Result:
    """A prompt skill run by an agent: its text, with the arguments filled in, is the task, and nothing goes with it."""
    from skillyard.core.skill import Kind
    from skillyard.dispatch.order import Order, Prompt
    from skillyard.runners.prompt import as_task
    from skillyard.runtime.check import check
    from skillyard.runtime.pipeline import told

    started, moment = time.monotonic(), datetime.now(UTC)
    try:
        skill = yard.runtime.resolve(request)
        call = check(skill, request, yard.root, "")
        if skill.kind is not Kind.PROMPT or call.script:
            raise InvalidArgs(f"{request.name} runs by itself: only a prompt skill is run by an agent")
        text = as_task(call)
        order = Order(
            task=text,
            enhanced=enhance(text, ()),
            folder=working_folder(None),
            to=to,
            model=model,
            limit_seconds=request.timeout_seconds,
            lang=request.lang,
            prompt=Prompt(skill.name, call.asked_as, skill.title or call.asked_as),
        )
    except SkillError as error:
        return told(error, request, make_meta(request.agent, time.monotonic() - started, moment))
    return hand_over(yard, order, tell, ask, stop)
