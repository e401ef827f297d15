"""Questions to the person at the terminal. Asked on stderr, so that stdout stays the result."""

import os
import sys
from collections.abc import Mapping

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.present import printable


def on_terminal() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str | None:
    """The answer, or None where the person has left. Whatever the question quotes, it looks like what it is."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def confirm(question: str) -> bool:
    """Nothing but a clear yes is one."""
    answer = ask(f"{question} [y/N] ")
    return answer is not None and answer.strip().lower() in {"y", "yes", "是", "好"}


def require_yes(question: str, refused: Message, *, accepted: bool, details: Mapping[str, Json] | None = None) -> None:
    """Raise InvalidArgs unless an option already said yes, or a person at the terminal does."""
    if not accepted and not (on_terminal() and confirm(question)):
        raise InvalidArgs(refused, details=details)


def ask_key(question: str, keys: str) -> str:
    """One key, without Enter, of those that count; nothing where the person has left."""
    import termios  # noqa: PLC0415  (only a terminal has keys)
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # before we ask, and without losing what was typed ahead
        sys.stderr.write(question)
        sys.stderr.flush()
        key = ""
        while key not in set(keys):
            typed = os.read(sys.stdin.fileno(), 1)
            if not typed or typed == b"\x04":
                key = ""
                break
            key = typed.decode("ascii", "replace").lower()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    sys.stderr.write(f"{key}\n")
    return key
