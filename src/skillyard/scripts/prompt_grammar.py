"""The prompt grammar of Task: `执行 @name [args]` for a skill, `执行 python bin/<script> [args]` for the worker.

Words are split like a shell splits them, and nothing more: no variables, no globs, no substitutions. What is outside
the grammar raises InvalidArgs with the usage; it is never guessed. The worker takes one script on each line, with
`>/dev/null`, `2>/dev/null` and `2>&1`; `-c`, `-m` and here-documents are refused: it runs scripts that exist.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.files import exists as path_exists
from skillyard.catalog.files import expand_home, is_folder
from skillyard.core.errors import InvalidArgs, MultiStep, PermissionDenied
from skillyard.core.messages import Message
from skillyard.core.result import Request, split_name
from skillyard.core.shell_words import Word, split, split_lines

if TYPE_CHECKING:
    from skillyard.sandbox.launch import Exit

USAGE = "执行 @<name> [args…] · run @<name> [args…] · @<name> [args…]"
SCRIPT_USAGE = "执行 python bin/<script> [args…] · run python bin/<script> [args…], one on each line"
VERBS = frozenset({"执行", "运行", "run"})
_ARCHIVE = re.compile(r"\.(?:skill|zip|tar|tgz|tar\.gz)(?:[@#:]|$)", re.IGNORECASE)
_FIRST = re.compile("[@#:]")
_PYTHONS = frozenset({"python", "python3"})
_REDIRECTION = re.compile(r"([0-9&]?)(>>?)(.*)", re.DOTALL)
#: Such a word alone is a redirection, a pipe or the end of a command.
_PIPED = re.compile(r"[0-9&]?>>?(?:&[0-9]|[\w./~-]*)|<|[|&;]{1,2}")
_SHELL = re.compile(r"[|;<>]|&&|&\Z")
_SEPARATORS = ("&&", "||", ";", "；", "|", "然后", "then")


class Addressee(StrEnum):
    SKILLS = "skills"
    WORKER = "worker_agent"
    #: No prompt at all: words for an agent that understands them.
    BACKEND = "backend"


def addressee(text: str) -> Addressee:
    """By its first words alone, so that a prompt with a mistake in it is still one, and never handed to an agent."""
    words = text.split(maxsplit=3)
    has_verb = bool(words) and words[0] in VERBS
    first, second = (*words[1 if has_verb else 0 :], "", "")[:2]
    if first.startswith("TaskOutput") or (first.startswith("@") and len(first) > 1):
        return Addressee.SKILLS
    if first in _PYTHONS and (has_verb or second.startswith(("bin/", "./bin/"))):
        return Addressee.WORKER
    return Addressee.BACKEND


def parse_prompt(text: str, exists: Callable[[str], bool]) -> Request:
    """The one skill that a prompt calls. `exists` tells whether a name is a skill's: then a second one is a step."""
    _refuse_task_output(text)
    words = _without_verb(split(text))
    if not words or not _is_name(words[0]):
        raise InvalidArgs(Message("not a prompt for a skill; write: {usage}", usage=USAGE), details={"usage": USAGE})
    if second := _second_step(words, exists):
        workflow = _as_workflow(_calls(words, exists))
        raise MultiStep(f"one call, one skill: {second!r} is a second step", details={"workflow": workflow})
    name, script = split_name(words[0].text)
    shell_words = tuple(word.text for word in words[1:] if not word.quoted and _PIPED.fullmatch(word.text))
    return Request(name, tuple(word.text for word in words[1:]), script=script, shell_words=shell_words)


def _is_name(word: Word) -> bool:
    """A name with spaces is quoted or escaped after its `@`: `@"my skill"`."""
    return not word.starts_quoted and word.text.startswith("@") and len(word.text) > 1


def _refuse_task_output(text: str) -> None:
    if text.lstrip().startswith("TaskOutput"):
        raise InvalidArgs(Message("results carry no task id: the result was in the return value of Task"))


def _without_verb(words: Sequence[Word]) -> Sequence[Word]:
    return words[1:] if words and not words[0].quoted and words[0].text in VERBS else words


def may_name_source(text: str, cwd: Path) -> bool:
    """Whether what was typed to `run` may be `SOURCE[@skill][#ref][:program]`; cheap, and no word with `@` first is.

    A folder is none: what is on the disk is run as it is. A path that is not there is none either.
    """
    if text.startswith("@") or not ("/" in text or _ARCHIVE.search(text)):
        return False
    name = split_name(text)[0]
    folder = cwd / expand_home(name)
    if is_folder(folder):
        return (folder / "HEAD").is_file() and is_folder(folder / "objects")
    is_path = text.startswith(("./", "../", "/", "~/"))
    return not is_path or path_exists(cwd / expand_home(_FIRST.split(text)[0]))


def _second_step(words: Sequence[Word], exists: Callable[[str], bool]) -> str:
    """Return the word that starts a second call, or ""."""
    for word, following in zip(words[1:], (*words[2:], Word("")), strict=False):
        if _is_name(word) and exists(split_name(word.text)[0]):
            return word.text
        if word.quoted:
            continue
        if word.text.endswith(_SEPARATORS) and _starts_a_call(following):
            return following.text
        if any(separator + "@" in word.text for separator in _SEPARATORS):
            return word.text
    return ""


def _starts_a_call(word: Word) -> bool:
    return _is_name(word) or (not word.quoted and word.text in VERBS)


def _calls(words: Sequence[Word], exists: Callable[[str], bool]) -> list[list[str]]:
    """The calls that the words make, each with its skill first; verbs and what stands between two are left out."""
    signs = "|".join(re.escape(sign) for sign in _SEPARATORS if not sign.isascii() or not sign.isalpha())
    pieces: list[Word] = []
    for word in words:
        # `x;@b` and `x;` are a value, a separator and a call.
        texts = re.split(f"({signs})(?=@|$|(?:执行|运行|run)$)", word.text) if not word.quoted else []
        pieces += [word] if word.quoted or word.text in _SEPARATORS else [Word(text) for text in texts if text]
    calls: list[list[str]] = []
    between = {*_SEPARATORS, *VERBS}
    for position, piece in enumerate(pieces):
        is_new = _is_name(piece) and (pieces[position - 1].text in between or exists(split_name(piece.text)[0]))
        if position == 0 or is_new:
            calls.append([piece.text])
            continue
        rest = (word for word in pieces[position + 1 :] if word.quoted or word.text not in between)
        if piece.quoted or piece.text not in between or not _starts_a_call(next(rest, Word(""))):
            calls[-1].append(piece.text)
    return calls


def _as_workflow(calls: Sequence[Sequence[str]]) -> str:
    """A workflow.yaml that runs as it stands: one line, so that it can be read in a result too."""
    from json import dumps  # noqa: PLC0415  (only an error needs it)

    steps = []
    for number, (skill, *args) in enumerate(calls, 1):
        words = ", ".join(dumps(word.replace("${", "$${"), ensure_ascii=False) for word in args)
        more = f", args: [{words}]" if args else ""
        steps.append(f"{{id: step{number}, skill: {dumps(skill, ensure_ascii=False)}{more}}}")
    return f"steps: [{', '.join(steps)}]"


class ScriptCall(NamedTuple):
    script: str
    args: tuple[str, ...] = ()
    drop_stdout: bool = False
    drop_stderr: bool = False
    join_stderr: bool = False

    def redirected(self, ended: "Exit") -> "Exit":
        """Return the exit with what of its output the call lets through."""
        stdout, count = (b"", 0) if self.drop_stdout else (ended.stdout, ended.stdout_bytes)
        joined, stderr = (ended.stderr, b"") if self.join_stderr else (b"", ended.stderr)
        shown = b"" if self.drop_stderr else stderr
        return ended._replace(stdout=stdout + joined, stdout_bytes=count + len(joined), stderr=shown)


def parse_script_calls(prompt: str) -> tuple[ScriptCall, ...]:
    """Return the call on each line of a prompt. Raise InvalidArgs if a line is none."""
    _refuse_task_output(prompt)
    return tuple(_parse_script_call(_without_verb(line)) for line in split_lines(prompt) or [[]])


def _parse_script_call(words: Sequence[Word]) -> ScriptCall:
    details, usage = {"usage": SCRIPT_USAGE}, SCRIPT_USAGE
    if len(words) < 2 or words[0].text not in _PYTHONS:
        line = " ".join(word.text for word in words)
        msg = Message("not a prompt for the worker: {text!r}; write: {usage}", text=line[:80], usage=usage)
        raise InvalidArgs(msg, details=details)
    script = words[1].text
    _refuse_shell(words[1])
    if script.startswith("-"):
        msg = Message("python {script} runs code, not a script of bin/: {usage}", script=script, usage=usage)
        raise InvalidArgs(msg, details=details)
    if not script.startswith(("bin/", "./bin/")):
        raise PermissionDenied(Message("{script} is not in bin/", script=script))
    call, rest = ScriptCall(script.removeprefix("./")), iter(words[2:])
    for word in rest:
        if not word.quoted and (found := _REDIRECTION.fullmatch(word.text)):
            call = _redirect(call, found[1], found[3] or next(rest, Word("")).text)
        else:
            _refuse_shell(word)
            call = call._replace(args=(*call.args, word.text))
    return call


def _refuse_shell(word: Word) -> None:
    if not word.quoted and _SHELL.search(word.text):
        text = word.text
        raise InvalidArgs(Message("{text!r} needs a shell; write one script on each line, quote the rest", text=text))


def _redirect(call: ScriptCall, stream: str, target: str) -> ScriptCall:
    if target.lower() in {"nul", "nul:"}:
        raise InvalidArgs(Message("`> nul` makes a file named nul here: write > /dev/null"))
    if stream == "2" and target == "&1":
        return call._replace(join_stderr=not call.drop_stdout, drop_stderr=call.drop_stdout)  # where stdout leads now
    if target != "/dev/null":
        msg = Message("redirect only to /dev/null, not {target!r}; the result is the return value", target=target)
        raise InvalidArgs(msg)
    drops_stdout, drops_stderr = call.drop_stdout or stream != "2", call.drop_stderr or stream in {"2", "&"}
    joins = call.join_stderr and not drops_stderr
    return call._replace(drop_stdout=drops_stdout, drop_stderr=drops_stderr, join_stderr=joins)
