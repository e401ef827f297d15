"""Removing skills that nobody installed: they go to a trash, from where `skillyard restore NAME` brings them back.

Nothing empties the trash: what a person wrote may have no other copy.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from skillyard.catalog.files import make_below, refuse_links
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.index import CatalogEntry
    from skillyard.install.installer import Installer

_ABOUT, _FILES = "trash.json", "files"


class Removal(NamedTuple):
    """What was asked to be removed: folders that were installed, and skills that were written by hand."""

    installed: tuple[str, ...]
    own: "tuple[CatalogEntry, ...]"


def plan_removal(installer: "Installer", catalog: "Catalog", names: Sequence[str], source: str) -> Removal:
    """Find everything before anything is removed. Raise SkillNotFound, or InvalidArgs with where a skill really is."""
    lock = installer.target.read_lock()
    installed = {skill.folder: None for skill in installer.find((), source)} if source else {}
    own: dict[CatalogEntry, None] = {}
    for name in (name.removeprefix("@") for name in names):
        if matches := [skill.folder for skill in lock.values() if name in {skill.folder, skill.name}]:
            installed |= dict.fromkeys(matches)
            continue
        entry = catalog.choose(name)
        if entry.folder.parent == installer.target.skills and entry.folder.name in lock:
            installed[entry.folder.name] = None
        else:
            _check_removable(installer, entry, name)
            own[entry] = None
    return Removal(tuple(installed), tuple(own))


def _check_removable(installer: "Installer", entry: "CatalogEntry", name: str) -> None:
    """Raise InvalidArgs, with what it is and where, unless it is a folder of its own in the roots of this target."""
    root, words = Path(entry.root), {"name": name, "place": entry.file}
    if entry.role:
        raise InvalidArgs(Message("{name} is declared in {place}: remove it there", **words))
    if not root.is_relative_to(installer.target.bounds):
        told = Message(
            "{name} is no skill of this project but yours: {place}; `skillyard remove {name} --global`", **words
        )
        if installer.target.is_project:
            raise InvalidArgs(told)
        raise InvalidArgs(Message("{name} is not among your own skills of Skillyard: {place}", **words))
    if entry.folder.is_symlink():
        raise InvalidArgs(Message("{name} is a link: {place}; delete the link, or what it leads to", **words))


class Trash(NamedTuple):
    """The folders that were removed, each with where it was. `bounds`: nothing outside of it is brought back."""

    home: Path
    bounds: Path

    def put(self, folder: Path, name: str) -> None:
        """Move a skill's folder here."""
        refuse_links(self.bounds, folder)
        place = self.home / f"{time.time_ns():020d}-{uuid4().hex[:8]}"
        place.mkdir(parents=True, mode=0o700)
        about = {"folder": str(folder), "name": name}
        (place / _ABOUT).write_text(json.dumps(about, ensure_ascii=False), "utf-8")
        _move(folder, place / _FILES)

    def restore(self, name: str) -> Path:
        """Bring back what was removed last under this name. InvalidArgs if there is none, or its place is taken."""
        kept = [(place, folder) for place, folder, names in self._list() if name in names]
        if not kept:
            there = ", ".join(dict.fromkeys(folder.name for _, folder, _ in self._list())) or Message("nothing")
            raise InvalidArgs(
                Message("no {name!r} in the trash of this project; in it: {there}", name=name, there=there)
            )
        place, folder = kept[-1]
        if os.path.lexists(folder):
            raise InvalidArgs(Message("{folder} is taken: move that away first", folder=folder))
        make_below(self.bounds, folder.parent)
        _move(place / _FILES, folder)
        shutil.rmtree(place)
        return folder

    def _list(self) -> Iterator[tuple[Path, Path, tuple[str, ...]]]:
        """Yield each, the oldest first: its place here, where it was, and its names."""
        for about in sorted(self.home.glob(f"*/{_ABOUT}")):
            try:
                fields = json.loads(about.read_text("utf-8"))
                folder, name = Path(fields["folder"]), str(fields["name"])
            except (ValueError, KeyError, TypeError):
                continue  # damaged: the files are still there
            if folder.is_relative_to(self.bounds) and (about.parent / _FILES).is_dir():
                yield about.parent, folder, (folder.name, name)


def _move(folder: Path, to: Path) -> None:
    """Rename it; between two disks copy all of it first."""
    try:
        folder.rename(to)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = to.with_name(f"{to.name}.new")
        shutil.copytree(folder, copy, symlinks=True)
        copy.rename(to)
        shutil.rmtree(folder)
