"""What a skill's folder holds, as one hash: a grant is for exactly these bytes.

Whatever a clone can bring counts, by whatever name: Python runs what lies in `__pycache__` unseen, and a command may
name a file there, or `.DS_Store`. Only a repository's own `.git` is left out, which no clone brings.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.core.errors import InvalidArgs

if TYPE_CHECKING:
    import hashlib

#: More than this is no skill.
MAX_FILES = 20_000
_REPOSITORY = ".git"


def fingerprint(folder: Path) -> str:
    """A digest over every path, link and byte below the folder; any change changes it."""
    import hashlib  # noqa: PLC0415  (most runs have no grant to check)

    digest = hashlib.blake2b(digest_size=20)
    for count, path in enumerate(_files(folder)):
        if count > MAX_FILES:
            raise InvalidArgs(f"{folder} holds more than {MAX_FILES} files: nothing can be granted to it")
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            _add(digest, b"link", name.encode("utf-8", "surrogateescape"), bytes(path.readlink()))
        elif not path.is_file():  # a pipe would never end
            _add(digest, b"other", name.encode("utf-8", "surrogateescape"), b"")
        else:
            mode = b"program" if os.access(path, os.X_OK) else b"file"
            _add(digest, mode, name.encode("utf-8", "surrogateescape"), _content(path))
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != _REPOSITORY]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        found += [Path(parent, name) for name in (*names, *links) if name != _REPOSITORY]
    return sorted(found)


def _content(path: Path) -> bytes:
    import hashlib  # noqa: PLC0415

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=20)).digest()


def _add(digest: "hashlib.blake2b", *parts: bytes) -> None:
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
