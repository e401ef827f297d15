"""Commands about the active skills: activate, deactivate, active."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import Lines, Table

if TYPE_CHECKING:
    from skillyard.dispatch.activation import ActivationChange


def _add_scope(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--session", metavar="ID", help="in this conversation only")
    group.add_argument("--global", dest="is_global", action="store_true", help="in every conversation (the default)")


def _as_data(changes: "Sequence[ActivationChange]", session: str | None) -> dict[str, Json]:
    skills: list[Json] = [{"name": each.name, "path": each.folder, "changed": each.changed} for each in changes]
    return {"skills": skills, "session": session}


def activate_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="folder, name or title of a skill")
    _add_scope(parser)


def answer_activate(options: Options) -> Answer:
    """Activate skills: from now on they go with every task for an agent.

    Without --session a skill is active in every conversation: your own skills everywhere, a project's in that
    project. To activate one again changes nothing.

    examples:
      skillyard activate code-review
      skillyard activate pdf docx --session release-notes
    """
    with open_project() as project:
        project.catalog.sync()
        changes = project.activator.activate(options.names, options.session, time.time())
    lines = [
        Message("activated {name}", name=each.name)
        if each.changed
        else Message("already active: {name}", name=each.name)
        for each in changes
    ]
    summary = Message("{count} skills activated", count=sum(each.changed for each in changes))
    return Answer(summary, _as_data(changes, options.session), Lines(lines))


def deactivate_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder, name, title or path of an active skill")
    parser.add_argument("--all", action="store_true", help="everything that is active there")
    _add_scope(parser)


def answer_deactivate(options: Options) -> Answer:
    """Take skills out of what goes with a task.

    Without --session it is about what is active in every conversation; what a conversation activated for itself
    stays.

    examples:
      skillyard deactivate code-review
      skillyard deactivate --all --session release-notes
    """
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    with open_project() as project:
        project.catalog.sync()
        if options.all:
            changes = project.activator.deactivate_all(options.session)
        else:
            changes = project.activator.deactivate(options.names, options.session)
    lines = [
        Message("deactivated {name}", name=each.name)
        if each.changed
        else Message("not active there: {name}", name=each.name)
        for each in changes
    ]
    summary = Message("{count} skills deactivated", count=sum(each.changed for each in changes))
    return Answer(summary, _as_data(changes, options.session), Lines(lines or [Message("nothing was active there")]))


def active_arguments(parser: Parser) -> None:
    parser.add_argument("--session", metavar="ID", help="with what is active in this conversation")


def answer_active(options: Options) -> Answer:
    """Show the active skills in the order in which they are handed over.

    With --session those of the conversation are among them. `sent` tells which fit into the limit of 30,000
    characters.

    examples:
      skillyard active
      skillyard active --session release-notes --json
    """
    with open_project() as project:
        active = project.contents.active(options.session)
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for position, skill in enumerate(active.skills):
        size, sent = len(skill.content), position < active.fitting
        data.append(
            {
                "name": skill.name,
                "path": skill.path,
                "session": skill.conversation or None,
                "characters": size,
                "sent": sent,
                "imitates": list(skill.imitates),
            }
        )
        rows.append((skill.name, skill.conversation or "*", str(size), yes_or_no(sent), skill.path))
    rows += [(lost.name, "", "", yes_or_no(False), f"{lost.path}: {lost.reason}") for lost in active.unreadable]
    unreadable: list[Json] = [lost._asdict() for lost in active.unreadable]
    return Answer(
        Message("{count} active skills", count=len(active.skills)),
        {"skills": data, "unreadable": unreadable, "session": options.session, "limit": active.limit},
        Table(
            ("name", "session", "characters", "sent", "path"),
            rows,
            empty=Message("Nothing is active yet: skillyard activate NAME."),
        ),
    )
