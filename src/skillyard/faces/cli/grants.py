"""Commands about what a person allows: grant, grants, revoke, trust."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message, render
from skillyard.core.result import Request
from skillyard.core.values import Json
from skillyard.faces.ask import require_yes
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import Table, one_line
from skillyard.faces.skill_data import timestamp
from skillyard.trust.consent import ADDED, CHANGED, REMOVED, distrust, is_trusted, show_wants, trust, untrusted_roles
from skillyard.trust.grant_rules import as_capabilities, grant, mark_of_skill, refuse_inside_agents, resolve_paths

if TYPE_CHECKING:
    from skillyard.store.grants import Grant
    from skillyard.trust.consent import Want

_MOST_FILES = 50


def grant_arguments(parser: Parser) -> None:
    parser.add_argument("name", help="@name of a skill, or a folder")
    parser.add_argument("capabilities", nargs="+", metavar="CAPABILITY")
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")


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
        skill = project.runtime.resolve(Request(name=options.name.removeprefix("@"), typed_in=Path.cwd()))
        mark = mark_of_skill(skill)  # before the question: the answer is for these bytes
        named = as_capabilities(tuple(options.capabilities))
        capabilities = resolve_paths(named, project.root, project.paths.user_home)
        what = " ".join(capabilities)
        question = Message("Allow @{name} ({folder}): {what}?", name=skill.name, folder=skill.folder, what=what)
        refused = Message("nothing was granted: say yes on a terminal, or give --accept")
        require_yes(question.render(lang_of(options)), refused, accepted=options.accept)
        grant(project.grants, skill, capabilities, mark)
    summary = Message("granted: @{name} {what}", name=skill.name, what=what)
    return Answer(summary, {"skill": skill.name, "capabilities": list(capabilities)})


def answer_grants(options: Options) -> Answer:
    """Show what was granted in this project, and whether it still counts.

    A grant is for exactly the bytes that a skill had; after a change it is void until it is given again.
    """
    del options
    with open_project(ends_with_process=True) as project:
        grants = [(grant, _counts(grant)) for grant in project.grants.list()]
    data: list[Json] = [
        {"skill": grant.skill, "capability": grant.capability, "granted": timestamp(grant.granted), "counts": counts}
        for grant, counts in grants
    ]
    rows = [
        (grant.capability, timestamp(grant.granted), Message("yes") if counts else Message("void"), grant.skill)
        for grant, counts in grants
    ]
    columns, empty = ("capability", "granted", "counts", "skill"), Message("Nothing was granted here.")
    return Answer(Message("{count} grants", count=len(grants)), {"grants": data}, Table(columns, rows, empty))


def _counts(grant: "Grant") -> bool:
    folder = Path(grant.skill)
    try:
        return folder.is_dir() and fingerprint(folder, in_role=folder.parent.name == "agents") == grant.fingerprint
    except SkillError:
        return False  # it cannot be read, so nothing that was granted to it counts


def revoke_arguments(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", help="@name of a skill, or its folder")
    parser.add_argument("capability", nargs="?")
    parser.add_argument("--trust", action="store_true", help="the trust in this project's files")


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
            distrust(project.grants, project.root)
        if options.name:
            project.catalog.sync()
            name = options.name.removeprefix("@")
            wanted = as_capabilities((options.capability,))[0] if options.capability else None
            known = [str(entry.folder) for entry in project.catalog.candidates(name)] or [name]
            count = sum(project.grants.revoke(folder, wanted) for folder in known)
    return Answer(Message("{count} grants taken back", count=count), {"revoked": count})


_CHANGES = {
    ADDED: Message("new: {path}"),
    CHANGED: Message("changed: {path}"),
    REMOVED: Message("removed: {path}"),
}


def trust_arguments(parser: Parser) -> None:
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")
    parser.add_argument("--check", action="store_true", help="only tell what is asked for, and whether it is trusted")


def answer_trust(options: Options) -> Answer:
    """Trust what this project's own files ask for, after seeing the list.

    What comes with a clone is not you: until you trust it, a project's files can only narrow what is allowed. What
    a role asks for (network, paths, secrets, schedules) counts for exactly the bytes of its folder, the scripts of
    bin/ for exactly the bytes of every file in it: what was added, changed or removed since the last time is
    listed."""
    lang = lang_of(options)
    with open_project(ends_with_process=True) as project:
        shown = show_wants(project.grants, project.root)
        asked: list[Json] = []
        for want in shown.wants:
            files: list[Json] = [{"path": path, "change": change} for change, path in want.files]
            asked.append({"what": want.what, "where": want.where, **({"files": files} if files else {})})
        if not options.check:
            refuse_inside_agents()
            lines = (one_line(line) for want in shown.wants for line in _lines(want, lang))
            listed = "\n".join(lines) or Message("  nothing beyond the rules")
            question = Message("{root} asks for:\n{listed}\nTrust it?", root=project.root, listed=listed)
            refused = Message("nothing was trusted: say yes on a terminal, or give --accept")
            require_yes(question.render(lang), refused, accepted=options.accept, details={"wants": asked})
            trust(project.grants, project.root, shown)
        trusted = is_trusted(project.grants, project.root) and not untrusted_roles(project.grants, project.root)
    return Answer(Message("trusted: {trusted}", trusted=yes_or_no(trusted)), {"trusted": trusted, "wants": asked})


def _lines(want: "Want", lang: Lang) -> Iterator[str]:
    yield f"  - {render(want.what, lang)} ({want.where})"
    for change, path in want.files[:_MOST_FILES]:
        yield f"      {_CHANGES[change].render(lang, path=path)}"
    if more := want.files[_MOST_FILES:]:
        yield f"      {Message('{count} more: skillyard trust --check --json', count=len(more)).render(lang)}"
