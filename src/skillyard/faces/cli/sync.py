"""Read the skill folders and say what changed.

Every other command does this by itself; `sync` shows what it found.
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import label
from skillyard.faces.present import Progress, Table
from skillyard.faces.skill_data import READING

_EMPTY = Message("Nothing changed: {total} skills.")


def arguments(parser: Parser) -> None:
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    yard = open_project(ends_with_process=True)
    with Progress(READING.render(lang)) as progress:
        changes = yard.catalog.sync(progress)
    total = len(yard.catalog.list())
    lists = {"added": changes.added, "updated": changes.updated, "removed": changes.removed}
    return Answer(
        summary=Message("read: {added} added, {updated} updated"),
        words={"added": len(changes.added), "updated": len(changes.updated)},
        data={
            **{name: list(files) for name, files in lists.items()},
            "total": total,
            "left_out": list(changes.left_out),
        },
        page=Table(
            columns=("change", "file"),
            rows=[(label(name, lang), file) for name, files in lists.items() for file in files]
            + [(label("left out", lang), path) for path in changes.left_out],
            empty=_EMPTY.render(lang, total=total),
        ),
    )
