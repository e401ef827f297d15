"""What the last `skill_scanner scan` of a project found: other commands bring the index up to date in between."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from skillyard.store.atomic import write_atomically
from skillyard.store.locks import LockedFile


def exchange_scan(folder: Path, project: str, found: Mapping[str, str]) -> Mapping[str, str]:
    """Keep the digests of the files of this scan, and return those of the last one; none if there was none."""
    name = hashlib.blake2b(project.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    file, last = folder / f"{name}.json", {}
    with LockedFile.wait(folder / "lock"):
        with suppress(OSError, ValueError):
            read = json.loads(file.read_bytes())
            last = read if isinstance(read, dict) else {}
        write_atomically(file, json.dumps(dict(found)).encode())
    return last
