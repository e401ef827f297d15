"""Hand a task with the active skills to an agent.

The skills are those of the project that the command is given in; --cwd is where the agent works. --session names a
conversation of ours: what is active in it goes along, and a second task in it goes on where the first ended.

What the agent wants to be allowed is asked on the terminal, and refused where nobody is there. Ctrl-C stops the agent;
the conversation can be gone on with.

examples:
  skillyard dispatch "Find the flaky test" --to claude-code --stream
  skillyard dispatch "And now fix it" --session flaky --to codex --model gpt-5
  skillyard dispatch --dry-run "Review the auth module for security issues"
  git diff | skillyard dispatch - --session review --dry-run --json
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message, join_messages
from skillyard.core.result import Result
from skillyard.faces.command import Answer, Options, Parser, lang_of, seconds, show_and_exit, style_of
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Exact, write_lines

if TYPE_CHECKING:
    from skillyard.dispatch.request import DispatchRequest


def arguments(parser: Parser) -> None:
    parser.add_argument("task", help="what the agent is to do; - reads it from stdin")
    parser.add_argument("--to", metavar="NAME", help="claude-code, codex, opencode or another backend")
    parser.add_argument("--session", metavar="ID", help="the conversation that it belongs to")
    parser.add_argument("--model", metavar="M", help="the agent's model")
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="where the agent works; here where it is not given")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="seconds that it may take (3600)")
    parser.add_argument("--stream", action="store_true", help="show what the agent does while it does it")
    parser.add_argument("--dry-run", action="store_true", help="show the exact text, and start nothing")


def answer(options: Options) -> Answer:
    if options.stream and options.json:
        reason = Message("not allowed with argument {name}", name="--json")
        options.parser.error(Message("argument {name}: {reason}", name="--stream", reason=reason))
    with open_project() as project:
        request = project.make_dispatch_request(
            _read_stdin() if options.task == "-" else options.task,
            to=options.to,
            session=options.session,
            model=options.model,
            cwd=options.cwd,
            limit_seconds=options.timeout,
            lang=lang_of(options),
        )
        if not options.json:
            write_lines((join_messages("", ("→ ", note)) for note in _notes(request)), lang_of(options))
        if not options.dry_run:
            _hand_over(project, request, options)
    text = request.enhanced.text
    summary = Message("would send {count} characters (nothing was sent)", count=len(text))
    return Answer(summary, request.as_data(), Exact(text))


def _hand_over(project: Project, request: "DispatchRequest", options: Options) -> NoReturn:
    from skillyard.faces.cli.agents import Watching

    style = style_of(options)
    watched = Watching(style.lang)
    with watched.watching(stream=options.stream) as tell:
        result = project.dispatcher.dispatch(request, tell, watched.allows, watched.stop)
    show_and_exit(result if style.json else _for_people(result, project.paths.project), style)


def _for_people(result: Result, root: Path | None) -> Result:
    """What was sent is known to the one who sent it, what is empty says nothing, and what is long goes to a file."""
    hidden = {"text", "characters", "newline_added", "to"}
    kept = {key: value for key, value in result.data.items() if key not in hidden}
    shown = {key: value for key, value in kept.items() if key == "recoverable" or value not in (None, [], {})}
    shorter = result._replace(data=shown)
    return pass_through(shorter, root) if root else shorter


def _read_stdin() -> str:
    """To the letter: line ends stay as they came."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgs(
            Message("the task on stdin is not UTF-8: {reason} at byte {start}", reason=error.reason, start=error.start)
        ) from None


def _notes(request: "DispatchRequest") -> Iterator[Message]:
    enhanced = request.enhanced
    if enhanced.omitted:
        names = ", ".join(skill.name for skill in enhanced.omitted)
        yield Message("left out, over the limit of size: {names}", names=names)
    for skill in enhanced.marked:
        lines = ", ".join(f"`{line}`" for line in skill.imitates)
        yield Message("{name} imitates the structure around it: {lines}", name=skill.name, lines=lines)
    for lost in request.unreadable:
        yield Message("{name} cannot be read: {reason}", name=lost.name, reason=lost.reason)
    if enhanced.shielded:
        yield Message("the task starts with / and got a newline before it")
