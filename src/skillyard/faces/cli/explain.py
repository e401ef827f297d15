"""Explain a name: who answers to it here and in each agent, and why.

example:
  skillyard explain markdown-converter
"""

from collections.abc import Iterator
from functools import partial

from skillyard.app.project import open_project
from skillyard.catalog.explain import Explanation, explain
from skillyard.core.messages import Lang, Message, render
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines
from skillyard.faces.skill_data import display_name


def arguments(parser: Parser) -> None:
    parser.add_argument("name", help="folder, name or title of a skill")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    yard = open_project(ends_with_process=True)
    yard.catalog.sync()
    plain = options.name.removeprefix("@")
    found = explain(yard.catalog, plain, yard.places.project, yard.places.user_home)
    candidates: list[Json] = [
        {"name": display_name(c.entry), "path": c.entry.file, "wins": c.wins, "why": c.why} for c in found.candidates
    ]
    agents: list[Json] = [
        {"agent": view.agent, "sees": list(view.sees), "why": view.why, "fix": view.fix} for view in found.views
    ]
    return Answer(
        summary=Message("{name}: {count} candidates"),
        words={"name": plain, "count": len(candidates)},
        data={"candidates": candidates, "agents": agents},
        page=Lines(list(_lines(found, lang_of(options)))),
    )


_RUNS, _KNOWS = Message("runs   {path}"), Message("knows  {path}")
_SEES, _SEES_NOT = (
    Message("{agent} sees {path}"),
    Message("{agent} does not see it"),
)
_MEND = Message("       mend it: {fix}")


def _lines(found: Explanation, lang: Lang) -> Iterator[str]:
    for candidate in found.candidates:
        yield (_RUNS if candidate.wins else _KNOWS).render(lang, path=candidate.entry.file)
        yield f"       {render(candidate.why, lang)}"
    for view in found.views:
        yield ""
        for path in view.sees:
            yield _SEES.render(lang, agent=view.agent, path=path)
        if not view.sees:
            yield _SEES_NOT.render(lang, agent=view.agent)
        yield f"       {render(view.why, lang)}"
        if view.fix:
            yield _MEND.render(lang, fix=view.fix)
