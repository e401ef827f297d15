"""Run a skill and print one result.

Options of ours stand before the skill's name; everything after it is for the skill.

examples:
  skillyard run @markdown-converter README.md
  skillyard run --json @csv-summary sales.csv
"""

import argparse
from typing import NoReturn

from skillyard.core.request import Request
from skillyard.faces.cli.command import Options, Parser, add_output_options, show_and_exit, style_of
from skillyard.faces.present import pass_through
from skillyard.kernel.assembly import open_yard


def arguments(parser: Parser) -> None:
    parser.add_argument("name", help="@name of a skill")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its params: value, --key value or key=value")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds that the run may take")
    parser.add_argument("--non-interactive", action="store_true", help="a missing param is an error, not a question")
    add_output_options(parser)
    parser.set_defaults(answer=_answer)


def _answer(options: Options) -> NoReturn:
    style = style_of(options)
    yard = open_yard()
    request = Request(
        name=options.name.removeprefix("@"),
        args=tuple(options.args),
        timeout_seconds=options.timeout,
        interactive=not options.non_interactive,
        lang=style.lang,
    )
    result = yard.runtime.run(request)
    show_and_exit(result if style.json else pass_through(result, yard.root), style)
