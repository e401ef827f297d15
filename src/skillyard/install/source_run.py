"""A skill of a source, for one run: `SOURCE[@skill][#ref][:program]`, staged, scanned and installed nowhere."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.plainfile import exists, expand_home
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.candidates import Candidate, Offer, choose, open_staging
from skillyard.install.examine import scanned
from skillyard.install.git import GitSource
from skillyard.install.pipeline import SCAN, inner_folder, is_held_back, look, place_of, wanted_from
from skillyard.install.review import Held
from skillyard.install.source import Tell
from skillyard.install.staged_copies import Staged, find_staged, key_of, stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillyard.app.project import Project
    from skillyard.install.address import Wanted

#: What of an address is never a skill, a ref or a program: `https://host:8080/`, `git@host:`.
_HEAD = re.compile(r"[A-Za-z][A-Za-z+.-]*://[^/]*/?|[\w.-]+@[\w.-]+:(?!//)")
_TAIL = re.compile(r"(?:@(?P<skill>[^@#:]+))?(?:#(?P<ref>[^#:]+))?(?::(?P<script>.+))?")


class Asked(NamedTuple):
    """What was typed, taken apart."""

    source: str
    skill: str = ""
    ref: str = ""
    script: str = ""

    @property
    def name(self) -> str:
        """As the caller named it, without the program."""
        return self.source + (f"@{self.skill}" if self.skill else "") + (f"#{self.ref}" if self.ref else "")

    def add_command(self, skill: str) -> str:
        ref = f" --ref {shlex.quote(self.ref)}" if self.ref else ""
        return f"skillyard add {shlex.quote(self.source)} --skill {shlex.quote(skill)}{ref}"


class Ready(NamedTuple):
    """Staged and scanned. `is_held` says that a person must decide before it runs."""

    asked: Asked
    staged: Staged
    held: Held
    is_held: bool
    reused: bool


def split_source(text: str, cwd: Path) -> Asked:
    """The longest start of it that is a path here; else an address or the shorthand."""
    ends = [len(text), *(at for at in range(len(text) - 1, 0, -1) if text[at] in "@#:")]
    for end in ends:
        tail = _TAIL.fullmatch(text[end:])
        if tail and exists(cwd / expand_home(text[:end])):
            return Asked(text[:end], *(tail[name] or "" for name in ("skill", "ref", "script")))
    head = _HEAD.match(text)
    start = head.end() if head else 0
    end = next((at for at in range(start, len(text)) if text[at] in "@#:"), len(text))
    tail = _TAIL.fullmatch(text[end:])
    if tail is None:
        raise InvalidArgs(Message("{text!r} is not SOURCE[@skill][#ref][:program]", text=text))
    return Asked(text[:end], *(tail[name] or "" for name in ("skill", "ref", "script")))


def make_ready(yard: "Project", asked: Asked, tell: Tell) -> Ready:
    """From the copy of the same commit where there is one; else fetched. Scanned in any case: rules change."""
    own_home = yard.places.own_home
    wanted = wanted_from(yard, place_of(yard, is_global=False), asked.source, asked.ref)
    wanted = wanted._replace(skill=asked.skill or wanted.skill)
    wanted = wanted.narrowed([wanted.skill] if wanted.skill else [])
    with open_staging(own_home) as staging:
        known = _known(wanted, inner_folder(staging), own_home, tell)
        staged = known or _fetched(wanted, asked, inner_folder(staging), own_home, tell)
    verdict = scanned(SCAN, staged.at)
    candidate = Candidate(staged.skill, staged.at, verdict)
    return Ready(
        asked, staged, Held(staged.skill, verdict, staged.at), is_held_back(yard, candidate), reused=known is not None
    )


def _known(wanted: "Wanted", staging: Path, own_home: Path, tell: Tell) -> Staged | None:
    """Only git can tell its state without giving everything."""
    if not isinstance(wanted.source, GitSource):
        return None
    commit = wanted.source.resolve(staging, tell)
    return find_staged(own_home, _key(wanted, commit)) if commit else None


def _fetched(wanted: "Wanted", asked: Asked, staging: Path, own_home: Path, tell: Tell) -> Staged:
    def pick(offers: "Sequence[Offer]") -> "Sequence[Offer]":
        if wanted.skill:
            offers = choose(offers, [wanted.skill])
        if len(offers) == 1:
            return offers
        names = ", ".join(offer.name for offer in offers[:20]) + (", …" if len(offers) > 20 else "")
        if not offers:
            raise InvalidArgs(Message("{text} holds no skill: there is no SKILL.md in it", text=asked.source))
        raise InvalidArgs(
            Message(
                "{source} holds {count} skills: say which, {source}@NAME. They are: {names}",
                source=asked.source,
                count=len(offers),
                names=names,
            )
        )

    (candidate,) = look(wanted, staging, pick, tell)
    return stage(own_home, _key(wanted, candidate.skill.commit or candidate.skill.hash), candidate)


def _key(wanted: "Wanted", state: str) -> str:
    return key_of(wanted.source.text, state, wanted.path, wanted.skill)
