"""What `init` lays out in a project, and whether a file there is still what it wrote.

The files themselves stand in `skillyard/project/`, readable as what they are. `written.json` beside them holds the
sha256 of each, for this version and every earlier one: that is how a script of ours is told from somebody else's.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from skillyard.catalog.files import make_below, open_below, read_plain, refuse_links
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

TEMPLATES = Path(__file__).parent.parent / "project"
WRITTEN = TEMPLATES / "written.json"
#: Of a file that could be ours.
_MOST_BYTES = 1_000_000


class Piece(NamedTuple):
    """A file or folder of the layout."""

    path: str
    #: Below TEMPLATES; nothing for a folder.
    template: str = ""
    #: Meant to be changed by its owner: only its absence is drift.
    yours: bool = False

    @property
    def content(self) -> bytes:
        return (TEMPLATES / self.template).read_bytes()


LAYOUT = (
    Piece(".claude/skills"),
    Piece(".claude/agents/skills_agent.md", "claude/agents/skills_agent.md"),
    Piece(".claude/agents/worker_agent.md", "claude/agents/worker_agent.md"),
    Piece("agents"),
    Piece("bin/file_editor.py", "bin/file_editor.py"),
    Piece("bin/skill_install_workflow.py", "bin/skill_install_workflow.py"),
    Piece("bin/skill_manager.py", "bin/skill_manager.py"),
    Piece("bin/skill_scanner.py", "bin/skill_scanner.py"),
    Piece("mybox/.gitignore", "mybox/gitignore", yours=True),
    Piece("mybox/output"),
    Piece("mybox/temp"),
    Piece("mybox/workspace"),
    Piece("skillyard.toml", "skillyard.toml", yours=True),
)


class Standing(StrEnum):
    MADE = "made"
    #: It was there: as this version writes it, or as its owner made it.
    KEPT = "kept"
    #: It was there, as an earlier version wrote it.
    OUTDATED = "outdated"
    #: It was there, with other bytes.
    DIFFERS = "differs"
    MISSING = "missing"


class Found(NamedTuple):
    path: str
    standing: Standing
    folder: bool = False

    @property
    def is_drift(self) -> bool:
        """An empty folder does not survive a commit and is made when it is needed: its absence is none."""
        return self.standing not in {Standing.MADE, Standing.KEPT} and not self.folder


def look(root: Path, written: Path = WRITTEN) -> tuple[Found, ...]:
    """How each piece stands; nothing is written. InvalidArgs where something is in the way."""
    return tuple(Found(piece.path, _standing(root, piece, written), folder=not piece.template) for piece in LAYOUT)


def lay_out(root: Path) -> tuple[Found, ...]:
    """Make what is missing; what exists is never touched. Several at once do no harm: each file has one maker."""
    found = look(root)
    root.mkdir(parents=True, exist_ok=True)
    return tuple(_made(root, piece, seen) for piece, seen in zip(LAYOUT, found, strict=True))


def is_ours(path: Path, written: Path = WRITTEN, *, stands_for: Path | None = None) -> bool:
    """Whether this is a file of the layout, byte for byte as this version or an earlier one wrote it.

    It says nothing about what stands beside the file: whoever runs a script on the strength of it starts Python with
    `-I`, or a module next to the script could be imported in place of the real one. `stands_for` is the path in the
    project, where `path` is a copy.
    """
    if path.is_symlink() or not path.is_file():
        return False
    try:
        content = read_plain(path, _MOST_BYTES)
    except FileNotFoundError:  # removed since it was listed
        return False
    return hashlib.sha256(content).hexdigest() in set(_hashes_of(stands_for or path, written))


def _hashes_of(path: Path, written: Path) -> Iterator[str]:
    for version in json.loads(written.read_bytes()).values():
        for name, mark in version.items():
            parts = PurePosixPath(name).parts
            if path.parts[-len(parts) :] == parts:
                yield mark


def _standing(root: Path, piece: Piece, written: Path = WRITTEN) -> Standing:
    target = root / piece.path
    _refuse_in_the_way(root, target.parent if piece.template else target)
    if not os.path.lexists(target):
        return Standing.MISSING
    if not piece.template or piece.yours:
        return Standing.KEPT
    if target.is_symlink() or not target.is_file():
        return Standing.DIFFERS
    if read_plain(target, _MOST_BYTES) == piece.content:
        return Standing.KEPT
    return Standing.OUTDATED if is_ours(target, written) else Standing.DIFFERS


def _refuse_in_the_way(root: Path, folder: Path) -> None:
    """A file where a folder must be, or a link that would have us write elsewhere."""
    refuse_links(root, folder)
    for place in (folder, *folder.parents):
        if os.path.lexists(place) and not place.is_dir():
            raise InvalidArgs(Message("{place} is in the way: a folder must stand there", place=place))
        if place == root:
            break


def _made(root: Path, piece: Piece, seen: Found) -> Found:
    if seen.standing is not Standing.MISSING:
        return seen
    target = root / piece.path
    if not piece.template:
        make_below(root, target)
        return seen._replace(standing=Standing.MADE)
    mode = 0o755 if piece.path.startswith("bin/") else 0o644
    new = _write_new(root, target, piece.content, mode)
    return seen._replace(standing=Standing.MADE if new else _standing(root, piece))


def _write_new(root: Path, target: Path, content: bytes, mode: int) -> bool:
    """The whole file or nothing, and False where somebody else was first."""
    folder = open_below(root, target.parent.relative_to(root).parts, create=True)
    fresh = f".{target.name}.{os.urandom(4).hex()}"
    try:
        handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode, dir_fd=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return _publish(folder, fresh, target.name)
    finally:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        os.close(folder)


def _publish(folder: int, fresh: str, name: str) -> bool:
    """A link never replaces what is there; only file systems without links leave a moment between look and write."""
    try:
        os.link(fresh, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            return False
    return True
