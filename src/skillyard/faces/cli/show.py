"""Show everything that is known of a skill.

examples:
  skillyard show @markdown-converter
  skillyard show markdown-converter --json
"""

from collections.abc import Iterator
from functools import partial

from skillyard.app.project import Project, open_project
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import as_words, label
from skillyard.faces.present import Lines


def arguments(parser: Parser) -> None:
    parser.add_argument("name", help="folder, name or title of a skill; role/name for a role's")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    yard = open_project(ends_with_process=True)
    yard.catalog.sync()
    skill = yard.catalog.resolve(options.name.removeprefix("@"))
    data = as_full_data(skill, yard)
    lang = lang_of(options)
    return Answer(
        summary=Message("skill: {name}"),
        words={"name": skill.name},
        data={"skills": [data]},
        page=Lines([line for key, value in data.items() if value for line in _lines(key, value, lang)]),
    )


def as_full_data(skill: Skill, yard: Project) -> dict[str, Json]:
    return {
        "name": skill.name,
        "title": skill.title,
        "kind": str(skill.kind),
        "description": skill.description,
        "path": str(skill.path),
        "role": skill.role,
        "command": skill.command,
        "entry": skill.entry,
        "actions": list(skill.actions),
        "params": [_param(skill, position) for position in range(len(skill.params))],
        "timeout": skill.timeout_seconds,
        "tags": list(skill.tags),
        "uses": yard.catalog.uses().get(skill.name, 0),
        "fields": skill.fields,
        "findings": [finding.as_dict() for finding in skill.findings],
    }


def _param(skill: Skill, position: int) -> dict[str, Json]:
    param = skill.params[position]
    return {
        "name": param.name,
        "type": str(param.type),
        "required": param.required,
        "default": param.default,
        "description": param.description,
        "choices": list(param.choices),
    }


def _lines(key: str, value: Json, lang: Lang) -> Iterator[str]:
    if key in {"params", "findings"} and isinstance(value, list):
        yield f"{label(key, lang)}:"
        yield from (f"  - {as_words(item, lang)}" for item in value)
    elif key != "fields":
        yield f"{label(key, lang)}: {as_words(value, lang)}"
