"""Read the skill folders and say what changed.

Every other command does this by itself; `sync` shows what it found.
"""

from functools import partial

from skillyard.core.phrases import Text
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with
from skillyard.faces.present import Progress, Table
from skillyard.kernel.assembly import open_yard


def arguments(parser: Parser) -> None:
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    del options
    yard = open_yard(ends_with_process=True)
    with Progress("reading skills") as progress:
        changes = yard.catalog.sync(progress)
    total = len(yard.catalog.list())
    lists = {"added": changes.added, "updated": changes.updated, "removed": changes.removed}
    return Answer(
        summary=Text("扫描完成: 新增 {added} 个, 更新 {updated} 个", "read: {added} added, {updated} updated"),
        words={"added": len(changes.added), "updated": len(changes.updated)},
        data={
            **{name: list(files) for name, files in lists.items()},
            "total": total,
            "left_out": list(changes.left_out),
        },
        page=Table(
            columns=("change", "file"),
            rows=[(name, file) for name, files in lists.items() for file in files]
            + [("left out", path) for path in changes.left_out],
            empty=f"Nothing changed: {total} skills.",
        ),
    )
