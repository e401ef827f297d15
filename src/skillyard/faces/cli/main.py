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

#: What people type who know it from another tool, and what it is here.
_MEANT = {
    **dict.fromkeys(("install", "i", "get", "fetch", "download", "import"), "add"),
    **dict.fromkeys(("uninstall", "rm", "delete", "del", "erase"), "remove"),
    **dict.fromkeys(("log", "logs", "history", "results", "output", "ps", "status", "st"), "runs"),
    **dict.fromkeys(("schedule", "schedules", "cron", "queue", "enqueue", "at"), "jobs add"),
    **dict.fromkeys(("upgrade", "pull", "outdated"), "update"),
    **dict.fromkeys(("ls", "skills", "all"), "list"),
    **dict.fromkeys(("grep", "lookup"), "search"),
    **dict.fromkeys(("info", "view", "cat", "describe", "inspect", "get-skill"), "show"),
    **dict.fromkeys(("exec", "execute", "start", "call", "invoke", "use"), "run"),
    **dict.fromkeys(("create", "make", "scaffold", "generate", "template"), "new"),
    **dict.fromkeys(("lint", "format"), "validate"),
    **dict.fromkeys(("test", "try", "probe"), "check"),
    **dict.fromkeys(("audit", "security", "vet"), "scan"),
    **dict.fromkeys(("diff", "undo", "apply", "discard"), "changes"),
    **dict.fromkeys(("allow", "permit", "approve"), "grant"),
    **dict.fromkeys(("deny", "forbid", "untrust"), "revoke"),
    **dict.fromkeys(("workflow", "workflows", "flows", "pipeline"), "flow"),
    **dict.fromkeys(("roles", "agents"), "role"),
    **dict.fromkeys(("backends", "claude", "codex", "opencode"), "backend"),
    **dict.fromkeys(("ask", "prompt", "chat", "send"), "dispatch"),
    **dict.fromkeys(("daemon",), "service"),
    **dict.fromkeys(("enable",), "activate"),
    **dict.fromkeys(("disable",), "deactivate"),
    **dict.fromkeys(("health", "diagnose", "debug"), "doctor"),
    **dict.fromkeys(("setup", "demo", "examples", "tutorial"), "init"),
    **dict.fromkeys(("freeze", "ci", "sync-lock"), "restore"),
    **dict.fromkeys(("packages", "venv", "deps", "environment"), "env"),
    **dict.fromkeys(("serve", "server"), "mcp"),
}
#: Options of ours that may stand before the command, with whether a value follows.
_BEFORE = {"--json": False, "--ascii": False, "--raw": False, "--lang": True, "--format": True}

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
    ours, (name, *rest) = _split(words)
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:  # it can be neither kept nor shown
            _refuse(Message("an argument is not UTF-8: {word!a}", word=word))
    if name == "help" and rest[:1]:
        name, *rest = rest[0].removeprefix("@") if rest[0] in COMMANDS else rest[0], *rest[1:], "--help"
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(help_text())
    elif name in {"-V", "--version", "version"}:
        sys.stdout.write(f"skillyard {__version__}\n")
    elif name in COMMANDS:
        options = parser_of(name).parse_args([*ours, *rest])
        options.answer(options)
    else:
        _refuse(Message("no command {name!r}{meant}", name=name, meant=_meant(name, rest)))


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of ours that stand before the command, then the command with its words."""
    left = list(words)
    ours = list[str]()
    while left and (option := left[0].partition("="))[0] in _BEFORE:
        count = 2 if _BEFORE[option[0]] and not option[1] else 1
        ours += left[:count]
        del left[:count]
    return ours, left or ["--help"]


def _meant(name: str, rest: Sequence[str]) -> Message | str:
    """Return a question for what was meant: by its meaning, else by its letters."""
    from difflib import get_close_matches

    if name.startswith("@"):
        return Message("; did you mean `{command}`?", command=" ".join(["skillyard run", name, *rest]))
    if name.startswith("-"):
        return Message("; options of a command stand after it, such as `skillyard list --json`")
    if name in _MEANT:
        return Message("; did you mean `{command}`?", command=f"skillyard {_MEANT[name]}")
    close = get_close_matches(name, COMMANDS, n=1) or get_close_matches(name, _MEANT, n=1, cutoff=0.8)
    return (
        Message("; did you mean `{command}`?", command=f"skillyard {_MEANT.get(close[0], close[0])}") if close else ""
    )


def _refuse(why: Message) -> NoReturn:
    Parser(prog="skillyard", usage="skillyard COMMAND …").error(why)
