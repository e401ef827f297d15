"""Where a path really leads, and whether a link of the project led there.

What comes with a project, and what a run left in it, is not the person: a link in there never opens more than its own
name says. Paths are resolved once, here; the resolved path is what is asked, stored and opened.
"""

import os
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import exists
from skillyard.core.errors import InvalidParam, PermissionDenied
from skillyard.core.messages import Message
from skillyard.sandbox.policy import is_inside

BOX = "mybox"
#: Never an output, whoever asks: what lies there decides what may run.
GUARDED = (".git", ".claude", ".agents", ".skillyard", "agents", "bin", "skillyard.toml", "skillyard.lock")
_MOST_CHARACTERS = 4096
#: As many links as the kernel itself follows.
_MOST_LINKS = 40
_NO_LINKS = Message("links in mybox/ are not followed: name another output, or the path that the link leads to")


class Meant(NamedTuple):
    """A path that exists."""

    path: Path
    #: It lies outside the project, and a link in the project leads there.
    led_out: bool


def find_meant(value: str, where: Path, root: Path) -> Meant | None:
    """The file or folder that a word names; None if it names none."""
    if not value or len(value) > _MOST_CHARACTERS or "\n" in value or "\0" in value:
        return None
    try:
        path = Path(os.path.realpath(where / value))
        real_root = os.path.realpath(root)
        if not exists(path):
            return None
        led_out = not is_inside(str(path), real_root)
        return Meant(path, led_out=led_out and _passes_link_in(str(where / value), real_root))
    except (OSError, ValueError, RecursionError):
        return None


def resolve_output(named: str, root: Path) -> str:
    """A path to write, from the project root or in full, with every link resolved. A folder ends in a slash.

    PermissionDenied if a link in mybox/ leads elsewhere, or if it is where nobody writes.
    """
    try:
        real_root = Path(os.path.realpath(root))
        target = Path(os.path.realpath(real_root / named))
        literal = Path(os.path.normpath(real_root / named))
        is_folder = target.is_dir()
    except (OSError, ValueError, RecursionError):
        raise InvalidParam(Message("no file can have the name {named!r}", named=named[:80])) from None
    # The person may have written the project's own path with a link above it.
    if literal.is_relative_to(root):
        literal = real_root / literal.relative_to(root)
    if literal.is_relative_to(real_root / BOX) and target != literal:
        denied = PermissionDenied(
            Message("{named} goes through a link in {box}/ and leads to {target}", named=named, box=BOX, target=target)
        )
        denied.extra_hint = _NO_LINKS
        raise denied
    if target != real_root and not target.is_relative_to(real_root):
        return f"{target}/" if is_folder and target != Path("/") else str(target)
    below = target.relative_to(real_root)
    if below.parts[:1] and below.parts[0].lower() in GUARDED:
        raise PermissionDenied(Message("{parts} is never an output", parts=below.parts[0]))
    return f"{below.as_posix()}/" if is_folder else below.as_posix()


def _passes_link_in(path: str, real_root: str) -> bool:
    """Whether a link inside the project is followed on the way."""
    left = [part for part in reversed(path.split("/")) if part not in {"", "."}]
    here, links = Path("/"), 0
    while left:
        part = left.pop()
        place = here.parent if part == ".." else here / part
        if part == ".." or not place.is_symlink():
            here = place
            continue
        links += 1
        if is_inside(str(here), real_root) or links > _MOST_LINKS:
            return True
        target = str(place.readlink())
        here = Path("/") if target.startswith("/") else here
        left += [step for step in reversed(target.split("/")) if step not in {"", "."}]
    return False
