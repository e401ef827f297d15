"""Skills on their way into a project: fetched into a staging folder, examined there, then kept or dropped.

The first form of these steps: a local folder as the source, the rules of `validate` as the examination. Each can be
done again after a crash, and each ends in one rename. The staging folder stands in SKILLYARD_HOME, which nothing that
runs in the sandbox can see; the project may be on another file system, so keeping is a copy, then a rename.
"""

import errno
import hashlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.discover import IGNORED, SKILL_FILE, survey
from skillyard.catalog.fingerprint import fingerprint
from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.core.errors import InvalidArgs
from skillyard.core.skill import Severity
from skillyard.core.values import Json

KEPT, DROPPED = "kept", "uninstalled"
#: Names go into command lines that agents write: nothing in them means anything to a shell.
_NAME = re.compile(r"\w[\w.-]*")


class Staging(NamedTuple):
    """The staged skills of one workflow."""

    folder: Path
    #: Where they go in the end.
    skills: Path

    def fetch(self, source: Path) -> tuple[str, ...]:
        """Copy the skills of a folder; all of them or none. The folder names, sorted."""
        if not self.folder.is_dir():
            self._copy(_find_skills(source))
        return tuple(sorted(path.name for path in self.folder.iterdir()))

    def examine(self, name: str) -> list[dict[str, Json]]:
        """What somebody should look at before this one is kept; nothing for a clean one."""
        folder = self.folder / name
        findings = lint(read_skill(folder / SKILL_FILE)).findings
        doubts = [finding.as_dict() for finding in findings if finding.severity is not Severity.NOTE]
        links = [path for path in folder.rglob("*") if path.is_symlink()]
        return doubts + [
            {
                "code": "link",
                "severity": str(Severity.ERROR),
                "message": f"{link.relative_to(folder)} is a link to {link.readlink()}",
            }
            for link in links
        ]

    def keep(self, name: str) -> str:
        """Put it among the project's skills, never onto another; what became of it."""
        staged, target = self.folder / name, self.skills / name
        # A name that no scan looks at; of this workflow alone.
        incoming = self.skills / f"._{self.folder.name}.{name}"
        shutil.rmtree(incoming, ignore_errors=True)
        try:
            shutil.copytree(staged, incoming, symlinks=True)
            incoming.rename(target)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            # Ours, where a crash came between the rename and its record.
            is_ours = target.is_dir() and fingerprint(target) == fingerprint(staged)
            return KEPT if is_ours else f"{target} is already there"
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        return KEPT

    def drop(self, name: str) -> str:
        """Away in one step, so that nothing half deleted can ever be kept; then delete it."""
        staged = self.folder / name
        if staged.is_dir():
            away = self.folder.with_name(f"{self.folder.name}.{name}.dropped")
            shutil.rmtree(away, ignore_errors=True)
            staged.rename(away)
            shutil.rmtree(away)
        return DROPPED

    def clear(self) -> None:
        """Everything of this workflow, with what a crash may have left beside it."""
        for leftover in (self.folder, *self.folder.parent.glob(f"{self.folder.name}.*")):
            shutil.rmtree(leftover, ignore_errors=True)

    def _copy(self, found: dict[str, Path]) -> None:
        fresh = self.folder.with_name(f"{self.folder.name}.fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name, folder in found.items():
            shutil.copytree(folder, fresh / name, symlinks=True, ignore=shutil.ignore_patterns(*IGNORED))
        fresh.rename(self.folder)


def make_staging(own_home: Path, project: Path, thread: str) -> Staging:
    """Two projects may use one name for a workflow: each has a folder of its own."""
    mark = hashlib.blake2b(os.fsencode(project), digest_size=10).hexdigest()
    return Staging(own_home / "staging" / mark / thread, project / ".claude" / "skills")


def _find_skills(source: Path) -> dict[str, Path]:
    """Folders by the name each will have."""
    if not source.is_dir():
        raise InvalidArgs(f"{source}: there is no such folder")
    alone = (source / SKILL_FILE).is_file()
    folders = [source] if alone else [Path(file).parent for file in survey(source, {}, (), time.time_ns()).skills]
    found: dict[str, Path] = {}
    for folder in sorted(folders):
        name = os.path.realpath(folder).rpartition(os.sep)[2]
        if not _NAME.fullmatch(name) or name in found:
            twice = "two skills have this folder name" if name in found else "not a name for a skill's folder"
            raise InvalidArgs(f"{folder}: {twice}")
        found[name] = folder
    if not found:
        raise InvalidArgs(f"{source}: no {SKILL_FILE} in it or below it")
    return found
