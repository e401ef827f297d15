"""Search the skills by name, description and tags.

examples:
  skillyard search markdown
  skillyard search 周报 --json
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of, positive
from skillyard.faces.present import Progress, Table
from skillyard.faces.skill_data import READING, as_skill_data, display_name

_EMPTY = Message("Nothing here matches {query!r}. `skillyard list` shows everything.")


def arguments(parser: Parser) -> None:
    parser.add_argument("query", nargs="+", help="words that must all occur; the last letters may be missing")
    parser.add_argument("--limit", type=positive, default=20, help="how many, the best first (20)")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    catalog = open_project(ends_with_process=True).catalog
    with Progress(READING.render(lang)) as progress:
        catalog.sync(progress)
    wanted = " ".join(options.query)
    hits = catalog.search(wanted, options.limit)
    return Answer(
        summary=Message("{count} skills match: {query}"),
        words={"count": len(hits), "query": wanted},
        data={"skills": [{**as_skill_data(hit.entry, catalog), "snippet": hit.snippet} for hit in hits]},
        page=Table(
            columns=("name", "kind", "description"),
            rows=[(display_name(hit.entry), str(hit.entry.kind), hit.snippet) for hit in hits],
            empty=_EMPTY.render(lang, query=wanted),
        ),
    )
