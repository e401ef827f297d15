"""`skillyard init --mcp`: shows what each agent must read to start our server; writes it where the person says yes."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from skillyard.core.child_process import own_command
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer
from skillyard.faces.present import Lines, Page, Table
from skillyard.install.mcp_config import AgentConfig, EntryState, make_config, write
from skillyard.trust.grant_rules import refuse_inside_agents

_SHOWN = Message("configuration for {count} agents; nothing was written")
_WRITTEN = Message("{written} files written, for {count} agents")
_QUESTION = Message("Put this into {path}, for {agent}?")
_NOTES = {
    EntryState.MISSING: Message("not written: paste it yourself"),
    EntryState.KEPT: Message("was there already"),
    EntryState.DIFFERS: Message("another entry of this name is there; left as it is"),
    EntryState.UNREADABLE: Message("the file has comments, or is not what it should be: paste it yourself"),
}


def answer(root: Path, agents: Sequence[str], lang: Lang, *, yes: bool, quiet: bool) -> Answer:
    home = os.environ.get("SKILLYARD_HOME")
    env = {"SKILLYARD_HOME": str(Path(home).absolute())} if home else {}
    configs = [make_config(root, agent, own_command(), env) for agent in agents]
    asks = on_terminal() and not quiet
    if yes or asks:
        refuse_inside_agents()
        configs = [_settled(root, config, lang, yes=yes) for config in configs]
    written = sum(config.entry is EntryState.WRITTEN for config in configs)
    files: list[Json] = [
        {"agent": config.agent, "path": config.path, "text": config.text, "entry": str(config.entry)}
        for config in configs
    ]
    return Answer(
        summary=_WRITTEN if written else _SHOWN,
        words={"count": len(configs), "written": written},
        data={"root": str(root), "files": files},
        page=_table(configs, lang) if yes or asks else _texts(configs),
    )


def _settled(root: Path, config: AgentConfig, lang: Lang, *, yes: bool) -> AgentConfig:
    if config.entry is not EntryState.MISSING:
        return config
    if not yes:
        sys.stderr.write(f"\n{config.text}\n")
        if not confirm(_QUESTION.render(lang, path=config.path, agent=config.agent)):
            return config
    return write(root, config)


def _table(configs: Sequence[AgentConfig], lang: Lang) -> Page:
    rows = [(str(config.entry), config.agent, config.path, _note(config, lang)) for config in configs]
    return Table(columns=("what", "agent", "path", "note"), rows=rows)


def _note(config: AgentConfig, lang: Lang) -> str:
    note = _NOTES.get(config.entry)
    return note.render(lang) if note else ""


def _texts(configs: Sequence[AgentConfig]) -> Page:
    """One by itself is the whole file; several have a line between them that says whose is whose."""
    if len(configs) == 1:
        return Lines(configs[0].text.splitlines())
    lines: list[str] = []
    for config in configs:
        lines += [f"# {config.agent}: {config.path}", *config.text.splitlines(), ""]
    return Lines(lines[:-1])
