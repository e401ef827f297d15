"""Idempotency keys across machines: PostgreSQL's lock and PostgreSQL's clock.

The lock is an advisory one on a connection that lives as long as the run: the database takes it away when its owner,
its machine or the network between them dies. The database alone tells ages, so no machine's clock counts.

Covered: threads, processes and machines on one database; kill -9 of the owner; clocks that differ.
Not covered: a pooler that shares one session among clients (PgBouncer's transaction mode).
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from skillyard.core.envelope import as_json, from_json
from skillyard.core.errors import DatabaseFailed
from skillyard.core.result import Result
from skillyard.scripts.idempotency import WINDOW_SECONDS, Key, KeyedResult, KeyStore
from skillyard.store.runs import KeyRecord

_TABLE = """
CREATE TABLE IF NOT EXISTS skillyard_keys (
    digest TEXT PRIMARY KEY, prompt TEXT NOT NULL, at TIMESTAMPTZ NOT NULL, result TEXT NOT NULL, ok BOOLEAN NOT NULL
)
"""
#: Two that make the same table at once would collide.
_TABLE_LOCK = 7305822


class PostgresIdempotency:
    """For many machines. Each call has a connection of its own."""

    def __init__(self, url: str, window_seconds: float = WINDOW_SECONDS) -> None:
        self._url, self._window = url, window_seconds
        self._made = False

    def __call__(self, key: Key, execute: Callable[[], Result]) -> KeyedResult:
        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                if not self._made:
                    connection.execute("SELECT pg_advisory_lock(%s)", (_TABLE_LOCK,))
                    connection.execute(_TABLE)
                    connection.execute("SELECT pg_advisory_unlock(%s)", (_TABLE_LOCK,))
                    self._made = True
                return _PostgresKeys(connection, self._window)(key, execute)
        except psycopg.Error as error:
            raise DatabaseFailed(f"keys: {error}") from None


class _PostgresKeys(KeyStore):
    def __init__(self, connection: psycopg.Connection, window_seconds: float) -> None:
        self._connection, self.window_seconds = connection, window_seconds

    def now(self) -> float:
        row = self._connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        return float(row[0]) if row else 0.0

    def find(self, key: Key) -> KeyRecord | None:
        query = "SELECT prompt, result, extract(epoch FROM at) FROM skillyard_keys WHERE digest = %s"
        row = self._connection.execute(query, (key.digest,)).fetchone()
        return KeyRecord(row[0], "", float(row[2]), from_json(row[1]) if row[1] else None) if row else None

    def write(self, key: Key, result: Result | None) -> None:
        self._connection.execute(
            "INSERT INTO skillyard_keys (digest, prompt, at, result, ok) VALUES (%s, %s, clock_timestamp(), %s, %s) "
            "ON CONFLICT (digest) DO UPDATE SET prompt = excluded.prompt, at = excluded.at, result = excluded.result, "
            "ok = excluded.ok",
            (key.digest, key.prompt, as_json(result) if result else "", bool(result and result.ok)),
        )
        if result:
            self._connection.execute(
                "DELETE FROM skillyard_keys WHERE result != '' AND clock_timestamp() - at > %s * interval '1 second'",
                (self.window_seconds,),
            )

    @contextmanager
    def owning(self, key: Key) -> Iterator[bool]:
        digest = hashlib.blake2b(f"skillyard-once\0{key.digest}".encode(), digest_size=8).digest()
        lock = int.from_bytes(digest, "big", signed=True)
        row = self._connection.execute("SELECT pg_try_advisory_lock(%s)", (lock,)).fetchone()
        waited = not (row and row[0])
        if waited:
            if stored := self.find(key):
                key.check_prompt(stored.prompt)
            self._connection.execute("SELECT pg_advisory_lock(%s)", (lock,))
        try:
            yield waited
        finally:
            self._connection.execute("SELECT pg_advisory_unlock(%s)", (lock,))
