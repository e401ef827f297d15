"""Idempotency keys: one key, one execution and one result for all, across threads and processes.

A row holds what the latest run of a key gave, and a lock says whether one is under way. The lock goes away when its
owner dies, however it dies, so nobody waits for a dead process. `LocalIdempotency` is for one machine; for several
machines see `postgres_idempotency.py`.
"""

import fcntl
import hashlib
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.result import Result
from skillyard.store import locks
from skillyard.store.runs import Keys

WINDOW_SECONDS = 5.0


class Key(NamedTuple):
    """A key within a scope (project and agent), and the one prompt that it stands for."""

    scope: str
    name: str
    prompt: str

    @property
    def digest(self) -> str:
        return hashlib.blake2b(f"{self.scope}\0{self.name}".encode(), digest_size=16).hexdigest()

    def check_prompt(self, prompt: str) -> None:
        if prompt != self.prompt:
            raise InvalidArgs(Message("the key {name!r} was just used for another prompt", name=self.name))


class KeyedResult(NamedTuple):
    result: Result
    #: It comes from another call's run.
    shared: bool


#: Executes unless another call just has, or is doing it. Never caches a failure, never runs twice at once.
Idempotency = Callable[[Key, Callable[[], Result]], KeyedResult]


class StoredResult(NamedTuple):
    prompt: str
    #: None if the run is under way, or was lost with its owner.
    result: Result | None
    #: When it was written, by the clock of the store.
    at: float
    #: Whether it is a success within its window.
    fresh: bool


class KeyStore(ABC):
    """The stored results, with their clock and a lock for each key."""

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def find(self, key: Key) -> StoredResult | None: ...

    @abstractmethod
    def owning(self, key: Key) -> AbstractContextManager[bool]:
        """Hold the key's lock; gives whether another call had it. Refuses to wait for another prompt's run."""

    @abstractmethod
    def begin(self, key: Key) -> None: ...

    @abstractmethod
    def finish(self, key: Key, result: Result) -> None:
        """Store the result, and forget what no window reaches any more."""

    def __call__(self, key: Key, execute: Callable[[], Result]) -> KeyedResult:
        arrived = self.now()
        stored = self.find(key)
        if stored and stored.result and stored.fresh:
            key.check_prompt(stored.prompt)
            return KeyedResult(stored.result, shared=True)
        with self.owning(key) as waited:
            stored = self.find(key)
            # A success within its window counts for all; whoever waited for a run gets what it gave, also its failure.
            if stored and stored.result and (stored.fresh or (waited and stored.at >= arrived)):
                key.check_prompt(stored.prompt)
                return KeyedResult(stored.result, shared=True)
            self.begin(key)
            result = execute()
            self.finish(key, result)
            return KeyedResult(result, shared=False)


class LocalIdempotency(KeyStore):
    """For one machine: rows in our database, and an flock for each key.

    Covered: threads and processes of one user, kill -9 of the owner, jumps of the wall clock.
    `open_keys` gives each thread a connection of its own.
    """

    def __init__(self, open_keys: Callable[[], Keys], folder: Path, window_seconds: float = WINDOW_SECONDS) -> None:
        self._open_keys, self._folder, self._window = open_keys, folder, window_seconds
        self._threads = threading.local()

    def now(self) -> float:
        return now()

    def find(self, key: Key) -> StoredResult | None:
        kept = self._keys.find(key.digest)
        if kept is None:
            return None
        at = kept.at if kept.boot == boot_id() else -math.inf
        return StoredResult(kept.prompt, kept.result, at, kept.ok and 0 <= now() - at <= self._window)

    def begin(self, key: Key) -> None:
        self._keys.begin(key.digest, key.prompt, boot_id(), now())

    def finish(self, key: Key, result: Result) -> None:
        self._keys.finish(key.digest, result, boot_id(), now())
        self._keys.forget_before(boot_id(), now() - self._window)

    @contextmanager
    def owning(self, key: Key) -> Iterator[bool]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / key.digest
        waited = is_ours = False
        while not is_ours:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                if not locks.take(file):
                    waited = True
                    if stored := self.find(key):
                        key.check_prompt(stored.prompt)
                    fcntl.flock(file, fcntl.LOCK_EX)
                # Its owner may have removed the file: what counts then is the one that is there now.
                is_ours = _is_same_file(file, path)
                if is_ours:
                    yield waited
            finally:
                if is_ours:  # whoever still waits for this file finds it gone, and those that come now make another
                    path.unlink(missing_ok=True)
                os.close(file)

    @property
    def _keys(self) -> Keys:
        keys: Keys | None = getattr(self._threads, "keys", None)
        if keys is None:
            keys = self._threads.keys = self._open_keys()
        return keys


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def now() -> float:
    """Seconds since this machine started, the same for all its processes; no wall clock can jump it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """The start of the machine that `now` counts from."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "this boot"
