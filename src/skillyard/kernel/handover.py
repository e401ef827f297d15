"""What goes to an agent: the active skills of a project and the text made of them, before any agent is looked for."""

from collections.abc import Sequence
from pathlib import Path

from skillyard.core.errors import InvalidArgs
from skillyard.dispatch.activation import DEFAULT_USER, as_conversation, is_text
from skillyard.dispatch.contents import Active
from skillyard.dispatch.text import ActiveSkill, Enhanced, enhance
from skillyard.kernel.assembly import Yard, open_yard


def active_skills(user: str = DEFAULT_USER, conversation: str | None = None) -> tuple[ActiveSkill, ...]:
    """S4's getActiveSkillContents, for the project that the working directory belongs to."""
    with open_yard() as yard:
        return find_active(yard, user, conversation).skills


def find_active(yard: Yard, user: str = DEFAULT_USER, conversation: str | None = None) -> Active:
    """A home where nothing was ever kept stays untouched."""
    as_conversation(conversation)
    return yard.contents.active(user, conversation) if yard.places.database.exists() else Active()


def prepare(yard: Yard, task: str, conversation: str | None, user: str = DEFAULT_USER) -> tuple[Enhanced, Active]:
    """The exact text for an agent. Pass-through of bytes that are no text is refused here, once for all faces."""
    if not task.strip():
        raise InvalidArgs("the task is empty")
    if "\0" in task or not is_text(task):
        raise InvalidArgs("the task is no text: it holds NUL or bytes that are not UTF-8")
    active = find_active(yard, user, conversation)
    return enhance(task, active.skills), active


def forget_skills(yard: Yard, folders: Sequence[Path]) -> None:
    """Skills that were removed are active nowhere, for nobody."""
    if yard.places.database.exists():
        yard.activations.forget([str(folder) for folder in folders])
