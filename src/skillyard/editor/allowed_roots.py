"""Where the editor may write, and how it gets there without being led elsewhere.

A path is resolved first, with every link and `..` in it, and must lie below an allowed root. Then its folder is opened
step by step from the root, following no link: what was swapped for a link in the meantime is refused, and
everything after that goes through the open folder.

Not covered: whoever can move a folder out of a root while it is open moves the edit with it.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied
from skillyard.core.messages import Message

#: What a project's own word never opens: its code, its skills, our state.
CLOSED = frozenset({".git", ".claude", ".skillyard", "agents", "bin"})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MORE_ROOTS = Message("edits stay in mybox/ and in the [editor] roots of SKILLYARD_HOME/config.toml")


class Root(NamedTuple):
    """A folder that edits may reach. The anchor is taken as it stands; what is below it follows no link."""

    anchor: Path
    inside: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()

    def contains(self, real: Path) -> bool:
        folder = self.anchor.joinpath(*self.inside)
        if real == folder or not real.is_relative_to(folder):
            return False
        parts = real.relative_to(self.anchor).parts
        return not self.closed or (parts[0].lower() not in self.closed and ".git" not in map(str.lower, parts))


class Spot(NamedTuple):
    """A file below an anchor: its folders, and its name in the last of them."""

    anchor: Path
    folders: tuple[str, ...]
    name: str

    @property
    def path(self) -> Path:
        return self.anchor.joinpath(*self.folders, self.name)


def user_root(folder: Path) -> Root:
    """The user named it: wherever it leads is meant."""
    return Root(Path(os.path.realpath(folder)))


def project_root(project: Path, folder: Path) -> Root:
    """The project named it: a link below the project does not lead out of it, and what is closed stays so."""
    real = Path(os.path.realpath(project))
    meant = Path(os.path.normpath(real / folder))
    if meant.is_relative_to(real):
        return Root(real, meant.relative_to(real).parts, CLOSED)
    return Root(Path(os.path.realpath(meant)))


def locate(file: str, roots: Sequence[Root], asked: Sequence[Root], forbidden: Path) -> Spot:
    """The spot of a file; `asked` are roots that a person has not allowed yet, `forbidden` is out of every reach."""
    if not file or "\0" in file:
        raise InvalidArgs(Message("a file has a name"))
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(forbidden)):
        for root in roots:
            if root.contains(real):
                *folders, name = real.relative_to(root.anchor).parts
                return Spot(root.anchor, tuple(folders), name)
        if any(root.contains(real) for root in asked):
            raise NotGranted(Message("edit {file}", file=file), "skillyard trust")
    denied = PermissionDenied(Message("{file} is outside the folders that may be edited", file=file))
    denied.extra_hint = _MORE_ROOTS
    raise denied


def open_folder(spot: Spot, *, create: bool) -> int:
    """The descriptor of the spot's folder; FileNotFoundError where there is none and none is to be made."""
    handle = os.open(spot.anchor, _FOLDER)
    for name in spot.folders:
        try:
            below = _open_below(handle, name, create)
        except NotADirectoryError:
            raise PermissionDenied(
                Message("{path}: {name} is a link or no folder", path=spot.path, name=name)
            ) from None
        except FileNotFoundError:
            raise FileNotFoundError(2, os.strerror(2), str(spot.path)) from None
        finally:
            os.close(handle)
        handle = below
    return handle


def _open_below(handle: int, name: str, create: bool) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # somebody else made it in the meantime
        os.mkdir(name, dir_fd=handle)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
