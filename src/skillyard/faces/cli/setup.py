"""Commands about the project and the machine: init, doctor, bin."""

import argparse
import importlib.util
import sys
from pathlib import Path

from skillyard.app.health import diagnose
from skillyard.app.project import open_project
from skillyard.app.setup import (
    is_command_found,
    lay_out,
    lay_out_examples,
    look,
    make_configs,
    resolve_root,
    write_config,
)
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.errors import SandboxUnavailable, SkillError, StateDamaged
from skillyard.core.messages import Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.bin import SCRIPTS
from skillyard.faces.command import Answer, Options, Parser, comma_list, confirm, on_terminal, takes
from skillyard.faces.present import Table, label, yes_or_no
from skillyard.faces.skill_data import fields_of

_FILE_NOTES = {
    "outdated": Message("an earlier version wrote it; delete it and run `skillyard init` for the new one"),
    "differs": Message("not what this version writes; left as it is"),
}
_FILE_STATES = ("made", "kept", "outdated", "differs", "missing")
_ENTRY_NOTES = {
    "missing": Message("not written: paste it yourself"),
    "kept": Message("was there already"),
    "differs": Message("another entry of this name is there; left as it is"),
    "unreadable": Message("the file has comments, or is not what it should be: paste it yourself"),
}


@takes("folder", "the project's folder (here)", nargs="?", default=".", metavar="DIR")
@takes("--examples", "add ten example skills, and files to try them on")
@takes("--check", "write nothing; exit with 1 on drift")
@takes("--mcp", "configure claude-code, codex or opencode to use our server", metavar="AGENT,…")
@takes("--yes", "with --mcp: write without being asked")
def answer_init(options: Options) -> Answer:
    """Lay out a project: its folders, bin/ scripts and the agents that a Task reaches.

    Never overwrites anything. --check writes nothing: it tells what is missing, outdated or different, and exits with 1
    where something is. --mcp lays nothing out: it shows what the agents must read to start `skillyard mcp` here, and
    asks on a terminal before it writes that into their files, beside what is there.

    examples:
      skillyard init
      skillyard init --examples demo
      skillyard init --check
      skillyard init --mcp claude-code,codex,opencode
    """
    root = resolve_root(options.folder)
    if options.mcp is not None:
        return _configure_agents(root, options)
    found = look(root) if options.check else lay_out(root)
    if options.examples and not options.check:
        found = (*found, *lay_out_examples(root))
    bad, made = sum(each.is_drift for each in found), sum(each.standing == "made" for each in found)
    data: dict[str, Json] = {state: [each.path for each in found if each.standing == state] for state in _FILE_STATES}
    rows = []
    for each in found:
        note = _FILE_NOTES.get(each.standing, "")
        if each.folder and each.standing == "missing":
            note = Message("made when it is needed")
        rows.append((str(each.standing), each.path + ("/" if each.folder else ""), note))
    summary = Message("project ready: {made} made, {kept} kept", made=made, kept=len(found) - made)
    if options.check:
        summary = Message("checked: {bad} differ from what this version writes", bad=bad)
    state = State.ERROR if options.check and bad else State.SUCCESS
    return Answer(summary, {"root": str(root), **data}, Table(("what", "path", "note"), rows), state)


def _configure_agents(root: Path, options: Options) -> Answer:
    """Show what each agent must read to start our server; write it where the person says yes."""
    configs = make_configs(root, comma_list(options.mcp))
    if not is_command_found():
        told = Message(
            "`skillyard` is not on your PATH, so no agent can start it: `uv tool install skillyard` puts it there"
        )
        sys.stderr.write(f"{told.render(options.lang)}\n")
    writes = options.yes or (on_terminal() and not options.json)
    if writes:
        refuse_inside_agents()
    for position, config in enumerate(configs):
        if writes and config.entry == "missing":
            question = Message("Put this into {path}, for {agent}?", path=config.path, agent=config.agent)
            if not options.yes:
                sys.stderr.write(f"\n{config.text}\n")
            if options.yes or confirm(question.render(options.lang)):
                configs[position] = write_config(root, config)
    written = sum(config.entry == "written" for config in configs)
    summary = Message("configuration for {count} agents; nothing was written", count=len(configs))
    if written:
        summary = Message("{written} files written, for {count} agents", written=written, count=len(configs))
    files: list[Json] = [fields_of(config, "agent", "path", "text", "entry") for config in configs]
    data: dict[str, Json] = {"root": str(root), "files": files}
    if writes:
        rows = [(str(each.entry), each.agent, each.path, _ENTRY_NOTES.get(each.entry, "")) for each in configs]
        return Answer(summary, data, Table(("what", "agent", "path", "note"), rows))
    if len(configs) == 1:  # the whole file; several have a line between them that says whose is whose
        return Answer(summary, data, configs[0].text.splitlines())
    texts = [f"# {config.agent}: {config.path}\n{config.text}".rstrip("\n") for config in configs]
    return Answer(summary, data, "\n\n".join(texts).splitlines())


def answer_doctor(options: Options) -> Answer:
    """Tell what this machine can guard, and what is missing.

    The sandbox uses whatever the system offers; each layer that is not there is named with its reason. The files of
    SKILLYARD_HOME are checked too, and nothing is changed.
    """
    with open_project(ends_with_process=True) as project:
        found = list(diagnose(project))
    bad = [each for each in found if each.needed and not each.ok]
    missing = ", ".join(each.part for each in bad)
    failure: SkillError | None = None
    if bad and all(each.is_state for each in bad):
        failure = StateDamaged(bad[0].detail)
    elif bad:
        failure = SandboxUnavailable(Message("missing: {missing}", missing=missing), missing=missing)
    rows = [
        (label(each.part, options.lang), Message("NO") if each in bad else yes_or_no(each.ok), each.detail)
        for each in found
    ]
    summary = Message("{total} things looked at: {bad} missing", total=len(found), bad=len(bad))
    if any(each.is_state for each in bad):
        summary = Message("{total} things looked at: {bad} with a problem", total=len(found), bad=len(bad))
    data: dict[str, Json] = {"findings": [fields_of(each, "part", "ok", "detail") for each in found]}
    return Answer(summary, data, Table(("part", "ok", "detail"), rows), failure=failure)


def bin_arguments(parser: Parser) -> None:
    parser.set_defaults(answer=answer_bin)


@takes("script", " | ".join(SCRIPTS), choices=SCRIPTS, metavar="SCRIPT")
@takes("args", "the script's own words", nargs=argparse.REMAINDER)
def answer_bin(options: Options) -> None:
    """Run a script of bin/ without its file, for a Python that has no library.

    The script prints one result in two lines, as it does for the worker; options such as --json are not its own.

    examples:
      skillyard bin skill_manager list
      skillyard bin skill_scanner scan
    """
    importlib.import_module(f"skillyard.faces.bin.{options.script}").main(options.args)
