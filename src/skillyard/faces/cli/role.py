"""Roles: agents/<role> with its own JSON skills, schedule, secrets and bounds.

`role run` prints one result, as `skillyard run` does; `--response` prints the skill's own response instead.

examples:
  skillyard role
  skillyard role new dev_efficiency_analyst
  skillyard role validate
  skillyard role run dev_efficiency_analyst build_analysis daily_briefing --param days=7
  skillyard role schema
"""

import json
import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import open_project
from skillyard.catalog.agentfile import SCHEMA_FILE
from skillyard.catalog.bounds import read_bounds
from skillyard.core.child_process import DEPTH
from skillyard.core.envelope import escape_unsafe
from skillyard.core.errors import RoleInvalid, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.core.result import Request
from skillyard.core.skill import Severity
from skillyard.core.values import Json
from skillyard.faces.cli.new import made_page
from skillyard.faces.cli.validate import check_findings
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    ProgramLines,
    add_commands,
    lang_of,
    read_object,
    seconds,
    show_and_exit,
    split_pairs,
    style_of,
)
from skillyard.faces.labels import field_lines
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Exact, Lines, Table
from skillyard.trust.consent import untrusted_roles

if TYPE_CHECKING:
    from skillyard.catalog.agentfile import Role


def arguments(parser: Parser) -> None:
    add = add_commands(parser, "list | show | new | validate | run | schema")
    add("list", "the roles of this project", answer)
    add("show", "everything that is known of a role", _show).add_argument("name", help="the role")
    making = add("new", "write a new role, with a skill that works at once", _new)
    making.add_argument("name", help="what it is called, in any script; its folder is named after it")
    making.add_argument("--description", default="", help="what it is responsible for")
    making.add_argument("--skill", default="", help="what its first skill is called (daily_report)")
    validating = add("validate", "check agent.yaml: what is wrong, where, and what to do", _validate)
    validating.add_argument("names", nargs="*", metavar="NAME", help="roles, or paths of agent.yaml; all of them")
    validating.add_argument("--strict", action="store_true", help="warnings fail too")
    running = add("run", "run an action of a role's skill", _run)
    running.add_argument("role", metavar="ROLE")
    running.add_argument("skill", metavar="SKILL")
    running.add_argument("action", metavar="ACTION", nargs="?")
    running.add_argument("--param", action="append", default=[], metavar="K=V", help="a param; numbers are numbers")
    running.add_argument("--params", metavar="JSON", help="all params as one JSON object")
    running.add_argument("--context", action="append", default=[], metavar="K=V", help="such as user_id=…")
    running.add_argument("--timeout", type=seconds, metavar="S", help="seconds that the run may take")
    running.add_argument("--response", action="store_true", help="print the skill's own response and nothing else")
    add("schema", "print the JSON Schema of agent.yaml", _schema)


def answer(options: Options) -> Answer:
    del options
    with open_project(ends_with_process=True) as project:
        roles = project.roles()
        waiting = untrusted_roles(project.grants, project.root)
    rows = []
    for role in roles:
        standing = Message("asks for trust") if role.name in waiting else Message("ok")
        if not role.usable:
            standing = Message("problems")
        about = str(role.metadata.get("description") or role.metadata.get("name") or "")
        rows.append((role.name, str(len(role.skills)), str(len(role.schedule)), standing, about))
    columns = ("role", "skills", "jobs", "standing", "description")
    empty = Message("No roles here. `skillyard role new NAME` makes one.")
    data: dict[str, Json] = {"roles": [_as_data(role, waiting=role.name in waiting) for role in roles]}
    return Answer(Message("{count} roles", count=len(roles)), data, Table(columns, rows, empty))


def _as_data(role: "Role", *, waiting: bool) -> dict[str, Json]:
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
    with open_project(ends_with_process=True) as project:
        role = project.resolve_role(options.name)
        waiting = role.name in untrusted_roles(project.grants, project.root)
    try:
        secrets = read_bounds(role.bounds).secrets
    except RoleInvalid:
        secrets = ()
    data: dict[str, Json] = {
        **_as_data(role, waiting=waiting),
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
    page = Lines(list(field_lines(data, lang_of(options))))
    return Answer(Message("role: {name}", name=role.name), {"roles": [data]}, page)


def _new(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        made = project.new_role(
            options.name, description=options.description, skill=options.skill, lang=lang_of(options)
        )
    steps = {"validate": f"skillyard role validate {quote(made.draft.slug)}", "run": made.draft.call}
    data: dict[str, Json] = {
        "roles": [{"role": made.draft.slug, "folder": made.folder, "files": list(made.files)}],
        "next": {**steps},
    }
    return Answer(Message("made: {folder}", folder=made.folder), data, made_page(made.folder, made.files, steps))


def _validate(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        roles = [project.resolve_role(name) for name in options.names] or list(project.roles())
    bad, lines = check_findings({role.path: role.findings for role in roles}, strict=options.strict)
    data: list[Json] = [
        {
            "role": role.name,
            "path": str(role.path),
            "name": role.metadata.get("name"),
            "findings": [finding.as_dict() for finding in role.findings],
        }
        for role in roles
    ]
    why = Message("{bad} of {count} roles have problems", bad=bad, count=len(roles))
    return Answer(
        Message("{total} roles checked: {bad} with problems", total=len(roles), bad=bad),
        {"roles": data},
        Lines(lines),
        failure=RuntimeFailed(why) if bad else None,
    )


def _run(options: Options) -> NoReturn:
    style = style_of(options)
    params = {} if options.params is None else read_object(options.params, "--params")
    with open_project(ends_with_process=True) as project:
        request = Request(
            name=f"{options.role}/{options.skill}",
            role=options.role,
            action=options.action,
            params={**params, **split_pairs(options.param, "--param")},
            context=split_pairs(options.context, "--context"),
            timeout_seconds=options.timeout,
            interactive=False,
            typed_in=None if os.environ.get(DEPTH) else Path.cwd(),
            lang=style.lang,
        )
        if options.response:
            with ProgramLines() as lines:
                response = project.runtime.respond(request, lines)
            text = json.dumps(response, ensure_ascii=False, indent=2, default=dict)
            sys.stdout.write("".join(f"{escape_unsafe(line)}\n" for line in text.split("\n")))
            sys.stdout.flush()
            raise SystemExit(0 if response["success"] else 1)
        with ProgramLines() as lines:
            result = project.runtime.run(request, lines)
        show_and_exit(result if style.json else pass_through(result, project.root), style)


def _schema(options: Options) -> Answer:
    del options
    text = SCHEMA_FILE.read_text("utf-8")
    return Answer(Message("JSON Schema of {file}", file="agent.yaml"), {"schema": json.loads(text)}, Exact(text))
