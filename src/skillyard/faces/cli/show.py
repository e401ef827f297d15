"""Show everything that is known of a skill.

examples:
  skillyard show @markdown-converter
  skillyard show markdown-converter --json
"""

from collections.abc import Iterator
from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import as_words, label
from skillyard.faces.present import Lines
from skillyard.faces.skill_data import as_full_data


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


def _lines(key: str, value: Json, lang: Lang) -> Iterator[str]:
    if key in {"params", "findings"} and isinstance(value, list):
        yield f"{label(key, lang)}:"
        yield from (f"  - {as_words(item, lang)}" for item in value)
    elif key != "fields":
        yield f"{label(key, lang)}: {as_words(value, lang)}"
