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

from functools import partial
from pathlib import Path

from skillyard.app.paths import find_paths
from skillyard.catalog.roots import can_be_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Table
from skillyard.trust.own_files import FileState, FoundPiece, lay_out, look

_CHECKED = Message("checked: {bad} differ from what this version writes")
_LAID_OUT = Message("project ready: {made} made, {kept} kept")
_LATER = Message("made when it is needed")
_NOTES = {
    FileState.OUTDATED: Message("an earlier version wrote it; delete it and run `skillyard init` for the new one"),
    FileState.DIFFERS: Message("not what this version writes; left as it is"),
}


def arguments(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="the project's folder (here)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 on drift")
    parser.add_argument("--mcp", metavar="AGENT,…", help="configure claude-code, codex or opencode to use our server")
    parser.add_argument("--yes", action="store_true", help="with --mcp: write without being asked")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    root = Path(options.folder).resolve()
    if not can_be_project(root, find_paths().user_home.resolve()):
        raise InvalidArgs(
            Message("{root} cannot be a project: it is the home folder, above it, or inside a role's folder", root=root)
        )
    if options.mcp is not None:
        from skillyard.faces.cli.init_mcp import answer

        agents = list(dict.fromkeys(name.strip() for name in options.mcp.split(",") if name.strip()))
        return answer(root, agents, lang, yes=options.yes, quiet=options.json)
    found = look(root) if options.check else lay_out(root)
    bad = [each for each in found if each.is_drift]
    made = sum(each.standing is FileState.MADE for each in found)
    lists: dict[str, Json] = {
        str(standing): [each.path for each in found if each.standing is standing] for standing in FileState
    }
    return Answer(
        summary=_CHECKED if options.check else _LAID_OUT,
        words={"bad": len(bad), "made": made, "kept": len(found) - made},
        data={"root": str(root), **lists},
        page=Table(columns=("what", "path", "note"), rows=[_row(each, lang) for each in found]),
        state=State.ERROR if options.check and bad else State.SUCCESS,
    )


def _row(found: FoundPiece, lang: Lang) -> tuple[str, str, str]:
    absent = found.folder and found.standing is FileState.MISSING
    note = _LATER if absent else _NOTES.get(found.standing)
    return (str(found.standing), found.path + ("/" if found.folder else ""), note.render(lang) if note else "")
