"""The history of runs: what was asked, what was started, what came of it."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from skillyard.core.values import NOTHING, Json
from skillyard.store.database import writing

RUNNING = "running"


class Run(NamedTuple):
    """One row. `state` is `running` until the result is there; the log lies in a file of its own."""

    id: str
    agent: str
    skill: str
    kind: str
    state: str
    started: float
    seconds: float | None = None
    #: The job that it is an attempt of, by name.
    job: str = ""
    request: Mapping[str, Json] = NOTHING
    launch: Mapping[str, Json] = NOTHING
    result: Mapping[str, Json] = NOTHING


_COLUMNS = ", ".join(Run._fields)
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in Run._fields)


class Runs:
    """The runs of one project."""

    def __init__(self, connection: sqlite3.Connection, project: str) -> None:
        self._connection = connection
        self._project = project

    def start(self, run: Run) -> None:
        """An attempt of a job whose worker died begins again under the same id."""
        self._put(run)

    def keep(self, run: Run) -> None:
        """What ended without ever starting a program."""
        self._put(run)

    def _put(self, run: Run) -> None:
        texts = (_text(run.request), _text(run.launch), _text(run.result))
        self._connection.execute(
            f"INSERT INTO runs (project, {_COLUMNS}) VALUES (?{', ?' * len(Run._fields)}) "
            f"ON CONFLICT (id) DO UPDATE SET {_REPLACED} WHERE project = excluded.project AND job != ''",
            (self._project, *run[:-3], *texts),
        )

    def finish(self, run: Run) -> None:
        """The result and the use are kept together, or not at all."""
        with writing(self._connection):
            self._connection.execute(
                "UPDATE runs SET state = ?, seconds = ?, launch = ?, result = ? WHERE id = ?",
                (run.state, run.seconds, _text(run.launch), _text(run.result), run.id),
            )
            if run.skill:  # a task for an agent uses none by itself
                self.record_use(run.skill, run.started)

    def close_abandoned(self, run_id: str, state: str, result: Mapping[str, Json]) -> None:
        """The end of a run whose runtime died: only where nobody else has written one, and anything can be written."""
        try:
            self._connection.execute(
                "UPDATE runs SET state = ?, result = ? WHERE id = ? AND state = ?",
                (state, _text(result), run_id, RUNNING),
            )
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise

    def list(self, limit: int = 20) -> tuple[Run, ...]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE project = ? ORDER BY started DESC, id DESC LIMIT ?",
            (self._project, limit),
        )
        return tuple(map(_run, rows))

    def list_jobs(self, limit: int = 20) -> tuple[Run, ...]:
        """Only the attempts of jobs."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE project = ? AND job != '' ORDER BY started DESC, id DESC LIMIT ?",
            (self._project, limit),
        )
        return tuple(map(_run, rows))

    def list_of(self, job: str) -> tuple[Run, ...]:
        """Those of one job, or of the flow of that id, the first first."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE project = ? AND job = ? ORDER BY started, id", (self._project, job)
        )
        return tuple(map(_run, rows))

    def find(self, run_id: str) -> Run | None:
        """By id, or by the beginning of one where only one starts so."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE project = ? AND substr(id, 1, ?) = ? ORDER BY length(id) LIMIT 2",
            (self._project, len(run_id), run_id),
        ).fetchall()
        exact = [row for row in rows if row[0] == run_id]  # a job's second attempt starts like its first
        return _run((exact or rows)[0]) if run_id and (exact or len(rows) == 1) else None

    def forget_before(self, moment: float, keep: int) -> tuple[str, ...]:
        """Drop what is older, or beyond the newest `keep`; the ids, whose logs can go too.

        A flow's own row goes only by its age: it is older than the runs of its steps, and they may be many."""
        rows = self._connection.execute(
            "DELETE FROM runs WHERE project = ? AND state != ? AND (started < ? OR (kind != 'flow' AND id NOT IN "
            "(SELECT id FROM runs WHERE project = ? ORDER BY started DESC, id DESC LIMIT ?))) RETURNING id",
            (self._project, RUNNING, moment, self._project, keep),
        )
        return tuple(run_id for (run_id,) in rows.fetchall())

    def record_use(self, skill: str, moment: float) -> None:
        self._connection.execute(
            "INSERT INTO usage (project, skill, count, last) VALUES (?, ?, 1, ?) "
            "ON CONFLICT (project, skill) DO UPDATE SET count = count + 1, last = max(last, excluded.last)",
            (self._project, skill, moment),
        )

    def uses(self) -> dict[str, int]:
        rows = self._connection.execute("SELECT skill, count FROM usage WHERE project = ?", (self._project,))
        return dict(rows.fetchall())


def _text(value: Mapping[str, Json]) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)


def _run(row: tuple[Any, ...]) -> Run:
    """A row in which bytes changed on the disk is shown as far as it can be read."""
    mappings: tuple[Mapping[str, Json], ...]
    try:
        mappings = tuple(map(_mapping, row[-3:]))
    except (ValueError, TypeError):
        mappings = (NOTHING, NOTHING, {"state": "error", "summary": _UNREADABLE})
    *texts, started, seconds, job = row[:-3]
    times = (started if _is_time(started) else 0.0, seconds if _is_time(seconds) else None)
    return Run._make((*map(str, texts), *times, str(job), *mappings))


_UNREADABLE = "RuntimeFailed: the record of this run is damaged"


def _mapping(text: object) -> dict[str, Json]:
    found = json.loads(str(text))
    if not isinstance(found, dict):
        raise TypeError("not a mapping")
    return found


def _is_time(value: object) -> bool:
    """A number that a date can be made of."""
    return isinstance(value, int | float) and 0 <= value < 1e11
