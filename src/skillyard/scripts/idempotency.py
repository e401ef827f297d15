"""Idempotency that holds across threads and processes: one key, one execution, one result for all.

A row says what a key's latest run gave, and a lock says whether one is under way. The lock is an flock: the kernel
takes it away when its owner dies, however it dies, so nobody waits for the dead and nobody has to guess.

Covered: threads and processes of one user on one machine, kill -9 of the owner, jumps of the wall clock.
Not covered: several machines; their lock and their clock are the database's (`engines/shared_once.py`).
"""

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.result import Result
from skillyard.store import locks
from skillyard.store.runs import KeyRecord, Keys

WINDOW_SECONDS = 5.0


class Key(NamedTuple):
    """What is asked to happen once: within a scope (project and agent), under a name, for one prompt."""

    scope: str
    name: str
    prompt: str

    @property
    def digest(self) -> str:
        return hashlib.blake2b(f"{self.scope}\0{self.name}".encode(), digest_size=16).hexdigest()


class Answer(NamedTuple):
    result: Result
    #: It comes from another call's run.
    shared: bool


class Once(Protocol):
    """Executes unless somebody just has, or is doing it. Never caches a failure, never runs twice at once."""

    def __call__(self, key: Key, execute: Callable[[], Result]) -> Answer: ...


class LocalOnce:
    """For one machine. `open_keys` gives each thread its own connection."""

    def __init__(self, open_keys: Callable[[], Keys], folder: Path, window_seconds: float = WINDOW_SECONDS) -> None:
        self._open_keys = open_keys
        self._folder = folder
        self._window = window_seconds
        self._threads = threading.local()

    def __call__(self, key: Key, execute: Callable[[], Result]) -> Answer:
        arrived = now()
        kept = self._keys.find(key.digest)
        if kept and kept.result and self._is_fresh(kept):
            return _shared(key, kept)
        with self._owning(key) as waited:
            kept = self._keys.find(key.digest)
            if kept and kept.result and self._answers(kept, arrived, waited=waited):
                return _shared(key, kept)
            self._keys.begin(key.digest, key.prompt, boot_id(), now())
            result = execute()
            self._keys.finish(key.digest, result, boot_id(), now())
            self._keys.forget_before(boot_id(), now() - self._window)
            return Answer(result, shared=False)

    def _answers(self, kept: KeyRecord, arrived: float, *, waited: bool) -> bool:
        """A success within its window; for those who waited, whatever the run gave that they waited for."""
        ended_while_waiting = waited and kept.boot == boot_id() and kept.at >= arrived
        return self._is_fresh(kept) or ended_while_waiting

    def _is_fresh(self, kept: KeyRecord) -> bool:
        age = now() - kept.at
        return kept.ok and kept.boot == boot_id() and 0 <= age <= self._window

    @contextmanager
    def _owning(self, key: Key) -> Iterator[bool]:
        """Hold the key's lock; whether somebody else had it when we came."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / key.digest
        file, waited = self._locked(key, path)
        try:
            yield waited
        finally:
            # Whoever still waits for this file finds it gone, and those that come now make another.
            path.unlink(missing_ok=True)
            os.close(file)

    def _locked(self, key: Key, path: Path) -> tuple[int, bool]:
        waited = False
        while True:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if not locks.take(file):
                waited = True
                self._refuse_another_prompt(key, file)
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_same_file(file, path):
                return file, waited
            os.close(file)  # its owner took the file away: what counts now is the one that is there

    def _refuse_another_prompt(self, key: Key, file: int) -> None:
        kept = self._keys.find(key.digest)
        if kept and kept.prompt != key.prompt:
            os.close(file)
            raise another_prompt(key)

    @property
    def _keys(self) -> Keys:
        keys: Keys | None = getattr(self._threads, "keys", None)
        if keys is None:
            keys = self._threads.keys = self._open_keys()
        return keys


def _shared(key: Key, kept: KeyRecord) -> Answer:
    if kept.prompt != key.prompt:
        raise another_prompt(key)
    assert kept.result is not None  # noqa: S101  (asked before)
    return Answer(kept.result, shared=True)


def another_prompt(key: Key) -> InvalidArgs:
    return InvalidArgs(
        Message("the key {name!r} was just used for another prompt: one key, one meaning", name=key.name)
    )


def _is_same_file(file: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(file)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def now() -> float:
    """Seconds since this machine started, the same for all its processes; no wall clock can jump it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Which start of the machine that counts from."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "this boot"
