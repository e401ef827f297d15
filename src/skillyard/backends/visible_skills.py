"""Ask a backend which skills it sees, in a folder and with the user's own configuration.

Covered: no model is called, and every connection goes to a local port where nobody listens. No hooks, MCP servers or
plugins of the project are started. The whole process tree is gone afterwards.
Not covered: the files that a backend keeps for itself in the user's home (and OpenCode in `.opencode/`).
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

from skillyard.backends.driver import VisibleSkill, locate
from skillyard.backends.registry import list_backends
from skillyard.core.errors import RuntimeFailed, Timeout
from skillyard.core.messages import Message

SECONDS: Final = 60.0
_MARK: Final = "SKILLYARD_VISIBLE_SKILLS"
#: With these Claude Code would ignore the address that we give it.
_OTHER_WAYS: Final = frozenset({"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"})
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_STDERR_CHARACTERS: Final = 200


def list_visible_skills(
    backend: str, folder: Path, env: Mapping[str, str], seconds: float = SECONDS
) -> tuple[VisibleSkill, ...]:
    """Raise AgentNotInstalled, Timeout, or RuntimeFailed if the answer has a form that we do not know."""
    known = list_backends()[backend]
    program = locate(known.program, env)
    with _closed_port() as url:
        question = known.skills_question(url)
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
def _closed_port() -> Iterator[str]:
    """A port that we hold and never listen on: every connection is refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def _ask(
    argv: Sequence[str], stdin: str, folder: Path, env: Mapping[str, str], seconds: float, backend: str
) -> tuple[str, str]:
    """Return stdout and stderr. They are files, because a child that is left behind would hold a pipe open."""
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
    """Kill the group and, on Linux, the processes that left it: all have the mark in their environment."""
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
