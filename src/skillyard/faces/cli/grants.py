"""Commands about what a person allows: grant, grants, revoke, trust, and env, which allows packages."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app import environments
from skillyard.app.project import Project, open_project
from skillyard.core.capability import is_network
from skillyard.core.child_process import DEPTH, refuse_inside_agents
from skillyard.core.errors import InvalidArgs, RequirementFailed, SkillError
from skillyard.core.messages import Lang, Message, render
from skillyard.core.result import Request, as_size, split_name
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, confirm, on_terminal, require_yes, takes
from skillyard.faces.present import StatusLine, Table, one_line, yes_or_no
from skillyard.faces.skill_data import timestamp

if TYPE_CHECKING:
    from skillyard.core.skill import Skill
    from skillyard.runners.environments import Environment
    from skillyard.runtime.build_environment import NeededPackages
    from skillyard.trust.consent import Want

_MOST_FILES = 50
#: Said before a person opens the network to a skill.
READS_AND_REACHES = Message("A run of it can read this project, without hidden files, and then reach the network.")


@takes("name", "@name of a skill, or a folder; the grant is for the whole skill")
@takes("capabilities", nargs="+", metavar="CAPABILITY")
@takes("--accept", "say yes without being asked")
def answer_grant(options: Options) -> Answer:
    """Allow a skill more than the rules give it: for this project, and for exactly its bytes.

    Capabilities: read-project, network, network:HOST, packages, read:PATH, write:PATH, env:NAME. A changed
    skill has none of them. A path is taken from the project root, and resolved: what it leads to now is what is
    granted. network:HOST allows one host (api.example.com, *.example.com, 192.0.2.1, [2001:db8::1]) on ports 80
    and 443, or on the port that is named (network:HOST:PORT), through a proxy of ours.
    What the agent.yaml of a role asks for is granted all at once by `skillyard trust`.

    examples:
      skillyard grant @report network
      skillyard grant @report network:api.example.com network:db.example.com:5432
      skillyard grant @deploy env:DEPLOY_TOKEN write:result.html --accept
    """
    refuse_inside_agents()
    with open_project(ends_with_process=True) as project:
        skill = _resolve(project, options.name)
        mark = project.permissions.mark_of(skill)
        capabilities = project.permissions.as_capabilities(tuple(options.capabilities))
        what = " ".join(capabilities)
        question = Message("Allow @{name} ({folder}): {what}?", name=skill.name, folder=skill.folder, what=what)
        if project.runtime.reads_project and any(map(is_network, capabilities)):
            question = Message("{warning} {question}", warning=READS_AND_REACHES, question=question)
        refused = Message("nothing was granted: say yes on a terminal, or give --accept")
        require_yes(question.render(options.lang), refused, accepted=options.accept)
        project.permissions.grant(skill, capabilities, mark)
    summary = Message("granted: @{name} {what}", name=skill.name, what=what)
    return Answer(summary, {"skill": skill.name, "capabilities": list(capabilities)})


def answer_grants(_options: Options) -> Answer:
    """Show what was granted in this project, and whether it still counts.

    A grant is for exactly the bytes that a skill had; after a change it is void until it is given again.
    """
    with open_project(ends_with_process=True) as project:
        grants, reads = project.permissions.list(), project.runtime.reads_project
    data, rows = list[Json](), list[tuple[str, ...]]()
    for grant, counts in grants:
        capability, granted, opens = grant.capability, timestamp(grant.granted), reads and is_network(grant.capability)
        told: dict[str, Json] = {"skill": grant.skill, "capability": capability, "granted": granted, "counts": counts}
        data.append({**told, "reads_project": True} if opens else told)
        shown = Message("{capability}, and it reads the project", capability=capability) if opens else capability
        rows.append((shown, granted, Message("yes") if counts else Message("void"), grant.skill))
    columns, empty = ("capability", "granted", "counts", "skill"), Message("Nothing was granted here.")
    return Answer(Message("{count} grants", count=len(grants)), {"grants": data}, Table(columns, rows, empty))


@takes("name", "@name of a skill, or its folder", nargs="?")
@takes("capability", nargs="?")
@takes("--trust", "the trust in this project's files")
def answer_revoke(options: Options) -> Answer:
    """Take back what was granted to a skill, or the trust in this project.

    examples:
      skillyard revoke @report
      skillyard revoke @report network
      skillyard revoke --trust
    """
    if not options.name and not options.trust:
        raise InvalidArgs(Message("name a skill, or give --trust"))
    count = 0
    with open_project(ends_with_process=True) as project:
        if options.trust:
            project.permissions.distrust()
        for folder in _granted_folders(project, options.name) if options.name else ():
            count += project.permissions.revoke(folder, options.capability)
    summary = Message("{count} grants taken back", count=count)
    if options.name and not count:
        summary = Message("nothing was taken back: `skillyard grants` lists what is granted here")
    return Answer(summary, {"revoked": count})


def _resolve(project: Project, text: str) -> "Skill":
    """The skill that a person names: @name, role/name or a folder, each with or without `:script`."""
    return project.runtime.resolve(Request(name=split_name(text)[0], typed_in=Path.cwd()))


def _granted_folders(project: Project, text: str) -> list[str]:
    """The folders that a person may mean, in every form that `grant` takes; of a skill that is gone, too."""
    name = split_name(text)[0]
    granted = {grant.skill for grant in project.grants.list()}
    place = os.path.realpath(Path.cwd() / os.path.expanduser(name))  # noqa: PTH111  (`~nobody` stays)
    found = {folder for folder in granted if folder in {name, place} or folder.endswith(f"/{name}")}
    try:
        found.add(str(_resolve(project, text).folder))
    except SkillError:  # it is gone or broken, or there are several of that name
        found.update(str(entry.folder) for entry in project.catalog.candidates(name))
        if not found:
            raise
    return sorted(found)


_CHANGES = {
    "added": Message("new: {path}"),
    "changed": Message("changed: {path}"),
    "removed": Message("removed: {path}"),
}


@takes("--accept", "say yes without being asked")
@takes("--check", "only tell what is asked for, and whether it is trusted")
@takes("--server", "only this MCP server of .mcp.json and the like: its skills may be read", default="", metavar="NAME")
@takes("--show", "list the files that the trust is for; a change in one of them ends it")
def answer_trust(options: Options) -> Answer:
    """Trust what this project's own files ask for, after seeing the list.

    What comes with a clone is not you: until you trust it, a project's files can only narrow what is allowed. What
    a role asks for (network, paths, secrets, schedules) counts for exactly the bytes of its folder, the scripts of
    bin/ for exactly the bytes of every file in it: what was added, changed or removed since the last time is
    listed. Caches, editor files, documents and test output of a role are free to change. An MCP server that a file
    of the project names is started only for exactly the command and address that you saw."""
    if options.server:
        return _trust_server(options)
    with open_project(ends_with_process=True) as project:
        if options.show:
            return _show_coverage(project)
        shown = project.permissions.show_wants()
        asked: list[Json] = []
        for want in shown.wants:
            files: list[Json] = [{"path": path, "change": change} for change, path in want.files]
            asked.append({"what": want.what, "where": want.where, **({"files": files} if files else {})})
        if not options.check:
            refuse_inside_agents()
            lines = (one_line(line) for want in shown.wants for line in _want_lines(want, options.lang))
            listed = "\n".join(lines) or Message("  nothing beyond the rules")
            question = Message("{root} asks for:\n{listed}\nTrust it?", root=project.root, listed=listed)
            refused = Message("nothing was trusted: say yes on a terminal, or give --accept")
            require_yes(question.render(options.lang), refused, accepted=options.accept, details={"wants": asked})
            project.permissions.trust(shown)
        trusted = project.permissions.is_trusted()
    return Answer(Message("trusted: {trusted}", trusted=yes_or_no(trusted)), {"trusted": trusted, "wants": asked})


def _trust_server(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        servers = project.mcp_servers
        server = servers.find(options.server.removeprefix("mcp:"), typed=False)
        if server.needs_grant and not options.check:
            refuse_inside_agents()
            about = {"file": server.file, "shown": one_line(server.shown)}
            question = Message("{file} asks for this MCP server:\n  {shown}\nStart or reach it?", **about)
            refused = Message("nothing was trusted: say yes on a terminal, or give --accept")
            require_yes(
                question.render(options.lang), refused, accepted=options.accept, details={"server": server.shown}
            )
            servers.allow(server)
        trusted = not server.needs_grant or servers.is_allowed(server)
    data: dict[str, Json] = {"trusted": trusted, "server": server.name, "command": server.shown}
    return Answer(Message("trusted: {trusted}", trusted=yes_or_no(trusted)), data)


def _show_coverage(project: Project) -> Answer:
    found, trusted = project.permissions.list_coverage(), project.permissions.is_trusted()
    rows = [(f"{each.folder}/{file}", Message("covered")) for each in found for file in each.files]
    rows += [(f"{each.folder}/{file}", Message("free to change")) for each in found for file in each.free]
    data: list[Json] = [{"folder": each.folder, "files": list(each.files), "free": list(each.free)} for each in found]
    table = Table(("file", "trust"), sorted(rows), Message("No roles and no scripts here."))
    count = sum(len(each.files) for each in found)
    return Answer(Message("{count} files covered", count=count), {"trusted": trusted, "covered": data}, table)


def _want_lines(want: "Want", lang: Lang) -> Iterator[str]:
    yield f"  - {render(want.what, lang)} ({want.where})"
    for change, path in want.files[:_MOST_FILES]:
        yield f"      {_CHANGES[change].render(lang, path=path)}"
    if more := want.files[_MOST_FILES:]:
        yield f"      {Message('{count} more: skillyard trust --check --json', count=len(more)).render(lang)}"


@takes("target", "@name[:script], list or remove", nargs="?", default="list", metavar="TARGET")
@takes("digests", "what to remove: a digest, or how it starts", nargs="*", metavar="DIGEST")
@takes("--with", "packages that it needs too", dest="more", nargs="+", default=[], metavar="PACKAGE")
@takes("--without", "requirements that cannot be had, to go on without", nargs="+", default=[], metavar="PACKAGE")
@takes("--accept", "say yes without being asked")
def answer_env(options: Options) -> Answer:
    """Build the environment that a skill's programs need, after showing its packages.

    They are what a Python or JavaScript program imports, with the versions that a PEP 723 block, a requirements.txt, a
    pyproject.toml or a package.json names. Only wheels, and packages of npm without their scripts, are installed,
    inside the sandbox; a changed skill asks again.

    examples:
      skillyard env @report
      skillyard env @report:scripts/plot.py --accept
      skillyard env @report --with pandas npm:zod --without torch
      skillyard env list
      skillyard env remove 3f9a1c
    """
    digests = options.digests
    if options.target != "remove" and digests:
        why = Message("{extra!r} belongs to nothing; only `skillyard env remove` takes more words", extra=digests[0])
        raise InvalidArgs(why)
    with open_project(ends_with_process=True) as project:
        own_home = project.paths.own_home
        if options.target == "list":
            return _list_environments(own_home)
        if options.target != "remove":
            return _build(project, options)
    if not digests:
        raise InvalidArgs(Message("say which: `skillyard env list` shows their digests"))
    gone = [environments.remove(digest, own_home) for digest in digests]
    lines = [Message("removed {digest}", digest=each.digest) for each in gone]
    return Answer(Message("{count} environments removed", count=len(gone)), _as_data(gone, own_home), lines)


def _list_environments(own_home: Path) -> Answer:
    built = environments.list_built(own_home)
    rows = [
        (each.digest[:12], timestamp(each.built), each.version, as_size(each.size_bytes), ", ".join(each.packages))
        for each in built
    ]
    empty = Message("No environments yet: `skillyard env @name` builds one.")
    table = Table(("digest", "built", "python", "size", "packages"), rows, empty)
    return Answer(Message("{count} environments", count=len(built)), _as_data(built, own_home), table)


def _as_data(found: "Sequence[Environment]", own_home: Path) -> dict[str, Json]:
    home = environments.home_of(own_home)
    told = ({"built": timestamp(each.built), "path": str(home / each.digest)} for each in found)
    return {"environments": [{**each.as_dict(), **more} for each, more in zip(found, told, strict=True)]}


def _build(project: Project, options: Options) -> Answer:
    name, script = split_name(options.target)
    request = Request(name=name, script=script, typed_in=None if os.environ.get(DEPTH) else Path.cwd())
    change = environments.as_choice(options.more, options.without)
    wanted = environments.find_needed(project.runtime, request, every=True, change=change)
    if not wanted.ready:
        refuse_inside_agents()
        if not options.accept and not _confirms(wanted, options.lang):
            more = [("--with", options.more), ("--without", options.without)]
            told = "".join(f" {option} {shlex.join(names)}" for option, names in more if names)
            raise wanted.not_granted(f"{told} --accept")
    built = _build_or_leave_out(project, request, wanted, options.lang, every=True)
    summary = Message("no packages needed: {name}", name=wanted.asked_as)
    if built:
        summary = Message("environment ready: {name}", name=wanted.asked_as)
    return Answer(summary, {"skill": wanted.asked_as, **_as_data(built, project.paths.own_home)})


def build_on_yes(project: Project, request: Request) -> bool:
    """For a run on a terminal: shows what the program needs, asks once, builds."""
    wanted = environments.find_needed(project.runtime, request)
    if not _confirms(wanted, request.lang):
        return False
    _build_or_leave_out(project, request, wanted, request.lang, every=False)
    return True


def _confirms(wanted: "NeededPackages", lang: Lang) -> bool:
    name, packages = wanted.skill.name, wanted.told
    question = Message("@{name} needs {packages}. Build an environment for it?", name=name, packages=packages)
    return on_terminal() and confirm(question.render(lang))


def _build_or_leave_out(
    project: Project, request: Request, wanted: "NeededPackages", lang: Lang, *, every: bool
) -> "tuple[Environment, ...]":
    """Build; a person at a terminal is asked whether to go on without a requirement that cannot be had."""
    while True:
        try:
            with StatusLine(f"@{wanted.skill.name}") as line:
                return environments.build_environments(project.runtime, wanted, line)
        except RequirementFailed as error:
            question = Message("{reason}. Go on without it?", reason=error.summary(lang))
            if not on_terminal() or not confirm(question.render(lang)):
                raise
            change = wanted.choice.changed(environments.PackageChoice(without=(error.name,)))
            wanted = environments.find_needed(project.runtime, request, every=every, change=change)
