"""Writes a new skill or role: staged beside its place, then renamed, so that it is there whole or not at all."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from skillyard.catalog.dirfd import make_below, refuse_links
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message


def create(root: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Write the files below a folder of the project that is not there yet.

    InvalidArgs if something of that name is there: nothing is ever overwritten. PermissionDenied if a folder on the
    way, below the project root, is a link.
    """
    refuse_links(root, folder.parent)
    if folder.exists() or folder.is_symlink():
        raise _taken(folder)
    make_below(root, folder.parent)
    staged = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for name, text in files.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="\n")
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        staged.chmod(0o755)
        staged.rename(folder)
    except OSError:
        if folder.exists():  # somebody was faster
            raise _taken(folder) from None
        raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _taken(folder: Path) -> InvalidArgs:
    return InvalidArgs(Message("{folder} exists already: choose another name, or remove it first", folder=folder))
