"""Commands that find and read skills: list, search, show, explain, sync."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.messages import Message, join_messages
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, at_least, lang_of
from skillyard.faces.labels import field_lines, label
from skillyard.faces.present import Lines, Progress, Table
from skillyard.faces.skill_data import as_full_data, as_row, as_skill_data, display_name

if TYPE_CHECKING:
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.explain import Explanation


def answer_list(options: Options) -> Answer:
    """List the skills that can be used here.

    examples:
      skillyard list
      skillyard list --json
    """
    catalog = _synced(options)
    entries = catalog.list()
    summary = Message("{count} skills", count=len(entries))
    if options.json:
        return Answer(summary, {"skills": [as_skill_data(entry, catalog) for entry in entries]})
    rows = [as_row(entry, catalog) for entry in entries]
    empty = Message("No skills here yet: put one into .claude/skills/.")
    return Answer(summary, {}, Table(("name", "kind", "where", "description"), rows, empty))


def _synced(options: Options) -> "Catalog":
    catalog = open_project(ends_with_process=True).catalog
    with Progress(Message("reading skills"), lang_of(options)) as progress:
        catalog.sync(progress)
    return catalog


def search_arguments(parser: Parser) -> None:
    parser.add_argument("query", nargs="+", help="words that must all occur; the last letters may be missing")
    parser.add_argument("--limit", type=at_least(1), default=20, help="how many, the best first (20)")


def answer_search(options: Options) -> Answer:
    """Search the skills by name, description and tags.

    examples:
      skillyard search markdown
      skillyard search 周报 --json
    """
    catalog = _synced(options)
    query = " ".join(options.query)
    hits = catalog.search(query, options.limit)
    rows = [(display_name(hit.entry), str(hit.entry.kind), hit.snippet) for hit in hits]
    empty = Message("Nothing here matches {query!r}. `skillyard list` shows everything.", query=query)
    return Answer(
        Message("{count} skills match: {query}", count=len(hits), query=query),
        {"skills": [{**as_skill_data(hit.entry, catalog), "snippet": hit.snippet} for hit in hits]},
        Table(("name", "kind", "description"), rows, empty),
    )


def show_arguments(parser: Parser) -> None:
    parser.add_argument("name", help="folder, name or title of a skill; role/name for a role's")


def answer_show(options: Options) -> Answer:
    """Show everything that is known of a skill.

    examples:
      skillyard show @markdown-converter
      skillyard show markdown-converter --json
    """
    project, name = _named(options)
    skill = project.catalog.resolve(name)
    data = as_full_data(skill, project)
    shown = {key: value for key, value in data.items() if value and key != "fields"}
    lines = list(field_lines(shown, lang_of(options)))
    return Answer(Message("skill: {name}", name=skill.name), {"skills": [data]}, Lines(lines))


def _named(options: Options) -> tuple[Project, str]:
    project = open_project(ends_with_process=True)
    project.catalog.sync()
    return project, options.name.removeprefix("@")


def explain_arguments(parser: Parser) -> None:
    parser.add_argument("name", help="folder, name or title of a skill")


def answer_explain(options: Options) -> Answer:
    """Explain a name: who answers to it here and in each agent, and why.

    example:
      skillyard explain markdown-converter
    """
    project, name = _named(options)
    found = project.explain(name)
    candidates: list[Json] = [
        {"name": display_name(each.entry), "path": each.entry.file, "wins": each.wins, "why": each.why}
        for each in found.candidates
    ]
    agents: list[Json] = [
        {"agent": view.agent, "sees": list(view.sees), "why": view.why, "fix": view.fix} for view in found.views
    ]
    return Answer(
        Message("{name}: {count} candidates", name=name, count=len(candidates)),
        {"candidates": candidates, "agents": agents},
        Lines(list(_lines_of(found))),
    )


def _lines_of(found: "Explanation") -> Iterator[str]:
    for candidate in found.candidates:
        path = candidate.entry.file
        yield Message("runs   {path}", path=path) if candidate.wins else Message("knows  {path}", path=path)
        yield join_messages("", ("       ", candidate.why))
    for view in found.views:
        yield ""
        for path in view.sees:
            yield Message("{agent} sees {path}", agent=view.agent, path=path)
        if not view.sees:
            yield Message("{agent} does not see it", agent=view.agent)
        yield join_messages("", ("       ", view.why))
        if view.fix:
            yield Message("       mend it: {fix}", fix=view.fix)


def answer_sync(options: Options) -> Answer:
    """Read the skill folders and say what changed.

    Every other command does this by itself; `sync` shows what it found.
    """
    lang = lang_of(options)
    catalog = open_project(ends_with_process=True).catalog
    with Progress(Message("reading skills"), lang) as progress:
        changes = catalog.sync(progress)
    total = len(catalog.list())
    lists = {"added": changes.added, "updated": changes.updated, "removed": changes.removed}
    data: dict[str, Json] = {name: list(files) for name, files in lists.items()}
    lists["left out"] = changes.left_out
    return Answer(
        Message("read: {added} added, {updated} updated", added=len(changes.added), updated=len(changes.updated)),
        {**data, "total": total, "left_out": list(changes.left_out)},
        Table(
            ("change", "file"),
            [(label(name, lang), file) for name, files in lists.items() for file in files],
            empty=Message("Nothing changed: {total} skills.", total=total),
        ),
    )
