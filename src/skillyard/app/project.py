"""Builds the rest, each part when it is first needed."""

import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Self

from skillyard.app.paths import ProjectPaths, find_paths
from skillyard.core.errors import ExtraMissing, InvalidArgs, SkillError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from skillyard.app.settings import Dispatching, Settings
    from skillyard.backends.driver import Driver
    from skillyard.catalog.catalog import Catalog
    from skillyard.core.phrases import Lang
    from skillyard.core.request import Request
    from skillyard.core.result import Result
    from skillyard.dispatch.activation import Activator
    from skillyard.dispatch.contents import Contents, Memo
    from skillyard.dispatch.order import Dispatcher
    from skillyard.dispatch.warm import Warmth
    from skillyard.editor.editor import Editor
    from skillyard.runtime.pipeline import Runtime
    from skillyard.runtime.record import Recorder
    from skillyard.sandbox.launch import Sandbox
    from skillyard.scripts.deciders import Decider
    from skillyard.scripts.idempotency import Once
    from skillyard.scripts.worker import Worker
    from skillyard.store.activations import Activations
    from skillyard.store.cancel_pipe import Bells
    from skillyard.store.conversation_locks import Slots
    from skillyard.store.conversations import Conversations
    from skillyard.store.grants import Grants
    from skillyard.store.logs import Logs
    from skillyard.store.runs import Run, Runs


class Project:
    """One project with everything in it. Leave it with `close`, or as a context manager."""

    def __init__(
        self,
        places: ProjectPaths,
        *,
        ends_with_process: bool = False,
        notify: Callable[[SkillError], None] | None = None,
    ) -> None:
        """`ends_with_process`: leaving gives nothing back, because the end of the process does that faster.
        `notify` hears what is wrong with our own files and was repaired, or does not count; the default is stderr."""
        self.places = places
        self._notify = notify or _notify_on_stderr
        self._ends_with_process = ends_with_process
        self._borrows_sandbox = False
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what was opened, and only that."""
        opened = vars(self)
        if "sandbox" in opened:
            self._remember_machine()
        if "_database" in opened and not self._is_closed and self._database.total_changes:
            self.back_up_if_due(is_short=True)
        self._is_closed = True
        if self._ends_with_process:
            return
        if "sandbox" in opened and not self._borrows_sandbox:
            getattr(self.sandbox, "close", lambda: None)()
        if "_database" in opened:
            self._database.close()
        if "catalog" in opened:
            self.catalog.index.close()

    def twin(self) -> "Project":
        """The same project for another thread: databases of its own, because SQLite's belong to the thread that
        opened them, and this one's sandbox, which any number of threads may call. Outlive it."""
        twin = Project(self.places, ends_with_process=self._ends_with_process, notify=self._notify)
        twin.sandbox, twin._borrows_sandbox = self.sandbox, True
        return twin

    @cached_property
    def root(self) -> "Path":
        if self.places.project is None:
            raise InvalidArgs("this is not a project folder: change into one, or make one")
        return self.places.project

    @cached_property
    def catalog(self) -> "Catalog":
        from skillyard.catalog.catalog import Catalog
        from skillyard.catalog.index import Index
        from skillyard.catalog.roots import list_roots

        more = (*self._trusted_roots(), *self.settings.roots)
        roots = list_roots(self.places.project, self.places.user_home, self.places.own_home, more)
        return Catalog(roots=roots, index=Index(self.places.index_file), uses=self._uses)

    @cached_property
    def settings(self) -> "Settings":
        from skillyard.app.settings import read_settings

        return read_settings(self.places.own_home, self.places.user_home)

    @cached_property
    def runs(self) -> "Runs":
        from skillyard.store.runs import Runs

        return Runs(self._database, self._key)

    @cached_property
    def logs(self) -> "Logs":
        from skillyard.store.logs import Logs

        return Logs(self.places.own_home / "logs")

    @cached_property
    def recorder(self) -> "Recorder":
        from skillyard.runtime.record import Recorder

        return Recorder(self.runs, self.logs, self.settings.keep_runs, self.settings.keep_days)

    @cached_property
    def grants(self) -> "Grants":
        from skillyard.store.grantfile import GrantFile
        from skillyard.store.grants import Grants

        if not self.places.grants_file.exists():
            self._database  # noqa: B018  (an older version kept them there: to open it moves them into their file)
        return Grants(GrantFile(self.places.own_home, self._notify, self.settings.lock_seconds), self._key)

    @cached_property
    def sandbox(self) -> "Sandbox":
        from skillyard.app.sandbox_cache import remembered_layers
        from skillyard.sandbox.launch import make_sandbox

        return make_sandbox(assumed=remembered_layers(self.places.own_home))

    def accept_weak_sandbox(self) -> None:
        """Run without namespaces even as root. Only for what a person said on the command line."""
        getattr(self.sandbox, "accept_weak", lambda: None)()

    @cached_property
    def runtime(self) -> "Runtime":
        from skillyard.runtime.pipeline import Runtime

        return Runtime(
            catalog=self.catalog,
            sandbox=self.sandbox,
            recorder=self.recorder,
            grants=self.grants,
            root=self.root,
            own_home=self.places.own_home,
            new_id=new_run_id,
        )

    @cached_property
    def editor(self) -> "Editor":
        """Reaches `mybox/`, the user's own roots, and the project's where a person trusted it."""
        from skillyard.editor.allowed_roots import project_root, user_root
        from skillyard.editor.editor import Editor

        trusted, asked = self._project_roots("editor")
        mine = (project_root(self.root, folder) for folder in (self.root / "mybox", *trusted))
        users = map(user_root, self.settings.editor_roots)
        return Editor((*mine, *users), [project_root(self.root, folder) for folder in asked], self.places.own_home)

    @cached_property
    def activations(self) -> "Activations":
        from skillyard.store.activations import Activations

        return Activations(self._database)

    @cached_property
    def contents(self) -> "Contents":
        from skillyard.dispatch.contents import Contents

        return Contents(self.activations, self._key, _memo_of(self.places))

    @cached_property
    def activator(self) -> "Activator":
        """Its catalog must be in step with the folders: `catalog.sync()` first."""
        from skillyard.dispatch.activation import Activator

        return Activator(self.catalog, self.activations, self.contents, self._key)

    @cached_property
    def conversations(self) -> "Conversations":
        from skillyard.store.conversation_locks import Holds
        from skillyard.store.conversations import Conversations

        return Conversations(self._database, Holds(self.places.own_home / "conversations"))

    @cached_property
    def dispatcher(self) -> "Dispatcher":
        from skillyard.dispatch.delivery import Conversing, Terms

        asked = self.dispatching
        return Conversing(
            drivers=self.drivers,
            conversations=self.conversations,
            recorder=self.recorder,
            slots=self.slots,
            bells=self.bells,
            warmth=self.warmth,
            terms=Terms(
                order=asked.order,
                at_once=asked.at_once,
                limit_seconds=asked.limit_seconds,
                silent_seconds=asked.silent_seconds,
                allowed_tools=asked.allowed_tools,
                commands=asked.commands,
                keep_days=self.settings.keep_days,
            ),
            new_id=new_run_id,
        )

    @cached_property
    def bells(self) -> "Bells":
        from skillyard.store.cancel_pipe import Bells

        return Bells(self.places.own_home / "conversations")

    @cached_property
    def slots(self) -> "Slots":
        from skillyard.store.conversation_locks import Slots

        return Slots(self.places.own_home / "conversations", self.dispatching.at_once)

    @cached_property
    def warmth(self) -> "Warmth":
        from skillyard import __version__
        from skillyard.dispatch.warm import Warmth

        return Warmth(self.places.own_home / "conversations", __version__)

    @cached_property
    def drivers(self) -> "Mapping[str, Driver]":
        from skillyard.backends.acp import Acp
        from skillyard.backends.registry import make_drivers

        return make_drivers(os.environ, [Acp(name, command) for name, command in self.dispatching.commands.items()])

    @cached_property
    def decider(self) -> "Decider | None":
        """The backend that decides where no person can, where the user or a trusted project names one."""
        name = self.dispatching.decider
        if not name:
            return None
        from skillyard.dispatch.question import agent_decider

        return agent_decider(self, name)

    @cached_property
    def dispatching(self) -> "Dispatching":
        """The user's own word first; the project's file counts where a person trusted it."""
        mine, project = self.settings.dispatch, self.places.project
        if project is None or not (project / "skillyard.toml").is_file():
            return mine
        from skillyard.app.settings import Dispatching, project_dispatching
        from skillyard.trust.consent import are_settings_trusted

        theirs = project_dispatching(project)
        if theirs == Dispatching() or not are_settings_trusted(self.grants, project):
            return mine
        return mine.over(theirs)

    def list_runs(self, limit: int) -> "tuple[Run, ...]":
        return tuple(map(self._closed, self.runs.list(limit)))

    def find_run(self, run_id: str) -> "Run | None":
        run = self.runs.find(run_id)
        return self._closed(run) if run else None

    def _closed(self, run: "Run") -> "Run":
        """A run that nobody holds any more has lost its runtime: it gets its end now."""
        from skillyard.store.runs import RUNNING

        if run.state != RUNNING or self.logs.is_held(run.id):
            return run
        told = {"state": "error", "summary": "RuntimeFailed: the runtime ended before the run did"}
        self.runs.close_abandoned(run.id, "error", told)
        after = self.runs.find(run.id) or run
        return after._replace(state="error", result=told) if after.state == RUNNING else after

    def _trusted_roots(self) -> "tuple[Path, ...]":
        """Folders that the project's own file adds, where a person trusted it."""
        return self._project_roots("catalog")[0]

    def _project_roots(self, table: str) -> "tuple[tuple[Path, ...], tuple[Path, ...]]":
        """What the project's own file adds: what counts, and what waits for trust."""
        project = self.places.project
        if project is None or not (project / "skillyard.toml").is_file():
            return (), ()
        from skillyard.app.settings import project_roots
        from skillyard.trust.consent import are_settings_trusted

        roots = project_roots(project, table)
        return (roots, ()) if roots and are_settings_trusted(self.grants, project) else ((), roots)

    def _remember_machine(self) -> None:
        """Only what this process looked up itself is new."""
        layers = getattr(self.sandbox, "layers", None) if getattr(self.sandbox, "probed", False) else None
        if layers is not None:
            from skillyard.app.sandbox_cache import remember_layers

            remember_layers(self.places.own_home, layers)

    @cached_property
    def once(self) -> "Once":
        if database := self._shared_database():
            try:
                from skillyard.scripts.postgres_idempotency import SharedOnce
            except ModuleNotFoundError as error:
                raise ExtraMissing(error.name, "jobs") from None

            return SharedOnce(database, self.settings.key_seconds)
        from skillyard.scripts.idempotency import LocalOnce
        from skillyard.store.database import open_database
        from skillyard.store.keys import Keys

        def open_keys() -> Keys:
            return Keys(open_database(self.places.database, self.settings.lock_seconds, self._notify))

        return LocalOnce(open_keys, self.places.own_home / "once", self.settings.key_seconds)

    def _shared_database(self) -> str:
        """PostgreSQL, where the jobs of this project are kept there; what a project only wishes for does not count."""
        mine, project = self.settings.engine.database, self.places.project
        if mine or project is None or not (project / "skillyard.toml").is_file():
            return mine
        from skillyard.app.settings import project_engine
        from skillyard.trust.consent import are_settings_trusted

        asked = project_engine(project).database
        return asked if asked and are_settings_trusted(self.grants, project) else ""

    def worker(self, lang: "Lang", decide: "Decider | None" = None) -> "Worker":
        import sys

        from skillyard.runners.interpreters import find_program
        from skillyard.scripts.worker import Standing, Worker
        from skillyard.store.copies import Copies, FolderCopy
        from skillyard.trust.consent import bin_changes, is_bin_trusted
        from skillyard.trust.own_files import is_ours

        root = self.root

        def standing(script: str, copy: FolderCopy) -> Standing:
            ours = is_ours(copy.files / script.removeprefix("bin/"), stands_for=root / script)
            trusted = is_bin_trusted(self.grants, copy.marks.approved)
            changes = {} if ours or trusted else bin_changes(root, self.grants)
            return Standing(ours=ours, trusted=trusted, changes=changes)

        return Worker(
            sandbox=self.sandbox,
            recorder=self.recorder,
            root=root,
            own_home=self.places.own_home,
            new_id=new_run_id,
            python=lambda: find_program("python3"),
            own_python=sys.executable,
            standing=standing,
            copies=Copies(self.places.own_home),
            decide=decide,
            lang=lang,
        )

    @cached_property
    def _database(self) -> "sqlite3.Connection":
        from skillyard.store.database import open_database

        return open_database(self.places.database, self.settings.lock_seconds, self._notify)

    def back_up_if_due(self, *, is_short: bool = False) -> None:
        """Make the hourly backup of our database if the latest is too old. `is_short`: only if that takes no time."""
        from skillyard.store.backups import back_up, is_due

        if not is_due(self.places.database, time.time()):
            return
        try:
            back_up(self.places.database, self.settings.lock_seconds, is_short=is_short)
        except SkillError as error:
            self._notify(error)

    @property
    def _key(self) -> str:
        """What names the project in our tables."""
        return str(self.places.project or "")

    def _uses(self) -> Mapping[str, int]:
        return self.runs.uses() if self.places.database.exists() else {}


def _notify_on_stderr(error: SkillError) -> None:
    import sys

    from skillyard.core.phrases import Lang

    lang = Lang.choose(None, os.environ)
    said = error.summary(lang).removeprefix(f"{error.type}: ")
    sys.stderr.write(f"skillyard: {said}\n  {error.hint(lang)}\n")


@lru_cache(maxsize=64)
def _memo_of(places: ProjectPaths) -> "Memo":
    """What was read outlives a yard: the next one of the same places in this process finds it."""
    from skillyard.dispatch.contents import Memo

    del places
    return Memo()


def new_run_id() -> str:
    """Unique, and in the order of time as text: lists sort themselves."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(6).hex()}"


def open_project(*, ends_with_process: bool = False) -> Project:
    return Project(find_paths(), ends_with_process=ends_with_process)


def run(request: "Request") -> "Result":
    """Run one skill of the project that the working directory belongs to."""
    with open_project() as yard:
        return yard.runtime.run(request)
