"""A project and everything in it, each part built when it is first needed. The library, and what every face calls."""

import os
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from skillyard.app.arguments import expect, expect_params
from skillyard.app.paths import ProjectPaths, find_paths
from skillyard.core.errors import ExtraMissing, InvalidArgs, NotGranted, SkillError
from skillyard.core.messages import Lang, Message

if TYPE_CHECKING:
    import sqlite3
    from os import PathLike

    from skillyard.app.settings import Dispatching, Settings
    from skillyard.backends.driver import Driver
    from skillyard.catalog.agentfile import Role
    from skillyard.catalog.catalog import Catalog, SearchHit
    from skillyard.catalog.explain import Explanation
    from skillyard.catalog.index import CatalogEntry
    from skillyard.core.request import Request
    from skillyard.core.result import Result
    from skillyard.core.skill import Skill
    from skillyard.core.values import Json
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
    from skillyard.store.grants import Grants
    from skillyard.store.runs import Logs, Run, Runs


T = TypeVar("T")


class per_thread(Generic[T]):  # noqa: N801  (a decorator, like cached_property)
    """A cached property with one value for each thread: for whatever holds a SQLite connection."""

    def __init__(self, build: "Callable[[Any], T]") -> None:
        self._build, self._name = build, build.__name__
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, project: None, owner: type) -> Self: ...
    @overload
    def __get__(self, project: "Project", owner: type) -> T: ...
    def __get__(self, project: "Project | None", owner: type) -> "T | Self":
        if project is None:
            return self
        parts = project._thread_parts()  # noqa: SLF001  (its own decorator)
        if self._name not in parts:
            parts[self._name] = self._build(project)
        value: T = parts[self._name]
        return value


class Project:
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
        self.places = path if isinstance(path, ProjectPaths) else find_paths(_as_folder(path))
        self.lang = as_lang(lang)
        self._notify = notify or _notify_on_stderr
        self._ends_with_process = ends_with_process
        self._is_closed = False
        self._lock = allocate_lock()
        self._sandbox, self._borrows_sandbox = sandbox, sandbox is not None
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
        if self._sandbox is not None:
            self._remember_machine(self._sandbox)
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

    def reopen(self) -> "Project":
        """Return the project with the settings and the trust of now. It uses this one's sandbox: close it first."""
        return Project(
            self.places,
            lang=self.lang,
            ends_with_process=self._ends_with_process,
            notify=self._notify,
            sandbox=self.sandbox,
        )

    def run(self, name: "str | Request", /, *args: str, **params: "Json") -> "Result":
        """Run one skill and return its result; an expected failure is a result too.

        `args` are words as they would be typed, `params` values by name. For every other option pass a `Request`.
        """
        from skillyard.core.request import Request

        if isinstance(name, Request):
            if args or params:
                raise TypeError("run() takes either a Request or a name with arguments, not both")
            return self.runtime.run(name)
        expect("name", name, str)
        for arg in args:
            expect("args", arg, str)
        expect_params("params", params)
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

        expect("name", name, str)
        for arg in args:
            expect("args", arg, str)
        expect_params("params", params)
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

    def explain(self, name: str) -> "Explanation":
        """Tell who answers to a name here and in each agent, and why."""
        from skillyard.catalog.explain import explain

        return explain(self.catalog, name, self.places.project, self.places.user_home)

    def runs(self, limit: int = 20) -> "tuple[Run, ...]":
        """The latest runs of this project, the latest first."""
        expect("limit", limit, int)
        return tuple(map(self._closed, self.history.list(limit)))

    def find_run(self, run_id: str) -> "Run | None":
        run = self.history.find(run_id)
        return self._closed(run) if run else None

    @cached_property
    def root(self) -> "Path":
        if self.places.project is None:
            raise InvalidArgs(Message("this is not a project folder: change into one, or make one"))
        return self.places.project

    @per_thread
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

    @per_thread
    def history(self) -> "Runs":
        from skillyard.store.runs import Runs

        return Runs(self._database, self._key)

    @cached_property
    def logs(self) -> "Logs":
        from skillyard.store.runs import Logs

        return Logs(self.places.own_home / "logs")

    @per_thread
    def recorder(self) -> "Recorder":
        from skillyard.runtime.record import Recorder

        return Recorder(self.history, self.logs, self.settings.keep_runs, self.settings.keep_days)

    @per_thread
    def grants(self) -> "Grants":
        from skillyard.store.grants import GrantFile, Grants

        if not self.places.grants_file.exists():
            self._database  # noqa: B018  (an older version kept them there: to open it moves them into their file)
        return Grants(GrantFile(self.places.own_home, self._notify, self.settings.lock_seconds), self._key)

    @property
    def sandbox(self) -> "Sandbox":
        """One for all threads."""
        with self._lock:
            if self._sandbox is None:
                from skillyard.app.sandbox_cache import remembered_layers
                from skillyard.sandbox.launch import make_sandbox

                self._sandbox = make_sandbox(assumed=remembered_layers(self.places.own_home))
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
            own_home=self.places.own_home,
            new_id=new_run_id,
        )

    def probe_skill(self, target: str, limit_seconds: float) -> "tuple[Skill, Iterator[Probe]]":
        """Return the skill of this name or path, and its probes: each is run when it is asked for."""
        from skillyard.runtime.trial import find_target, open_trial, probe

        skill = find_target(target, self.catalog, Path.cwd())

        def probes() -> "Iterator[Probe]":
            with open_trial(self.sandbox, self.places.own_home, limit_seconds) as trial:
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
        return Editor((*mine, *users), [project_root(self.root, folder) for folder in asked], self.places.own_home)

    @cached_property
    def reviews(self) -> "Reviews":
        """Skills that a scan held back."""
        from skillyard.install.review import Reviews
        from skillyard.scripts.interrupt import FILE

        return Reviews(self.places.own_home, self.places.user_home, self.places.project, FILE)

    def installer(self, *, is_global: bool = False) -> "Installer":
        """For the project's skills, or the user's own."""
        from skillyard.install.installer import Installer

        target = self._target(is_global=is_global)
        places = self.places
        return Installer(target, places.own_home, places.user_home, self.reviews, lambda: self.settings.forge)

    def linker(self, *, is_user: bool = False) -> "Linker":
        """For the project's skills, or the user's own."""
        from skillyard.install.linker import Linker

        return Linker(self._target(is_global=is_user), self.places.user_home, lambda: self.catalog)

    def _target(self, *, is_global: bool) -> "Target":
        from skillyard.install.target import global_target, project_target

        return global_target(self.places.own_home) if is_global else project_target(self.root)

    def new_skill(self, draft: "SkillDraft") -> "NewSkill":
        from skillyard.install.new_skill import create_skill

        return create_skill(self.root, draft)

    def new_role(self, name: str, *, description: str, skill: str, lang: "Lang") -> "NewRole":
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

    @per_thread
    def activations(self) -> "Activations":
        from skillyard.store.activations import Activations

        return Activations(self._database)

    @per_thread
    def contents(self) -> "Contents":
        """The active skills; a home where nothing was ever kept stays untouched."""
        from skillyard.dispatch.activation import Contents

        def activations() -> "Activations | None":
            return self.activations if self.places.database.exists() else None

        return Contents(activations, self._key, _content_cache(self.places))

    @per_thread
    def activator(self) -> "Activator":
        """Its catalog must be in step with the folders: `catalog.sync()` first."""
        from skillyard.dispatch.activation import Activator

        return Activator(self.catalog, self.activations, self.contents, self._key)

    @per_thread
    def conversations(self) -> "Conversations":
        from skillyard.store.conversation_locks import ConversationLocks
        from skillyard.store.conversations import Conversations

        return Conversations(self._database, ConversationLocks(self.places.own_home / "conversations"))

    @per_thread
    def dispatcher(self) -> "Dispatcher":
        from skillyard import __version__
        from skillyard.dispatch.delivery import DispatchSettings
        from skillyard.dispatch.dispatcher import Dispatcher
        from skillyard.dispatch.warm import WarmBackends
        from skillyard.store.conversation_locks import AgentSlots, CancelPipes

        asked, folder = self.dispatching, self.places.own_home / "conversations"
        lock_seconds = self.settings.lock_seconds
        return Dispatcher(
            drivers=self.drivers,
            conversations=self.conversations,
            recorder=self.recorder,
            slots=AgentSlots(folder, asked.at_once),
            cancel_pipes=CancelPipes(folder),
            warm=WarmBackends(folder, __version__, self.places.database, lock_seconds, asked.at_once),
            settings=DispatchSettings(
                order=asked.order,
                limit_seconds=asked.limit_seconds,
                silent_seconds=asked.silent_seconds,
                allowed_tools=asked.allowed_tools,
                commands=asked.commands,
                keep_days=self.settings.keep_days,
            ),
            new_id=new_run_id,
        )

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

    @cached_property
    def dispatching(self) -> "Dispatching":
        """The user's own word first; the project's file counts where a person trusted it."""
        mine, project = self.settings.dispatch, self.places.project
        if project is None or not (project / "skillyard.toml").is_file():
            return mine
        from skillyard.app.settings import Dispatching, project_dispatching

        theirs = project_dispatching(project)
        if theirs == Dispatching() or not self._trusts_settings_of(project):
            return mine
        return mine.over(theirs)

    def _closed(self, run: "Run") -> "Run":
        """A run that nobody holds any more has lost its runtime: it gets its end now."""
        from skillyard.store.runs import RUNNING

        if run.state != RUNNING or self.logs.is_held(run.id):
            return run
        told = {"state": "error", "summary": "RuntimeFailed: the runtime ended before the run did"}
        self.history.close_abandoned(run.id, "error", told)
        after = self.history.find(run.id) or run
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

        roots = project_roots(project, table)
        return (roots, ()) if roots and self._trusts_settings_of(project) else ((), roots)

    def _trusts_settings_of(self, project: "Path") -> bool:
        """Ask only if the file says something: trust brings many modules, and most files are as `init` wrote them."""
        from skillyard.trust.consent import are_settings_trusted

        return are_settings_trusted(self.grants, project)

    def _remember_machine(self, sandbox: "Sandbox") -> None:
        """Only what this process looked up itself is new."""
        layers = getattr(sandbox, "layers", None) if getattr(sandbox, "probed", False) else None
        if layers is not None:
            from skillyard.app.sandbox_cache import remember_layers

            remember_layers(self.places.own_home, layers)

    @per_thread
    def idempotency(self) -> "Idempotency":
        if database := self._shared_database():
            try:
                from skillyard.scripts.postgres_idempotency import PostgresIdempotency
            except ModuleNotFoundError as error:
                raise ExtraMissing(error.name, "jobs") from None

            return PostgresIdempotency(database, self.settings.key_seconds)
        from skillyard.scripts.idempotency import LocalIdempotency
        from skillyard.store.database import open_database
        from skillyard.store.runs import Keys

        def open_keys() -> Keys:
            return Keys(open_database(self.places.database, self.settings.lock_seconds, self._notify))

        return LocalIdempotency(open_keys, self.places.own_home / "once", self.settings.key_seconds)

    @cached_property
    def jobs(self) -> "ProjectJobs":
        from skillyard.jobs.project_jobs import ProjectJobs
        from skillyard.trust.consent import is_role_trusted

        return ProjectJobs(
            root=self.root,
            own_home=self.places.own_home,
            keep_days=self.settings.keep_days,
            logs=self.logs,
            engine_config=self.engine_config,
            new_id=new_run_id,
            history=lambda: self.history,
            sandbox=lambda: self.sandbox,
            # Each call takes the runtime and the catalog of its own thread.
            resolve=lambda request: self.runtime.resolve(request),  # noqa: PLW0108
            knows=lambda name: self.catalog.knows(name),  # noqa: PLW0108
            is_role_trusted=lambda folder, capability: is_role_trusted(self.grants, folder, capability),
            attempt_context=self._attempt_context,
            back_up=self.back_up_if_due,
        )

    def engine_config(self) -> "EngineConfig":
        """The user's settings first; the project's database if a person trusted the project, else NotGranted."""
        from skillyard.app.settings import project_engine
        from skillyard.jobs.engine import EngineConfig
        from skillyard.jobs.project_jobs import project_key
        from skillyard.trust.consent import are_settings_trusted

        asked, mine = project_engine(self.root), self.settings.engine
        if asked.database and not mine.database and not are_settings_trusted(self.grants, self.root):
            raise NotGranted(Message("the database of jobs that skillyard.toml names"), "skillyard trust")
        database = mine.database or asked.database
        return EngineConfig(
            folder=self.places.own_home / "engine",
            project=project_key(self.root, database, asked.project or mine.project),
            database=database,
            full_sync=mine.full_sync or asked.full_sync,
            poll_seconds=mine.poll_seconds,
            limits={**asked.limits, **mine.limits},
        )

    def _attempt_context(self) -> "AttemptContext":
        from skillyard.jobs.worker_loop import AttemptContext

        def restore_skills() -> None:
            self.installer().restore(lambda _: None)

        return AttemptContext(self.runtime, self.history, restore_skills, self._run_task)

    def _run_task(self, run_id: str, job: "Job", stop: "CancelToken") -> "Result":
        from skillyard.jobs.agent_task import TaskRunner
        from skillyard.trust.consent import is_role_trusted

        with self.reopen() as own:  # the settings and the trust of now, not those from when the worker started
            runner = TaskRunner(
                root=own.root,
                is_role_trusted=lambda folder, capability: is_role_trusted(own.grants, folder, capability),
                worker=lambda lang: own.worker(lang, own.decider),
                make_request=own.make_dispatch_request,
                dispatch=lambda request, stop: own.dispatcher.dispatch(request, stop=stop),
            )
            return runner.run(run_id, job, stop)

    def worker_service(self, words: "Sequence[str]") -> "WorkerService":
        """The service of the user's system that runs `skillyard worker` with these words."""
        from skillyard.jobs.service import make_service

        return make_service(self.root, self.places.own_home, self.places.user_home, words)

    def _shared_database(self) -> str:
        """PostgreSQL, where the jobs of this project are kept there; what a project only wishes for does not count."""
        mine, project = self.settings.engine.database, self.places.project
        if mine or project is None or not (project / "skillyard.toml").is_file():
            return mine
        from skillyard.app.settings import project_engine

        asked = project_engine(project).database
        return asked if asked and self._trusts_settings_of(project) else ""

    def worker(self, lang: "Lang", decide: "Decider | None" = None) -> "Worker":
        import sys

        from skillyard.runners.interpreters import find_program
        from skillyard.scripts.worker import ScriptTrust, Worker
        from skillyard.store.copies import Copies, FolderCopy
        from skillyard.trust.consent import bin_changes, is_bin_trusted
        from skillyard.trust.own_files import is_ours

        root = self.root

        def trust_of(script: str, copy: FolderCopy) -> ScriptTrust:
            ours = is_ours(copy.files / script.removeprefix("bin/"), stands_for=root / script)
            trusted = is_bin_trusted(self.grants, copy.marks.approved)
            changes = {} if ours or trusted else bin_changes(root, self.grants)
            return ScriptTrust(ours=ours, trusted=trusted, changes=changes)

        return Worker(
            sandbox=self.sandbox,
            recorder=self.recorder,
            root=root,
            own_home=self.places.own_home,
            new_id=new_run_id,
            python=lambda: find_program("python3"),
            own_python=sys.executable,
            trust_of=trust_of,
            copies=Copies(self.places.own_home),
            decide=decide,
            lang=lang,
        )

    @per_thread
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
        return self.history.uses() if self.places.database.exists() else {}


def _notify_on_stderr(error: SkillError) -> None:
    import sys

    lang = Lang.choose(None, os.environ)
    said = error.summary(lang).removeprefix(f"{error.type}: ")
    sys.stderr.write(f"skillyard: {said}\n  {error.hint(lang)}\n")


@lru_cache(maxsize=64)
def _content_cache(places: ProjectPaths) -> "ContentCache":
    """The cache outlives a project: the next one of the same places in this process uses it."""
    from skillyard.dispatch.activation import ContentCache

    del places
    return ContentCache()


def new_run_id() -> str:
    """Unique, and in the order of time as text: lists sort themselves."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(6).hex()}"


def as_lang(lang: "Lang | str | None") -> Lang:
    """Return the language; without one that of the environment."""
    if lang is None:
        return Lang.choose(None, os.environ)
    expect("lang", lang, str)
    if lang not in tuple(Lang):
        raise ValueError(f"lang must be one of {', '.join(Lang)}, not {lang!r}")
    return Lang(lang)


def _as_folder(path: "str | PathLike[str] | None") -> Path | None:
    if path is None:
        return None
    expect("path", path, str, os.PathLike)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InvalidArgs(Message("{folder} is no folder", folder=folder))
    return folder


def open_project(*, ends_with_process: bool = False) -> Project:
    return Project(ends_with_process=ends_with_process)


def run(request: "Request") -> "Result":
    """Run one skill of the project that the working directory belongs to."""
    with Project() as project:
        return project.run(request)
