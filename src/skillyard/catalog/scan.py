"""Brings the index up to date with the folders: reads what changed, forgets what is gone."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.discover import Folder, Stamp, Survey, is_settled, stamp_of, survey
from skillyard.catalog.index import Index, Row
from skillyard.catalog.roots import Root

AGENT_FILE = "agent.yaml"
_BATCH = 500

#: Called with how many of how many changed files were read.
Progress = Callable[[int, int], None]


class Changes(NamedTuple):
    """What a scan found different since the last one."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def scan(index: Index, root: Root, progress: Progress | None = None) -> Changes:
    """Stat every known skill, read those that differ. Readers of the index see all of it or none."""
    name, now_ns = str(root.path), time.time_ns()
    known, known_folders = index.known_files(name), index.known_folders(name)
    found = _survey_roles(root.path) if root.roles else survey(root.path, known_folders, known, now_ns)
    left_out = tuple(found.left_out)
    if not _differs(known, found) and not _moved(found.folders, known_folders):
        return Changes(left_out=left_out)
    with index.writing(), _without_collecting():
        # Asked again under the lock: another process may just have done the same work.
        known, held = index.known_files(name), index.digests(name)
        changed = [file for file, stamp in found.skills.items() if known.get(file) != stamp]
        gone = [file for file in known if file not in found.skills]
        index.forget(name, [*gone, *(file for file in changed if file in known)])
        stamps = {file: _trusted(found.skills[file], now_ns) for file in changed}
        digests = _read_into(index, root, stamps, progress)
        index.put_folders(name, _settled(found.folders, now_ns))
    return Changes(
        added=tuple(file for file in changed if file not in known),
        updated=tuple(file for file in changed if file in known and held[file] != digests[file]),
        removed=tuple(gone),
        left_out=left_out,
    )


def _differs(known: dict[str, Stamp], found: Survey) -> bool:
    return known != found.skills


def _read_into(index: Index, root: Root, stamps: Mapping[str, Stamp], progress: Progress | None) -> dict[str, str]:
    """The digest of each file that was read."""
    if not stamps:
        return {}
    # Most scans find nothing to read, and then need no YAML.
    from skillyard.catalog.readers import Job, read_all  # noqa: PLC0415

    digests: dict[str, str] = {}
    rows: list[Row] = []
    for read in read_all([Job(str(root.path), root.roles, file, stamp) for file, stamp in stamps.items()]):
        digests[read.file] = read.digest
        rows += read.rows
        if progress:
            progress(len(digests), len(stamps))
        if len(rows) >= _BATCH:
            index.add(rows)
            rows = []
    index.add(rows)
    return digests


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Reading makes many small objects and no cycles: looking for cycles would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _survey_roles(folder: Path) -> Survey:
    found = Survey()
    for path in sorted(folder.glob(f"*/{AGENT_FILE}")):
        if stamp := stamp_of(str(path)):
            found.skills[str(path)] = stamp
    return found


def _moved(found: dict[str, Folder], known: dict[str, Folder]) -> bool:
    return any(folder.stamp != known[path].stamp if path in known else True for path, folder in found.items())


def _trusted(stamp: Stamp, now_ns: int) -> Stamp:
    """A stamp too fresh to be trusted is kept as one that never matches."""
    return stamp if is_settled(stamp, now_ns) else (-1, -1, -1, -1)


def _settled(folders: dict[str, Folder], now_ns: int) -> Iterator[tuple[str, Folder]]:
    return ((path, folder) for path, folder in folders.items() if is_settled(folder.stamp, now_ns))
