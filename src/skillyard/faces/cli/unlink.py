"""Take back what `skillyard link` made, and only that.

A copy that you edited stays, and is told; so does whatever somebody else put in its place. Folders that link made and
that are empty now go too.

examples:
  skillyard unlink pdf
  skillyard unlink --all
  skillyard unlink --all --to opencode --user
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.states import State
from skillyard.faces.cli.link import add_where, links_data, links_page
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.install.links import LinkOutcome


def arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a linked skill")
    parser.add_argument("--all", action="store_true", help="everything that was linked")
    add_where(parser)
    parser.add_argument("--dry-run", action="store_true", help="only tell what would go")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    names = None if options.all else [name.removeprefix("@") for name in options.names]
    with open_project() as yard:
        steps = yard.linker(is_user=options.user).unlink(names, options.to, dry_run=options.dry_run)
    kept = sum(step.outcome is LinkOutcome.KEPT for step in steps)
    summary = Message("{count} unlinked, {kept} kept")
    if options.dry_run:
        summary = Message("would unlink {count} (nothing changed), {kept} kept")
    return Answer(
        summary=summary,
        words={"count": len(steps) - kept, "kept": kept},
        data={"links": links_data(steps)},
        page=links_page(steps, lang_of(options)),
        state=State.PARTIAL if kept else State.SUCCESS,
    )
