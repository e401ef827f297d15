"""One key, one execution, across machines: the same as `LocalOnce`, with PostgreSQL's lock and PostgreSQL's clock.

The lock is an advisory one on a connection that lives as long as the run: the database takes it away when its owner,
its machine or the network between them dies. Ages are told by the database alone, so no machine's clock counts.

Covered: threads, processes and machines on one database; kill -9 of the owner; clocks that differ.
Not covered: a pooler that shares one session among clients (PgBouncer's transaction mode).
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from skillyard.core.envelope import as_json, from_json
from skillyard.core.errors import DatabaseFailed
from skillyard.core.result import Result
from skillyard.scripts.idempotency import WINDOW_SECONDS, Answer, Key, another_prompt

_TABLE = """
CREATE TABLE IF NOT EXISTS skillyard_keys (
    digest TEXT PRIMARY KEY, prompt TEXT NOT NULL, at TIMESTAMPTZ NOT NULL, result TEXT NOT NULL, ok BOOLEAN NOT NULL
)
"""
#: Two that make the same table at once would collide.
_TABLE_LOCK = 7305822


class _Kept(NamedTuple):
    prompt: str
    #: Without one the run is under way, or was lost with its owner.
    result: Result | None
    fresh: bool
    at: float


class SharedOnce:
    """For many machines. Each call has a connection of its own."""

    def __init__(self, url: str, window_seconds: float = WINDOW_SECONDS) -> None:
        self._url, self._window = url, window_seconds
        self._made = False

    def __call__(self, key: Key, execute: Callable[[], Result]) -> Answer:
        with self._connected() as connection:
            arrived = _clock(connection)
            kept = self._find(connection, key)
            if kept and kept.result and kept.fresh:
                return _shared(key, kept, kept.result)
            with _owning(connection, key, lambda: self._find(connection, key)) as waited:
                kept = self._find(connection, key)
                if kept and kept.result and (kept.fresh or (waited and kept.at >= arrived)):
                    return _shared(key, kept, kept.result)
                _write(connection, key, "", ok=False)
                result = execute()
                _write(connection, key, as_json(result), ok=result.ok)
                self._forget(connection)
                return Answer(result, shared=False)

    @contextmanager
    def _connected(self) -> Iterator["psycopg.Connection"]:
        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                if not self._made:
                    connection.execute("SELECT pg_advisory_lock(%s)", (_TABLE_LOCK,))
                    connection.execute(_TABLE)
                    connection.execute("SELECT pg_advisory_unlock(%s)", (_TABLE_LOCK,))
                    self._made = True
                yield connection
        except psycopg.Error as error:
            raise DatabaseFailed(f"keys: {error}") from None

    def _find(self, connection: "psycopg.Connection", key: Key) -> _Kept | None:
        row = connection.execute(
            "SELECT prompt, result, ok AND clock_timestamp() - at BETWEEN interval '0' AND %s * interval '1 second', "
            "extract(epoch FROM at) FROM skillyard_keys WHERE digest = %s",
            (self._window, key.digest),
        ).fetchone()
        return _Kept(row[0], from_json(row[1]) if row[1] else None, row[2], float(row[3])) if row else None

    def _forget(self, connection: "psycopg.Connection") -> None:
        """What no window reaches any more."""
        connection.execute(
            "DELETE FROM skillyard_keys WHERE result != '' AND clock_timestamp() - at > %s * interval '1 second'",
            (self._window,),
        )


@contextmanager
def _owning(connection: "psycopg.Connection", key: Key, find: Callable[[], _Kept | None]) -> Iterator[bool]:
    """Hold the key's lock; whether somebody else had it when we came. The end of the connection gives it back too."""
    lock = _lock(key)
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (lock,)).fetchone()
    waited = not (row and row[0])
    if waited:
        kept = find()
        if kept and kept.prompt != key.prompt:
            raise another_prompt(key)
        connection.execute("SELECT pg_advisory_lock(%s)", (lock,))
    try:
        yield waited
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (lock,))


def _write(connection: "psycopg.Connection", key: Key, result: str, *, ok: bool) -> None:
    connection.execute(
        "INSERT INTO skillyard_keys (digest, prompt, at, result, ok) VALUES (%s, %s, clock_timestamp(), %s, %s) "
        "ON CONFLICT (digest) DO UPDATE SET prompt = excluded.prompt, at = excluded.at, result = excluded.result, "
        "ok = excluded.ok",
        (key.digest, key.prompt, result, ok),
    )


def _clock(connection: "psycopg.Connection") -> float:
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
    return float(row[0]) if row else 0.0


def _shared(key: Key, kept: _Kept, result: Result) -> Answer:
    if kept.prompt != key.prompt:
        raise another_prompt(key)
    return Answer(result, shared=True)


def _lock(key: Key) -> int:
    digest = hashlib.blake2b(f"skillyard-once\0{key.digest}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
