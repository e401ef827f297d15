"""skillyard run"""

import click

from skillyard.core.request import Request
from skillyard.faces.cli.answer import finish, output_options, style_of
from skillyard.faces.present import pass_through
from skillyard.kernel.assembly import open_yard


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@output_options
@click.option("--timeout", type=float, help="Seconds that the run may take.")
@click.option("--non-interactive", is_flag=True, help="A missing param is an error, not a question.")
@click.argument("name")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    name: str,
    args: tuple[str, ...],
    timeout: float | None,
    non_interactive: bool,
    json_: bool,
    format_: str | None,
    ascii_: bool,
    lang: str | None,
) -> None:
    """Run a skill and print one result.

    \b
    Examples:
      skillyard run @markdown-converter README.md
      skillyard run --json @word-count notes.txt
    """
    style = style_of(json_, format_, ascii_, lang)
    yard = open_yard()
    request = Request(
        name=name.removeprefix("@"),
        args=args,
        timeout_seconds=timeout,
        interactive=not non_interactive,
        lang=style.lang,
    )
    result = yard.runtime.run(request)
    finish(result if style.json else pass_through(result, yard.root), style)
