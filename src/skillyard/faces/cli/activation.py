"""What `activate` and `deactivate` have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillyard.core.messages import Message
from skillyard.faces.command import Answer, Options, Parser, style_of
from skillyard.faces.present import Lines

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
