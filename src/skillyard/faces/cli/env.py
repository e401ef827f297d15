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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from skillyard.app.project import Project, open_project
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.core.result import as_size
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines, Steps, Table
from skillyard.runners.environments import Environment, home_of, list_built, remove
from skillyard.runtime.build_environment import NeededPackages, build_environments, find_needed
from skillyard.scripts.prompt_grammar import split_name
from skillyard.trust.grant_rules import refuse_inside_agents

_QUESTION = Message("@{name} needs {packages}. Build an environment for it?")
_EMPTY = Message("No environments yet: `skillyard env @name` builds one.")
_REMOVED = Message("removed {digest}")


def arguments(parser: Parser) -> None:
    parser.add_argument("target", nargs="?", default="list", metavar="TARGET", help="@name[:script], list or remove")
    parser.add_argument("digests", nargs="*", metavar="DIGEST", help="what to remove: a digest, or how it starts")
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    if options.target == "remove":
        return _remove(options)
    if options.digests:
        raise InvalidArgs(
            Message(
                "{digests!r} belongs to nothing; only `skillyard env remove` takes more words",
                digests=options.digests[0],
            )
        )
    return _list(lang_of(options)) if options.target == "list" else _build(options)


def _build(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        wanted = find_needed(yard.runtime, _request(options.target), every=True)
        if not wanted.ready:
            refuse_inside_agents()
            if not options.accept and not _confirms(wanted, lang_of(options)):
                raise wanted.not_granted(" --accept")
        built: tuple[Environment, ...] = ()
        if wanted.needs:
            with Steps(f"@{wanted.skill.name}") as steps:
                built = build_environments(yard.runtime, wanted, steps)
        home = home_of(yard.paths.own_home)
    says = Message("environment ready: {name}")
    return Answer(
        summary=says if built else Message("no packages needed: {name}"),
        words={"name": wanted.asked_as},
        data={"skill": wanted.asked_as, "environments": [_as_data(each, home) for each in built]},
    )


def build_on_yes(yard: Project, request: Request) -> bool:
    """For a run on a terminal: shows what the program needs, asks once, builds."""
    wanted = find_needed(yard.runtime, request)
    if not _confirms(wanted, request.lang):
        return False
    with Steps(f"@{wanted.skill.name}") as steps:
        build_environments(yard.runtime, wanted, steps)
    return True


def _request(target: str) -> Request:
    name, script = split_name(target)
    return Request(name=name, script=script, typed_in=None if os.environ.get(DEPTH) else Path.cwd())


def _confirms(wanted: NeededPackages, lang: Lang) -> bool:
    return on_terminal() and confirm(_QUESTION.render(lang, name=wanted.skill.name, packages=wanted.told))


def _list(lang: Lang) -> Answer:
    with open_project(ends_with_process=True) as yard:
        own_home = yard.paths.own_home
    built = list_built(own_home)
    return Answer(
        summary=Message("{count} environments"),
        words={"count": len(built)},
        data={"environments": [_as_data(each, home_of(own_home)) for each in built]},
        page=Table(
            columns=("digest", "built", "python", "size", "packages"),
            rows=[_row(each) for each in built],
            empty=_EMPTY.render(lang),
        ),
    )


def _remove(options: Options) -> Answer:
    if not options.digests:
        raise InvalidArgs(Message("say which: `skillyard env list` shows their digests"))
    with open_project(ends_with_process=True) as yard:
        own_home = yard.paths.own_home
    gone = [remove(digest, own_home) for digest in options.digests]
    return Answer(
        summary=Message("{count} environments removed"),
        words={"count": len(gone)},
        data={"environments": [_as_data(each, home_of(own_home)) for each in gone]},
        page=Lines([_REMOVED.render(lang_of(options), digest=each.digest) for each in gone]),
    )


def _row(environment: Environment) -> tuple[str, ...]:
    size, packages = as_size(environment.size_bytes), ", ".join(environment.packages)
    return (environment.digest[:12], _when(environment), environment.version, size, packages)


def _as_data(environment: Environment, home: Path) -> dict[str, Json]:
    path = str(home / environment.digest)
    return {**environment.as_dict(), "built": _when(environment), "path": path}


def _when(environment: Environment) -> str:
    return datetime.fromtimestamp(environment.built, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
