"""Trust what this project's own files ask for, after seeing the list.

What comes with a clone is not you: until you trust it, a project's files can only narrow what is allowed.
What a role asks for (network, paths, secrets, schedules) counts for exactly the bytes of its folder, the scripts of
bin/ for exactly the bytes of every file in it: what was added, changed or removed since the last time is listed.
"""

from collections.abc import Iterator
from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message, render
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import one_line
from skillyard.trust.consent import ADDED, CHANGED, REMOVED, Want, is_trusted, show_wants, trust, untrusted_roles
from skillyard.trust.grant_rules import refuse_inside_agents

_QUESTION = Message("{root} asks for:\n{listed}\nTrust it?")
_NOTHING = Message("  nothing beyond the rules")
_CHANGES = {
    ADDED: Message("new: {path}"),
    CHANGED: Message("changed: {path}"),
    REMOVED: Message("removed: {path}"),
}
_MORE = Message("{count} more: skillyard trust --check --json")
_MOST_FILES = 50


def arguments(parser: Parser) -> None:
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")
    parser.add_argument("--check", action="store_true", help="only tell what is asked for, and whether it is trusted")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        shown = show_wants(yard.grants, yard.root)
        asked: list[Json] = [_as_data(want) for want in shown.wants]
        if not options.check:
            refuse_inside_agents()
            lines = (one_line(line) for want in shown.wants for line in _lines(want, lang))
            question = _QUESTION.render(lang, root=yard.root, listed="\n".join(lines) or _NOTHING.render(lang))
            if not options.accept and not (on_terminal() and confirm(question)):
                raise InvalidArgs(
                    Message("nothing was trusted: say yes on a terminal, or give --accept"), details={"wants": asked}
                )
            trust(yard.grants, yard.root, shown)
        trusted = is_trusted(yard.grants, yard.root) and not untrusted_roles(yard.grants, yard.root)
    return Answer(
        summary=Message("trusted: {trusted}"),
        words={"trusted": yes_or_no(trusted, lang)},
        data={"trusted": trusted, "wants": asked},
    )


def _as_data(want: Want) -> dict[str, Json]:
    files: list[Json] = [{"path": path, "change": change} for change, path in want.files]
    return {"what": want.what, "where": want.where, **({"files": files} if files else {})}


def _lines(want: Want, lang: Lang) -> Iterator[str]:
    yield f"  - {render(want.what, lang)} ({want.where})"
    for change, path in want.files[:_MOST_FILES]:
        yield f"      {_CHANGES[change].render(lang, path=path)}"
    if len(want.files) > _MOST_FILES:
        yield f"      {_MORE.render(lang, count=len(want.files) - _MOST_FILES)}"
