"""The steps of the install workflow: the very ones of `skillyard add` and `skillyard review`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skillyard.install.installer import Installer
from skillyard.install.review import Review, Reviews

if TYPE_CHECKING:
    from skillyard.core.values import Json
    from skillyard.install.source import Tell
    from skillyard.scripts.workflow_graph import Begun


class InstallSteps:
    """For the workflow graph. `on_terminal` says who decides: a person may keep anything, else only up to MEDIUM."""

    def __init__(self, installer: Installer, reviews: Reviews, tell: "Tell", *, on_terminal: bool) -> None:
        self._installer, self._reviews, self._tell, self._on_terminal = installer, reviews, tell, on_terminal

    def begin(self, source: str, skills: Sequence[str]) -> "Begun":
        from skillyard.scripts.workflow_graph import Begun

        result = self._installer.add(source, skills, self._tell, everything=True)
        installed = tuple(skill.folder for skill in result.installed)
        return Begun(installed, result.review.id if result.review else "")

    def held(self, review: str) -> Mapping[str, str]:
        found = self.find(review)
        return {name: held.skill.hash for name, held in found.held.items()} if found else {}

    def find(self, review: str) -> Review | None:
        return self._reviews.find(review)

    def check(self, review: str, decisions: "Mapping[str, Json]") -> None:
        """PermissionDenied if whoever decides may not keep one of these; raised before anything is stored."""
        if found := self.find(review):
            self._reviews.check(found, decisions, on_terminal=self._on_terminal)

    def settle(self, review: str, decisions: "Mapping[str, Json]") -> Sequence[str]:
        found = self.find(review)
        return self._reviews.resume(found, decisions, on_terminal=self._on_terminal).changed if found else ()

    def is_installed(self, name: str, content_hash: str) -> bool:
        return self._installer.is_installed(name, content_hash)
