"""The library: `Project` and what it can be asked for. Its parts, which the faces use too, are built in `rooms.py`."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.paths import ProjectPaths, find_paths
from skillyard.app.rooms import Rooms
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.values import check_value

if TYPE_CHECKING:
    from os import PathLike

    from skillyard.catalog.catalog import SearchHit
    from skillyard.catalog.index import CatalogEntry
    from skillyard.core.result import Request, Result
    from skillyard.core.values import Json
    from skillyard.sandbox.launch import Sandbox
    from skillyard.store.runs import Run


class Project(Rooms):
    """One project. Any number of threads may use it at once.

    Open it with the path of a folder; without one it is the project that the working directory belongs to. Close it
    with `close()` or as a context manager, once no call is running any more.
    """

    def __init__(
        self,
        path: "str | PathLike[str] | ProjectPaths | None" = None,
        *,
        lang: "Lang | str | None" = None,
        ends_with_process: bool = False,
        notify: Callable[[SkillError], None] | None = None,
        sandbox: "Sandbox | None" = None,
    ) -> None:
        """`lang` is "en" or "zh"; the default is SKILLYARD_LANG, else the locale.

        `ends_with_process`: release nothing at the end, because the end of the process does that faster. `notify` gets
        what was wrong with our own files; the default writes it to stderr. `sandbox` is used instead of one of its own,
        and left open.
        """
        paths = path if isinstance(path, ProjectPaths) else find_paths(_as_folder(path))
        super().__init__(paths, as_lang(lang), notify or _write_error, sandbox, ends_with_process=ends_with_process)

    def run(self, name: "str | Request", /, *args: str, **params: "Json") -> "Result":
        """Run one skill and return its result; an expected failure is a result too.

        `args` are words as they would be typed, `params` values by name. For every other option pass a `Request`.
        """
        from skillyard.core.result import Request

        if isinstance(name, Request):
            if args or params:
                raise TypeError("run() takes either a Request or a name with arguments, not both")
            return self.runtime.run(name)
        _expect_call(name, args, params)
        return self.runtime.run(Request(name=name.removeprefix("@"), args=args, params=params, lang=self.lang))

    def task(
        self,
        agent: str,
        description: str,
        prompt: str,
        *,
        idempotency_key: str | None = None,
        model: str | None = None,
        timeout_seconds: float | None = None,
    ) -> "Result":
        """Hand a Task to the skills agent or the worker agent: docs/spec/task.md."""
        from skillyard.app.task import Kernel

        return Kernel(self, self.lang).task(
            agent,
            description,
            prompt,
            idempotency_key=idempotency_key,
            model=model,
            timeout_seconds=timeout_seconds,
        )

    def enqueue(self, name: str, /, *args: str, **params: "Json") -> str:
        """Queue a skill for a worker (`skillyard worker`) and return the id of the job, which is also that of its run.

        Raise SkillError if it cannot run: an unknown name, a wrong param. Needs the extra `jobs`.
        """
        from skillyard.jobs.jobs import Job

        _expect_call(name, args, params)
        job = self.jobs.prepare(Job(name.removeprefix("@"), args=args, params=params, lang=str(self.lang)))
        with self.jobs.open() as jobs:
            return jobs.enqueue(job)

    def skills(self) -> "tuple[CatalogEntry, ...]":
        """Every skill that can be used here."""
        self.catalog.sync()
        return self.catalog.list()

    def search(self, query: str, limit: int = 20) -> "tuple[SearchHit, ...]":
        """The skills that fit the query best, the best first."""
        expect("query", query, str)
        expect("limit", limit, int)
        self.catalog.sync()
        return self.catalog.search(query, limit)

    def runs(self, limit: int = 20) -> "tuple[Run, ...]":
        """The latest runs of this project, the latest first."""
        expect("limit", limit, int)
        return tuple(map(self._closed, self.history.list(limit)))

    def find_run(self, run_id: str) -> "Run | None":
        run = self.history.find(run_id)
        return self._closed(run) if run else None

    def _closed(self, run: "Run") -> "Run":
        """A run that nobody holds any more has lost its runtime: it gets its end now."""
        from skillyard.store.runs import RUNNING

        if run.state != RUNNING or self.logs.is_held(run.id):
            return run
        told = {"state": "error", "summary": "RuntimeFailed: the runtime ended before the run did"}
        self.history.close_abandoned(run.id, "error", told)
        after = self.history.find(run.id) or run
        return after._replace(state="error", result=told) if after.state == RUNNING else after


def open_project(*, ends_with_process: bool = False) -> Project:
    return Project(ends_with_process=ends_with_process)


def run(request: "Request") -> "Result":
    """Run one skill of the project that the working directory belongs to."""
    with Project() as project:
        return project.run(request)


def as_lang(lang: "Lang | str | None") -> Lang:
    """Return the language; without one that of the environment."""
    if lang is None:
        return Lang.choose(None, os.environ)
    expect("lang", lang, str)
    if lang not in tuple(Lang):
        raise ValueError(f"lang must be one of {', '.join(Lang)}, not {lang!r}")
    return Lang(lang)


def expect(name: str, value: object, *types: type) -> None:
    """Raise TypeError, with the name of the argument, unless the value is of one of the types; True is no number."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join(each.__name__ for each in types)
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def _expect_call(name: str, args: tuple[str, ...], params: "Mapping[str, Json]") -> None:
    expect("name", name, str)
    for arg in args:
        expect("args", arg, str)
    try:
        check_value(params)
    except ValueError as error:
        raise TypeError(f"params must hold JSON values: {error}") from None


def _as_folder(path: "str | PathLike[str] | None") -> Path | None:
    if path is None:
        return None
    expect("path", path, str, os.PathLike)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InvalidArgs(Message("{folder} is no folder", folder=folder))
    return folder


def _write_error(error: SkillError) -> None:
    import sys

    lang = Lang.choose(None, os.environ)
    said = error.summary(lang).removeprefix(f"{error.type}: ")
    sys.stderr.write(f"skillyard: {said}\n  {error.hint(lang)}\n")
