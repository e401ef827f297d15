"""Dispatch a Task to an agent, as a Kernel does, and print one result.

examples:
  skillyard task skills "convert the readme" "执行 @markdown-converter README.md"
  skillyard task skills "count words" "run @word-count notes.txt" --json
  skillyard task worker_agent "列出技能" "执行 python bin/skill_manager.py list" --key skill-list
"""

from typing import NoReturn

from skillyard.app.project import open_project
from skillyard.app.task import Kernel
from skillyard.faces.ask import ask, on_terminal
from skillyard.faces.command import Options, Parser, ProgramLines, show_and_exit, style_of
from skillyard.faces.passthrough import pass_through


def arguments(parser: Parser) -> None:
    parser.add_argument("agent", help="skills or worker_agent")
    parser.add_argument("description", help="what it is about, in a few words")
    parser.add_argument("prompt", help="执行 @name [args], or run @name [args]")
    parser.add_argument("--key", help="idempotency key: the same within 5 seconds runs once")
    parser.add_argument("--model", help="told in the result")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds that the run may take")


def answer(options: Options) -> NoReturn:
    style = style_of(options)
    decider = None
    if on_terminal():
        from skillyard.scripts.interrupt import Person

        decider = Person(ask, style.lang)
    with open_project(ends_with_process=True) as project:
        with ProgramLines() as lines:
            result = Kernel(project, style.lang, decider).task(
                options.agent,
                options.description,
                options.prompt,
                idempotency_key=options.key,
                model=options.model,
                timeout_seconds=options.timeout,
                on_progress=lines,
            )
        show_and_exit(result if style.json else pass_through(result, project.root), style)
