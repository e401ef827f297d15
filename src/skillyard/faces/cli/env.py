"""Build the environment that a skill's Python programs need, after showing its packages.

They are named by a PEP 723 block in the program, else by a requirements.txt. Only wheels are installed, inside the
sandbox; a changed skill asks again.

examples:
  skillyard env @report
  skillyard env @report:scripts/plot.py --accept
  skillyard env list
  skillyard env remove 3f9a1c
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Request, as_size, split_name
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Steps, Table
from skillyard.faces.skill_data import timestamp
from skillyard.runners.environments import home_of, list_built, remove
from skillyard.runtime.build_environment import build_environments, find_needed
from skillyard.trust.grant_rules import refuse_inside_agents

if TYPE_CHECKING:
    from skillyard.runners.environments import Environment
    from skillyard.runtime.build_environment import NeededPackages


def arguments(parser: Parser) -> None:
    parser.add_argument("target", nargs="?", default="list", metavar="TARGET", help="@name[:script], list or remove")
    parser.add_argument("digests", nargs="*", metavar="DIGEST", help="what to remove: a digest, or how it starts")
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")


def answer(options: Options) -> Answer:
    extra = options.digests
    if options.target != "remove" and extra:
        raise InvalidArgs(
            Message("{extra!r} belongs to nothing; only `skillyard env remove` takes more words", extra=extra[0])
        )
    with open_project(ends_with_process=True) as project:
        own_home = project.paths.own_home
        if options.target == "list":
            return _list(own_home)
        if options.target == "remove":
            return _remove(options.digests, own_home)
        return _build(project, options)


def _build(project: Project, options: Options) -> Answer:
    name, script = split_name(options.target)
    request = Request(name=name, script=script, typed_in=None if os.environ.get(DEPTH) else Path.cwd())
    wanted = find_needed(project.runtime, request, every=True)
    if not wanted.ready:
        refuse_inside_agents()
        if not options.accept and not _confirms(wanted, lang_of(options)):
            raise wanted.not_granted(" --accept")
    built: tuple[Environment, ...] = ()
    if wanted.needs:
        with Steps(f"@{wanted.skill.name}") as steps:
            built = build_environments(project.runtime, wanted, steps)
    summary = (
        Message("environment ready: {name}", name=wanted.asked_as)
        if built
        else Message("no packages needed: {name}", name=wanted.asked_as)
    )
    return Answer(summary, {"skill": wanted.asked_as, **_as_data(built, project.paths.own_home)})


def build_on_yes(project: Project, request: Request) -> bool:
    """For a run on a terminal: shows what the program needs, asks once, builds."""
    wanted = find_needed(project.runtime, request)
    if not _confirms(wanted, request.lang):
        return False
    with Steps(f"@{wanted.skill.name}") as steps:
        build_environments(project.runtime, wanted, steps)
    return True


def _confirms(wanted: "NeededPackages", lang: Lang) -> bool:
    name, packages = wanted.skill.name, wanted.told
    question = Message("@{name} needs {packages}. Build an environment for it?", name=name, packages=packages)
    return on_terminal() and confirm(question.render(lang))


def _list(own_home: Path) -> Answer:
    built = list_built(own_home)
    rows = [
        (each.digest[:12], timestamp(each.built), each.version, as_size(each.size_bytes), ", ".join(each.packages))
        for each in built
    ]
    columns = ("digest", "built", "python", "size", "packages")
    empty = Message("No environments yet: `skillyard env @name` builds one.")
    summary = Message("{count} environments", count=len(built))
    return Answer(summary, _as_data(built, own_home), Table(columns, rows, empty))


def _remove(digests: list[str], own_home: Path) -> Answer:
    if not digests:
        raise InvalidArgs(Message("say which: `skillyard env list` shows their digests"))
    gone = tuple(remove(digest, own_home) for digest in digests)
    lines = [Message("removed {digest}", digest=each.digest) for each in gone]
    return Answer(Message("{count} environments removed", count=len(gone)), _as_data(gone, own_home), Lines(lines))


def _as_data(environments: "tuple[Environment, ...]", own_home: Path) -> dict[str, Json]:
    home = home_of(own_home)
    data: list[Json] = [
        {**each.as_dict(), "built": timestamp(each.built), "path": str(home / each.digest)} for each in environments
    ]
    return {"environments": data}
