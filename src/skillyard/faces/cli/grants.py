"""Commands about what a person allows: grant, grants, revoke, trust."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from skillyard.app.project import open_project
from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message, render
from skillyard.core.request import Request
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import Table, one_line
from skillyard.store.grants import Grant
from skillyard.trust.consent import (
    ADDED,
    CHANGED,
    REMOVED,
    Want,
    distrust,
    is_trusted,
    show_wants,
    trust,
    untrusted_roles,
)
from skillyard.trust.grant_rules import as_capabilities, grant, mark_of_skill, refuse_inside_agents, resolve_paths

_QUESTION = Message("Allow @{name} ({folder}): {what}?")


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
    with open_project(ends_with_process=True) as yard:
        skill = yard.runtime.resolve(Request(name=options.name.removeprefix("@"), typed_in=Path.cwd()))
        mark = mark_of_skill(skill)  # before the question: the answer is for these bytes
        named = as_capabilities(tuple(options.capabilities))
        capabilities = resolve_paths(named, yard.root, yard.paths.user_home)
        words = {"name": skill.name, "folder": skill.folder, "what": " ".join(capabilities)}
        if not options.accept and not (on_terminal() and confirm(_QUESTION.render(lang_of(options), **words))):
            raise InvalidArgs(Message("nothing was granted: say yes on a terminal, or give --accept"))
        grant(yard.grants, skill, capabilities, mark)
    return Answer(
        summary=Message("granted: @{name} {what}"),
        words={"name": skill.name, "what": " ".join(capabilities)},
        data={"skill": skill.name, "capabilities": list(capabilities)},
    )


_COUNTS, _VOID = Message("yes"), Message("void")
_EMPTY = Message("Nothing was granted here.")


def grants_arguments(parser: Parser) -> None:
    del parser  # nothing but the output options


def answer_grants(options: Options) -> Answer:
    """Show what was granted in this project, and whether it still counts.

    A grant is for exactly the bytes that a skill had; after a change it is void until it is given again.
    """
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        grants = yard.grants.list()
    rows = [(grant, _counts(grant)) for grant in grants]
    data: list[Json] = [
        {"skill": grant.skill, "capability": grant.capability, "granted": _when(grant), "counts": counts}
        for grant, counts in rows
    ]
    return Answer(
        summary=Message("{count} grants"),
        words={"count": len(grants)},
        data={"grants": data},
        page=Table(
            columns=("capability", "granted", "counts", "skill"),
            rows=[
                (grant.capability, _when(grant), (_COUNTS if counts else _VOID).render(lang), grant.skill)
                for grant, counts in rows
            ],
            empty=_EMPTY.render(lang),
        ),
    )


def _counts(grant: Grant) -> bool:
    folder = Path(grant.skill)
    if not folder.is_dir():
        return False
    try:
        return fingerprint(folder, in_role=folder.parent.name == "agents") == grant.fingerprint
    except SkillError:
        return False  # it cannot be read, so nothing that was granted to it counts


def _when(grant: Grant) -> str:
    return datetime.fromtimestamp(grant.granted, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    with open_project(ends_with_process=True) as yard:
        if options.trust:
            distrust(yard.grants, yard.root)
        if options.name:
            yard.catalog.sync()
            name = options.name.removeprefix("@")
            wanted = as_capabilities((options.capability,))[0] if options.capability else None
            known = [str(entry.folder) for entry in yard.catalog.candidates(name)] or [name]
            count = sum(yard.grants.revoke(folder, wanted) for folder in known)
    return Answer(
        summary=Message("{count} grants taken back"),
        words={"count": count},
        data={"revoked": count},
    )


_QUESTION_TRUST = Message("{root} asks for:\n{listed}\nTrust it?")
_NOTHING = Message("  nothing beyond the rules")
_CHANGES = {
    ADDED: Message("new: {path}"),
    CHANGED: Message("changed: {path}"),
    REMOVED: Message("removed: {path}"),
}
_MORE = Message("{count} more: skillyard trust --check --json")
_MOST_FILES = 50


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
    with open_project(ends_with_process=True) as yard:
        shown = show_wants(yard.grants, yard.root)
        asked: list[Json] = [_as_data(want) for want in shown.wants]
        if not options.check:
            refuse_inside_agents()
            lines = (one_line(line) for want in shown.wants for line in _lines(want, lang))
            question = _QUESTION_TRUST.render(lang, root=yard.root, listed="\n".join(lines) or _NOTHING.render(lang))
            if not options.accept and not (on_terminal() and confirm(question)):
                raise InvalidArgs(
                    Message("nothing was trusted: say yes on a terminal, or give --accept"), details={"wants": asked}
                )
            trust(yard.grants, yard.root, shown)
        trusted = is_trusted(yard.grants, yard.root) and not untrusted_roles(yard.grants, yard.root)
    return Answer(
        summary=Message("trusted: {trusted}"),
        words={"trusted": yes_or_no(trusted, lang)},
        data={"trusted": trusted, "wants": asked},
    )


def _as_data(want: Want) -> dict[str, Json]:
    files: list[Json] = [{"path": path, "change": change} for change, path in want.files]
    return {"what": want.what, "where": want.where, **({"files": files} if files else {})}


def _lines(want: Want, lang: Lang) -> Iterator[str]:
    yield f"  - {render(want.what, lang)} ({want.where})"
    for change, path in want.files[:_MOST_FILES]:
        yield f"      {_CHANGES[change].render(lang, path=path)}"
    if len(want.files) > _MOST_FILES:
        yield f"      {_MORE.render(lang, count=len(want.files) - _MOST_FILES)}"
