"""Take skills out of what goes with a task.

Without --session it is about what is active in every conversation; what a conversation activated for itself stays.

examples:
  skillyard deactivate code-review
  skillyard deactivate --all --session release-notes
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.faces.cli.activation import add_scope, as_answer, session_of
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with


def arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder, name, title or path of an active skill")
    parser.add_argument("--all", action="store_true", help="everything that is active there")
    add_scope(parser)
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    with open_project() as yard:
        yard.catalog.sync()
        session = session_of(options)
        if options.all:
            changes = yard.activator.deactivate_all(session)
        else:
            changes = yard.activator.deactivate(options.names, session)
    return as_answer(
        changes,
        options,
        summary=Message("{count} skills deactivated"),
        did=Message("deactivated {name}"),
        did_not=Message("not active there: {name}"),
    )
