"""List the skills that can be used here.

examples:
  skillyard list
  skillyard list --json
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Progress, Table
from skillyard.faces.skill_data import READING, as_row, as_skill_data

_EMPTY = Message("No skills here yet: put one into .claude/skills/.")


def arguments(parser: Parser) -> None:
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    catalog = open_project(ends_with_process=True).catalog
    with Progress(READING.render(lang)) as progress:
        catalog.sync(progress)
    entries = catalog.list()
    return Answer(
        summary=Message("{count} skills"),
        words={"count": len(entries)},
        data={"skills": [as_skill_data(entry, catalog) for entry in entries]} if options.json else {},
        page=Table(
            columns=("name", "kind", "where", "description"),
            rows=[] if options.json else [as_row(entry, catalog) for entry in entries],
            empty=_EMPTY.render(lang),
        ),
    )
