"""Typical mistakes and broken environments: what was typed, in which project.

Each is shown to a person in both languages; what they see stands in `expected/`, one file for each group and language.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Mistake(NamedTuple):
    """One thing that goes wrong. `prepare` breaks the project or its home before."""

    command: str
    prepare: Callable[[Path, Path], None] | None = None
    env: tuple[tuple[str, str], ...] = ()


def _write(name: str, text: str | bytes) -> Callable[[Path, Path], None]:
    def write(project: Path, _: Path) -> None:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def _skill(head: str, body: str = "Text.") -> Callable[[Path, Path], None]:
    return _write(".claude/skills/broken/SKILL.md", f"---\n{head}\n---\n\n{body}\n")


def _program(text: str, params: str = "") -> Callable[[Path, Path], None]:
    def write(project: Path, home: Path) -> None:
        _skill(f"name: broken\ndescription: It fails.\ncommand: python p.py {params}")(project, home)
        _write(".claude/skills/broken/p.py", text)(project, home)

    return write


def _home(name: str, text: str) -> Callable[[Path, Path], None]:
    def write(_: Path, home: Path) -> None:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)

    return write


#: By what they are about, in the order of the files.
GROUPS: dict[str, tuple[Mistake, ...]] = {
    "commands": (
        *(
            Mistake(command)
            for command in (
                "install word-count",
                "uninstall word-count",
                "logs",
                "schedule",
                "demo",
                "lst",
                "ls",
                "serch markdown",
                "@word-count notes.txt",
                "exec @word-count",
                "upgrade",
                "status",
                "test word-count",
                "workflow run x",
                "agents",
                "cron add",
                "config",
                "frobnicate",
                "--verbose list",
                "--lang fr list",
                "--format yaml list",
                "list extra",
                "list --jsn",
                "list --limit 3",
                "help frobnicate",
                "help run extra",
                "runs shw",
                "jobs lits",
                "flow start x",
                "role add x",
                "backend login",
                "''",
            )
        ),
    ),
    "names": (
        *(
            Mistake(command)
            for command in (
                "run",
                "run @",
                "run wordcount notes.txt",
                "run @word_count notes.txt",
                "run @wordcounter notes.txt",
                "run @nobody",
                "run @word-count:missing.py",
                "run ./missing",
                "run notes.txt",
                "run missing.zip",
                "run nobody/nothing@",
                "show",
                "show @nobody",
                "show word-cout",
                "explain nobody",
                "search",
                "search qqqqqq",
                "check @nobody",
                "scan nobody",
                "validate",
                "validate missing",
                "validate notes.txt",
                "runs show",
                "runs show zzz",
                "runs tail zzz",
                "changes zzz",
                "changes apply discard",
                "env @nobody",
                "grant @nobody network",
                "activate @nobody",
                "edit read missing.txt",
            )
        ),
    ),
    "params": (
        *(
            Mistake(command)
            for command in (
                "run @word-count",
                "run --non-interactive @word-count",
                "run @word-count notes.txt extra",
                "run @word-count --fil notes.txt",
                "run @word-count missing.txt",
                "run @word-count -- -x",
                "run @word-count -x",
                "run @word-count notes.txt --timeout soon",
                "run @word-count notes.txt --timeout -1",
                "run @word-count notes.txt --check-exit 999",
                "run @word-count notes.txt --model haiku",
                "run @word-count notes.txt --to nobody",
                "run @typed many red",
                "run @typed 3 purple",
                "run @typed",
                "run @note extra",
                "runs --limit 0",
                "runs --limit many",
                "search x --limit -3",
                "task",
                "task nobody x 'run @note'",
                "task skills x 'please count the words'",
                "task skills x 'run @note && run @note'",
                "task skills x 'run @nobody'",
                "task worker_agent x '执行 python bin/missing.py'",
                "task worker_agent x '执行 python -c 1'",
            )
        ),
    ),
    "broken skills": (
        Mistake("run @broken", _write(".claude/skills/broken/SKILL.md", "no frontmatter")),
        Mistake("run @broken", _write(".claude/skills/broken/SKILL.md", "")),
        Mistake("run @broken", _write(".claude/skills/broken/SKILL.md", b"---\nname: \xff\xfe\n---\n")),
        Mistake("validate .claude/skills/broken", _skill("name: broken\ndescription: [x")),
        Mistake("validate .claude/skills/broken", _skill("name: Broken Skill\ndescription:")),
        Mistake("run @broken", _skill("name: broken\ndescription: x\ncommand: python p.py | sort")),
        Mistake("run @broken", _skill("name: broken\ndescription: x\ncommand: python missing.py")),
        Mistake("run @broken", _skill("name: broken\ndescription: x\ncommand: no-such-program --x")),
        Mistake("run @broken", _skill('name: broken\ndescription: x\ncommand: python "p.py')),
        Mistake("run @broken", _program("1/0\n")),
        Mistake("run @broken", _program("import sys; sys.exit(3)\n")),
        Mistake("run @broken", _program("import sys; sys.exit('the key is missing')\n")),
        Mistake("run @broken", _program("import no_such_module\n")),
        Mistake("run @broken", _program("print('half'\n")),
        Mistake("run @broken", _program("open('/etc/shadow-of-nothing')\n")),
        Mistake("run @broken", _program("open('README.md', 'w').write('x'); raise SystemExit('after all')\n")),
        Mistake("run @broken", _program("import os; os.kill(os.getpid(), 9)\n")),
        Mistake("run @broken --timeout 0.3", _program("import time; time.sleep(60)\n")),
        Mistake("run @broken", _program("import sys; print('usage: broken FILE', file=sys.stderr); sys.exit(2)\n")),
        Mistake("run @broken", _program('print(\'{"type": "NotGranted", "grant": "rm -rf"}\'); raise SystemExit(1)\n')),
        Mistake("check @broken", _program("raise SystemExit('no')\n")),
    ),
    "installing": (
        *(
            Mistake(command)
            for command in (
                "add",
                "add missing",
                "add notes.txt",
                "add ./empty",
                "add @word-count",
                "add ftp://example.org/x",
                "add http://127.0.0.1:9/skills.zip",
                "add .claude/skills/word-count",
                "update",
                "update nobody",
                "remove",
                "remove nobody",
                "remove word-count",
                "restore",
                "verify",
                "link",
                "unlink",
                "review",
                "review decide x",
                "new",
                "new 'Bad Name'",
                "new word-count",
                "new fresh --kind nothing",
                "role new ..",
                "role show nobody",
            )
        ),
        Mistake("add bad.zip", _write("bad.zip", "not a zip")),
        Mistake("restore", _write("skillyard.lock", "{broken")),
    ),
    "jobs and flows": (
        *(
            Mistake(command)
            for command in (
                "jobs add",
                "jobs add tomorrow @note",
                "jobs add '99 * * * *' @note",
                "jobs add 'every 0m' @note",
                "jobs add @daily @note --timezone Mars/Base",
                "jobs add @daily @nobody",
                "jobs add @daily",
                "jobs enqueue @note --retries -1",
                "jobs enqueue @word-count:x.py",
                "jobs show zzz",
                "jobs cancel zzz",
                "jobs run nothing",
                "jobs remove nothing",
                "jobs enqueue @note --to codex",
                "flow run missing",
                "flow show zzz",
                "flow resume zzz",
                "flow validate missing.yaml",
                "worker --queue",
                "dispatch",
                "dispatch hello --to nobody",
                "mcp --allow everything",
                "service install --now",
            )
        ),
        Mistake("flow run bad", _write("workflows/bad.yaml", "steps: nothing\n")),
        Mistake("flow run bad", _write("workflows/bad.yaml", "steps:\n  - {id: a, run: '@nobody'}\n")),
    ),
    "allowing": (
        *(
            Mistake(command)
            for command in (
                "grant",
                "grant @note",
                "grant @note nonsense",
                "grant @note network",
                "grant @note env:A=B",
                "revoke @note",
                "trust",
                "edit write ../x --content y",
                "init --mcp nobody",
                "init notes.txt",
                "bin nothing",
            )
        ),
    ),
    "environments": (
        Mistake("list", _write("skillyard.toml", "[broken")),
        Mistake("list", _write("skillyard.toml", "unknown = 1\n")),
        Mistake("list", _home("config.toml", "[broken")),
        Mistake("runs", _home("state.db", "this is no database")),
        Mistake("grants", _home("grants.json", "{broken")),
        Mistake("list", env=(("SKILLYARD_HOME", "/dev/null/x"),)),
        Mistake("run @note", env=(("SKILLYARD_HOME", "/dev/null/x"),)),
        Mistake("list", env=(("HOME", "relative"), ("SKILLYARD_HOME", "relative"))),
        Mistake("validate agents/broken", _write("agents/broken/agent.yaml", "name: [x\n")),
        Mistake("role validate broken", _write("agents/broken/agent.yaml", "name: [x\n")),
    ),
}
