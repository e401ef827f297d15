"""skillyard list"""

import click

from skillyard.core.phrases import Text
from skillyard.faces.cli.answer import Answer, answering
from skillyard.faces.cli.entries import as_row, as_skill_data
from skillyard.faces.present import Table
from skillyard.kernel.assembly import open_yard


@click.command("list")
@answering
def command() -> Answer:
    """List the skills that can be used here."""
    yard = open_yard()
    yard.catalog.sync()
    entries = yard.catalog.list()
    return Answer(
        summary=Text("共 {count} 个技能", "{count} skills"),
        words={"count": len(entries)},
        data={"skills": [as_skill_data(entry, yard.catalog) for entry in entries]},
        page=Table(
            columns=("name", "kind", "where", "description"),
            rows=[as_row(entry, yard.catalog) for entry in entries],
            empty="No skills here yet. Put one in .claude/skills/, or see `skillyard new --help`.",
        ),
    )
