"""Questions to the person at the terminal. Asked on stderr, so that stdout stays the result."""

import sys


def on_terminal() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str | None:
    """The answer, or None where the person has left."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def confirm(question: str) -> bool:
    """Nothing but a clear yes is one."""
    answer = ask(f"{question} [y/N] ")
    return answer is not None and answer.strip().lower() in {"y", "yes", "是", "好"}
