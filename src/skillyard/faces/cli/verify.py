"""Compare the installed skills with skillyard.lock: changed, missing and added files.

examples:
  skillyard verify
  skillyard verify --json
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.cli.review_prompt import NOTHING_INSTALLED
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines
from skillyard.install.tree import Drift


def arguments(parser: Parser) -> None:
    parser.add_argument("--global", dest="is_global", action="store_true", help="the user's own skills")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    with open_project() as yard:
        found = yard.installer(is_global=options.is_global).compare()
    bad = sum(not drift.is_none for drift in found.values())
    skills: list[Json] = [
        {"folder": folder, **{key: list(paths) for key, paths in drift._asdict().items()}}
        for folder, drift in found.items()
    ]
    return Answer(
        summary=Message("{total} skills compared: {bad} differ from the lock"),
        words={"total": len(found), "bad": bad},
        data={"skills": skills},
        page=Lines(
            [line for folder, drift in found.items() for line in _lines(folder, drift)]
            or [NOTHING_INSTALLED.render(lang_of(options))]
        ),
        state=State.ERROR if bad else State.SUCCESS,
    )


def _lines(folder: str, drift: Drift) -> list[str]:
    files = [f"     {what:<8} {path}" for what, paths in drift._asdict().items() for path in paths]
    return [f"{'ok  ' if drift.is_none else 'FAIL'} {folder}", *files]
