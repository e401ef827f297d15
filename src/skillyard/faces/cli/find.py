"""Commands that find and read skills: list, search, find, show, explain, sync."""

from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message, join_messages
from skillyard.core.skill import fold
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, at_least, takes
from skillyard.faces.present import StatusLine, Table, field_lines, label, one_line
from skillyard.faces.skill_data import as_full_data, as_row, as_search_data, as_skill_data, display_name, fields_of

if TYPE_CHECKING:
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.scan import Changes


def answer_list(options: Options) -> Answer:
    """List the skills that can be used here.

    examples:
      skillyard list
      skillyard list --json
    """
    catalog, _ = _synced(options)
    entries = catalog.list()
    summary = Message("{count} skills", count=len(entries))
    if options.json:
        return Answer(summary, {"skills": [as_skill_data(entry, catalog) for entry in entries]})
    rows = [as_row(entry, catalog) for entry in entries]
    empty = Message(
        "No skills here yet. `skillyard init --examples` brings ten to try, `skillyard add SOURCE` installs some, "
        "`skillyard new NAME` writes one; or put a folder with a SKILL.md into .claude/skills/."
    )
    return Answer(summary, {}, Table(("name", "kind", "where", "description"), rows, empty))


def _synced(options: Options) -> "tuple[Catalog, Changes]":
    catalog = open_project(ends_with_process=True).catalog
    with StatusLine(Message("reading skills"), options.lang) as line:
        return catalog, catalog.sync(line.count)


@takes("query", "what is looked for, in your own words, in English or Chinese", nargs="+")
@takes("--limit", "how many, the best first (20)", type=at_least(1), default=20)
def answer_search(options: Options) -> Answer:
    """Search the skills by name, description and tags.

    examples:
      skillyard search markdown
      skillyard search 周报 --json
    """
    catalog, _ = _synced(options)
    query = " ".join(options.query)
    hits = catalog.search(query, options.limit)
    data = as_search_data(hits, query, catalog)
    empty = Message("Nothing here matches {query!r}. `skillyard list` shows everything.", query=query)
    if isinstance(near := data.get("nearest"), list) and near:
        names = ", ".join(map(str, near))
        empty = Message("Nothing here matches {query!r}. Names like it: {names}.", query=query, names=names)
    summary = Message("{count} skills match: {query}", count=len(hits), query=query)
    rows = [(display_name(hit.entry), str(hit.entry.kind), hit.snippet) for hit in hits]
    return Answer(summary, data, Table(("name", "kind", "description"), rows, empty))


@takes("query", "only skills with these words in their name or description", nargs="*")
@takes(
    "--mcp", "the name of a server in an agent's configuration, its address, or the command of one", metavar="SERVER"
)
def answer_find(options: Options) -> Answer:
    """Find skills on an MCP server that declares them, without fetching any of their files.

    The server is named as in .mcp.json, .codex/config.toml, opencode.json or your own files of these agents; or give
    its address, or a command in quotes.

    examples:
      skillyard find --mcp docs
      skillyard find pdf --mcp https://mcp.example.com/mcp
      skillyard find --mcp 'uvx my-server --stdio' --json
    """
    if not options.mcp:
        raise InvalidArgs(Message("say where: --mcp SERVER; `skillyard search` looks among the skills that are here"))
    server = options.mcp.removeprefix("mcp:")
    with open_project() as project, StatusLine(Message("finding"), options.lang) as steps:
        found = project.skills_of_server(server, steps)
    words = [fold(word) for word in options.query]
    skills = [
        skill
        for skill in sorted(found.listed or (), key=lambda skill: skill.path)
        if all(word in fold(f"{skill.name} {skill.description}") for word in words)
    ]
    data: list[Json] = [
        {**fields_of(skill, "name", "description", "uri", "path", "total_bytes"), "files": len(skill.files)}
        for skill in skills
    ]
    left: list[Json] = [{"path": path, "reason": why} for path, why in found.refused.items()]
    rows = [(skill.path, str(len(skill.files)), one_line(skill.description)) for skill in skills]
    empty = Message("Nothing on {server} matches.", server=server)
    summary = Message("{count} skills on {server}, {left} refused", count=len(skills), server=server, left=len(left))
    told: dict[str, Json] = {"server": server, "skills": data, "refused": left}
    table = Table(
        ("name", "files", "description"), [*rows, *((path, "-", why) for path, why in found.refused.items())], empty
    )
    return Answer(summary, told, table)


@takes("name", "folder, name or title of a skill; role/name for a role's")
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
    page = list(field_lines(shown, options.lang))
    return Answer(Message("skill: {name}", name=skill.name), {"skills": [data]}, page)


def _named(options: Options) -> tuple[Project, str]:
    project = open_project(ends_with_process=True)
    project.catalog.sync()
    return project, options.name.removeprefix("@")


@takes("name", "folder, name or title of a skill")
def answer_explain(options: Options) -> Answer:
    """Explain a name: who answers to it here and in each agent, and why.

    example:
      skillyard explain markdown-converter
    """
    project, name = _named(options)
    found = project.explain(name)
    candidates, agents, lines = list[Json](), list[Json](), list[str]()
    for each in found.candidates:
        path = each.entry.file
        candidates.append({"name": display_name(each.entry), "path": path, "wins": each.wins, "why": each.why})
        lines.append(Message("runs   {path}", path=path) if each.wins else Message("knows  {path}", path=path))
        lines.append(join_messages("", ("       ", each.why)))
    for view in found.views:
        installed = project.backend(view.agent).packaged_version()
        agents.append({**fields_of(view, "agent", "sees", "why", "fix", "learnt_from"), "installed": installed or None})
        lines += ["", *(Message("{agent} sees {path}", agent=view.agent, path=path) for path in view.sees)]
        if not view.sees:
            lines.append(Message("{agent} does not see it", agent=view.agent))
        lines.append(join_messages("", ("       ", view.why)))
        if installed and not installed.startswith(view.learnt_from):
            words = {"learnt_from": view.learnt_from, "installed": installed}
            lines.append(Message("       learnt from {learnt_from}, you have {installed}", **words))
        if view.fix:
            lines.append(Message("       mend it: {fix}", fix=view.fix))
    summary = Message("{name}: {count} candidates", name=name, count=len(candidates))
    return Answer(summary, {"candidates": candidates, "agents": agents}, lines)


def answer_sync(options: Options) -> Answer:
    """Read the skill folders and say what changed.

    Every other command does this by itself; `sync` shows what it found.
    """
    catalog, changes = _synced(options)
    total = len(catalog.list())
    data = fields_of(changes, "added", "updated", "removed", "left_out")
    rows = [(label(name.replace("_", " "), options.lang), file) for name in data for file in getattr(changes, name)]
    empty = Message("Nothing changed: {total} skills.", total=total)
    summary = Message("read: {added} added, {updated} updated", added=len(changes.added), updated=len(changes.updated))
    return Answer(summary, {**data, "total": total}, Table(("change", "file"), rows, empty))
