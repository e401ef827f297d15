"""Commands for the folders of agents: link, unlink."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.errors import AgentNotInstalled, InvalidArgs
from skillyard.core.messages import Message, join_messages
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Steps, Table

if TYPE_CHECKING:
    from skillyard.install.linker import LinkView
    from skillyard.install.links import LinkStep

AGENTS = ("claude-code", "codex", "opencode")


def link_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a skill; without one, every installed skill")
    _add_where(parser)
    parser.add_argument("--copy", action="store_true", help="copy instead of a symlink; `update` refreshes it")
    parser.add_argument("--check", action="store_true", help="ask the agents what they see, and change nothing")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be made")


def _add_where(parser: Parser) -> None:
    parser.add_argument("--to", type=_agents, metavar="AGENT,…", help=f"of {', '.join(AGENTS)}")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--project", action="store_true", help="the project's skills (the default)")
    scope.add_argument("--user", action="store_true", help="your own skills, for all your projects")


def _agents(text: str) -> tuple[str, ...]:
    """An argument type: agents by name, with commas between."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = ", ".join(name for name in names if name not in AGENTS)
    if unknown or not names:
        why = Message("{unknown}: the agents are {agents}", unknown=unknown or "?", agents=", ".join(AGENTS))
        raise ArgumentTypeError(why)
    return names


def answer_link(options: Options) -> Answer:
    """Make installed skills visible to Claude Code, Codex and OpenCode in their own folders.

    Without NAME: every skill that skillyard.lock says was installed. Other skills of the project are linked by
    name. With --user: your own skills, for all your projects. A symlink is made, or with --copy a copy; what an
    agent sees already is told and left alone, and nothing that stands there is overwritten. `skillyard unlink`
    undoes exactly this.

    --check asks the agents themselves (no model is called, nothing leaves this machine): seen, not seen, or
    shadowed by another skill of the same name.

    examples:
      skillyard link --to codex,opencode
      skillyard link pdf --to codex --copy
      skillyard link --user --to claude-code
      skillyard link --check
    """
    if not options.to and not options.check:
        raise InvalidArgs(Message("say for whom: --to {agents}", agents=",".join(AGENTS)))
    with open_project() as project:
        linker = project.linker(is_user=options.user)
        if options.check:
            with Steps(Message("checking"), lang_of(options)) as tell:
                return _checked(linker.check(options.names, options.to or AGENTS, tell))
        steps = linker.link(options.names, options.to, copy=options.copy, dry_run=options.dry_run)
    new = sum(step.outcome in {"linked", "copied"} for step in steps)
    seen = sum(step.outcome == "visible" for step in steps)
    bad = len(steps) - new - seen
    counts = {"count": new, "seen": seen, "bad": bad}
    summary = Message("{count} linked, {seen} visible already, {bad} in conflict", **counts)
    if options.dry_run:
        summary = Message("would link {count} (nothing was made), {seen} visible already, {bad} in conflict", **counts)
    state = (State.PARTIAL if new or seen else State.ERROR) if bad else State.SUCCESS
    return Answer(summary, {"links": links_data(steps)}, links_page(steps), state)


def links_data(steps: "Sequence[LinkStep]") -> list[Json]:
    return [{**step._asdict(), "outcome": str(step.outcome), "path": str(step.path)} for step in steps]


def links_page(steps: "Sequence[LinkStep]") -> Lines:
    lines: list[str] = []
    for step in steps:
        lines.append(Message("{outcome:<9} {name} for {agent}: {path}", **step._asdict()))
        if step.note:
            lines.append(join_messages("", ("          ", step.note)))
        if step.next:
            lines.append(join_messages("", ("          → ", step.next)))
    return Lines(lines or [Message("nothing was linked")])


def _checked(views: "Sequence[LinkView]") -> Answer:
    asked = [view for view in views if view.standing != "not installed"]
    if not asked:
        missing = ", ".join(sorted({view.agent for view in views}))
        why = Message("not installed: {missing}", missing=missing)
        raise AgentNotInstalled(why, agent=missing, command=views[0].note)
    seen = sum(view.standing == "seen" for view in asked)
    rows = [
        (view.name, view.agent, str(view.standing), join_messages(" ", filter(None, (view.path, view.note))))
        for view in views
    ]
    return Answer(
        Message("{seen} of {asked} are seen", seen=seen, asked=len(asked)),
        {"skills": [{**view._asdict(), "standing": str(view.standing)} for view in views]},
        Table(("skill", "agent", "standing", "where"), rows),
        State.SUCCESS if seen == len(asked) else State.PARTIAL if seen else State.ERROR,
    )


def unlink_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a linked skill")
    parser.add_argument("--all", action="store_true", help="everything that was linked")
    _add_where(parser)
    parser.add_argument("--dry-run", action="store_true", help="only tell what would go")


def answer_unlink(options: Options) -> Answer:
    """Take back what `skillyard link` made, and only that.

    A copy that you edited stays, and is told; so does whatever somebody else put in its place. Folders that link
    made and that are empty now go too.

    examples:
      skillyard unlink pdf
      skillyard unlink --all
      skillyard unlink --all --to opencode --user
    """
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    names = None if options.all else [name.removeprefix("@") for name in options.names]
    with open_project() as project:
        steps = project.linker(is_user=options.user).unlink(names, options.to, dry_run=options.dry_run)
    kept = sum(step.outcome == "kept" for step in steps)
    summary = Message("{count} unlinked, {kept} kept", count=len(steps) - kept, kept=kept)
    if options.dry_run:
        summary = Message("would unlink {count} (nothing changed), {kept} kept", **summary.values)
    return Answer(summary, {"links": links_data(steps)}, links_page(steps), State.PARTIAL if kept else State.SUCCESS)
