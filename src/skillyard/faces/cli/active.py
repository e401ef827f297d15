"""Show the active skills in the order in which they are handed over.

With --session those of the conversation are among them. `sent` tells which fit into the limit of 30,000 characters.

examples:
  skillyard active
  skillyard active --session release-notes --json
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, style_of
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import Table

_NOTHING = Message("Nothing is active yet: skillyard activate NAME.")


def arguments(parser: Parser) -> None:
    parser.add_argument("--session", metavar="ID", help="with what is active in this conversation")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
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
