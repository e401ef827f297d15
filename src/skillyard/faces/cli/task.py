"""Dispatch a Task to an agent, as a Kernel does, and print one result.

examples:
  skillyard task skills "convert the readme" "执行 @markdown-converter README.md"
  skillyard task skills "count words" "run @word-count notes.txt" --json
  skillyard task worker_agent "列出技能" "执行 python bin/skill_manager.py list" --key skill-list
"""

from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import open_project
from skillyard.app.task import Kernel
from skillyard.core.messages import Lang
from skillyard.faces.ask import ask, on_terminal
from skillyard.faces.command import Options, Parser, ProgramLines, add_output_options, show_and_exit, style_of
from skillyard.faces.passthrough import pass_through

if TYPE_CHECKING:
    from skillyard.scripts.interrupt import Decider


def arguments(parser: Parser) -> None:
    parser.add_argument("agent", help="skills or worker_agent")
    parser.add_argument("description", help="what it is about, in a few words")
    parser.add_argument("prompt", help="执行 @name [args], or run @name [args]")
    parser.add_argument("--key", help="idempotency key: the same within 5 seconds runs once")
    parser.add_argument("--model", help="told in the result")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds that the run may take")
    add_output_options(parser)
    parser.set_defaults(answer=_answer)


def _decider(lang: Lang) -> "Decider | None":
    """The person, where there is one."""
    if not on_terminal():
        return None
    from skillyard.scripts.interrupt import Person

    return Person(ask, lang)


def _answer(options: Options) -> NoReturn:
    style = style_of(options)
    with open_project(ends_with_process=True) as yard:
        with ProgramLines() as lines:
            result = Kernel(yard, style.lang, _decider(style.lang)).task(
                options.agent,
                options.description,
                options.prompt,
                idempotency_key=options.key,
                model=options.model,
                timeout_seconds=options.timeout,
                on_progress=lines,
            )
        show_and_exit(result if style.json else pass_through(result, yard.root), style)
