"""Interrupts of a script, and who decides on them: rules, the person at the terminal, or a backend.

The file of an interrupt is data: it is read, checked and shown, and nothing in it is ever executed but a command of two
known forms. Whoever decides, a missing, broken or unknown answer is never "keep". See docs/spec/worker.md.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from skillyard.catalog.files import read_below
from skillyard.core.envelope import parse
from skillyard.core.errors import InterruptRefused, PermissionDenied, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json, check_value
from skillyard.install.threats.rule import ThreatLevel

MARK = "[INTERRUPT]"
FILE = "mybox/temp/langgraph_interrupt.json"
_MARKED = re.compile(r"^\s*\[INTERRUPT\]", re.MULTILINE)
_MAX_BYTES = 1_000_000
_KEEP = Message("{name}: keep or uninstall? ")
_SHORT = {"k": "keep", "u": "uninstall"}
_RESUME = re.compile(r"(?:python3? bin/[\w./-]+\.py|skillyard review resume)(?: [^\n\r\0;|&$`<>()\\\\]*)?")

#: (mtime, size, inode) of the file, to tell one that this run wrote from one that was there before.
Stamp = tuple[int, int, int] | None


class Interrupt(NamedTuple):
    """What waits for a decision, and how to go on."""

    skills: tuple[str, ...]
    resume_command: str
    #: Everything else the file says, for whoever decides.
    about: Mapping[str, Json]

    @property
    def severities(self) -> Mapping[str, Json]:
        """What the workflow says of each skill, if it says so."""
        said = self.about.get("severities")
        return said if isinstance(said, Mapping) else {}


def stamp_of(root: Path) -> Stamp:
    try:
        status = (root / FILE).lstat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read_interrupt(root: Path, before: Stamp, stdout: str, *, ours: bool = False, ok: bool = True) -> Interrupt | None:
    """Return the interrupt, or None if the script prints no mark. InterruptRefused if what it wrote is not valid.

    Any run can write in that folder. A script of `ours` says the digest of what it wrote, in the result that it prints
    after the mark, and nothing else counts. Unless the script is `ok`, or if the mark only stands inside a line, it is
    no error that there is no interrupt.
    """
    if MARK not in stdout:
        return None
    try:
        return _read(root, before, stdout, ours=ours)
    except InterruptRefused:
        if ok and _MARKED.search(stdout):
            raise
        return None


def _read(root: Path, before: Stamp, stdout: str, *, ours: bool) -> Interrupt:
    if (now := stamp_of(root)) in {None, before}:
        why = Message("{file} is not there") if now is None else Message("{file} was not written in this run")
        raise InterruptRefused(Message(why.template, file=FILE))
    try:
        content = read_below(root, FILE, _MAX_BYTES)
        if ours:
            told = parse(stdout.partition(f"{MARK}\n")[2]).meta.get("interrupt_digest")
            if hashlib.sha256(content).hexdigest() != told:
                raise InterruptRefused(Message("{file} is not what the script wrote", file=FILE))
        fields = json.loads(content)
        check_value(fields)
    except (OSError, ValueError, RecursionError, PermissionDenied) as error:
        raise InterruptRefused(Message("{file} cannot be read: {reason}", file=FILE, reason=error)) from None
    if not isinstance(fields, dict) or len(content) > _MAX_BYTES:
        raise InterruptRefused(Message("{file} is no JSON object, or too large", file=FILE))
    skills, command = fields.pop("interrupted_skills", None), fields.pop("resume_command", None)
    if not isinstance(skills, list) or not isinstance(command, str):
        raise InterruptRefused(Message("{file} needs interrupted_skills and resume_command", file=FILE))
    names = [skill.get("name") or skill.get("skill") if isinstance(skill, dict) else skill for skill in skills]
    known = tuple(name for name in names if name and isinstance(name, str) and name.isprintable())
    is_safe = bool(_RESUME.fullmatch(command)) and ".." not in command.split(" ", 2)[1]
    if not is_safe:
        raise InterruptRefused(Message("its resume_command is not allowed: {command}", command=command[:200]))
    if not 0 < len(names) == len(set(known)):
        raise InterruptRefused(Message("interrupted_skills must name each skill once"))
    return Interrupt(known, command, fields)


class Decision(StrEnum):
    KEEP = "keep"
    UNINSTALL = "uninstall"


class Decider(Protocol):
    """Decides on what it can; what it leaves out stays undecided. Never executes anything."""

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]: ...


def check_decisions(interrupt: Interrupt, answers: Mapping[str, Json]) -> dict[str, Decision]:
    """Return the decisions on known skills by known words, and nothing else."""
    given = {name: answers.get(name) for name in interrupt.skills}
    return {name: Decision(word) for name, word in given.items() if isinstance(word, str) and word in set(Decision)}


class Rules(NamedTuple):
    """Decides by the severity that the workflow gave each skill; one without a rule or severity stays undecided."""

    by_severity: Mapping[ThreatLevel, Decision]

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        rules = {level.name: decision for level, decision in self.by_severity.items()}
        named = {name: str(interrupt.severities.get(name, "")).upper() for name in interrupt.skills}
        return {name: rules[severity] for name, severity in named.items() if severity in rules}


#: What no install would have held back, whoever is there. Anything above waits for a person or a backend.
DEFAULT_RULES: Final = Rules(dict.fromkeys((ThreatLevel.SAFE, ThreatLevel.INFO, ThreatLevel.LOW), Decision.KEEP))


class InTurn(NamedTuple):
    """Asks each decider for what those before it left undecided."""

    deciders: Sequence[Decider]

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        decided: dict[str, Decision] = {}
        for decide in self.deciders:
            left = tuple(name for name in interrupt.skills if name not in decided)
            if left:
                decided |= check_decisions(interrupt, decide(interrupt._replace(skills=left)))
        return decided


class Person(NamedTuple):
    """Asks for each skill; anything but a clear answer leaves it undecided."""

    ask: Callable[[str], str | None]
    lang: Lang = Lang.EN

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        asked = {name: self.ask(_KEEP.render(self.lang, name=name)) or "" for name in interrupt.skills}
        said = {name: answer.strip().lower() for name, answer in asked.items()}
        return check_decisions(interrupt, {name: _SHORT.get(word, word) for name, word in said.items()})


#: What a backend may keep; anything else is a person's to keep.
_BACKEND_KEEPS: Final = frozenset({"SAFE", "INFO", "LOW", "MEDIUM"})
#: More findings than this nobody reads well.
_MOST_CHARACTERS: Final = 100_000


class BackendDecider(NamedTuple):
    """Asks a backend through `ask`, which must give it no tools.

    It may uninstall, and keep up to MEDIUM. An answer that is not exactly what was asked for decides nothing.
    """

    ask: Callable[[str], str]

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        question = as_question(interrupt)
        if len(question) > _MOST_CHARACTERS:
            return {}
        try:
            answers = json.loads(self.ask(question), object_pairs_hook=_each_once)
        except (SkillError, ValueError, RecursionError):
            return {}  # held back, as if nobody had been asked
        if not isinstance(answers, dict) or set(answers) != set(interrupt.skills):
            return {}
        decided, severities = check_decisions(interrupt, answers), interrupt.severities
        if len(decided) != len(answers):
            return {}
        kept = {name for name in decided if severities.get(name) in _BACKEND_KEEPS}
        return {name: word for name, word in decided.items() if word is Decision.UNINSTALL or name in kept}


def _each_once(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def as_question(interrupt: Interrupt) -> str:
    data = json.dumps({"skills": list(interrupt.skills), "findings": interrupt.about}, ensure_ascii=False, default=dict)
    form = json.dumps(dict.fromkeys(interrupt.skills, "keep or uninstall"), ensure_ascii=False)
    # These would end the line, and with it the quotation; in JSON they can be escaped.
    for ends in ("\u0085", "\u2028", "\u2029"):
        data, form = (text.replace(ends, f"\\u{ord(ends):04x}") for text in (data, form))
    return Path(__file__).with_name("decider_question.txt").read_text("utf-8").format(data=data, form=form)
