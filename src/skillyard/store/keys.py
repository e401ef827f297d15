"""Idempotency keys: what the latest run under a key gave, and when."""

import sqlite3
from typing import NamedTuple

from skillyard.core.envelope import as_json, from_json
from skillyard.core.result import Result


class Kept(NamedTuple):
    """`at` counts seconds since the boot named; without a result the run is under way, or was lost with its owner."""

    prompt: str
    boot: str
    at: float
    result: Result | None

    @property
    def ok(self) -> bool:
        return self.result is not None and self.result.ok


class Keys:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, digest: str) -> Kept | None:
        row = self._connection.execute(
            "SELECT prompt, boot, at, result FROM keys WHERE digest = ?", (digest,)
        ).fetchone()
        if row is None:
            return None
        try:
            return Kept(row[0], row[1], float(row[2]), from_json(row[3]) if row[3] else None)
        except (ValueError, TypeError):  # bytes changed on the disk: nothing is known of this key
            return None

    def begin(self, digest: str, prompt: str, boot: str, at: float) -> None:
        self._put(digest, prompt, boot, at, "")

    def finish(self, digest: str, result: Result, boot: str, at: float) -> None:
        self._connection.execute(
            "UPDATE keys SET boot = ?, at = ?, result = ? WHERE digest = ?", (boot, at, as_json(result), digest)
        )

    def forget_before(self, boot: str, at: float) -> None:
        """What no window reaches any more."""
        self._connection.execute("DELETE FROM keys WHERE result != '' AND (boot != ? OR at < ?)", (boot, at))

    def _put(self, digest: str, prompt: str, boot: str, at: float, result: str) -> None:
        self._connection.execute(
            "INSERT INTO keys (digest, prompt, boot, at, result) VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE "
            "SET prompt = excluded.prompt, boot = excluded.boot, at = excluded.at, result = excluded.result",
            (digest, prompt, boot, at, result),
        )
