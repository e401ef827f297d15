"""The worker's prompts: one `执行 python bin/<script> [args]` on each line.

`>/dev/null`, `2>/dev/null` and `2>&1` are honoured; everything else of a shell is refused with a hint, and so are `-c`,
`-m` and here-documents: the worker runs scripts that exist, never code that somebody made up.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.messages import Message
from skillyard.core.shell_words import Word, split

USAGE = "执行 python bin/<script> [args…] · run python bin/<script> [args…], one on each line"
VERBS = frozenset({"执行", "运行", "run"})
_PYTHONS = frozenset({"python", "python3"})
_REDIRECTION = re.compile(r"([0-9&]?)(>>?)(.*)", re.DOTALL)
_SHELL = re.compile(r"[|;<>]|&&|&\Z")


class Order(NamedTuple):
    """One script to run."""

    script: str
    args: tuple[str, ...] = ()
    drop_stdout: bool = False
    drop_stderr: bool = False
    join_stderr: bool = False


def parse_orders(prompt: str) -> tuple[Order, ...]:
    """Every line of a prompt; InvalidArgs says which one is none."""
    if prompt.lstrip().startswith("TaskOutput"):
        raise InvalidArgs(Message("results carry no task id: the result was in the return value of Task"))
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    if not lines:
        raise _not_an_order(prompt)
    return tuple(_parse(line) for line in lines)


def _parse(line: str) -> Order:
    words = split(line)
    if words and words[0].text in VERBS and not words[0].quoted:
        words = words[1:]
    if len(words) < 2 or words[0].text not in _PYTHONS:
        raise _not_an_order(line)
    script = words[1].text
    _refuse_shell(words[1])
    if script.startswith("-"):
        raise InvalidArgs(
            Message("python {script} runs code, not a script of bin/: {usage}", script=script, usage=USAGE),
            details={"usage": USAGE},
        )
    if not script.startswith(("bin/", "./bin/")):
        raise PermissionDenied(Message("{script} is not in bin/", script=script))
    return _with_redirections(Order(script.removeprefix("./")), words[2:])


def _with_redirections(order: Order, words: Sequence[Word]) -> Order:
    args: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.quoted:
            args.append(word.text)
            continue
        found = _REDIRECTION.fullmatch(word.text)
        if not found:
            _refuse_shell(word)
            args.append(word.text)
            continue
        target = found[3] or (rest.pop(0).text if rest else "")
        order = _redirected(order, found[1], target)
    return order._replace(args=tuple(args))


def _refuse_shell(word: Word) -> None:
    if not word.quoted and _SHELL.search(word.text):
        raise InvalidArgs(
            Message(
                "{text!r} needs a shell, and there is none: one script on each line, quote the rest", text=word.text
            )
        )


def _redirected(order: Order, stream: str, target: str) -> Order:
    if target.lower() in {"nul", "nul:"}:
        raise InvalidArgs(Message("`> nul` makes a file named nul here: write > /dev/null"))
    if stream == "2" and target == "&1":
        return order._replace(join_stderr=True)
    if target != "/dev/null":
        raise InvalidArgs(
            Message(
                "only /dev/null can be redirected to, not {target!r}; the result is in the return value", target=target
            )
        )
    if stream == "2":
        return order._replace(drop_stderr=True)
    return order._replace(drop_stdout=True, drop_stderr=order.drop_stderr or stream == "&")


def _not_an_order(text: str) -> InvalidArgs:
    return InvalidArgs(
        Message("not a prompt for the worker: {text!r}; write: {usage}", text=text[:80], usage=USAGE),
        details={"usage": USAGE},
    )
