"""Writes a new skill or role: staged beside its place, then renamed, so that it is there whole or not at all."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from skillyard.core.errors import InvalidArgs


def create(folder: Path, files: Mapping[str, str]) -> None:
    """InvalidArgs where something of that name is there already: nothing is ever overwritten."""
    if folder.exists() or folder.is_symlink():
        raise _taken(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
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
    return InvalidArgs(f"{folder} exists already: choose another name, or remove it first")
