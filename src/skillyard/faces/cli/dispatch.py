"""Hand a task with the active skills to an agent.

The skills are those of the project that the command is given in; --cwd is where the agent works. --session names a
conversation of ours: what is active in it goes along, and a second task in it goes on where the first ended.

examples:
  skillyard dispatch --dry-run "Review the auth module for security issues"
  git diff | skillyard dispatch - --session review --dry-run --json
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skillyard.core.errors import InvalidArgs
from skillyard.core.phrases import Lang, Text
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.cli.command import (
    Answer,
    Options,
    Parser,
    add_output_options,
    answer_with,
    seconds,
    show_and_exit,
    show_progress,
    style_of,
)
from skillyard.faces.present import Exact, one_line
from skillyard.kernel.assembly import Yard, open_yard

if TYPE_CHECKING:
    from skillyard.backends.driver import Event, Permission
    from skillyard.dispatch.contents import Active
    from skillyard.dispatch.order import Order
    from skillyard.dispatch.text import Enhanced

_OMITTED = Text("因大小限制省略: {names}", "left out, over the limit of size: {names}")
_MARKED = Text("{name} 的内容模仿了任务结构: {lines}", "{name} imitates the structure around it: {lines}")
_UNREADABLE = Text("无法读取 {name}: {reason}", "{name} cannot be read: {reason}")
_SHIELDED = Text("任务以 / 开头, 前面加了一个换行", "the task starts with / and got a newline before it")


def arguments(parser: Parser) -> None:
    parser.add_argument("task", help="what the agent is to do; - reads it from stdin")
    parser.add_argument("--to", metavar="NAME", help="claude-code, codex, opencode or another backend")
    parser.add_argument("--session", metavar="ID", help="the conversation that it belongs to")
    parser.add_argument("--model", metavar="M", help="the agent's model")
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="where the agent works; here where it is not given")
    parser.add_argument("--limit", type=seconds, metavar="SECONDS", help="how long it may take")
    parser.add_argument("--stream", action="store_true", help="show what the agent does while it does it")
    parser.add_argument("--dry-run", action="store_true", help="show the exact text, and start nothing")
    add_output_options(parser)
    parser.set_defaults(answer=lambda options: _answer(options, parser))


def _answer(options: Options, parser: Parser) -> NoReturn:
    if options.stream and options.json:
        parser.error("argument --stream: not allowed with argument --json")
    answer_with(_plan if options.dry_run else _hand_over, options)


def _plan(options: Options) -> Answer:
    with open_yard() as yard:
        order, active = _order(yard, options)
    style = style_of(options)
    if not style.json:
        sys.stderr.write("".join(f"→ {one_line(note)}\n" for note in _notes(order.enhanced, active, style.lang)))
    return Answer(
        summary=Text("将要发送 {count} 个字符 (未发送)", "would send {count} characters (nothing was sent)"),
        words={"count": len(order.enhanced.text)},
        data=as_data(order, active),
        page=Exact(order.enhanced.text),
    )


def _hand_over(options: Options) -> NoReturn:
    with open_yard() as yard:
        dispatcher = yard.dispatcher
        order, _ = _order(yard, options)
        result = dispatcher(order, _show if options.stream else lambda _: None, _allows)
    show_and_exit(result, style_of(options))


def _order(yard: Yard, options: Options) -> "tuple[Order, Active]":
    from skillyard.dispatch.order import Order
    from skillyard.kernel.handover import prepare

    folder = (options.cwd or Path.cwd()).absolute()
    if not folder.is_dir():
        raise InvalidArgs(f"{folder} is no folder that an agent could work in")
    task = _from_stdin() if options.task == "-" else options.task
    enhanced, active = prepare(yard, task, options.session)
    order = Order(
        task=task,
        enhanced=enhanced,
        folder=folder,
        conversation=options.session,
        to=options.to,
        model=options.model,
        limit_seconds=options.limit,
        lang=style_of(options).lang,
    )
    return order, active


def _from_stdin() -> str:
    """To the letter: line ends stay as they came."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgs(f"the task on stdin is not UTF-8: {error.reason} at byte {error.start}") from None


def as_data(order: "Order", active: "Active") -> dict[str, Json]:
    enhanced = order.enhanced
    return {
        "text": enhanced.text,
        "skills": [
            {
                "name": skill.name,
                "path": skill.path,
                "session": skill.conversation or None,
                "characters": len(skill.content),
            }
            for skill in enhanced.skills
        ],
        "omitted": [skill.name for skill in enhanced.omitted],
        "marked": [
            {"name": skill.name, "path": skill.path, "imitates": list(skill.imitates)} for skill in enhanced.marked
        ],
        "unreadable": [skill._asdict() for skill in active.unreadable],
        "characters": enhanced.characters,
        "newline_added": enhanced.shielded,
        "to": order.to,
        "session": order.conversation,
        "model": order.model,
        "cwd": str(order.folder),
    }


def _notes(enhanced: "Enhanced", active: "Active", lang: Lang) -> Iterator[str]:
    if enhanced.omitted:
        yield _OMITTED.fill(lang, names=", ".join(skill.name for skill in enhanced.omitted))
    for skill in enhanced.marked:
        yield _MARKED.fill(lang, name=skill.name, lines=", ".join(f"`{line}`" for line in skill.imitates))
    for lost in active.unreadable:
        yield _UNREADABLE.fill(lang, name=lost.name, reason=lost.reason)
    if enhanced.shielded:
        yield _SHIELDED.fill(lang)


def _show(event: "Event") -> None:
    show_progress(f"{event.text}\n".encode())


def _allows(permission: "Permission") -> bool:
    """A person at the terminal, or nobody."""
    return on_terminal() and confirm(f"{permission.tool}: {permission.says}?")
