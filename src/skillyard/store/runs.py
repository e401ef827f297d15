"""The history of runs: requests, launches, results and logs, and the latest result under each idempotency key.

A log is a file, locked for as long as the runtime of its run lives: a run that is `running` in the table and whose log
nobody holds has lost its runtime.
"""

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.core.envelope import as_json, from_json
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.store import locks
from skillyard.store.database import writing
from skillyard.store.locks import LockedFile

RUNNING = "running"
#: Kinds of runs that use no skill by themselves.
_NO_SKILLS = frozenset({"bin", "dispatch", "flow"})
#: How large a log may grow; what comes after is dropped.
LOG_BYTES = 4_194_304
_UNREADABLE = "RuntimeFailed: the record of this run is damaged"


class Run(NamedTuple):
    """One row. `state` is `running` until there is a result."""

    id: str
    agent: str
    skill: str
    kind: str
    state: str
    started: float
    seconds: float | None = None
    #: The name of the job that it is an attempt of.
    job: str = ""
    request: Mapping[str, Json] = NOTHING
    launch: Mapping[str, Json] = NOTHING
    result: Mapping[str, Json] = NOTHING


_MONTH = 30 * 86_400.0
_KEPT_OF_SCHEDULE = 100
_COLUMNS = ", ".join(Run._fields)
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in Run._fields)


class Runs:
    """The runs of one project."""

    def __init__(self, connection: sqlite3.Connection, project: str) -> None:
        self._connection, self._project = connection, project

    def put(self, run: Run) -> None:
        """Add a run. Only an attempt of a job whose worker died begins again under the same id."""
        texts = (_text(run.request), _text(run.launch), _text(run.result))
        self._connection.execute(
            f"INSERT INTO runs (project, {_COLUMNS}) VALUES (?{', ?' * len(Run._fields)}) "
            f"ON CONFLICT (id) DO UPDATE SET {_REPLACED} WHERE project = excluded.project AND job != ''",
            (self._project, *run[:-3], *texts),
        )

    def finish(self, run: Run) -> None:
        """Write the result and count the use, together or not at all."""
        query = "UPDATE runs SET state = ?, seconds = ?, launch = ?, result = ? WHERE id = ?"
        with writing(self._connection):
            self._connection.execute(query, (run.state, run.seconds, _text(run.launch), _text(run.result), run.id))
            if run.skill and run.state == State.SUCCESS and run.kind not in _NO_SKILLS:
                self.record_use(run.skill, run.started, loaded=run.kind == "prompt")

    def close_abandoned(self, run_id: str, state: str, result: Mapping[str, Json]) -> None:
        """Write the end of a run whose runtime died, if nobody else has, and the database can be written."""
        query = "UPDATE runs SET state = ?, result = ? WHERE id = ? AND state = ?"
        try:
            self._connection.execute(query, (state, _text(result), run_id, RUNNING))
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise

    def list(self, limit: int = 20) -> tuple[Run, ...]:
        """The newest first."""
        return self._select("ORDER BY started DESC, id DESC LIMIT ?", limit)

    def list_jobs(self, limit: int = 20) -> tuple[Run, ...]:
        """Only the attempts of jobs."""
        return self._select("AND job != '' ORDER BY started DESC, id DESC LIMIT ?", limit)

    def latest_of(self, job: str, limit: int) -> tuple[Run, ...]:
        """Those of one job, the latest first."""
        return self._select("AND job = ? ORDER BY started DESC, id DESC LIMIT ?", job, limit)

    def list_of(self, job: str) -> tuple[Run, ...]:
        """Those of one job, or of the flow of that id, the first first."""
        return self._select("AND job = ? ORDER BY started, id", job)

    def _select(self, how: str, *values: object) -> tuple[Run, ...]:
        query = f"SELECT {_COLUMNS} FROM runs WHERE project = ? {how}"
        return tuple(map(_run, self._connection.execute(query, (self._project, *values))))

    def find(self, run_id: str) -> Run | None:
        """Find by id, or by the beginning of one if only one starts so."""
        runs = self._select("AND substr(id, 1, ?) = ? ORDER BY length(id) LIMIT 2", len(run_id), run_id)
        exact = [run for run in runs if run.id == run_id]  # a job's second attempt starts like its first
        return (exact or runs)[0] if run_id and (exact or len(runs) == 1) else None

    def forget_before(self, moment: float, keep: int) -> tuple[str, ...]:
        """Drop what is older, or beyond the newest `keep`; return the ids, whose logs can go too. Runs of jobs are
        apart: see `forget_jobs_before`."""
        query = "SELECT count(*), min(started) FROM runs WHERE project = ?"
        count, first = self._connection.execute(query, (self._project,)).fetchone()
        if count <= keep and (first is None or first >= moment):
            return ()  # mostly; to look takes a tenth of the time of the statement below
        rows = self._connection.execute(
            "DELETE FROM runs WHERE project = ? AND state != ? AND job = '' AND (started < ? OR id NOT IN "
            "(SELECT id FROM runs WHERE project = ? AND job = '' ORDER BY started DESC, id DESC LIMIT ?)) RETURNING id",
            (self._project, RUNNING, moment, self._project, keep),
        )
        return tuple(run_id for (run_id,) in rows.fetchall())

    def forget_jobs_before(self, moment: float, keep: int, now: float) -> tuple[str, ...]:
        """The same for the runs of jobs. The last of each schedule stay, and each failure that is younger than a month.

        A flow's own row goes only by its age: it is older than the runs of its steps, and they may be many."""
        rows = self._connection.execute(
            "SELECT id, job, started, json_extract(request, '$.job.schedule') IS NOT NULL FROM runs WHERE project = ? "
            "AND job != '' AND state != ? AND (state NOT IN ('error', 'timeout') OR started < ?) AND (started < ? OR "
            "(kind != 'flow' AND id NOT IN (SELECT id FROM runs WHERE project = ? AND job != '' "
            "ORDER BY started DESC, id DESC LIMIT ?)))",
            (self._project, RUNNING, now - _MONTH, moment, self._project, keep),
        ).fetchall()
        scheduled = {job for _, job, _, is_scheduled in rows if is_scheduled}
        kept_from = {job: self._started_of_last(job, _KEPT_OF_SCHEDULE) for job in scheduled}
        gone = [(run_id,) for run_id, job, started, of in rows if not of or started < kept_from[job]]
        self._connection.executemany("DELETE FROM runs WHERE id = ?", gone)
        return tuple(run_id for (run_id,) in gone)

    def _started_of_last(self, job: str, count: int) -> float:
        """Return when the oldest of the last `count` runs of a job started."""
        query = "SELECT started FROM runs WHERE project = ? AND job = ? ORDER BY started DESC LIMIT 1 OFFSET ?"
        row = self._connection.execute(query, (self._project, job, count - 1)).fetchone()
        return float(row[0]) if row else 0.0

    def record_use(self, skill: str, moment: float, *, loaded: bool = False) -> None:
        """Count a use, or that a prompt was loaded: whether anybody followed it, nobody knows."""
        self._connection.execute(
            "INSERT INTO usage (project, skill, count, loads, last) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (project, skill) DO UPDATE SET count = count + excluded.count, "
            "loads = loads + excluded.loads, last = max(last, excluded.last)",
            (self._project, skill, not loaded, loaded, moment),
        )

    def uses(self) -> dict[str, int]:
        """Return how often each skill ran and succeeded."""
        return self._counts("count")

    def loads(self) -> dict[str, int]:
        """Return how often each prompt was loaded."""
        return self._counts("loads")

    def _counts(self, column: str) -> dict[str, int]:
        query = f"SELECT skill, {column} FROM usage WHERE project = ? AND {column} > 0"
        return dict(self._connection.execute(query, (self._project,)).fetchall())


def _text(value: Mapping[str, Json]) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)


def _run(row: tuple[Any, ...]) -> Run:
    """The run of a row. If bytes of it changed on the disk, as far as it can be read."""
    *texts, started, seconds, job = row[:-3]
    mappings: list[Mapping[str, Json] | None] = [None]
    with suppress(ValueError):
        mappings = [json.loads(str(text)) for text in row[-3:]]
    if not all(isinstance(found, dict) for found in mappings):
        mappings = [NOTHING, NOTHING, {"state": "error", "summary": _UNREADABLE}]
    times = (started if _is_time(started) else 0.0, seconds if _is_time(seconds) else None)
    return Run._make((*map(str, texts), *times, str(job), *mappings))


def _is_time(value: object) -> bool:
    """A number that a date can be made of."""
    return isinstance(value, int | float) and 0 <= value < 1e11


class Log(LockedFile):
    """A log that is being written. Pieces come from another thread than the one that opened it."""

    _left = LOG_BYTES

    def write(self, piece: bytes) -> None:
        kept = piece[: self._left]
        self._left -= len(kept)
        while kept:
            kept = kept[os.write(self.file, kept) :]


class Logs:
    """The folder of all logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.log"

    def open(self, run_id: str) -> Log:
        return Log.wait(self.path(run_id), os.O_WRONLY | os.O_APPEND)

    def read(self, run_id: str) -> str:
        with suppress(FileNotFoundError):
            return self.path(run_id).read_text("utf-8", "replace")
        return ""

    def read_from(self, run_id: str, offset: int) -> bytes:
        """What was written since then, for somebody who follows the log."""
        with suppress(FileNotFoundError), self.path(run_id).open("rb") as file:
            file.seek(offset)
            return file.read()
        return b""

    def is_held(self, run_id: str) -> bool:
        """Whether the run's runtime still lives."""
        return locks.is_held(self.path(run_id))

    def remove(self, run_id: str) -> None:
        self.path(run_id).unlink(missing_ok=True)


class KeyRecord(NamedTuple):
    """The latest run under an idempotency key. Without a result it is active, or was lost with its owner."""

    prompt: str
    boot: str
    #: Seconds since that boot.
    at: float
    result: Result | None

    @property
    def succeeded(self) -> bool:
        """Wholly: a partial result is never repeated."""
        return self.result is not None and self.result.state is State.SUCCESS


class Keys:
    """Idempotency keys."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, digest: str) -> KeyRecord | None:
        query = "SELECT prompt, boot, at, result FROM keys WHERE digest = ?"
        row = self._connection.execute(query, (digest,)).fetchone()
        if row:
            with suppress(ValueError, TypeError):  # bytes changed on the disk: nothing is known of this key
                return KeyRecord(row[0], row[1], float(row[2]), from_json(row[3]) if row[3] else None)
        return None

    def begin(self, digest: str, prompt: str, boot: str, at: float) -> None:
        query = "INSERT OR REPLACE INTO keys (digest, prompt, boot, at, result) VALUES (?, ?, ?, ?, '')"
        self._connection.execute(query, (digest, prompt, boot, at))

    def finish(self, digest: str, result: Result, boot: str, at: float) -> None:
        query = "UPDATE keys SET boot = ?, at = ?, result = ? WHERE digest = ?"
        self._connection.execute(query, (boot, at, as_json(result), digest))

    def forget_before(self, boot: str, at: float) -> None:
        """Drop what no window reaches any more."""
        self._connection.execute("DELETE FROM keys WHERE result != '' AND (boot != ? OR at < ?)", (boot, at))
