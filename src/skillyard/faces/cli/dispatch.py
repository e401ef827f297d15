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
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    add_output_options,
    answer_with,
    seconds,
    show_and_exit,
    style_of,
)
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Exact, one_line

if TYPE_CHECKING:
    from skillyard.dispatch.request import DispatchRequest

_OMITTED = Message("left out, over the limit of size: {names}")
_MARKED = Message("{name} imitates the structure around it: {lines}")
_UNREADABLE = Message("{name} cannot be read: {reason}")
_SHIELDED = Message("the task starts with / and got a newline before it")


def arguments(parser: Parser) -> None:
    parser.add_argument("task", help="what the agent is to do; - reads it from stdin")
    parser.add_argument("--to", metavar="NAME", help="claude-code, codex, opencode or another backend")
    parser.add_argument("--session", metavar="ID", help="the conversation that it belongs to")
    parser.add_argument("--model", metavar="M", help="the agent's model")
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="where the agent works; here where it is not given")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="seconds that it may take (3600)")
    parser.add_argument("--stream", action="store_true", help="show what the agent does while it does it")
    parser.add_argument("--dry-run", action="store_true", help="show the exact text, and start nothing")
    add_output_options(parser)
    parser.set_defaults(answer=lambda options: _answer(options, parser))


def _answer(options: Options, parser: Parser) -> NoReturn:
    if options.stream and options.json:
        parser.error(
            Message(
                "argument {name}: {reason}",
                name="--stream",
                reason=Message("not allowed with argument {name}", name="--json"),
            )
        )
    answer_with(_plan if options.dry_run else _hand_over, options)


def _plan(options: Options) -> Answer:
    with open_project() as yard:
        request = _request(yard, options)
    _tell_notes(request, options)
    return Answer(
        summary=Message("would send {count} characters (nothing was sent)"),
        words={"count": len(request.enhanced.text)},
        data=request.as_data(),
        page=Exact(request.enhanced.text),
    )


def _hand_over(options: Options) -> NoReturn:
    from skillyard.faces.cli.agents import Watching

    style = style_of(options)
    with open_project() as yard:
        request = _request(yard, options)
        _tell_notes(request, options)
        watched = Watching(style.lang)
        with watched.watching(stream=options.stream) as tell:
            result = yard.dispatcher.dispatch(request, tell, watched.allows, watched.stop)
        if not style.json:
            result = _for_people(result, yard.paths.project)
    show_and_exit(result, style)


def _for_people(result: Result, project: Path | None) -> Result:
    """What was sent is known to the one who sent it, what is empty says nothing, and what is long goes to a file."""
    hidden = {"text", "characters", "newline_added", "to"}
    kept = {key: value for key, value in result.data.items() if key not in hidden}
    shown = {key: value for key, value in kept.items() if key == "recoverable" or value not in (None, [], {})}
    shorter = result._replace(data=shown)
    return pass_through(shorter, project) if project else shorter


def _request(yard: Project, options: Options) -> "DispatchRequest":
    return yard.make_dispatch_request(
        _from_stdin() if options.task == "-" else options.task,
        to=options.to,
        session=options.session,
        model=options.model,
        cwd=options.cwd,
        limit_seconds=options.timeout,
        lang=style_of(options).lang,
    )


def _from_stdin() -> str:
    """To the letter: line ends stay as they came."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgs(
            Message("the task on stdin is not UTF-8: {reason} at byte {start}", reason=error.reason, start=error.start)
        ) from None


def _tell_notes(request: "DispatchRequest", options: Options) -> None:
    style = style_of(options)
    if not style.json:
        sys.stderr.write("".join(f"→ {one_line(note)}\n" for note in _notes(request, style.lang)))


def _notes(request: "DispatchRequest", lang: Lang) -> Iterator[str]:
    enhanced = request.enhanced
    if enhanced.omitted:
        yield _OMITTED.render(lang, names=", ".join(skill.name for skill in enhanced.omitted))
    for skill in enhanced.marked:
        yield _MARKED.render(lang, name=skill.name, lines=", ".join(f"`{line}`" for line in skill.imitates))
    for lost in request.unreadable:
        yield _UNREADABLE.render(lang, name=lost.name, reason=lost.reason)
    if enhanced.shielded:
        yield _SHIELDED.render(lang)
