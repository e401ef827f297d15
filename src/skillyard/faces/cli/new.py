"""Commands that write skills: new, role."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

from skillyard.app.authoring import (
    ROLES_FOLDER,
    ProgramLanguage,
    check_scheduled,
    create_role,
    create_skill,
    list_roles,
    make_draft,
    read_bounds,
    resolve_role,
)
from skillyard.app.project import open_project
from skillyard.core.child_process import DEPTH
from skillyard.core.envelope import escape_unsafe
from skillyard.core.errors import RoleInvalid
from skillyard.core.messages import Message
from skillyard.core.result import Request
from skillyard.core.skill import Kind, Severity
from skillyard.core.values import Json
from skillyard.faces import command
from skillyard.faces.cli.check import answer_findings, answer_schema
from skillyard.faces.command import Answer, Options, Parser, ProgramLines, comma_list, finish_run, seconds, takes
from skillyard.faces.present import Table, field_lines
from skillyard.faces.skill_data import fields_of

if TYPE_CHECKING:
    from skillyard.catalog.agentfile import Role

_LANGUAGES = ("zh", "en")
_LANGS = ("python", "bash", "node", *_LANGUAGES)
#: Those that have a template.
_KINDS = [str(kind) for kind in (Kind.COMMAND, Kind.PROMPT, Kind.JSON)]


class _Lang(argparse.Action):
    """One option, two questions: what the program is written in, and what the words are."""

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: Options, value: Any, _option: str | None = None
    ) -> None:
        setattr(namespace, "lang" if value in _LANGUAGES else "program", value)


@takes("name", "what it is called, in any script; its folder is named after it")
@takes("--kind", "what it is", required=True, choices=_KINDS)
@takes("--title", "what people call it; the name where it is not given", default="")
@takes("--description", "what it does and when to use it, for the agent", default="")
@takes("--actions", "of a JSON skill, with commas: analyze, report, fetch, push, full, or your own", default="")
@takes("--lang", "of the program (python), and of the words", action=_Lang, choices=_LANGS, default="")
def answer_new(options: Options) -> Answer:
    """Write a new skill that passes its own test at once.

    It goes into .claude/skills/ of the project: SKILL.md, the program, and a test that needs nothing but Python.
    --lang takes the program's language (python, bash, node) and the text's (zh, en); give it twice for both.

    examples:
      skillyard new "Log analyzer" --kind json --actions analyze,report
      skillyard new 周报 --kind prompt --lang zh
      skillyard new resize --kind command --lang bash
    """
    project = open_project(ends_with_process=True)
    draft = make_draft(
        options.name,
        Kind(options.kind),
        program=ProgramLanguage(vars(options).get("program", "python")),
        title=options.title,
        description=options.description,
        actions=comma_list(options.actions),
        lang=options.lang,
    )
    folder, files = create_skill(project.root, draft)
    from_here = os.path.relpath(project.root / folder)
    steps = {
        "validate": f"skillyard validate {quote(from_here)}",
        "check": f"skillyard check {quote(from_here)}",
        "test": f"python3 {quote(f'{from_here}/{draft.test_file}')}",
        "run": " ".join(("skillyard run", quote(f"@{draft.slug}"), *map(quote, draft.example))),
    }
    made: dict[str, Json] = {"skill": draft.slug, "kind": str(draft.kind), "folder": folder, "files": list(files)}
    return _made(made, folder, files, steps)


def _made(data: Mapping[str, Json], folder: str, files: Sequence[str], steps: Mapping[str, str]) -> Answer:
    """What was made, and what to do next."""
    lines = [Message("made {folder}", folder=folder), *(f"  {name}" for name in files)]
    lines += [Message("next:"), *(f"  {step}" for step in steps.values())]
    return Answer(Message("made: {folder}", folder=folder), {**data, "next": {**steps}}, lines)


def role_arguments(parser: Parser) -> None:
    add = parser.add_commands("list | show | new | validate | run | schema")
    add("list", "the roles of this project", answer_role)
    add("show", "everything that is known of a role", _show)
    add("new", "write a new role, with a skill that works at once", _new)
    add("validate", "check agent.yaml: what is wrong, where, and what to do", _validate)
    add("run", "run an action of a role's skill", _run)
    add("schema", "print the JSON Schema of agent.yaml", lambda _: answer_schema("agent"))


def answer_role(_options: Options) -> Answer:
    """Roles: agents/<role> with its own JSON skills, schedule, secrets and bounds.

    `role run` prints one result, as `skillyard run` does; `--response` prints the skill's own response instead.

    examples:
      skillyard role
      skillyard role new dev_efficiency_analyst
      skillyard role validate
      skillyard role run dev_efficiency_analyst build_analysis daily_briefing --param days=7
      skillyard role schema
    """
    with open_project(ends_with_process=True) as project:
        roles, waiting = list_roles(project.root / ROLES_FOLDER), project.permissions.untrusted_roles()
    rows = []
    for role in roles:
        standing = Message("asks for trust") if role.name in waiting else Message("ok")
        if not role.usable:
            standing = Message("problems")
        about = str(role.metadata.get("description") or role.metadata.get("name") or "")
        rows.append((role.name, str(len(role.skills)), str(len(role.schedule)), standing, about))
    table = Table(
        ("role", "skills", "jobs", "standing", "description"),
        rows,
        empty=Message("No roles here. `skillyard role new NAME` makes one."),
    )
    data: dict[str, Json] = {"roles": [_as_data(role, waiting=role.name in waiting) for role in roles]}
    return Answer(Message("{count} roles", count=len(roles)), data, table)


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


@takes("name", "the role")
def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        role = resolve_role(project.root, options.name)
        waiting = role.name in project.permissions.untrusted_roles()
        try:
            secrets = read_bounds(role.bounds).secrets
        except RoleInvalid:  # that part of its file is broken: nothing is asked for
            secrets = ()
    data: dict[str, Json] = {
        **_as_data(role, waiting=waiting),
        **{key: role.metadata.get(key) for key in ("visibility", "owner_team")},
        "claude": str(role.claude_text) if role.claude_text else None,
        "skills": [
            {**fields_of(skill, "name", "entry", "description", "actions"), "timeout": skill.timeout_seconds}
            for skill in role.skills
        ],
        "schedule": list(role.schedule),
        "secrets": [secret._asdict() for secret in secrets],
        **fields_of(role, "allowed_tools", "max_turns"),
        **{key: role.bounds.get(key) for key in ("workspace", "security")},
        "findings": [finding.as_dict() for finding in role.findings],
    }
    page = list(field_lines(data, options.lang))
    return Answer(Message("role: {name}", name=role.name), {"roles": [data]}, page)


@takes("name", "what it is called, in any script; its folder is named after it")
@takes("--description", "what it is responsible for", default="")
@takes("--skill", "what its first skill is called (daily_report)", default="")
def _new(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        draft, folder, files = create_role(
            project.root, options.name, description=options.description, skill=options.skill, lang=options.lang
        )
    steps = {"validate": f"skillyard role validate {quote(draft.slug)}", "run": draft.call}
    data: dict[str, Json] = {"roles": [{"role": draft.slug, "folder": folder, "files": list(files)}]}
    return _made(data, folder, files, steps)


@takes("names", "roles, or paths of agent.yaml; all of them", nargs="*", metavar="NAME")
@takes("--strict", "warnings fail too")
def _validate(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        root, check = project.root, partial(check_scheduled, project)
        project.catalog.sync()
        roles = [resolve_role(root, name, check) for name in options.names] or [*list_roles(root / ROLES_FOLDER, check)]
    files = []
    for role in roles:
        about: dict[str, Json] = {"role": role.name, "path": str(role.path), "name": role.metadata.get("name")}
        files.append((role.path, about, role.findings))
    told = Message("{total} roles checked: {bad} with problems"), Message("{bad} of {count} roles have problems")
    return answer_findings("roles", files, options, *told)


@takes("role", metavar="ROLE")
@takes("skill", metavar="SKILL")
@takes("action", metavar="ACTION", nargs="?")
@takes("--param", "a param; numbers are numbers", action="append", default=[], metavar="K=V")
@takes("--params", "all params as one JSON object", metavar="JSON")
@takes("--context", "such as user_id=…", action="append", default=[], metavar="K=V")
@takes("--timeout", "seconds that the run may take", type=seconds, metavar="S")
@takes("--response", "print the skill's own response and nothing else")
def _run(options: Options) -> NoReturn:
    params = {} if options.params is None else command.read_object(options.params, "--params")
    with open_project(ends_with_process=True) as project:
        request = Request(
            name=f"{options.role}/{options.skill}",
            role=options.role,
            action=options.action,
            params={**params, **command.split_pairs(options.param, "--param")},
            context=command.split_pairs(options.context, "--context"),
            timeout_seconds=options.timeout,
            interactive=False,
            typed_in=None if os.environ.get(DEPTH) else Path.cwd(),
            lang=options.lang,
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
        finish_run(result, options.style, project.write_file)
