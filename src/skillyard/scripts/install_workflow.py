"""The steps of the install workflow: the very ones of `skillyard add` and `skillyard review`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.candidates import open_staging
from skillyard.install.lock import read_lock
from skillyard.install.pipeline import (
    Brought,
    bring_in,
    inner_folder,
    keep_limit,
    look,
    pick_named,
    place_of,
    resume_review,
    wanted_from,
)
from skillyard.install.review import Review, check_limit, find_review

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.core.values import Json
    from skillyard.install.source import Tell
    from skillyard.scripts.workflow_graph import Begun


def install_from(yard: "Project", text: str, names: Sequence[str], tell: "Tell", *, everything: bool) -> Brought:
    """From the text of one source into the project: staged, scanned, and installed or held back."""
    place = place_of(yard, is_global=False)
    wanted = wanted_from(yard, place, text, "")
    names = [*names, *([wanted.skill] if wanted.skill else [])]
    pick = pick_named(text, names, everything=everything)
    with open_staging(yard.places.own_home) as staging:
        found = look(wanted.narrowed(names), inner_folder(staging), pick, tell)
        return bring_in(yard, place, found)


class InstallSteps:
    """For `work.graph`. `on_terminal` says who decides: a person may keep anything, nobody there only MEDIUM."""

    def __init__(self, yard: "Project", tell: "Tell", *, on_terminal: bool) -> None:
        self._yard, self._tell, self._on_terminal = yard, tell, on_terminal

    def begin(self, source: str, skills: Sequence[str]) -> "Begun":
        from skillyard.scripts.workflow_graph import Begun

        brought = install_from(self._yard, source, skills, self._tell, everything=True)
        installed = tuple(skill.folder for skill in brought.installed)
        return Begun(installed, brought.review.id if brought.review else "")

    def held(self, review: str) -> Mapping[str, str]:
        found = self.find(review)
        return {name: held.skill.hash for name, held in found.held.items()} if found else {}

    def find(self, review: str) -> Review | None:
        return find_review(self._yard.places.own_home, review)

    def check(self, review: str, decisions: "Mapping[str, Json]") -> None:
        """PermissionDenied where whoever decides may not keep one of these: said before anything is stored."""
        if found := self.find(review):
            check_limit(found, decisions, keep_limit(on_terminal=self._on_terminal))

    def settle(self, review: str, decisions: "Mapping[str, Json]") -> Sequence[str]:
        found = self.find(review)
        return resume_review(self._yard, found, decisions, on_terminal=self._on_terminal).changed if found else ()

    def is_installed(self, name: str, content_hash: str) -> bool:
        known = read_lock(place_of(self._yard, is_global=False).lock_file).skills.get(name)
        return known is not None and known.hash == content_hash


def review_here(yard: "Project", name: str) -> Review:
    """InvalidArgs where there is none of that name for this project."""
    found = find_review(yard.places.own_home, name)
    if found is None or found.place != place_of(yard, is_global=False):
        raise InvalidArgs(Message("no review {name!r} waits in this project", name=name))
    return found
