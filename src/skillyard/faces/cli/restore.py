"""Install exactly what skillyard.lock says, on this machine too.

Skills that are there already stay as they are; files that you edited stay, unless --theirs says otherwise. A source
that has other bytes now is an error: nothing else is installed in its place.

examples:
  skillyard restore
  skillyard restore --global
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.faces.ask import on_terminal
from skillyard.faces.cli.review_prompt import answer_of
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Steps

_RESTORING = Message("restoring")


def arguments(parser: Parser) -> None:
    parser.add_argument("--global", dest="is_global", action="store_true", help="the user's own skills")
    parser.add_argument("--theirs", action="store_true", help="replace files that were edited here")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project() as yard:
        with Steps(_RESTORING.render(lang), lang=lang) as steps:
            brought = yard.installer(is_global=options.is_global).restore(steps, theirs=options.theirs)
        return answer_of(yard, brought, lang, terminal=on_terminal() and not options.json)
