"""skillyard search"""

import click

from skillyard.core.phrases import Text
from skillyard.faces.cli.answer import Answer, answering
from skillyard.faces.cli.entries import as_skill_data, display_name
from skillyard.faces.present import Table
from skillyard.kernel.assembly import open_yard


@click.command("search")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many, the best first.")
@answering
def command(query: tuple[str, ...], limit: int) -> Answer:
    """Search the skills by name, description and tags.

    \b
    Examples:
      skillyard search markdown
      skillyard search 周报 --json
    """
    yard = open_yard()
    yard.catalog.sync()
    wanted = " ".join(query)
    hits = yard.catalog.search(wanted, limit)
    return Answer(
        summary=Text("找到 {count} 个技能: {query}", "{count} skills match: {query}"),
        words={"count": len(hits), "query": wanted},
        data={"skills": [{**as_skill_data(hit.entry, yard.catalog), "snippet": hit.snippet} for hit in hits]},
        page=Table(
            columns=("name", "kind", "description"),
            rows=[(display_name(hit.entry), str(hit.entry.kind), hit.snippet) for hit in hits],
            empty=f"Nothing here matches {wanted!r}. `skillyard list` shows everything.",
        ),
    )
