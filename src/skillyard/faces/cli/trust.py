"""Trust what this project's own files ask for, after seeing the list.

What comes with a clone is not you: until you trust it, a project's files can only narrow what is allowed.
What a role asks for (network, paths, secrets, schedules) counts for exactly the bytes of its folder.
"""

from functools import partial

from skillyard.core.errors import InvalidArgs
from skillyard.core.phrases import Text, as_read
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import yes_or_no
from skillyard.faces.present import one_line
from skillyard.kernel.assembly import open_yard
from skillyard.kernel.consent import is_trusted, refuse_inside_agents, trust, untrusted_roles, wants

_QUESTION = Text("{root} 请求:\n{listed}\n信任它吗?", "{root} asks for:\n{listed}\nTrust it?")
_NOTHING = Text("  没有超出规则的", "  nothing beyond the rules")


def arguments(parser: Parser) -> None:
    parser.add_argument("--accept", action="store_true", help="say yes without being asked")
    parser.add_argument("--check", action="store_true", help="only tell what is asked for, and whether it is trusted")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_yard(ends_with_process=True) as yard:
        found = wants(yard.root)
        asked: list[Json] = [{"what": want.what, "where": want.where} for want in found]
        if not options.check:
            refuse_inside_agents()
            lines = (one_line(f"  - {as_read(want.what, lang)} ({want.where})") for want in found)
            question = _QUESTION.fill(lang, root=yard.root, listed="\n".join(lines) or _NOTHING.fill(lang))
            if not options.accept and not (on_terminal() and confirm(question)):
                raise InvalidArgs(
                    "nothing was trusted: say yes on a terminal, or give --accept", details={"wants": asked}
                )
            trust(yard.grants, yard.root)
        trusted = is_trusted(yard.grants, yard.root) and not untrusted_roles(yard.grants, yard.root)
    return Answer(
        summary=Text("信任: {trusted}", "trusted: {trusted}"),
        words={"trusted": yes_or_no(trusted, lang)},
        data={"trusted": trusted, "wants": asked},
    )
