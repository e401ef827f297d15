"""Asks the real agents which skills they see, in a folder and with the user's own configuration.

Covered: no model is called. Claude Code is asked for what it answers by itself, Codex and OpenCode have a command for
it; and whatever else they would contact ends at a port of this machine that nobody listens on. No hooks, MCP servers
or plugins of the project are started. The whole process tree is gone afterwards.
Not covered: the files that the agents keep for themselves in the user's home (and OpenCode in `.opencode/`).
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from uuid import uuid4

from skillyard.backends.programs import PROGRAMS, locate
from skillyard.core.errors import RuntimeFailed, Timeout
from skillyard.core.messages import Message

SECONDS: Final = 60.0
_MARK: Final = "SKILLYARD_SIGHT"
#: These would lead Claude Code to a model by another way than the address that we give it.
_OTHER_WAYS: Final = frozenset({"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"})
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_STDERR_CHARACTERS: Final = 200
_ROOT: Final = re.compile(r"^- `(r\d+)` = `(.*)`$", re.MULTILINE)
_LISTED: Final = re.compile(r"^- (.+?): .*\(file: (.+)\)$", re.MULTILINE)


class Sight(NamedTuple):
    """One skill that an agent listed. Claude Code tells no path, but whose skill it is: "user" or "project"."""

    name: str
    path: str = ""
    owner: str = ""


class _Question(NamedTuple):
    argv: tuple[str, ...]
    stdin: str
    env: Mapping[str, str]
    read: Callable[[str], list[Sight]]


def skills_seen(backend: str, folder: Path, env: Mapping[str, str], seconds: float = SECONDS) -> tuple[Sight, ...]:
    """AgentNotInstalled, Timeout, or RuntimeFailed where it answers something else than we know."""
    program = locate(PROGRAMS[backend], env)
    with _dead_end() as url:
        question = _QUESTIONS[backend](url)
        kept = {name: value for name, value in env.items() if name not in _OTHER_WAYS}
        proxies = {name: url for proxy in _PROXIES for name in (proxy, proxy.lower())}
        whole = {**kept, **proxies, "NO_PROXY": "", "no_proxy": "", "PWD": str(folder), **question.env}
        said, complaint = _ask([str(program), *question.argv], question.stdin, folder, whole, seconds, backend)
    try:
        return tuple(question.read(said))
    except (ValueError, KeyError, TypeError, AttributeError):
        told = " ".join(complaint.split())[:_STDERR_CHARACTERS]
        raise RuntimeFailed(
            Message("{program} did not tell its skills{told}", program=program, told=f": {told}" if told else "")
        ) from None


@contextmanager
def _dead_end() -> Iterator[str]:
    """A port that is ours and that we never listen on: whoever connects is refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def _claude_code(url: str) -> _Question:
    """/cost is answered without a model; before it comes the event that lists the skills."""
    asked = (
        {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}},
        {"type": "user", "message": {"role": "user", "content": "/cost"}},
    )
    address = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
    argv = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--strict-mcp-config")
    settings = json.dumps({"disableAllHooks": True, "env": address})
    quiet = (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_AUTOUPDATER",
    )
    return _Question(
        argv=(*argv, "--no-session-persistence", "--settings", settings),
        stdin="".join(f"{json.dumps(line)}\n" for line in asked),
        env={**address, **dict.fromkeys(quiet, "1"), "CLAUDE_CODE_MAX_RETRIES": "0"},
        read=_read_claude_code,
    )


def _read_claude_code(said: str) -> list[Sight]:
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (init,) = (event for event in events if event.get("subtype") == "init")
    commands = [
        command
        for event in events
        if event.get("type") == "control_response"
        for command in event["response"]["response"]["commands"]
    ]
    owners = {name: _owner(command) for command in commands for name in _names(command)}
    return [Sight(name, owner=owners.get(name, "")) for name in init["skills"]]


def _names(command: Mapping[str, Any]) -> list[str]:
    """A skill's own name, and its folder's where that is another."""
    return [command["name"], *command.get("aliases", ())]


def _owner(command: Mapping[str, Any]) -> str:
    found = re.search(r"\((user|project)\)$", command["description"])
    return found[1] if found else ""


def _codex(_: str) -> _Question:
    quiet = ("-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false")
    return _Question(argv=(*quiet, "debug", "prompt-input", "hi"), stdin="", env={}, read=_read_codex)


def _read_codex(said: str) -> list[Sight]:
    texts = [part["text"] for item in json.loads(said) for part in item.get("content", ()) if "text" in part]
    listed = "\n".join(text for text in texts if text.startswith("<skills_instructions>"))
    roots = dict(_ROOT.findall(listed))
    found: list[Sight] = []
    for name, path in _LISTED.findall(listed):
        first, _, rest = path.partition("/")
        found.append(Sight(name, f"{roots[first]}/{rest}" if first in roots else path))
    return found


def _opencode(_: str) -> _Question:
    off = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE")
    env = {**{f"OPENCODE_DISABLE_{what}": "1" for what in off}, "OPENCODE_PURE": "1"}
    return _Question(argv=("debug", "skill"), stdin="", env=env, read=_read_opencode)


def _read_opencode(said: str) -> list[Sight]:
    return [Sight(skill["name"], skill["location"]) for skill in json.loads(said)]


_QUESTIONS: Final[Mapping[str, Callable[[str], _Question]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
}


def _ask(
    argv: Sequence[str], stdin: str, folder: Path, env: Mapping[str, str], seconds: float, backend: str
) -> tuple[str, str]:
    """What it wrote on stdout and stderr: into files, because a child that it leaves behind would hold a pipe open."""
    mark = uuid4().hex
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        asked.write(stdin.encode())
        asked.seek(0)
        try:
            process = subprocess.Popen(
                argv, cwd=folder, env={**env, _MARK: mark}, stdin=asked, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            raise RuntimeFailed(
                Message("{argv} cannot be started: {strerror}", argv=argv[0], strerror=error.strerror)
            ) from None
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Timeout(backend, seconds, seconds, "backend") from None
        finally:
            _end(process, mark)
        return _text(out), _text(err)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """The group, and on Linux whoever left it: they all carry the mark in their environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while sys.platform == "linux" and (left := _marked(mark)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found
