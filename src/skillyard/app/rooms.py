"""The parts of a project, each built when it is first needed: the only place that connects the rooms.

A part is imported when it is built, so that `list` and `search` load neither the sandbox nor jobs nor agents.
"""

import os
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from skillyard.core.errors import ExtraMissing, InvalidArgs, NotGranted, SkillError
from skillyard.core.messages import Lang, Message

if TYPE_CHECKING:
    import sqlite3

    from skillyard.app.paths import ProjectPaths
    from skillyard.app.settings import Dispatching, ProjectFile, Settings
    from skillyard.backends.driver import Driver
    from skillyard.catalog.agentfile import Role
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.explain import Explanation
    from skillyard.core.result import Result
    from skillyard.core.skill import Skill
    from skillyard.dispatch.activation import Activator, ContentCache, Contents
    from skillyard.dispatch.dispatcher import Dispatcher
    from skillyard.dispatch.request import DispatchRequest
    from skillyard.editor.editor import Editor
    from skillyard.install.installer import Installer
    from skillyard.install.linker import Linker
    from skillyard.install.new_role import NewRole
    from skillyard.install.new_skill import NewSkill, SkillDraft
    from skillyard.install.review import Reviews
    from skillyard.install.target import Target
    from skillyard.jobs.engine import EngineConfig
    from skillyard.jobs.jobs import Job
    from skillyard.jobs.project_jobs import ProjectJobs
    from skillyard.jobs.service import WorkerService
    from skillyard.jobs.worker_loop import AttemptContext
    from skillyard.runners.probes import Probe
    from skillyard.runtime.pipeline import Runtime
    from skillyard.runtime.record import Recorder
    from skillyard.sandbox.cancel_token import CancelToken
    from skillyard.sandbox.launch import Sandbox
    from skillyard.scripts.idempotency import Idempotency
    from skillyard.scripts.interrupt import Decider
    from skillyard.scripts.worker import Worker
    from skillyard.store.activations import Activations
    from skillyard.store.conversations import Conversations
    from skillyard.store.copies import FolderCopy
    from skillyard.store.grants import Grants
    from skillyard.store.runs import Logs, Runs

T = TypeVar("T")


class per_thread(Generic[T]):  # noqa: N801  (a decorator, like cached_property)
    """A cached property with one value for each thread: for whatever holds a SQLite connection."""

    def __init__(self, build: "Callable[[Any], T]") -> None:
        self._build, self._name = build, build.__name__
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, rooms: None, owner: type) -> Self: ...
    @overload
    def __get__(self, rooms: "Rooms", owner: type) -> T: ...
    def __get__(self, rooms: "Rooms | None", owner: type) -> "T | Self":
        if rooms is None:
            return self
        parts = rooms._thread_parts()  # noqa: SLF001  (its own decorator)
        if self._name not in parts:
            parts[self._name] = self._build(rooms)
        value: T = parts[self._name]
        return value


class Rooms:
    """What `Project` is made of. Any number of threads may use it at once."""

    def __init__(
        self,
        paths: "ProjectPaths",
        lang: Lang,
        notify: Callable[[SkillError], None],
        sandbox: "Sandbox | None",
        *,
        ends_with_process: bool,
    ) -> None:
        self.paths, self.lang = paths, lang
        self._notify = notify
        self._sandbox, self._borrows_sandbox = sandbox, sandbox is not None
        self._ends_with_process = ends_with_process
        self._is_closed = False
        self._lock = allocate_lock()
        #: By the thread's identifier. A thread that ended leaves its parts to the next one with the same identifier.
        self._parts: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _thread_parts(self) -> dict[str, Any]:
        if self._is_closed and not self._ends_with_process:
            raise ValueError("this project is closed")
        return self._parts.setdefault(get_ident(), {})

    def close(self) -> None:
        """Release what was opened, in every thread."""
        if self._is_closed:
            return
        # Only what this process looked up itself is new.
        layers = getattr(self._sandbox, "layers", None) if getattr(self._sandbox, "probed", False) else None
        if layers is not None:
            from skillyard.sandbox.layers import remember_layers

            remember_layers(self.paths.own_home, layers)
        databases = [parts["_database"] for parts in self._parts.values() if "_database" in parts]
        if any(database.total_changes for database in databases):
            self.back_up_if_due(is_short=True)
        self._is_closed = True
        if self._ends_with_process:
            return
        if self._sandbox is not None and not self._borrows_sandbox:
            getattr(self._sandbox, "close", lambda: None)()
        for database in databases:
            database.close()
        for parts in self._parts.values():
            if "catalog" in parts:
                parts["catalog"].index.close()

    # -- settings, and what a person trusts

    @cached_property
    def root(self) -> Path:
        if self.paths.project is None:
            raise InvalidArgs(Message("this is not a project folder: change into one, or make one"))
        return self.paths.project

    @property
    def _key(self) -> str:
        """What names the project in our tables."""
        return str(self.paths.project or "")

    @cached_property
    def settings(self) -> "Settings":
        from skillyard.app.settings import read_settings

        return read_settings(self.paths.own_home, self.paths.user_home)

    @property
    def _project_file(self) -> "ProjectFile":
        from skillyard.app.settings import read_project_file

        return read_project_file(self.paths.project)

    def _trusts_project_file(self) -> bool:
        """Ask only if the file says something: trust brings many modules, and most files are as `init` wrote them."""
        from skillyard.trust.consent import are_settings_trusted

        return are_settings_trusted(self.grants, self.root)

    def _project_roots(self, table: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """The folders that the project's own file adds: those that count, and those that wait for trust."""
        roots = self._project_file.roots(table)
        return (roots, ()) if roots and self._trusts_project_file() else ((), roots)

    @cached_property
    def dispatching(self) -> "Dispatching":
        """The user's own word first; the project's file counts where a person trusted it."""
        mine, theirs = self.settings.dispatch, self._project_file.dispatching()
        return mine.over(theirs) if theirs != type(theirs)() and self._trusts_project_file() else mine

    @per_thread
    def grants(self) -> "Grants":
        from skillyard.store.grants import GrantFile, Grants

        if not self.paths.grants_file.exists():
            self._database  # noqa: B018  (an older version kept them there: to open it moves them into their file)
        return Grants(GrantFile(self.paths.own_home, self._notify, self.settings.lock_seconds), self._key)

    def _is_role_trusted(self, folder: Path, capability: str) -> bool:
        from skillyard.trust.consent import is_role_trusted

        return is_role_trusted(self.grants, folder, capability)

    # -- what is kept

    @per_thread
    def _database(self) -> "sqlite3.Connection":
        from skillyard.store.database import open_database

        return open_database(self.paths.database, self.settings.lock_seconds, self._notify)

    def back_up_if_due(self, *, is_short: bool = False) -> None:
        """Make the hourly backup of our database if the latest is too old. `is_short`: only if that takes no time."""
        from skillyard.store.database import is_backup_due

        if not is_backup_due(self.paths.database, time.time()):
            return
        from skillyard.store.backups import back_up

        try:
            back_up(self.paths.database, self.settings.lock_seconds, is_short=is_short)
        except SkillError as error:
            self._notify(error)

    @per_thread
    def history(self) -> "Runs":
        from skillyard.store.runs import Runs

        return Runs(self._database, self._key)

    @cached_property
    def logs(self) -> "Logs":
        from skillyard.store.runs import Logs

        return Logs(self.paths.own_home / "logs")

    @per_thread
    def recorder(self) -> "Recorder":
        from skillyard.runtime.record import Recorder

        return Recorder(self.history, self.logs, self.settings.keep_runs, self.settings.keep_days)

    # -- skills: found, run, installed, edited

    @per_thread
    def catalog(self) -> "Catalog":
        from skillyard.catalog.catalog import Catalog
        from skillyard.catalog.index import Index
        from skillyard.catalog.roots import list_roots

        def uses() -> Mapping[str, int]:
            return self.history.uses() if self.paths.database.exists() else {}

        more = (*self._project_roots("catalog")[0], *self.settings.roots)
        roots = list_roots(self.paths.project, self.paths.user_home, self.paths.own_home, more)
        return Catalog(roots=roots, index=Index(self.paths.index_file), uses=uses)

    @property
    def sandbox(self) -> "Sandbox":
        """One for all threads."""
        with self._lock:
            if self._sandbox is None:
                from skillyard.sandbox.launch import make_sandbox
                from skillyard.sandbox.layers import remembered_layers

                self._sandbox = make_sandbox(assumed=remembered_layers(self.paths.own_home))
            return self._sandbox

    def accept_weak_sandbox(self) -> None:
        """Run without namespaces even as root. Only for what a person said on the command line."""
        getattr(self.sandbox, "accept_weak", lambda: None)()

    @per_thread
    def runtime(self) -> "Runtime":
        from skillyard.runtime.pipeline import Runtime

        return Runtime(
            catalog=self.catalog,
            sandbox=self.sandbox,
            recorder=self.recorder,
            grants=self.grants,
            root=self.root,
            own_home=self.paths.own_home,
            new_id=new_run_id,
        )

    def explain(self, name: str) -> "Explanation":
        """Tell who answers to a name here and in each agent, and why."""
        from skillyard.catalog.explain import explain

        return explain(self.catalog, name, self.paths.project, self.paths.user_home)

    def probe_skill(self, target: str, limit_seconds: float) -> "tuple[Skill, Iterator[Probe]]":
        """Return the skill of this name or path, and its probes: each is run when it is asked for."""
        from skillyard.runtime.trial import find_target, open_trial, probe

        skill = find_target(target, self.catalog, Path.cwd())

        def probes() -> "Iterator[Probe]":
            with open_trial(self.sandbox, self.paths.own_home, limit_seconds) as trial:
                yield from probe(skill, trial)

        return skill, probes()

    @per_thread
    def editor(self) -> "Editor":
        """Reaches `mybox/`, the user's own roots, and the project's where a person trusted it."""
        from skillyard.editor.dirfd import project_root, user_root
        from skillyard.editor.editor import Editor

        trusted, asked = self._project_roots("editor")
        mine = (project_root(self.root, folder) for folder in (self.root / "mybox", *trusted))
        users = map(user_root, self.settings.editor_roots)
        return Editor((*mine, *users), [project_root(self.root, folder) for folder in asked], self.paths.own_home)

    @cached_property
    def reviews(self) -> "Reviews":
        """Skills that a scan held back."""
        from skillyard.install.review import Reviews
        from skillyard.scripts.interrupt import FILE

        return Reviews(self.paths.own_home, self.paths.user_home, self.paths.project, FILE)

    def installer(self, *, is_global: bool = False) -> "Installer":
        """For the project's skills, or the user's own."""
        from skillyard.install.installer import Installer

        own_home, user_home = self.paths.own_home, self.paths.user_home
        return Installer(
            self._target(is_global=is_global), own_home, user_home, self.reviews, lambda: self.settings.forge
        )

    def linker(self, *, is_user: bool = False) -> "Linker":
        """For the project's skills, or the user's own."""
        from skillyard.install.linker import Linker

        return Linker(self._target(is_global=is_user), self.paths.user_home, lambda: self.catalog)

    def _target(self, *, is_global: bool) -> "Target":
        from skillyard.install.target import global_target, project_target

        return global_target(self.paths.own_home) if is_global else project_target(self.root)

    def new_skill(self, draft: "SkillDraft") -> "NewSkill":
        from skillyard.install.new_skill import create_skill

        return create_skill(self.root, draft)

    def new_role(self, name: str, *, description: str, skill: str, lang: Lang) -> "NewRole":
        from skillyard.install.new_role import create_role

        return create_role(self.root, name, description=description, skill=skill, lang=lang)

    def roles(self) -> "tuple[Role, ...]":
        from skillyard.catalog.agentfile import list_roles
        from skillyard.catalog.roots import ROLES_FOLDER

        return list_roles(self.root / ROLES_FOLDER)

    def resolve_role(self, name: str) -> "Role":
        """By its name, or by the path of its folder or file. InvalidArgs, with the nearest names, if there is none."""
        from skillyard.install.new_role import resolve_role

        return resolve_role(self.root, name)

    # -- tasks for backends

    @per_thread
    def activations(self) -> "Activations":
        from skillyard.store.activations import Activations

        return Activations(self._database)

    @per_thread
    def contents(self) -> "Contents":
        """The active skills; a home where nothing was ever kept stays untouched."""
        from skillyard.dispatch.activation import Contents

        def activations() -> "Activations | None":
            return self.activations if self.paths.database.exists() else None

        return Contents(activations, self._key, _content_cache(self.paths))

    @per_thread
    def activator(self) -> "Activator":
        """Its catalog must be in step with the folders: `catalog.sync()` first."""
        from skillyard.dispatch.activation import Activator

        return Activator(self.catalog, self.activations, self.contents, self._key)

    @per_thread
    def conversations(self) -> "Conversations":
        from skillyard.store.conversation_locks import ConversationLocks
        from skillyard.store.conversations import Conversations

        return Conversations(self._database, ConversationLocks(self.paths.own_home / "conversations"))

    @cached_property
    def drivers(self) -> "Mapping[str, Driver]":
        """The backends by name."""
        from skillyard.backends.registry import make_drivers

        return make_drivers(os.environ, self.dispatching.commands)

    def backend(self, name: str) -> "Driver":
        """Raise InvalidArgs if no backend has this name."""
        from skillyard.dispatch.dispatcher import find_driver

        return find_driver(self.drivers, name)

    def check_backend(self, name: str, *, ask: bool = False) -> str:
        """Start a backend and do its handshake; with `ask` return its model's answer to a question."""
        from skillyard.dispatch.dispatcher import check_backend

        return check_backend(self.backend(name), Path.cwd(), ask=ask)

    @per_thread
    def dispatcher(self) -> "Dispatcher":
        from skillyard import __version__
        from skillyard.dispatch.delivery import DispatchSettings
        from skillyard.dispatch.dispatcher import Dispatcher
        from skillyard.dispatch.warm import WarmBackends
        from skillyard.store.conversation_locks import AgentSlots, CancelPipes

        asked, folder = self.dispatching, self.paths.own_home / "conversations"
        lock_seconds = self.settings.lock_seconds
        known = {name: value for name, value in asked._asdict().items() if name in DispatchSettings._fields}
        return Dispatcher(
            drivers=self.drivers,
            conversations=self.conversations,
            recorder=self.recorder,
            slots=AgentSlots(folder, asked.at_once),
            cancel_pipes=CancelPipes(folder),
            warm=WarmBackends(folder, __version__, self.paths.database, lock_seconds, asked.at_once),
            settings=DispatchSettings(**known, keep_days=self.settings.keep_days),
            new_id=new_run_id,
        )

    def make_dispatch_request(
        self,
        task: str,
        *,
        to: str | None = None,
        session: str | None = None,
        model: str | None = None,
        cwd: Path | None = None,
        limit_seconds: float | None = None,
        lang: Lang | None = None,
    ) -> "DispatchRequest":
        """Return the task with the active skills, for `dispatcher.dispatch`. Raise InvalidArgs. Nothing is started."""
        from skillyard.dispatch.request import make_request

        asked = make_request(self.contents, task, session, cwd)
        return asked._replace(to=to, model=model, limit_seconds=limit_seconds, lang=lang or self.lang)

    # -- scripts of bin/

    @per_thread
    def decider(self) -> "Decider | None":
        """The backend that decides where no person can, if the user or a trusted project names one.

        None inside an agent: an agent keeps nothing."""
        from skillyard.core.child_process import DEPTH

        backend = self.dispatching.decider
        if not backend or os.environ.get(DEPTH):
            return None
        from skillyard.scripts.interrupt import BackendDecider

        return BackendDecider(lambda question: self.dispatcher.ask(backend, question))

    @per_thread
    def idempotency(self) -> "Idempotency":
        key_seconds = self.settings.key_seconds
        if database := self._shared_database():
            try:
                from skillyard.scripts.postgres_idempotency import PostgresIdempotency
            except ModuleNotFoundError as error:
                raise ExtraMissing(error.name, "jobs") from None

            return PostgresIdempotency(database, key_seconds)
        from skillyard.scripts.idempotency import LocalIdempotency
        from skillyard.store.database import open_database
        from skillyard.store.runs import Keys

        def open_keys() -> Keys:
            return Keys(open_database(self.paths.database, self.settings.lock_seconds, self._notify))

        return LocalIdempotency(open_keys, self.paths.own_home / "once", key_seconds)

    def worker(self, lang: Lang, decide: "Decider | None" = None) -> "Worker":
        import sys

        from skillyard.runners.interpreters import find_program
        from skillyard.scripts.worker import ScriptTrust, Worker
        from skillyard.store.copies import Copies
        from skillyard.trust.consent import bin_changes, is_bin_trusted
        from skillyard.trust.own_files import is_ours

        root = self.root

        def trust_of(script: str, copy: "FolderCopy") -> ScriptTrust:
            ours = is_ours(copy.files / script.removeprefix("bin/"), stands_for=root / script)
            trusted = is_bin_trusted(self.grants, copy.marks.approved)
            changes = {} if ours or trusted else bin_changes(root, self.grants)
            return ScriptTrust(ours=ours, trusted=trusted, changes=changes)

        return Worker(
            sandbox=self.sandbox,
            recorder=self.recorder,
            root=root,
            own_home=self.paths.own_home,
            new_id=new_run_id,
            python=lambda: find_program("python3"),
            own_python=sys.executable,
            trust_of=trust_of,
            copies=Copies(self.paths.own_home),
            decide=decide,
            lang=lang,
        )

    # -- jobs

    @cached_property
    def jobs(self) -> "ProjectJobs":
        from skillyard.jobs.project_jobs import ProjectJobs

        return ProjectJobs(
            root=self.root,
            own_home=self.paths.own_home,
            keep_days=self.settings.keep_days,
            logs=self.logs,
            engine_config=self.engine_config,
            new_id=new_run_id,
            history=lambda: self.history,
            sandbox=lambda: self.sandbox,
            # Each call takes the runtime and the catalog of its own thread.
            resolve=lambda request: self.runtime.resolve(request),  # noqa: PLW0108
            knows=lambda name: self.catalog.knows(name),  # noqa: PLW0108
            is_role_trusted=self._is_role_trusted,
            attempt_context=self._attempt_context,
            back_up=self.back_up_if_due,
        )

    def engine_config(self) -> "EngineConfig":
        """The user's settings first; the project's database if a person trusted the project, else NotGranted."""
        from skillyard.jobs.engine import EngineConfig
        from skillyard.jobs.project_jobs import project_key

        asked, mine = self._project_file.engine(), self.settings.engine
        if asked.database and not mine.database and not self._trusts_project_file():
            raise NotGranted(Message("the database of jobs that skillyard.toml names"), "skillyard trust")
        database = mine.database or asked.database
        return EngineConfig(
            folder=self.paths.own_home / "engine",
            project=project_key(self.root, database, asked.project or mine.project),
            database=database,
            full_sync=mine.full_sync or asked.full_sync,
            poll_seconds=mine.poll_seconds,
            limits={**asked.limits, **mine.limits},
        )

    def _shared_database(self) -> str:
        """PostgreSQL, where the jobs of this project are kept there; what a project only wishes for does not count."""
        if mine := self.settings.engine.database:
            return mine
        asked = self._project_file.engine().database
        return asked if asked and self._trusts_project_file() else ""

    def _attempt_context(self) -> "AttemptContext":
        from skillyard.jobs.worker_loop import AttemptContext

        def restore_skills() -> None:
            self.installer().restore(lambda _: None)

        return AttemptContext(self.runtime, self.history, restore_skills, self._run_task)

    def _run_task(self, run_id: str, job: "Job", stop: "CancelToken") -> "Result":
        from skillyard.jobs.agent_task import TaskRunner

        # The settings and the trust of now, not those from when the worker started; the sandbox stays ours to close.
        with Rooms(self.paths, self.lang, self._notify, self.sandbox, ends_with_process=self._ends_with_process) as own:
            runner = TaskRunner(
                root=own.root,
                is_role_trusted=own._is_role_trusted,
                worker=lambda lang: own.worker(lang, own.decider),
                make_request=own.make_dispatch_request,
                dispatch=lambda request, stop: own.dispatcher.dispatch(request, stop=stop),
            )
            return runner.run(run_id, job, stop)

    def worker_service(self, words: Sequence[str]) -> "WorkerService":
        """The service of the user's system that runs `skillyard worker` with these words."""
        from skillyard.jobs.service import make_service

        return make_service(self.root, self.paths.own_home, self.paths.user_home, words)


@lru_cache(maxsize=64)
def _content_cache(_paths: "ProjectPaths") -> "ContentCache":
    """The cache outlives a project: the next one with the same paths in this process uses it."""
    from skillyard.dispatch.activation import ContentCache

    return ContentCache()


def new_run_id() -> str:
    """Unique, and in the order of time as text: lists sort themselves."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(6).hex()}"
