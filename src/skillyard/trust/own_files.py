"""What `init` lays out in a project, and whether a file there is still what it wrote.

The files themselves stand in `skillyard/project/`. `written.json` beside them holds the sha256 of each, for this
version and every earlier one: that is how a script of ours is told from somebody else's.
"""

import hashlib
import json
import os
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import make_below, read_plain, refuse_links, write_below
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

TEMPLATES = Path(__file__).parent.parent / "project"
WRITTEN = TEMPLATES / "written.json"
#: Of a file that could be ours.
_MOST_BYTES = 1_000_000


class Piece(NamedTuple):
    """A file or folder of the layout."""

    path: str
    #: Below TEMPLATES; nothing for a folder. Of a script only its docstring: the rest is the same in all.
    template: str = ""
    #: Meant to be changed by its owner: only its absence is drift.
    yours: bool = False

    @property
    def content(self) -> bytes:
        content = (TEMPLATES / self.template).read_bytes()
        if not self.template.startswith("bin/"):
            return content
        script = (TEMPLATES / "bin" / "script.py.txt").read_text("utf-8")
        return script.format(name=Path(self.path).stem, about=content.decode().rstrip()).encode()


LAYOUT = (
    Piece(".claude/skills"),
    Piece(".claude/agents/skills_agent.md", "claude/agents/skills_agent.md"),
    Piece(".claude/agents/worker_agent.md", "claude/agents/worker_agent.md"),
    Piece("agents"),
    Piece("bin/file_editor.py", "bin/file_editor.txt"),
    Piece("bin/skill_install_workflow.py", "bin/skill_install_workflow.txt"),
    Piece("bin/skill_manager.py", "bin/skill_manager.txt"),
    Piece("bin/skill_scanner.py", "bin/skill_scanner.txt"),
    Piece("mybox/.gitignore", "mybox/gitignore", yours=True),
    Piece("mybox/output"),
    Piece("mybox/temp"),
    Piece("mybox/workspace"),
    Piece("skillyard.toml", "skillyard.toml", yours=True),
)


class FileState(StrEnum):
    MADE = "made"
    #: It was there: as this version writes it, or as its owner made it.
    KEPT = "kept"
    #: It was there, as an earlier version wrote it.
    OUTDATED = "outdated"
    #: It was there, with other bytes.
    DIFFERS = "differs"
    MISSING = "missing"


class FoundPiece(NamedTuple):
    path: str
    standing: FileState
    folder: bool = False

    @property
    def is_drift(self) -> bool:
        """An empty folder does not survive a commit and is made when it is needed: its absence is none."""
        return self.standing not in {FileState.MADE, FileState.KEPT} and not self.folder


def look(root: Path, written: Path = WRITTEN) -> tuple[FoundPiece, ...]:
    """Return the state of each piece. Raise InvalidArgs if something is in the way."""
    return tuple(FoundPiece(piece.path, _standing(root, piece, written), folder=not piece.template) for piece in LAYOUT)


def lay_out(root: Path) -> tuple[FoundPiece, ...]:
    """Make what is missing and leave the rest alone. Several processes may do this at once."""
    found = look(root)
    root.mkdir(parents=True, exist_ok=True)
    made: list[FoundPiece] = []
    for piece, seen in zip(LAYOUT, found, strict=True):
        state, target = seen.standing, root / piece.path
        if state is FileState.MISSING and not piece.template:
            make_below(root, target)
            state = FileState.MADE
        elif state is FileState.MISSING:
            mode = 0o755 if piece.path.startswith("bin/") else 0o644
            is_new = write_below(root, piece.path, piece.content, mode=mode, replace=False)
            state = FileState.MADE if is_new else _standing(root, piece)
        made.append(seen._replace(standing=state))
    return tuple(made)


def is_ours(path: Path, written: Path = WRITTEN, *, stands_for: Path | None = None) -> bool:
    """Whether this is a file of the layout, byte for byte as this version or an earlier one wrote it.

    It says nothing about what stands beside the file: whoever runs a script on the strength of it starts Python with
    `-I`, or a module next to the script could be imported in place of the real one. `stands_for` is the path in the
    project, where `path` is a copy.
    """
    if path.is_symlink() or not path.is_file():
        return False
    try:
        mark = hashlib.sha256(read_plain(path, _MOST_BYTES)).hexdigest()
    except FileNotFoundError:  # removed since it was listed
        return False
    place = f"/{(stands_for or path).as_posix()}"
    versions = json.loads(written.read_bytes()).values()
    return any(place.endswith(f"/{name}") and version[name] == mark for version in versions for name in version)


def _standing(root: Path, piece: Piece, written: Path = WRITTEN) -> FileState:
    target = root / piece.path
    folder = target.parent if piece.template else target
    refuse_links(root, folder)
    for place in (folder, *folder.parents):
        if os.path.lexists(place) and not place.is_dir():
            raise InvalidArgs(Message("{place} is in the way: a folder must stand there", place=place))
        if place == root:
            break
    if not os.path.lexists(target):
        return FileState.MISSING
    if not piece.template or piece.yours:
        return FileState.KEPT
    if target.is_symlink() or not target.is_file():
        return FileState.DIFFERS
    if read_plain(target, _MOST_BYTES) == piece.content:
        return FileState.KEPT
    return FileState.OUTDATED if is_ours(target, written) else FileState.DIFFERS
