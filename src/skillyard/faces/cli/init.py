"""Lay out a project: its folders, bin/ scripts and the agents that a Task reaches.

Never overwrites anything. --check writes nothing: it tells what is missing, outdated or different, and exits with 1
where something is. --mcp lays nothing out: it shows what the agents must read to start `skillyard mcp` here, and asks
on a terminal before it writes that into their files, beside what is there.

examples:
  skillyard init
  skillyard init my-project
  skillyard init --check
  skillyard init --mcp claude-code,codex,opencode
"""

import os
import sys
from pathlib import Path

from skillyard.app.paths import find_paths
from skillyard.catalog.roots import can_be_project
from skillyard.core.child_process import own_command
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Table

_FILE_NOTES = {
    "outdated": Message("an earlier version wrote it; delete it and run `skillyard init` for the new one"),
    "differs": Message("not what this version writes; left as it is"),
}
_ENTRY_NOTES = {
    "missing": Message("not written: paste it yourself"),
    "kept": Message("was there already"),
    "differs": Message("another entry of this name is there; left as it is"),
    "unreadable": Message("the file has comments, or is not what it should be: paste it yourself"),
}


def arguments(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="the project's folder (here)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 on drift")
    parser.add_argument("--mcp", metavar="AGENT,…", help="configure claude-code, codex or opencode to use our server")
    parser.add_argument("--yes", action="store_true", help="with --mcp: write without being asked")


def answer(options: Options) -> Answer:
    root = Path(options.folder).resolve()
    if not can_be_project(root, find_paths().user_home.resolve()):
        raise InvalidArgs(
            Message("{root} cannot be a project: it is the home folder, above it, or inside a role's folder", root=root)
        )
    if options.mcp is not None:
        return _configure_agents(root, options)
    from skillyard.trust.own_files import FileState, lay_out, look

    found = look(root) if options.check else lay_out(root)
    bad, made = sum(each.is_drift for each in found), sum(each.standing is FileState.MADE for each in found)
    data: dict[str, Json] = {
        str(standing): [each.path for each in found if each.standing is standing] for standing in FileState
    }
    rows = []
    for each in found:
        note = _FILE_NOTES.get(each.standing, "")
        if each.folder and each.standing is FileState.MISSING:
            note = Message("made when it is needed")
        rows.append((str(each.standing), each.path + ("/" if each.folder else ""), note))
    summary = Message("project ready: {made} made, {kept} kept", made=made, kept=len(found) - made)
    if options.check:
        summary = Message("checked: {bad} differ from what this version writes", bad=bad)
    state = State.ERROR if options.check and bad else State.SUCCESS
    return Answer(summary, {"root": str(root), **data}, Table(("what", "path", "note"), rows), state)


def _configure_agents(root: Path, options: Options) -> Answer:
    """Show what each agent must read to start our server; write it where the person says yes."""
    from skillyard.install.mcp_config import EntryState, make_config, write
    from skillyard.trust.grant_rules import refuse_inside_agents

    agents = dict.fromkeys(name.strip() for name in options.mcp.split(",") if name.strip())
    home = os.environ.get("SKILLYARD_HOME")
    env = {"SKILLYARD_HOME": str(Path(home).absolute())} if home else {}
    configs = [make_config(root, agent, own_command(), env) for agent in agents]
    writes = options.yes or (on_terminal() and not options.json)
    if writes:
        refuse_inside_agents()
    for position, config in enumerate(configs):
        if writes and config.entry is EntryState.MISSING:
            question = Message("Put this into {path}, for {agent}?", path=config.path, agent=config.agent)
            if not options.yes:
                sys.stderr.write(f"\n{config.text}\n")
            if options.yes or confirm(question.render(lang_of(options))):
                configs[position] = write(root, config)
    written = sum(config.entry is EntryState.WRITTEN for config in configs)
    summary = Message("configuration for {count} agents; nothing was written", count=len(configs))
    if written:
        summary = Message("{written} files written, for {count} agents", written=written, count=len(configs))
    files: list[Json] = [
        {"agent": config.agent, "path": config.path, "text": config.text, "entry": str(config.entry)}
        for config in configs
    ]
    rows = [(str(each.entry), each.agent, each.path, _ENTRY_NOTES.get(each.entry, "")) for each in configs]
    if writes:
        return Answer(summary, {"root": str(root), "files": files}, Table(("what", "agent", "path", "note"), rows))
    # One by itself is the whole file; several have a line between them that says whose is whose.
    lines = configs[0].text.splitlines() if len(configs) == 1 else []
    for config in configs if len(configs) > 1 else ():
        lines += ["", f"# {config.agent}: {config.path}", *config.text.splitlines()]
    return Answer(summary, {"root": str(root), "files": files}, Lines(lines[1:] if len(configs) > 1 else lines))
