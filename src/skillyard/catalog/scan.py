"""Brings the index up to date with the folders: finds the skill files, reads those that changed, forgets the others.

A folder that did not change is not listed again, and a file that did not change is not read again: `stat` tells.
"""

import gc
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from skillyard.catalog.files import is_utf8, read_plain
from skillyard.catalog.index import Index, IndexRow, ScannedFolder, Stamp, make_row
from skillyard.catalog.roots import AGENT_FILE, SKILL_FILE, SkillRoot

MAX_DEPTH = 6
MAX_SKILLS = 100_000
IGNORED = frozenset({"PaxHeader", "__MACOSX", ".git", "node_modules", "__pycache__", ".venv"})
#: A stamp this fresh could hide a second change within the same tick of the clock.
_RACY_NANOSECONDS = 100_000_000
_BATCH = 500
#: With fewer files, starting other processes costs more than it saves.
_MIN_FILES_FOR_POOL = 1500

#: Called with how many of how many changed files were read.
Progress = Callable[[int, int], None]
_FileToRead: TypeAlias = tuple[SkillRoot, str, Stamp]
#: The file, the digest of its content, and its rows.
_ReadFile: TypeAlias = tuple[str, str, list[IndexRow]]


class Changes(NamedTuple):
    """Differences that a scan found since the last one."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: Folders that are nested too deeply, or come after the last skill that we take.
    left_out: tuple[str, ...] = ()


class FoundFiles(NamedTuple):
    """Skill files with their stamps, the folders above them, and the folders that were left out."""

    skills: dict[str, Stamp]
    folders: dict[str, ScannedFolder]
    left_out: list[str]


def scan(index: Index, root: SkillRoot, progress: Progress | None = None) -> Changes:
    """Stat every known skill and read those that differ, in one transaction."""
    name, now_ns = str(root.path), time.time_ns()
    known, known_folders = index.known_files(name), index.known_folders(name)
    if root.roles:
        files = sorted(map(str, root.path.glob(f"*/{AGENT_FILE}")))
        found = FoundFiles({file: stamp for file in files if (stamp := stamp_of(file))}, {}, [])
    else:
        found = find_skill_files(root.path, known_folders, known, now_ns)
    stamps_of_known = {path: folder.stamp for path, folder in known_folders.items()}
    if known == found.skills and all(stamps_of_known.get(path) == at.stamp for path, at in found.folders.items()):
        return Changes(left_out=tuple(found.left_out))
    # Reading makes many small objects and no cycles: looking for cycles would take a third of the time.
    switch_back = gc.enable if gc.isenabled() else gc.disable
    with index.writing(), ExitStack() as stack:
        gc.disable()
        stack.callback(switch_back)
        # Asked again under the lock: another process may just have done the same work.
        known, known_digests = index.known_files(name), index.digests(name)
        changed = [file for file, stamp in found.skills.items() if known.get(file) != stamp]
        gone = [file for file in known if file not in found.skills]
        index.forget(name, [*gone, *(file for file in changed if file in known)])
        # A stamp that is too fresh to be trusted is stored as one that never matches.
        stamps = {file: found.skills[file] for file in changed}
        stamps = {file: stamp if is_settled(stamp, now_ns) else (-1, -1, -1, -1) for file, stamp in stamps.items()}
        digests = _read_into(index, root, stamps, progress)
        index.put_folders(name, {path: at for path, at in found.folders.items() if is_settled(at.stamp, now_ns)})
    return Changes(
        added=tuple(file for file in changed if file not in known),
        updated=tuple(file for file in changed if file in known and known_digests[file] != digests[file]),
        removed=tuple(gone),
        left_out=tuple(found.left_out),
    )


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of a file or folder, or None if it cannot be read."""
    try:
        found = os.stat(path)  # noqa: PTH116  (ten thousand times a scan: no Path objects)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def is_settled(stamp: Stamp, now_ns: int) -> bool:
    """Whether a later change is sure to change the stamp."""
    return now_ns - max(stamp[0], stamp[1]) > _RACY_NANOSECONDS


def find_skill_files(root: Path, known: Mapping[str, ScannedFolder], files: Container[str], now_ns: int) -> FoundFiles:
    """Walk below `root`, with the folders and files of the last scan.

    A folder whose stamp is known and settled is not listed again, and neither is the folder of a known skill file:
    whatever else changed in it, the file itself is checked.
    """
    found = FoundFiles({}, {}, [])
    queue: list[tuple[str, tuple[int, ...]]] = [(str(root), ())]
    while queue:
        path, above = queue.pop()
        skill_file = f"{path}/{SKILL_FILE}"
        if skill_file in files and (stamp := stamp_of(skill_file)):
            found.skills[skill_file] = stamp
            continue
        folder = _read_folder(path, above, known.get(path), now_ns)
        if folder is None:
            continue
        if len(found.skills) >= MAX_SKILLS or (len(above) >= MAX_DEPTH and folder.children):
            found.left_out.append(path)
        elif folder.skill_file and (stamp := stamp_of(folder.skill_file)):
            found.skills[folder.skill_file] = stamp
        else:
            found.folders[path] = folder
            inside = (*above, folder.stamp[3])
            queue += [(f"{path}/{child}", inside) for child in folder.children]
    return found


def _read_folder(path: str, above: tuple[int, ...], known: ScannedFolder | None, now_ns: int) -> ScannedFolder | None:
    stamp = stamp_of(path)
    if stamp is None or stamp[3] in above:
        return None  # gone, or a link that leads back up
    if known and known.stamp == stamp and is_settled(stamp, now_ns):
        return known
    try:
        entries = list(os.scandir(path))
    except OSError:
        return None
    # SKILL.md as the standard spells it, else in another case; the root itself is no skill.
    named = [entry for entry in entries if above and entry.name.lower() == SKILL_FILE.lower()]
    if named:
        return ScannedFolder(stamp, max(named, key=lambda entry: entry.name == SKILL_FILE).path)
    children: list[str] = []
    for entry in entries:
        with suppress(OSError):
            if entry.name not in IGNORED and not entry.name.startswith("._") and is_utf8(entry.name) and entry.is_dir():
                children.append(entry.name)
    return ScannedFolder(stamp, children=tuple(sorted(children, reverse=True)))


def _read_into(index: Index, root: SkillRoot, stamps: Mapping[str, Stamp], progress: Progress | None) -> dict[str, str]:
    """Read the files into the index, in their order. Return the digest of each."""
    digests: dict[str, str] = {}
    rows: list[IndexRow] = []
    with ExitStack() as stack:
        for file, digest, more in _map_files([(root, *item) for item in stamps.items()], stack):
            digests[file] = digest
            rows += more
            if progress:
                progress(len(digests), len(stamps))
            if len(rows) >= _BATCH:
                index.add(rows)
                rows = []
    index.add(rows)
    return digests


def _map_files(files: Sequence[_FileToRead], stack: ExitStack) -> Iterable[_ReadFile]:
    """Read each file; on all cores if there are thousands."""
    if len(files) < _MIN_FILES_FOR_POOL:
        return map(_read_file, files)
    import multiprocessing  # noqa: PLC0415  (only a first scan of thousands needs it)
    import threading  # noqa: PLC0415

    from skillyard.catalog import manifest  # noqa: F401, PLC0415  (loaded once, before the processes fork)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # A process with threads must not fork: a lock that another thread holds would stay locked for ever.
    if cores < 2 or threading.active_count() > 1:
        return map(_read_file, files)
    pool = stack.enter_context(multiprocessing.get_context("fork").Pool(min(cores, 8)))
    return pool.imap(_read_file, files, chunksize=100)


def _read_file(wanted: _FileToRead) -> _ReadFile:
    import hashlib  # noqa: PLC0415  (most scans find nothing to read, and need neither this nor YAML)

    from skillyard.catalog.manifest import MAX_FILE_BYTES, parse_skill  # noqa: PLC0415
    from skillyard.core.skill import Kind, Skill  # noqa: PLC0415

    root, file, stamp = wanted
    path = Path(file)
    try:
        content = read_plain(path, MAX_FILE_BYTES)
    except OSError:
        content = b""
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    source = (str(root.path), file, *stamp, digest)
    if root.roles:
        from skillyard.catalog.agentfile import parse_role  # noqa: PLC0415  (most roots have no roles)

        return file, digest, [make_row(source, skill) for skill in parse_role(content, path).skills]
    reading = parse_skill(content, path)
    unusable = Skill(name=path.parent.name, path=path, kind=Kind.PROMPT, findings=reading.findings)
    row = make_row(source, reading.skill or unusable, usable=reading.skill is not None, body=reading.beginning)
    return file, digest, [row]
