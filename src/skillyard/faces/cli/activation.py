"""Commands about the active skills: activate, deactivate, active."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, style_of
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import Lines, Table

if TYPE_CHECKING:
    from skillyard.dispatch.activation import ActivationChange


def add_scope(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--session", metavar="ID", help="in this conversation only")
    group.add_argument("--global", dest="is_global", action="store_true", help="in every conversation (the default)")


def session_of(options: Options) -> str | None:
    session: str | None = options.session
    return session


def as_answer(
    changes: "Sequence[ActivationChange]", options: Options, summary: Message, did: Message, did_not: Message
) -> Answer:
    lang = style_of(options).lang
    lines = [(did if change.changed else did_not).render(lang, name=change.name) for change in changes]
    nothing = Message("nothing was active there").render(lang)
    return Answer(
        summary=summary,
        words={"count": sum(change.changed for change in changes)},
        data={
            "skills": [{"name": change.name, "path": change.folder, "changed": change.changed} for change in changes],
            "session": options.session,
        },
        page=Lines(lines or [nothing]),
    )


def activate_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="folder, name or title of a skill")
    add_scope(parser)


def answer_activate(options: Options) -> Answer:
    """Activate skills: from now on they go with every task for an agent.

    Without --session a skill is active in every conversation: your own skills everywhere, a project's in that
    project. To activate one again changes nothing.

    examples:
      skillyard activate code-review
      skillyard activate pdf docx --session release-notes
    """
    with open_project() as yard:
        yard.catalog.sync()
        changes = yard.activator.activate(options.names, session_of(options), time.time())
    return as_answer(
        changes,
        options,
        summary=Message("{count} skills activated"),
        did=Message("activated {name}"),
        did_not=Message("already active: {name}"),
    )


def deactivate_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder, name, title or path of an active skill")
    parser.add_argument("--all", action="store_true", help="everything that is active there")
    add_scope(parser)


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
    with open_project() as yard:
        yard.catalog.sync()
        session = session_of(options)
        if options.all:
            changes = yard.activator.deactivate_all(session)
        else:
            changes = yard.activator.deactivate(options.names, session)
    return as_answer(
        changes,
        options,
        summary=Message("{count} skills deactivated"),
        did=Message("deactivated {name}"),
        did_not=Message("not active there: {name}"),
    )


_NOTHING = Message("Nothing is active yet: skillyard activate NAME.")


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
    with open_project() as yard:
        active = yard.contents.active(options.session)
    lang, sent = style_of(options).lang, active.fitting
    data: list[Json] = [
        {
            "name": skill.name,
            "path": skill.path,
            "session": skill.conversation or None,
            "characters": len(skill.content),
            "sent": position < sent,
            "imitates": list(skill.imitates),
        }
        for position, skill in enumerate(active.skills)
    ]
    rows = [
        (skill.name, skill.conversation or "*", str(len(skill.content)), yes_or_no(position < sent, lang), skill.path)
        for position, skill in enumerate(active.skills)
    ]
    rows += [
        (skill.name, "", "", yes_or_no(False, lang), f"{skill.path}: {skill.reason}") for skill in active.unreadable
    ]
    return Answer(
        summary=Message("{count} active skills"),
        words={"count": len(active.skills)},
        data={
            "skills": data,
            "unreadable": [skill._asdict() for skill in active.unreadable],
            "session": options.session,
            "limit": active.limit,
        },
        page=Table(
            columns=("name", "session", "characters", "sent", "path"),
            rows=rows,
            empty=_NOTHING.render(lang),
        ),
    )
