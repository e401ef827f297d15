"""The backends by name: those that a module of this room defines as `BACKEND`, and ACP programs that the user names."""

import socket
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

import skillyard.backends
from skillyard.backends.acp import NamedAcpDriver
from skillyard.backends.driver import Driver, VisibleSkill
from skillyard.core.errors import RuntimeFailed, Timeout
from skillyard.core.messages import Message
from skillyard.sandbox.launch import Launch, make_sandbox


@cache
def list_backends() -> Mapping[str, type[Driver]]:
    """In alphabetical order, in which one is chosen if neither the caller nor the settings name one."""
    names = (module.name for module in iter_modules(skillyard.backends.__path__, "skillyard.backends."))
    found: list[type[Driver]] = [module.BACKEND for module in map(import_module, names) if hasattr(module, "BACKEND")]
    return {driver.name: driver for driver in sorted(found, key=lambda driver: driver.name)}


def make_drivers(env: Mapping[str, str], commands: Mapping[str, tuple[str, ...]] = {}) -> dict[str, Driver]:
    """`commands` are the user's ACP programs by name; none of them replaces a backend of ours."""
    drivers: dict[str, Driver] = {name: driver(env) for name, driver in list_backends().items()}
    for name, command in commands.items():
        drivers.setdefault(name, NamedAcpDriver(env, name, command))
    return drivers


_SECONDS: Final = 60.0
#: With these Claude Code would ignore the address that we give it.
_OTHER_WAYS: Final = frozenset({"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"})
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_STDERR_CHARACTERS: Final = 200


def list_visible_skills(
    backend: str, folder: Path, env: Mapping[str, str], seconds: float = _SECONDS
) -> tuple[VisibleSkill, ...]:
    """Ask a backend which skills it sees, in a folder and with the user's own configuration.

    Covered: no model is called, and every connection goes to a local port where nobody listens. No hooks, MCP servers
    or plugins of the project are started. The whole process tree is gone afterwards.
    Not covered: the files that a backend keeps for itself in the user's home (and OpenCode in `.opencode/`).
    Raise AgentNotInstalled, Timeout, or RuntimeFailed if the answer has a form that we do not know.
    """
    driver = list_backends()[backend](env)
    program = driver.locate()
    with socket.socket() as held, closing(make_sandbox()) as sandbox:
        held.bind(("127.0.0.1", 0))  # and nobody listens there: every connection is refused
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        question = driver.skills_question(url)
        kept = {name: value for name, value in env.items() if name not in _OTHER_WAYS}
        proxies = {name: url for proxy in _PROXIES for name in (proxy, proxy.lower())}
        whole = {**kept, **proxies, "NO_PROXY": "", "no_proxy": "", "PWD": str(folder), **question.env}
        argv = (str(program), *question.argv)
        try:
            done = sandbox(Launch(argv, folder, whole, question.stdin.encode(), seconds))
        except OSError as error:
            msg = Message("{argv} cannot be started: {strerror}", argv=program, strerror=error.strerror)
            raise RuntimeFailed(msg) from None
    if done.timed_out:
        raise Timeout(backend, seconds, seconds, "backend")
    try:
        return tuple(question.read(done.stdout.decode("utf-8", "replace")))
    except (ValueError, KeyError, TypeError, AttributeError):
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[:_STDERR_CHARACTERS]
        told = f": {words}" if words else ""
        raise RuntimeFailed(Message("{program} did not tell its skills{told}", program=program, told=told)) from None
