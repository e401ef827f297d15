"""What `activate` and `deactivate` have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillyard.core.phrases import Text
from skillyard.faces.cli.command import Answer, Options, Parser, style_of
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
    changes: "Sequence[ActivationChange]", options: Options, summary: Text, did: Text, did_not: Text
) -> Answer:
    lang = style_of(options).lang
    lines = [(did if change.changed else did_not).fill(lang, name=change.name) for change in changes]
    nothing = Text("没有激活的技能", "nothing was active there").fill(lang)
    return Answer(
        summary=summary,
        words={"count": sum(change.changed for change in changes)},
        data={
            "skills": [{"name": change.name, "path": change.folder, "changed": change.changed} for change in changes],
            "session": options.session,
        },
        page=Lines(lines or [nothing]),
    )
