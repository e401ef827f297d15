"""Reads changed files into rows: one after the other, or on all cores where there are thousands."""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.agentfile import parse_role
from skillyard.catalog.discover import MAX_FILE_BYTES, Stamp
from skillyard.catalog.index import Row, Source, make_row
from skillyard.catalog.manifest import parse_skill
from skillyard.catalog.plainfile import read_plain
from skillyard.core.skill import Kind, Skill

#: Below this, starting another process costs more than it saves.
_MANY = 1500
_CHUNK = 100


class Job(NamedTuple):
    """A file to read for a root."""

    root: str
    roles: bool
    file: str
    stamp: Stamp


class Read(NamedTuple):
    file: str
    digest: str
    rows: list[Row]


def read_all(jobs: Sequence[Job]) -> Iterator[Read]:
    """Each file once, in the order of the jobs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # A process with threads must not fork: a lock that another thread holds would stay locked for ever.
    if len(jobs) < _MANY or cores < 2 or threading.active_count() > 1:
        yield from map(read, jobs)
        return
    import multiprocessing  # noqa: PLC0415  (only a first scan of thousands needs it)

    with multiprocessing.get_context("fork").Pool(min(cores, 8)) as pool:
        yield from pool.imap(read, jobs, chunksize=_CHUNK)


def read(job: Job) -> Read:
    path = Path(job.file)
    content = _content(path)
    source = Source(job.file, job.stamp, hashlib.blake2b(content, digest_size=16).hexdigest())
    if job.roles:
        return Read(job.file, source.digest, [make_row(job.root, source, s) for s in parse_role(content, path).skills])
    reading = parse_skill(content, path)
    unread = Skill(name=path.parent.name, path=path, kind=Kind.PROMPT, findings=reading.findings)
    row = make_row(job.root, source, reading.skill or unread, usable=reading.skill is not None)
    return Read(job.file, source.digest, [row])


def _content(path: Path) -> bytes:
    """The file, or enough of it to see that it is too large; nothing where it cannot be read."""
    try:
        return read_plain(path, MAX_FILE_BYTES)
    except OSError:
        return b""
