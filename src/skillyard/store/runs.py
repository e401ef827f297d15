"""The history of runs: what was asked, what was started, what came of it."""

import json
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from skillyard.core.values import NOTHING, Json

RUNNING = "running"


class Run(NamedTuple):
    """One row. `state` is `running` until the result is there."""

    id: str
    agent: str
    skill: str
    kind: str
    state: str
    started: float
    seconds: float | None = None
    request: Mapping[str, Json] = NOTHING
    launch: Mapping[str, Json] = NOTHING
    result: Mapping[str, Json] = NOTHING
    log: str = ""


_COLUMNS = "id, agent, skill, kind, state, started, seconds, request, launch, result, log"


class Runs:
    """The runs of one project."""

    def __init__(self, connection: sqlite3.Connection, project: str) -> None:
        self._connection = connection
        self._project = project

    def start(self, run: Run) -> None:
        self._connection.execute(
            f"INSERT INTO runs (project, {_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(self._project, run.id, run.agent, run.skill, run.kind, run.state, run.started, run.seconds),
                *(_text(run.request), _text(run.launch), _text(run.result), run.log),
            ),
        )

    def finish(self, run_id: str, state: str, seconds: float, result: Mapping[str, Json], log: str) -> None:
        """The result and the use are kept together, or not at all."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "UPDATE runs SET state = ?, seconds = ?, result = ?, log = ? WHERE id = ?",
                (state, seconds, _text(result), log, run_id),
            )

    def list(self, limit: int = 20) -> tuple[Run, ...]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE project = ? ORDER BY started DESC, id DESC LIMIT ?",
            (self._project, limit),
        )
        return tuple(map(_run, rows))

    def find(self, run_id: str) -> Run | None:
        """By id, or by the beginning of one where only one starts so."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE project = ? AND substr(id, 1, ?) = ? LIMIT 2",
            (self._project, len(run_id), run_id),
        ).fetchall()
        return _run(rows[0]) if len(rows) == 1 else None

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


def _run(row: tuple[str, str, str, str, str, float, float | None, str, str, str, str]) -> Run:
    id_, agent, skill, kind, state, started, seconds, request, launch, result, log = row
    return Run(
        id=id_,
        agent=agent,
        skill=skill,
        kind=kind,
        state=state,
        started=started,
        seconds=seconds,
        request=json.loads(request),
        launch=json.loads(launch),
        result=json.loads(result),
        log=log,
    )
