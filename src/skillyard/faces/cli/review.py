"""Decide on skills that were held back: keep installs them, uninstall does not.

On a terminal `review resume ID` shows three lines for each and takes one key. Off a terminal --decisions says it, and
nothing above MEDIUM is kept; inside an agent nothing is kept at all. What is not decided stays held back.

examples:
  skillyard review
  skillyard review show 3f9a1c0b22de
  skillyard review resume 3f9a1c0b22de --decisions '{"pdf": "keep", "odd": "uninstall"}'
  skillyard review drop 3f9a1c0b22de
"""

import json
from functools import partial

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import on_terminal
from skillyard.faces.cli.review_prompt import ADDED, NOT_INSTALLED, all_lines, ask_decisions, three_lines, waiting_lines
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines, Table
from skillyard.install.review import Resumed, Review

_EMPTY = Message("Nothing is held back.")
_CHANGED = Message("changed since it was shown, scanned again: {name}")
_UNKNOWN = Message("nothing here is called {name}")
_WORDS = ("list", "show", "resume", "drop")


def arguments(parser: Parser) -> None:
    parser.add_argument("verb", nargs="?", default="list", choices=_WORDS, help="list where nothing is said")
    parser.add_argument("review", nargs="?", default="", metavar="ID", help="as `skillyard review` lists it")
    parser.add_argument("--decisions", default="", metavar="JSON", help='{"skill": "keep" or "uninstall"}')
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project() as yard:
        if options.verb == "list":
            return _list(yard.reviews.list(), lang)
        if not options.review:
            raise InvalidArgs(
                Message("say which: `skillyard review {verb} ID`; `skillyard review` lists them", verb=options.verb)
            )
        if options.verb == "drop":
            yard.reviews.drop(options.review)
            return Answer(Message("dropped: {id}"), {"id": options.review}, {"review": options.review})
        review = yard.reviews.read(options.review)
        return _show(review, lang) if options.verb == "show" else _resume(yard, review, options)


def _list(reviews: tuple[Review, ...], lang: Lang) -> Answer:
    rows = [
        (review.id, ", ".join(f"{name} ({held.verdict.severity})" for name, held in sorted(review.held.items())))
        for review in reviews
    ]
    return Answer(
        summary=Message("{count} reviews wait"),
        words={"count": len(reviews)},
        data={"reviews": [review.as_data() for review in reviews]},
        page=Table(columns=("id", "held back"), rows=rows, empty=_EMPTY.render(lang)),
    )


def _show(review: Review, lang: Lang) -> Answer:
    lines = [line for held in review.held.values() for line in (three_lines(held, lang)[0], *all_lines(held, lang))]
    return Answer(
        summary=Message("review: {id}"),
        words={"id": review.id},
        data=review.as_data(),
        page=Lines(lines),
    )


def _resume(yard: Project, review: Review, options: Options) -> Answer:
    terminal = on_terminal() and not options.json
    decisions = (
        _parsed(options.decisions) if options.decisions else ask_decisions(review, lang_of(options)) if terminal else {}
    )
    unknown = sorted(decisions.keys() - review.held.keys())
    resumed = yard.reviews.resume(review, decisions, on_terminal=on_terminal())
    return _told(resumed, unknown, lang_of(options))


def _parsed(text: str) -> dict[str, Json]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("--decisions is not JSON: {error}", error=error)) from None
    if not isinstance(said, dict):
        raise InvalidArgs(Message('--decisions must be an object: {{"skill": "keep"}}'))
    return said


def _told(resumed: Resumed, unknown: list[str], lang: Lang) -> Answer:
    review = resumed.review
    data: dict[str, Json] = {
        **(review.as_data() if review.held else {"review": review.id}),
        "installed": list(resumed.installed),
        "uninstalled": list(resumed.uninstalled),
        "changed": list(resumed.changed),
        "unknown": list(unknown),
    }
    lines = [
        *(ADDED.render(lang, name=name) for name in resumed.installed),
        *(NOT_INSTALLED.render(lang, name=name) for name in resumed.uninstalled),
        *(_CHANGED.render(lang, name=name) for name in resumed.changed),
        *(_UNKNOWN.render(lang, name=name) for name in unknown),
        *(waiting_lines(review, lang) if review.held else ()),
    ]
    return Answer(
        summary=Message("{count} skills are still held back")
        if review.held
        else Message("review done: {kept} installed, {gone} not"),
        words={"count": len(review.held), "kept": len(resumed.installed), "gone": len(resumed.uninstalled)},
        data=data,
        page=Lines(lines),
        state=State.INTERRUPTED if review.held else State.SUCCESS,
    )
