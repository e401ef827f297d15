"""The commands, each imported only when it runs."""

import importlib
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import NoReturn

from skillyard import __version__
from skillyard.core.messages import Lang, Message
from skillyard.faces.command import Parser, asked_lang, guarded, make_parser

#: By what a person wants to do, in the order of the help: the module of each command, and what `--help` says of it.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "find and read skills": {
        "list": ("find", "List the skills that can be used here."),
        "search": ("find", "Search the skills by name, description and tags."),
        "find": ("find", "Find skills on an MCP server that declares them, without fetching any of their files."),
        "show": ("find", "Show everything that is known of a skill."),
        "explain": ("find", "Explain a name: who answers to it here and in each agent, and why."),
        "sync": ("find", "Read the skill folders and say what changed."),
    },
    "run them": {
        "run": ("run", "Run a skill and print one result."),
        "task": ("run", "Dispatch a Task to an agent, as a Kernel does, and print one result."),
        "runs": ("runs", "Show what ran."),
        "changes": ("runs", "Show what runs changed in this project, and apply or discard it."),
        "mcp": ("mcp", "Serve the skills to an agent over MCP, on stdin and stdout."),
        "jobs": ("jobs", "Queue and schedule skills and tasks: list, add, run, cancel and retry their jobs."),
        "flow": ("flow", "Workflows: several skills, one after the other, that survive a crash."),
        "worker": ("worker", "Work off the jobs of this project, and fire what is scheduled."),
        "service": ("worker", "Keep the worker of this project alive, also after a reboot."),
        "env": ("grants", "Build the environment that a skill's programs need, after showing its packages."),
    },
    "hand them to agents": {
        "activate": ("agents", "Activate skills: from now on they go with every task for an agent."),
        "deactivate": ("agents", "Take skills out of what goes with a task."),
        "active": ("agents", "Show the active skills in the order in which they are handed over."),
        "dispatch": ("agents", "Hand a task with the active skills to an agent."),
        "backend": (
            "agents",
            "The agents: which are there, what they are doing, what they said; keep them warm, stop them.",
        ),
    },
    "write them": {
        "new": ("new", "Write a new skill that passes its own test at once."),
        "role": ("new", "Roles: agents/<role> with its own JSON skills, schedule, secrets and bounds."),
        "validate": ("check", "Check SKILL.md files: what is wrong, where, how bad, and what to do."),
        "check": ("check", "Check that a skill behaves as its kind must: every probe, in the sandbox."),
    },
    "install them": {
        "add": ("install", "Install skills from a folder, an archive, a git repository, the web or an MCP server."),
        "update": (
            "install",
            "Bring installed skills to what their sources have now, after telling what would change.",
        ),
        "remove": ("install", "Remove installed skills; files that you made or edited stay."),
        "restore": (
            "install",
            "Install exactly what skillyard.lock says, on this machine too, or bring back what is in the trash.",
        ),
        "verify": ("install", "Compare the installed skills with skillyard.lock: changed, missing and added files."),
        "link": ("install", "Make installed skills visible to Claude Code, Codex and OpenCode in their own folders."),
        "unlink": ("install", "Take back what `skillyard link` made, and only that."),
        "scan": ("check", "Scan skills for threats: what in them may harm you, where, and what to do."),
        "review": ("install", "Decide on skills that were held back: keep installs them, uninstall does not."),
    },
    "allow and forbid": {
        "grant": ("grants", "Allow a skill more than the rules give it: for this project, and for exactly its bytes."),
        "grants": ("grants", "Show what was granted in this project, and whether it still counts."),
        "revoke": ("grants", "Take back what was granted to a skill, or the trust in this project."),
        "trust": ("grants", "Trust what this project's own files ask for, after seeing the list."),
        "doctor": ("setup", "Tell what this machine can guard, and what is missing."),
    },
    "the project": {
        "init": ("setup", "Lay out a project: its folders, bin/ scripts and the agents that a Task reaches."),
        "edit": ("edit", "Edit a text file: atomically, in mybox/ and nowhere else unless you allow it."),
        "bin": ("setup", "Run a script of bin/ without its file, for a Python that has no library."),
    },
}
COMMANDS = {name: listed for group in GROUPS.values() for name, listed in group.items()}

_ABOUT = "Find, check and run agent skills, with one typed result."
_MORE = "`skillyard COMMAND --help` tells more about each; `skillyard --version` tells the version."
_HELP = """\
{usage}: skillyard COMMAND …

{about}

{commands}

{examples}:
  skillyard list
  skillyard search markdown
  skillyard run @markdown-converter README.md

{more}
"""


def parser_of(name: str) -> Parser:
    module, _ = COMMANDS[name]
    room = "skillyard.faces" if module == "edit" else "skillyard.faces.cli"  # `edit` is a script of bin/ too
    return make_parser(name, importlib.import_module(f"{room}.{module}"))


def help_text() -> str:
    say: Callable[[str], str] = str
    if asked_lang() is not Lang.EN:
        from skillyard.faces.translated_help import say
    width = max(map(len, COMMANDS)) + 2
    groups = [
        "\n".join([f"{say(title)}:", *(f"  {name:<{width}}{say(says)}" for name, (_, says) in group.items())])
        for title, group in GROUPS.items()
    ]
    words = {"usage": say("usage"), "examples": say("examples"), "about": say(_ABOUT), "more": say(_MORE)}
    return _HELP.format(commands="\n\n".join(groups), **words)


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it: what the stream lacks is no traceback
    guarded(_main, sys.argv[1:])


def _main(words: Sequence[str]) -> None:
    ours = [word for word in words[:1] if word in {"--json", "--ascii"}]
    name, rest = (words[len(ours) : len(ours) + 1] or ["--help"])[0], words[len(ours) + 1 :]
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:  # it can be neither kept nor shown
            _refuse(Message("an argument is not UTF-8: {word!a}", word=word))
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(help_text())
    elif name in {"-V", "--version", "version"}:
        sys.stdout.write(f"skillyard {__version__}\n")
    elif name in COMMANDS:
        options = parser_of(name).parse_args([*ours, *rest])
        options.answer(options)
    else:
        from difflib import get_close_matches

        close = get_close_matches(name, COMMANDS, n=1)
        meant = Message("; did you mean {name!r}?", name=close[0]) if close else ""
        _refuse(Message("no command {name!r}{meant}", name=name, meant=meant))


def _refuse(why: Message) -> NoReturn:
    Parser(prog="skillyard", usage="skillyard COMMAND …").error(why)
