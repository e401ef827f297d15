"""Commands that find and read skills: list, search, show, explain, sync."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.messages import Lang, Message, render
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, lang_of, positive
from skillyard.faces.labels import as_words, label
from skillyard.faces.present import Lines, Progress, Table
from skillyard.faces.skill_data import READING, as_full_data, as_row, as_skill_data, display_name

if TYPE_CHECKING:
    from skillyard.catalog.explain import Explanation

_EMPTY = Message("No skills here yet: put one into .claude/skills/.")


def list_arguments(parser: Parser) -> None:
    del parser  # nothing but the output options


def answer_list(options: Options) -> Answer:
    """List the skills that can be used here.

    examples:
      skillyard list
      skillyard list --json
    """
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


_EMPTY_SEARCH = Message("Nothing here matches {query!r}. `skillyard list` shows everything.")


def search_arguments(parser: Parser) -> None:
    parser.add_argument("query", nargs="+", help="words that must all occur; the last letters may be missing")
    parser.add_argument("--limit", type=positive, default=20, help="how many, the best first (20)")


def answer_search(options: Options) -> Answer:
    """Search the skills by name, description and tags.

    examples:
      skillyard search markdown
      skillyard search 周报 --json
    """
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
            empty=_EMPTY_SEARCH.render(lang, query=wanted),
        ),
    )


def show_arguments(parser: Parser) -> None:
    parser.add_argument("name", help="folder, name or title of a skill; role/name for a role's")


def answer_show(options: Options) -> Answer:
    """Show everything that is known of a skill.

    examples:
      skillyard show @markdown-converter
      skillyard show markdown-converter --json
    """
    yard = open_project(ends_with_process=True)
    yard.catalog.sync()
    skill = yard.catalog.resolve(options.name.removeprefix("@"))
    data = as_full_data(skill, yard)
    lang = lang_of(options)
    return Answer(
        summary=Message("skill: {name}"),
        words={"name": skill.name},
        data={"skills": [data]},
        page=Lines([line for key, value in data.items() if value for line in _lines(key, value, lang)]),
    )


def _lines(key: str, value: Json, lang: Lang) -> Iterator[str]:
    if key in {"params", "findings"} and isinstance(value, list):
        yield f"{label(key, lang)}:"
        yield from (f"  - {as_words(item, lang)}" for item in value)
    elif key != "fields":
        yield f"{label(key, lang)}: {as_words(value, lang)}"


def explain_arguments(parser: Parser) -> None:
    parser.add_argument("name", help="folder, name or title of a skill")


def answer_explain(options: Options) -> Answer:
    """Explain a name: who answers to it here and in each agent, and why.

    example:
      skillyard explain markdown-converter
    """
    from skillyard.catalog.explain import explain  # no other command of these needs it

    yard = open_project(ends_with_process=True)
    yard.catalog.sync()
    plain = options.name.removeprefix("@")
    found = explain(yard.catalog, plain, yard.paths.project, yard.paths.user_home)
    candidates: list[Json] = [
        {"name": display_name(c.entry), "path": c.entry.file, "wins": c.wins, "why": c.why} for c in found.candidates
    ]
    agents: list[Json] = [
        {"agent": view.agent, "sees": list(view.sees), "why": view.why, "fix": view.fix} for view in found.views
    ]
    return Answer(
        summary=Message("{name}: {count} candidates"),
        words={"name": plain, "count": len(candidates)},
        data={"candidates": candidates, "agents": agents},
        page=Lines(list(_lines_explain(found, lang_of(options)))),
    )


_RUNS, _KNOWS = Message("runs   {path}"), Message("knows  {path}")
_SEES, _SEES_NOT = (
    Message("{agent} sees {path}"),
    Message("{agent} does not see it"),
)
_MEND = Message("       mend it: {fix}")


def _lines_explain(found: "Explanation", lang: Lang) -> Iterator[str]:
    for candidate in found.candidates:
        yield (_RUNS if candidate.wins else _KNOWS).render(lang, path=candidate.entry.file)
        yield f"       {render(candidate.why, lang)}"
    for view in found.views:
        yield ""
        for path in view.sees:
            yield _SEES.render(lang, agent=view.agent, path=path)
        if not view.sees:
            yield _SEES_NOT.render(lang, agent=view.agent)
        yield f"       {render(view.why, lang)}"
        if view.fix:
            yield _MEND.render(lang, fix=view.fix)


_EMPTY_SYNC = Message("Nothing changed: {total} skills.")


def sync_arguments(parser: Parser) -> None:
    del parser  # nothing but the output options


def answer_sync(options: Options) -> Answer:
    """Read the skill folders and say what changed.

    Every other command does this by itself; `sync` shows what it found.
    """
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
            empty=_EMPTY_SYNC.render(lang, total=total),
        ),
    )
