"""The commands, each imported only when it runs."""

import importlib
import sqlite3
import sys
from typing import NamedTuple

import click

from skillyard.faces.cli.answer import AGENT, as_skill_error, finish, style_of

_ROOM = "skillyard.faces.cli."


class Listed(NamedTuple):
    """What `skillyard --help` says of a command without importing it."""

    module: str
    says: str


COMMANDS = {
    "list": Listed("list", "List the skills that can be used here."),
    "search": Listed("search", "Search the skills by name, description and tags."),
    "show": Listed("show", "Show everything that is known of a skill."),
    "explain": Listed("explain", "Explain a name: who answers to it here and in each agent, and why."),
    "sync": Listed("sync", "Read the skill folders and say what changed."),
    "run": Listed("run", "Run a skill and print one result."),
    "runs": Listed("runs", "Show what ran."),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        listed = COMMANDS.get(cmd_name)
        if listed is None:
            return None
        command: click.Command = importlib.import_module(_ROOM + listed.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.says) for name, listed in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="skillyard", message="skillyard %(version)s")
def skillyard() -> None:
    """Find, check and run agent skills, with one typed result.

    \b
    Examples:
      skillyard list
      skillyard search markdown
      skillyard run @markdown-converter README.md
    """


def main() -> None:
    try:
        skillyard.main(standalone_mode=True)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left; nothing more to say
        raise SystemExit(1) from None
    except (OSError, sqlite3.Error) as error:
        from skillyard.core.result import error_result, make_meta

        style = style_of("--json" in sys.argv, None, "--ascii" in sys.argv, None)
        from datetime import UTC, datetime

        meta = make_meta(AGENT, 0.0, datetime.now(UTC))
        finish(error_result(as_skill_error(error), AGENT, style.lang, meta), style)
