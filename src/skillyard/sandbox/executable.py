"""Starts the program itself, with its three streams, in a session of its own and with the usual signals."""

import os
import signal
from typing import Final, NoReturn

Streams = tuple[int, int, int]

#: Python ignores some of these, and our own processes others; a program expects none of that.
_RESTORED: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
)


def find_program(name: str, path: str) -> str:
    """As a shell finds it; a name with a slash is a path."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, f"no such program: {name}")


def spawn(argv: tuple[str, ...], env: dict[str, str], streams: Streams) -> int:
    """Start it beside us, without copying ourselves."""
    return os.posix_spawn(
        find_program(argv[0], env.get("PATH", os.defpath)),
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(streams)],
        setsid=True,
        setsigdef=_RESTORED,
    )


def become(argv: tuple[str, ...], env: dict[str, str], streams: Streams) -> NoReturn:
    """Turn this process into it."""
    os.setsid()
    for which in _RESTORED:
        signal.signal(which, signal.SIG_DFL)
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    os.execve(find_program(argv[0], env.get("PATH", os.defpath)), argv, env)  # noqa: S606
