"""Roles: agents/<role> with its own JSON skills, schedule, secrets and bounds.

`role run` prints one result, as `skillyard run` does; `--response` prints the skill's own response instead.

examples:
  skillyard role
  skillyard role new dev_efficiency_analyst
  skillyard role validate
  skillyard role run dev_efficiency_analyst build_analysis daily_briefing --param days=7
  skillyard role schema
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NoReturn

from skillyard.app.project import Project, open_project
from skillyard.catalog.agentfile import SCHEMA_FILE, Role
from skillyard.catalog.bounds import read_bounds
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, RoleInvalid, RuntimeFailed
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.core.skill import Severity
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.cli.findings import finding_lines, verdict_line
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    ProgramLines,
    add_output_options,
    answer_with,
    lang_of,
    seconds,
    show_and_exit,
    style_of,
)
from skillyard.faces.labels import as_words, label
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Lines, Table
from skillyard.trust.consent import untrusted_roles

_FINE, _PROBLEMS = Message("ok"), Message("problems")
_ASKS = Message("asks for trust")
_EMPTY = Message("No roles here. `skillyard role new NAME` makes one.")
_MADE, _NEXT = Message("made {folder}"), Message("next:")


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _list))
    commands = parser.add_subparsers(metavar="list | show | new | validate | run | schema")
    listing = commands.add_parser("list", help="the roles of this project")
    listing.set_defaults(answer=partial(answer_with, _list))
    showing = commands.add_parser("show", help="everything that is known of a role")
    showing.add_argument("name", help="the role")
    showing.set_defaults(answer=partial(answer_with, _show))
    making = commands.add_parser("new", help="write a new role, with a skill that works at once")
    making.add_argument("name", help="what it is called, in any script; its folder is named after it")
    making.add_argument("--description", default="", help="what it is responsible for")
    making.add_argument("--skill", default="", help="what its first skill is called (daily_report)")
    making.set_defaults(answer=partial(answer_with, _new))
    validating = commands.add_parser("validate", help="check agent.yaml: what is wrong, where, and what to do")
    validating.add_argument("names", nargs="*", metavar="NAME", help="roles, or paths of agent.yaml; all of them")
    validating.add_argument("--strict", action="store_true", help="warnings fail too")
    validating.set_defaults(answer=partial(answer_with, _validate))
    running = commands.add_parser("run", help="run an action of a role's skill")
    running.add_argument("role", metavar="ROLE")
    running.add_argument("skill", metavar="SKILL")
    running.add_argument("action", metavar="ACTION", nargs="?")
    running.add_argument("--param", action="append", default=[], metavar="K=V", help="a param; numbers are numbers")
    running.add_argument("--params", metavar="JSON", help="all params as one JSON object")
    running.add_argument("--context", action="append", default=[], metavar="K=V", help="such as user_id=…")
    running.add_argument("--timeout", type=seconds, metavar="S", help="seconds that the run may take")
    running.add_argument("--response", action="store_true", help="print the skill's own response and nothing else")
    running.set_defaults(answer=_run)
    schema = commands.add_parser("schema", help="print the JSON Schema of agent.yaml")
    schema.set_defaults(answer=_schema)
    for each in (parser, listing, showing, making, validating, running):
        add_output_options(each)


def _list(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        roles = yard.roles()
        waiting = untrusted_roles(yard.grants, yard.root)
    return Answer(
        summary=Message("{count} roles"),
        words={"count": len(roles)},
        data={"roles": [as_role_data(role, waiting=role.name in waiting) for role in roles]},
        page=Table(
            columns=("role", "skills", "jobs", "standing", "description"),
            rows=[
                (
                    role.name,
                    str(len(role.skills)),
                    str(len(role.schedule)),
                    _standing(role, waiting, lang),
                    _about(role),
                )
                for role in roles
            ],
            empty=_EMPTY.render(lang),
        ),
    )


def _standing(role: Role, waiting: Iterable[str], lang: Lang) -> str:
    if not role.usable:
        return _PROBLEMS.render(lang)
    return (_ASKS if role.name in waiting else _FINE).render(lang)


def _about(role: Role) -> str:
    return str(role.metadata.get("description") or role.metadata.get("name") or "")


def as_role_data(role: Role, *, waiting: bool) -> dict[str, Json]:
    return {
        "role": role.name,
        **{key: role.metadata.get(key) for key in ("id", "uuid", "name", "description", "model")},
        "path": str(role.path),
        "skills": [skill.name for skill in role.skills],
        "jobs": len(role.schedule),
        "trusted": not waiting,
        "problems": sum(finding.severity is Severity.ERROR for finding in role.findings),
    }


def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        role = yard.resolve_role(options.name)
        data = _as_full_data(role, yard)
    lang = lang_of(options)
    return Answer(
        summary=Message("role: {name}"),
        words={"name": role.name},
        data={"roles": [data]},
        page=Lines([line for key, value in data.items() if not _is_empty(value) for line in _lines(key, value, lang)]),
    )


def _as_full_data(role: Role, yard: Project) -> dict[str, Json]:
    try:
        secrets = read_bounds(role.bounds).secrets
    except RoleInvalid:
        secrets = ()
    return {
        **as_role_data(role, waiting=role.name in untrusted_roles(yard.grants, yard.root)),
        **{key: role.metadata.get(key) for key in ("visibility", "owner_team")},
        "claude": str(role.claude_text) if role.claude_text else None,
        "skills": [
            {
                "name": skill.name,
                "entry": skill.entry,
                "description": skill.description,
                "timeout": skill.timeout_seconds,
                "actions": list(skill.actions),
            }
            for skill in role.skills
        ],
        "schedule": list(role.schedule),
        "secrets": [secret._asdict() for secret in secrets],
        "allowed_tools": list(role.allowed_tools),
        "max_turns": role.max_turns,
        "workspace": role.bounds.get("workspace"),
        "security": role.bounds.get("security"),
        "findings": [finding.as_dict() for finding in role.findings],
    }


def _is_empty(value: Json) -> bool:
    return value is None or value in ("", [], {})


def _lines(key: str, value: Json, lang: Lang) -> Iterator[str]:
    if isinstance(value, list):
        yield f"{label(key, lang)}:"
        yield from (f"  - {as_words(item, lang)}" for item in value)
    else:
        yield f"{label(key, lang)}: {as_words(value, lang)}"


def _new(options: Options) -> Answer:
    style = style_of(options)
    with open_project(ends_with_process=True) as yard:
        made = yard.new_role(options.name, description=options.description, skill=options.skill, lang=style.lang)
    steps = {"validate": f"skillyard role validate {quote(made.draft.slug)}", "run": made.draft.call}
    return Answer(
        summary=Message("made: {folder}"),
        words={"folder": made.folder},
        data={
            "roles": [{"role": made.draft.slug, "folder": made.folder, "files": list(made.files)}],
            "next": dict(steps),
        },
        page=Lines(
            [
                _MADE.render(style.lang, folder=made.folder),
                *(f"  {name}" for name in made.files),
                _NEXT.render(style.lang),
                *(f"  {step}" for step in steps.values()),
            ]
        ),
    )


def _validate(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        roles = [yard.resolve_role(name) for name in options.names] or list(yard.roles())
    worst = Severity.WARNING if options.strict else Severity.ERROR
    passed = [all(finding.severity.rank < worst.rank for finding in role.findings) for role in roles]
    bad = passed.count(False)
    lang = lang_of(options)
    failed = RuntimeFailed(Message("{bad} of {count} roles have problems", bad=bad, count=len(passed))) if bad else None
    return Answer(
        summary=Message("{type}{total} roles checked: {bad} with problems"),
        words={"type": "RuntimeFailed: " if failed else "", "total": len(roles), "bad": bad},
        data={
            **(failed.data() if failed else {}),
            "roles": [
                {
                    "role": role.name,
                    "path": str(role.path),
                    "name": role.metadata.get("name"),
                    "findings": [finding.as_dict() for finding in role.findings],
                }
                for role in roles
            ],
        },
        page=Lines(
            [
                *(
                    line
                    for role, ok in zip(roles, passed, strict=True)
                    for line in finding_lines(os.path.relpath(role.path), role.findings, lang, ok=ok)
                ),
                verdict_line(len(roles), bad, lang),
            ]
        ),
        state=State.ERROR if failed else State.SUCCESS,
    )


def _run(options: Options) -> NoReturn:
    style = style_of(options)
    with open_project(ends_with_process=True) as yard:
        request = Request(
            name=f"{options.role}/{options.skill}",
            role=options.role,
            action=options.action,
            params={**_object(options.params), **_pairs(options.param, "--param")},
            context=_pairs(options.context, "--context"),
            timeout_seconds=options.timeout,
            interactive=False,
            typed_in=None if os.environ.get(DEPTH) else Path.cwd(),
            lang=style.lang,
        )
        if options.response:
            with ProgramLines() as lines:
                response = yard.runtime.respond(request, lines)
            _print_response(response)
        with ProgramLines() as lines:
            result = yard.runtime.run(request, lines)
        show_and_exit(result if style.json else pass_through(result, yard.root), style)


def _print_response(response: Mapping[str, Json]) -> NoReturn:
    import json

    from skillyard.core.flow_yaml import escape_unsafe

    lines = json.dumps(response, ensure_ascii=False, indent=2, default=dict).split("\n")
    sys.stdout.write("".join(f"{escape_unsafe(line)}\n" for line in lines))
    sys.stdout.flush()
    raise SystemExit(0 if response["success"] else 1)


def _pairs(words: Iterable[str], option: str) -> dict[str, Json]:
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise InvalidArgs(Message("{option} takes NAME=VALUE, not {name!r}", option=option, name=name))
    return {name: value for name, _, value in pairs}


def _object(text: str | None) -> Mapping[str, Json]:
    if text is None:
        return {}
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("--params is not JSON: {error}", error=error)) from None
    if not isinstance(value, dict):
        raise InvalidArgs(Message("--params takes one JSON object"))
    return value


def _schema(options: Options) -> NoReturn:
    del options
    sys.stdout.write(SCHEMA_FILE.read_text("utf-8"))
    sys.stdout.flush()
    raise SystemExit(0)
