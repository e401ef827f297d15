"""Idempotency keys: one key, one execution and one result for all, across threads and processes.

A row holds what the latest run of a key gave, and a lock says whether one is under way. The lock goes away when its
owner dies, however it dies, so nobody waits for a dead process. `LocalIdempotency` is for one machine; for several
machines see `postgres_idempotency.py`.
"""

import fcntl
import hashlib
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.result import Result
from skillyard.store import locks
from skillyard.store.runs import KeyRecord, Keys

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


class KeyStore(ABC):
    """The stored results, with their clock and a lock for each key. A success counts for all within its window."""

    window_seconds: float

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def find(self, key: Key) -> KeyRecord | None: ...

    @abstractmethod
    def owning(self, key: Key) -> AbstractContextManager[bool]:
        """Hold the key's lock; gives whether another call had it. Refuses to wait for another prompt's run."""

    @abstractmethod
    def write(self, key: Key, result: Result | None) -> None:
        """Store that a run is under way, or its result; then forget what no window reaches any more."""

    def __call__(self, key: Key, execute: Callable[[], Result]) -> KeyedResult:
        arrived = self.now()
        if found := self._shared(key, math.inf):
            return found
        with self.owning(key) as waited:
            # Whoever waited for a run gets its result, also a failure.
            if found := self._shared(key, arrived if waited else math.inf):
                return found
            self.write(key, None)
            result = execute()
            self.write(key, result)
            return KeyedResult(result, shared=False)

    def _shared(self, key: Key, since: float) -> KeyedResult | None:
        stored = self.find(key)
        if not stored or not stored.result:
            return None
        is_fresh = stored.succeeded and 0 <= self.now() - stored.at <= self.window_seconds
        if not is_fresh and stored.at < since:
            return None
        key.check_prompt(stored.prompt)
        return KeyedResult(stored.result, shared=True)


class LocalIdempotency(KeyStore):
    """For one machine: rows in our database, and an flock for each key. Each thread has one of its own.

    Covered: threads and processes of one user, kill -9 of the owner, jumps of the wall clock.
    """

    def __init__(self, keys: Keys, folder: Path, window_seconds: float = WINDOW_SECONDS) -> None:
        self._keys, self._folder, self.window_seconds = keys, folder, window_seconds

    def now(self) -> float:
        return now()

    def find(self, key: Key) -> KeyRecord | None:
        kept = self._keys.find(key.digest)
        return kept._replace(at=-math.inf) if kept and kept.boot != boot_id() else kept

    def write(self, key: Key, result: Result | None) -> None:
        if result is None:
            self._keys.begin(key.digest, key.prompt, boot_id(), now())
        else:
            self._keys.finish(key.digest, result, boot_id(), now())
            self._keys.forget_before(boot_id(), now() - self.window_seconds)

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
                with suppress(FileNotFoundError):
                    # Its owner may have removed the file: what counts then is the one that is there now.
                    is_ours = os.path.samestat(os.fstat(file), path.stat())
                if is_ours:
                    yield waited
            finally:
                if is_ours:  # whoever still waits for this file finds it gone, and those that come now make another
                    path.unlink(missing_ok=True)
                os.close(file)


def now() -> float:
    """Seconds since this machine started, the same for all its processes; no wall clock can jump it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """The start of the machine that `now` counts from."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "this boot"
