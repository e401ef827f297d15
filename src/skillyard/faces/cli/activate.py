"""Activate skills: from now on they go with every task for an agent.

Without --session a skill is active in every conversation: your own skills everywhere, a project's in that project. To
activate one again changes nothing.

examples:
  skillyard activate code-review
  skillyard activate pdf docx --session release-notes
"""

import time
from functools import partial

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.faces.cli.activation import add_scope, as_answer, session_of
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with


def arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="folder, name or title of a skill")
    add_scope(parser)
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    with open_project() as yard:
        yard.catalog.sync()
        changes = yard.activator.activate(options.names, session_of(options), time.time())
    return as_answer(
        changes,
        options,
        summary=Message("{count} skills activated"),
        did=Message("activated {name}"),
        did_not=Message("already active: {name}"),
    )
