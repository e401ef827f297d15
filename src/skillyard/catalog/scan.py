"""Brings the index up to date with the folders: reads what changed, forgets what is gone."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.discover import MAX_FILE_BYTES, Folder, Stamp, Survey, is_settled, stamp_of, survey
from skillyard.catalog.index import Index, Source
from skillyard.catalog.roots import Root

AGENT_FILE = "agent.yaml"

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
    known_folders = index.known_folders(name)
    found = _survey_roles(root.path) if root.roles else survey(root.path, known_folders, now_ns)
    left_out = tuple(found.left_out)
    if not _differs(index.known_files(name), found) and not _moved(found.folders, known_folders):
        return Changes(left_out=left_out)
    with index.writing():
        # Asked again under the lock: another process may just have done the same work.
        known = index.known_files(name)
        changed = [file for file, stamp in found.skills.items() if file not in known or known[file][0] != stamp]
        gone = [file for file in known if file not in found.skills]
        index.forget(name, [*gone, *(file for file in changed if file in known)])
        digests: dict[str, str] = {}
        for position, file in enumerate(changed, 1):
            digests[file] = _store(index, root, file, _trusted(found.skills[file], now_ns))
            if progress:
                progress(position, len(changed))
        index.put_folders(name, _settled(found.folders, now_ns))
    return Changes(
        added=tuple(file for file in changed if file not in known),
        updated=tuple(file for file in changed if file in known and known[file][1] != digests[file]),
        removed=tuple(gone),
        left_out=left_out,
    )


def _differs(known: dict[str, tuple[Stamp, str]], found: Survey) -> bool:
    return known.keys() != found.skills.keys() or any(known[file][0] != stamp for file, stamp in found.skills.items())


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


def _store(index: Index, root: Root, file: str, stamp: Stamp) -> str:
    """Read one file into the index; the digest of what it held."""
    # Most scans find nothing to read, and then need none of this.
    import hashlib  # noqa: PLC0415

    from skillyard.catalog.agentfile import parse_role  # noqa: PLC0415
    from skillyard.catalog.manifest import parse_skill  # noqa: PLC0415
    from skillyard.core.skill import Kind, Skill  # noqa: PLC0415

    path = Path(file)
    content = _content(path)
    source = Source(file, stamp, hashlib.blake2b(content, digest_size=16).hexdigest())
    if root.roles:
        for skill in parse_role(content, path).skills:
            index.add(str(root.path), source, skill)
        return source.digest
    reading = parse_skill(content, path)
    unread = Skill(name=path.parent.name, path=path, kind=Kind.PROMPT, findings=reading.findings)
    index.add(str(root.path), source, reading.skill or unread, usable=reading.skill is not None)
    return source.digest


def _content(path: Path) -> bytes:
    """The file, or enough of it to see that it is too large; nothing where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except OSError:
        return b""
