"""The library: `Project` and what it can be asked for, and the parts of a project, which the faces use too.

The only place that connects the rooms. A part is built when it is first needed, and its modules are imported then, so
that `list` and `search` load neither the sandbox nor jobs nor agents.
"""

import os
import sys
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from skillyard import __version__
from skillyard.app.paths import ProjectPaths, find_paths
from skillyard.core.errors import ExtraMissing, InvalidArgs, NotGranted, ScriptFailed, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json, check_value

T = TypeVar("T")


class LazyPackage:
    """Stands for our package: `skillyard.store.runs` imports that module when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, part: str) -> Any:
        name = f"{self._name}.{part}"
        # Not import_module, whose imports `-X importtime` does not show.
        found = __import__(name, fromlist=("",)) if "." in self._name else LazyPackage(name)
        setattr(self, part, found)
        return found


if TYPE_CHECKING:
    import sqlite3
    from os import PathLike

    import skillyard.app.settings
    import skillyard.app.task
    import skillyard.backends.driver
    import skillyard.backends.registry
    import skillyard.catalog.catalog
    import skillyard.catalog.explain
    import skillyard.catalog.files
    import skillyard.catalog.index
    import skillyard.catalog.roots
    import skillyard.catalog.scan
    import skillyard.core.child_process
    import skillyard.core.dispatch_settings
    import skillyard.core.result
    import skillyard.core.skill
    import skillyard.dispatch.activation
    import skillyard.dispatch.dispatcher
    import skillyard.dispatch.request
    import skillyard.dispatch.warm
    import skillyard.editor.change_set
    import skillyard.editor.dirfd
    import skillyard.editor.editor
    import skillyard.install.address
    import skillyard.install.installer
    import skillyard.install.links
    import skillyard.install.mcp_source
    import skillyard.install.review
    import skillyard.install.source
    import skillyard.install.target
    import skillyard.install.trash
    import skillyard.jobs.engine
    import skillyard.jobs.jobs
    import skillyard.jobs.project_jobs
    import skillyard.runners.probes
    import skillyard.runners.prompt
    import skillyard.runtime.pipeline
    import skillyard.runtime.record
    import skillyard.runtime.trial
    import skillyard.sandbox.launch
    import skillyard.sandbox.layers
    import skillyard.scripts.idempotency
    import skillyard.scripts.install_graph
    import skillyard.scripts.interrupt
    import skillyard.scripts.postgres_idempotency
    import skillyard.scripts.prompt_grammar
    import skillyard.scripts.worker
    import skillyard.store.activations
    import skillyard.store.changes
    import skillyard.store.conversations
    import skillyard.store.database
    import skillyard.store.grants
    import skillyard.store.last_scan
    import skillyard.store.repair
    import skillyard.store.runs
    import skillyard.trust.consent
    import skillyard.trust.mcp_servers
    import skillyard.trust.permissions
    import skillyard.trust.run_policy
else:
    skillyard = LazyPackage("skillyard")


class per_thread(Generic[T]):  # noqa: N801  (a decorator, like cached_property)
    """A cached property with one value for each thread: for whatever holds a SQLite connection."""

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build, self.__doc__ = build, build.__doc__

    def __get__(self, project: "Project", owner: type) -> T:
        if project._is_closed and not project._ends_with_process:  # noqa: SLF001  (its own decorator)
            raise ValueError("this project is closed")
        parts, name = project._parts.setdefault(get_ident(), {}), self._build.__name__  # noqa: SLF001
        if name not in parts:
            parts[name] = self._build(project)
        return cast("T", parts[name])


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
        sandbox: "skillyard.sandbox.launch.Sandbox | None" = None,
    ) -> None:
        """`lang` is "en" or "zh"; the default is SKILLYARD_LANG, else the locale.

        `ends_with_process`: release nothing at the end, because the end of the process does that faster. `notify` gets
        what was wrong with our own files; the default writes it to stderr. `sandbox` is used instead of one of its own,
        and left open.
        """
        if not isinstance(path, ProjectPaths):
            if path is not None:
                expect("path", path, str, os.PathLike)
                path = Path(path).expanduser()
                if not path.is_dir():
                    raise InvalidArgs(Message("{folder} is no folder", folder=path))
            path = find_paths(path)
        self.paths, self.lang = path, as_lang(lang)
        self._notify = notify or _write_error
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

    def close(self) -> None:
        """Release what was opened, in every thread."""
        if self._is_closed:
            return
        # Only what this process looked up itself is new.
        layers = getattr(self._sandbox, "layers", None) if getattr(self._sandbox, "probed", False) else None
        if layers is not None:
            skillyard.sandbox.layers.remember_layers(self.paths.own_home, layers)
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

    # -- the library

    def run(
        self, name: "str | skillyard.core.result.Request", /, *args: str, **params: "Json"
    ) -> "skillyard.core.result.Result":
        """Run one skill and return its result; an expected failure is a result too.

        `args` are words as they would be typed, `params` values by name. For every other option pass a `Request`.
        """
        if isinstance(name, skillyard.core.result.Request):
            if args or params:
                raise TypeError("run() takes either a Request or a name with arguments, not both")
            return self.runtime.run(name)
        _expect_call(name, args, params)
        request = skillyard.core.result.Request(name.removeprefix("@"), args, params, lang=self.lang)
        return self.runtime.run(request)

    def task(
        self,
        agent: str,
        description: str,
        prompt: str,
        *,
        idempotency_key: str | None = None,
        model: str | None = None,
        timeout_seconds: float | None = None,
        interactive: bool = True,
    ) -> "skillyard.core.result.Result":
        """Hand a Task to the skills agent or the worker agent: docs/spec/task.md."""
        return skillyard.app.task.Kernel(self, self.lang).task(
            agent,
            description,
            prompt,
            idempotency_key=idempotency_key,
            model=model,
            timeout_seconds=timeout_seconds,
            interactive=interactive,
        )

    def enqueue(self, name: str, /, *args: str, **params: "Json") -> str:
        """Queue a skill for a worker (`skillyard worker`) and return the id of the job, which is also that of its run.

        Raise SkillError if it cannot run: an unknown name, a wrong param. Needs the extra `jobs`.
        """
        _expect_call(name, args, params)
        job = skillyard.jobs.jobs.Job(name.removeprefix("@"), args=args, params=params, lang=str(self.lang))
        with self.jobs.open() as jobs:
            return jobs.enqueue(self.jobs.prepare(job))

    def skills(self) -> "tuple[skillyard.catalog.index.CatalogEntry, ...]":
        """Every skill that can be used here."""
        self.catalog.sync()
        return self.catalog.list()

    def search(self, query: str, limit: int = 20) -> "tuple[skillyard.catalog.catalog.SearchHit, ...]":
        """The skills that fit the query best, the best first."""
        expect("query", query, str)
        expect("limit", limit, int)
        self.catalog.sync()
        return self.catalog.search(query, limit)

    def runs(self, limit: int = 20) -> "tuple[skillyard.store.runs.Run, ...]":
        """The latest runs of this project, the latest first."""
        expect("limit", limit, int)
        return tuple(map(self._closed, self.history.list(limit)))

    def find_run(self, run_id: str) -> "skillyard.store.runs.Run | None":
        run = self.history.find(run_id)
        return self._closed(run) if run else None

    def _closed(self, run: "skillyard.store.runs.Run") -> "skillyard.store.runs.Run":
        """A run that nobody holds any more has lost its runtime: it gets its end now."""
        if run.state != skillyard.store.runs.RUNNING or self.logs.is_held(run.id):
            return run
        told = {"state": "error", "summary": "RuntimeFailed: the runtime ended before the run did"}
        self.history.close_abandoned(run.id, "error", told)
        after = self.history.find(run.id) or run
        return after._replace(state="error", result=told) if after.state == skillyard.store.runs.RUNNING else after

    def activate(
        self,
        *names: str,
        conversation: str | None = None,
        here: bool = False,
        first: bool = False,
        before: str | None = None,
    ) -> "tuple[skillyard.dispatch.activation.ActivationChange, ...]":
        """Activate skills: from now on they go with every task, or with those of one conversation.

        `here`: a skill of the user only in this project. They come last in the order, or `first`, or `before` one that
        is active. Raise SkillError for a name that is none; then nothing was activated.
        """
        _expect_call("activate", names, {})
        self.catalog.sync()
        place = skillyard.dispatch.activation.Place(first=first, before=before)
        return self.activator.activate(names, conversation, time.time(), here=here, place=place)

    def deactivate(
        self, *names: str, conversation: str | None = None
    ) -> "tuple[skillyard.dispatch.activation.ActivationChange, ...]":
        """Take skills out of what goes with a task. Raise SkillError for a name that is none."""
        _expect_call("deactivate", names, {})
        self.catalog.sync()
        return self.activator.deactivate(names, conversation)

    # -- settings, and what a person trusts

    @property
    def root(self) -> Path:
        if self.paths.project is None:
            raise InvalidArgs(Message("this is not a project folder: change into one, or make one"))
        return self.paths.project

    @property
    def _key(self) -> str:
        """What names the project in our tables."""
        return str(self.paths.project or "")

    @cached_property
    def settings(self) -> "skillyard.app.settings.Settings":
        return skillyard.app.settings.read_settings(self.paths.own_home, self.paths.user_home)

    @property
    def _project_file(self) -> "skillyard.app.settings.ConfigTable":
        return skillyard.app.settings.read_project_file(self.paths.project)

    def _trusts_project_file(self) -> bool:
        """Ask only if the file says something: trust brings many modules, and most files are as `init` wrote them."""
        return skillyard.trust.consent.are_settings_trusted(self.grants, self.root)

    def _project_roots(self, table: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """The folders that the project's own file adds: those that count, and those that wait for trust."""
        file = self._project_file
        roots = file.table(table).folders(file.path.parent, file.path.parent)
        return (roots, ()) if roots and self._trusts_project_file() else ((), roots)

    @cached_property
    def dispatching(self) -> "skillyard.core.dispatch_settings.DispatchSettings":
        """The user's own word first; the project's file counts where a person trusted it."""
        mine, theirs = self.settings.dispatch, self._project_file.dispatching()
        profile, theirs = theirs.profile, theirs._replace(profile=None)
        both = mine.over(theirs) if theirs != type(theirs)() and self._trusts_project_file() else mine
        return both.narrowed(profile)  # to allow less needs no trust

    @per_thread
    def grants(self) -> "skillyard.store.grants.Grants":
        file = skillyard.store.grants.GrantFile(self.paths.own_home, self._notify, self.settings.lock_seconds)
        return skillyard.store.grants.Grants(file, self._key)

    @per_thread
    def permissions(self) -> "skillyard.trust.permissions.Permissions":
        return skillyard.trust.permissions.Permissions(self.grants, self.root, self.paths.user_home)

    # -- what is kept

    @per_thread
    def _database(self) -> "sqlite3.Connection":
        return skillyard.store.database.open_database(self.paths.database, self.settings.lock_seconds, self._notify)

    def back_up_if_due(self, *, is_short: bool = False) -> None:
        """Make the hourly backup of our database if the latest is too old. `is_short`: only if that takes no time."""
        if not skillyard.store.database.is_backup_due(self.paths.database, time.time()):
            return
        try:
            skillyard.store.repair.back_up(self.paths.database, self.settings.lock_seconds, is_short=is_short)
        except SkillError as error:
            self._notify(error)

    @per_thread
    def history(self) -> "skillyard.store.runs.Runs":
        return skillyard.store.runs.Runs(self._database, self._key)

    @cached_property
    def logs(self) -> "skillyard.store.runs.Logs":
        return skillyard.store.runs.Logs(self.paths.own_home / "logs")

    @per_thread
    def recorder(self) -> "skillyard.runtime.record.Recorder":
        keep, keep_days = self.settings.keep_runs, self.settings.keep_days
        return skillyard.runtime.record.Recorder(self.history, self.logs, keep, keep_days, self.changes)

    # -- skills: found, run, installed, edited

    @per_thread
    def catalog(self) -> "skillyard.catalog.catalog.Catalog":
        more = (*self._project_roots("catalog")[0], *self.settings.roots)
        places = self.paths.project, self.paths.user_home, self.paths.own_home
        roots = skillyard.catalog.roots.list_roots(*places, more)
        index = skillyard.catalog.index.Index(self.paths.index_file)

        def popularity() -> dict[str, int]:
            uses, loads = self.usage()
            return {name: uses.get(name, 0) + loads.get(name, 0) for name in {*uses, *loads}}

        return skillyard.catalog.catalog.Catalog(roots=roots, index=index, uses=popularity)

    def usage(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return how often each skill ran and succeeded, and how often each prompt was loaded."""
        return (self.history.uses(), self.history.loads()) if self.paths.database.exists() else ({}, {})

    def changes_since_last_scan(self) -> "skillyard.catalog.scan.Changes":
        """Bring the index up to date and return what changed since this was asked last."""
        catalog = self.catalog
        catalog.sync()
        found = {
            file: digest for root in catalog.roots for file, digest in catalog.index.digests(str(root.path)).items()
        }
        last = skillyard.store.last_scan.exchange_scan(self.paths.own_home / "scans", self._key, found)
        return skillyard.catalog.scan.Changes(
            added=tuple(file for file in found if file not in last),
            updated=tuple(file for file in found if file in last and last[file] != found[file]),
            removed=tuple(file for file in last if file not in found),
        )

    @property
    def sandbox(self) -> "skillyard.sandbox.launch.Sandbox":
        """One for all threads."""
        with self._lock:
            if self._sandbox is None:
                assumed = skillyard.sandbox.layers.remembered_layers(self.paths.own_home)
                self._sandbox = skillyard.sandbox.launch.make_sandbox(assumed=assumed)
            return self._sandbox

    def expect_run(self, *, sandboxed: bool = True) -> None:
        """Let the sandbox get ready beside us for a run that is about to come."""
        getattr(self.sandbox, "expect", lambda **_: None)(sandboxed=sandboxed)

    def accept_weak_sandbox(self) -> None:
        """Run without namespaces even as root. Only for what a person said on the command line."""
        getattr(self.sandbox, "accept_weak", lambda: None)()

    @cached_property
    def changes(self) -> "skillyard.store.changes.ChangeSets":
        return skillyard.store.changes.ChangeSets(self.paths.own_home)

    def read_changes(self, kept: "skillyard.store.changes.KeptChanges") -> "skillyard.editor.change_set.ChangeSet":
        """Return what a run changed, beside the project as it is now."""
        is_closed = skillyard.trust.run_policy.is_closed
        return skillyard.editor.change_set.read_changes(kept.upper, kept.project, is_closed)

    def complete_changes(
        self, kept: "skillyard.store.changes.KeptChanges", chosen: "Sequence[skillyard.editor.change_set.Change]"
    ) -> "tuple[skillyard.editor.change_set.Change, ...]":
        """Return the chosen changes with the folders that they need."""
        added, folder = skillyard.editor.change_set.ChangeKind.ADDED, skillyard.editor.change_set.EntryType.FOLDER
        needed = {str(parent) for change in chosen for parent in PurePosixPath(change.path).parents}
        return tuple(
            change
            for change in self.read_changes(kept).changes
            if change in chosen or (change.kind is added and change.entry is folder and change.path in needed)
        )

    def diff_changes(
        self, kept: "skillyard.store.changes.KeptChanges", changes: "Sequence[skillyard.editor.change_set.Change]"
    ) -> str:
        return "".join(skillyard.editor.change_set.diff(each, kept.upper, kept.project) for each in changes)

    @per_thread
    def runtime(self) -> "skillyard.runtime.pipeline.Runtime":
        return skillyard.runtime.pipeline.Runtime(
            catalog=self.catalog,
            sandbox=self.sandbox,
            recorder=self.recorder,
            grants=self.grants,
            root=self.root,
            own_home=self.paths.own_home,
            new_id=new_run_id,
            changes=self.changes,
            user_home=self.paths.user_home,
            reads_project=self.settings.reads_project and self._project_file.reads_project(),
        )

    def prompt_text(self, name: str) -> str:
        """Return what an agent is to follow: a prompt skill's text without its frontmatter, no arguments filled in."""
        return skillyard.runners.prompt.read_body(self.catalog.resolve(name))

    def write_file(self, path: str, content: bytes) -> None:
        """Write below the project's root. No link is followed, and whatever stands there is replaced."""
        skillyard.catalog.files.write_below(self.root, path, content)

    def explain(self, name: str) -> "skillyard.catalog.explain.Explanation":
        """Tell who answers to a name here and in each agent, and why."""
        return skillyard.catalog.explain.explain(self.catalog, name, self.paths.project, self.paths.user_home)

    def probe_skill(
        self, target: str, limit_seconds: float
    ) -> "tuple[skillyard.core.skill.Skill, Iterator[skillyard.runners.probes.Probe]]":
        """Return the skill of this name or path, and its probes: each is run when it is asked for."""
        trial = skillyard.runtime.trial
        skill = trial.find_target(target, self.catalog, Path.cwd())

        def probes() -> "Iterator[skillyard.runners.probes.Probe]":
            with trial.open_trial(self.sandbox, self.paths.own_home, limit_seconds) as opened:
                yield from trial.probe(skill, opened)

        return skill, probes()

    @per_thread
    def editor(self) -> "skillyard.editor.editor.Editor":
        """Reaches `mybox/`, the user's own roots, and the project's where a person trusted it."""
        project_root, user_root = skillyard.editor.dirfd.project_root, skillyard.editor.dirfd.user_root
        trusted, asked = self._project_roots("editor")
        mine = (project_root(self.root, folder) for folder in (self.root / "mybox", *trusted))
        roots = (*mine, *map(user_root, self.settings.editor_roots))
        waiting = [project_root(self.root, folder) for folder in asked]
        in_task = skillyard.core.child_process.IN_TASK in os.environ
        return skillyard.editor.editor.Editor(roots, waiting, self.paths.own_home, makes_programs=not in_task)

    @cached_property
    def reviews(self) -> "skillyard.install.review.Reviews":
        """Skills that a scan held back."""
        places = self.paths.own_home, self.paths.user_home, self.paths.project
        return skillyard.install.review.Reviews(*places, skillyard.scripts.interrupt.FILE)

    def installer(self, *, is_global: bool = False) -> "skillyard.install.installer.Installer":
        """For the project's skills, or the user's own."""
        target, homes = self._target(is_global=is_global), (self.paths.own_home, self.paths.user_home)
        forge, servers = (lambda: self.settings.forge), self.mcp_servers
        return skillyard.install.installer.Installer(target, *homes, self.reviews, forge, servers)

    @property
    def mcp_servers(self) -> "skillyard.trust.mcp_servers.McpServers":
        """The MCP servers that the agents' configurations name, and which of them may be started."""
        project, grants = self.paths.project, self.grants if self.paths.project else None
        return skillyard.trust.mcp_servers.McpServers(project, self.paths.user_home, grants, os.environ)

    def skills_of_server(self, server: str, tell: Callable[[str], None]) -> "skillyard.install.source.Fetched":
        """What an MCP server tells of its skills. None of their files is fetched."""
        source, _ = skillyard.install.mcp_source.parse_mcp(f"mcp:{server}", self.mcp_servers)
        return source.fetch(self.paths.own_home, tell)

    def trash(self, *, is_global: bool = False) -> "skillyard.install.trash.Trash":
        """Where skills go that are removed and that nobody installed."""
        return skillyard.install.trash.Trash(self.paths.own_home / "trash", self._target(is_global=is_global).bounds)

    def plan_removal(
        self, names: "Sequence[str]", source: str = "", *, is_global: bool = False
    ) -> "skillyard.install.trash.Removal":
        """Find what `remove` is to remove. Raise SkillError if a name is nobody's, or lies elsewhere."""
        self.catalog.sync()
        return skillyard.install.trash.plan_removal(self.installer(is_global=is_global), self.catalog, names, source)

    def linker(self, *, is_user: bool = False) -> "skillyard.install.links.Linker":
        """For the project's skills, or the user's own."""
        target = self._target(is_global=is_user)
        return skillyard.install.links.Linker(target, self.paths.user_home, lambda: self.catalog)

    def _target(self, *, is_global: bool) -> "skillyard.install.target.Target":
        places = skillyard.install.target
        return places.global_target(self.paths.own_home) if is_global else places.project_target(self.root)

    def parse_source(self, text: str) -> "skillyard.install.address.SkillAddress | None":
        """Return what was typed to `run` as SOURCE[@skill][#ref][:script], or None if it is none."""
        if not skillyard.scripts.prompt_grammar.may_name_source(text, Path.cwd()):
            return None
        return skillyard.install.address.split_source(text, Path.cwd())

    @contextmanager
    def install_workflow(
        self, tell: Callable[[str], None], *, on_terminal: bool
    ) -> "Iterator[skillyard.scripts.install_graph.InstallWorkflow]":
        """Raise ScriptFailed if the extra `langgraph` is not installed."""
        try:
            graph = skillyard.scripts.install_graph
        except ModuleNotFoundError as error:
            text = Message("{name} is missing; install it: pip install 'skillyard[langgraph]'", name=error.name)
            raise ScriptFailed(text) from None
        database, steps = self.paths.own_home / "workflows.db", (self.installer(), self.reviews, tell)
        with closing(graph.InstallWorkflow(database, self.root, *steps, on_terminal=on_terminal)) as workflow:
            yield workflow

    # -- tasks for backends

    @per_thread
    def activations(self) -> "skillyard.store.activations.Activations":
        return skillyard.store.activations.Activations(self._database)

    @per_thread
    def contents(self) -> "skillyard.dispatch.activation.Contents":
        """The active skills; a home where nothing was ever kept stays untouched."""
        return skillyard.dispatch.activation.Contents(
            lambda: self.activations if self.paths.database.exists() else None, self._key, _content_cache(self.paths)
        )

    @per_thread
    def activator(self) -> "skillyard.dispatch.activation.Activator":
        """Its catalog must be in step with the folders: `catalog.sync()` first."""
        return skillyard.dispatch.activation.Activator(self.catalog, self.activations, self.contents, self._key)

    @per_thread
    def conversations(self) -> "skillyard.store.conversations.Conversations":
        locks = skillyard.store.conversations.ConversationLocks(self.paths.own_home / "conversations")
        return skillyard.store.conversations.Conversations(self._database, locks)

    @cached_property
    def drivers(self) -> "Mapping[str, skillyard.backends.driver.Driver]":
        """The backends by name."""
        return skillyard.backends.registry.make_drivers(os.environ, self.dispatching.commands)

    def backend(self, name: str) -> "skillyard.backends.driver.Driver":
        """Raise InvalidArgs if no backend has this name."""
        return skillyard.dispatch.dispatcher.find_driver(self.drivers, name)

    def choose_profile(
        self, asked: "skillyard.core.dispatch_settings.PermissionProfile | None"
    ) -> "skillyard.core.dispatch_settings.PermissionProfile":
        """Return what an agent may do unasked. Raise PermissionDenied for more than is allowed inside an agent."""
        return skillyard.dispatch.request.choose_profile(self.dispatching, asked)

    def check_backend(self, name: str, *, ask: bool = False) -> str:
        """Start a backend and do its handshake; with `ask` return its model's answer to a question."""
        return skillyard.dispatch.dispatcher.check_backend(self.backend(name), Path.cwd(), ask=ask)

    @per_thread
    def dispatcher(self) -> "skillyard.dispatch.dispatcher.Dispatcher":
        asked, folder = self.dispatching, self.paths.own_home / "conversations"
        locks, kept, seconds = skillyard.store.conversations, self.paths.database, self.settings.lock_seconds
        return skillyard.dispatch.dispatcher.Dispatcher(
            drivers=self.drivers,
            conversations=self.conversations,
            recorder=self.recorder,
            slots=locks.AgentSlots(folder, asked.at_once),
            cancel_pipes=locks.CancelPipes(folder),
            warm=skillyard.dispatch.warm.WarmBackends(folder, __version__, kept, seconds, asked.at_once),
            settings=asked,
            keep_days=self.settings.keep_days,
            new_id=new_run_id,
        )

    def make_dispatch_request(
        self, task: str, session: str | None = None, cwd: Path | None = None
    ) -> "skillyard.dispatch.request.DispatchRequest":
        """Return the task with the active skills, for `dispatcher.dispatch`. Raise InvalidArgs. Nothing is started."""
        request = skillyard.dispatch.request.make_request(self.contents, task, session, cwd)
        return request._replace(lang=self.lang)

    # -- scripts of bin/

    @per_thread
    def decider(self) -> "skillyard.scripts.interrupt.Decider | None":
        """The default rules, then the backend that the user or a trusted project names, for what no person decides.

        None inside an agent, which keeps nothing, and where the settings name `none`."""
        interrupt, backend = skillyard.scripts.interrupt, self.dispatching.decider
        if backend == "none" or os.environ.get(skillyard.core.child_process.DEPTH):
            return None
        if not backend:
            return interrupt.DEFAULT_RULES
        asked = interrupt.BackendDecider(lambda question: self.dispatcher.ask(backend, question))
        return interrupt.InTurn((interrupt.DEFAULT_RULES, asked))

    def ask_person(self, ask: Callable[[str], str | None], lang: Lang) -> "skillyard.scripts.interrupt.Decider":
        """Let the person at the terminal decide, who answers through `ask`."""
        return skillyard.scripts.interrupt.Person(ask, lang)

    @per_thread
    def idempotency(self) -> "skillyard.scripts.idempotency.Idempotency":
        key_seconds = self.settings.key_seconds
        if database := self._shared_database():
            try:
                return skillyard.scripts.postgres_idempotency.PostgresIdempotency(database, key_seconds)
            except ModuleNotFoundError as error:
                raise ExtraMissing(error.name, "jobs") from None
        keys = skillyard.store.runs.Keys(self._database)
        return skillyard.scripts.idempotency.LocalIdempotency(keys, self.paths.own_home / "once", key_seconds)

    def worker(
        self, lang: Lang, decide: "skillyard.scripts.interrupt.Decider | None" = None
    ) -> "skillyard.scripts.worker.Worker":
        return skillyard.scripts.worker.Worker(
            sandbox=self.sandbox,
            recorder=self.recorder,
            root=self.root,
            own_home=self.paths.own_home,
            new_id=new_run_id,
            grants=self.grants,
            decide=decide,
            lang=lang,
        )

    # -- jobs

    @cached_property
    def jobs(self) -> "skillyard.jobs.project_jobs.ProjectJobs":
        return skillyard.jobs.project_jobs.ProjectJobs(
            root=self.root,
            own_home=self.paths.own_home,
            keep_days=self.settings.keep_days,
            logs=self.logs,
            engine_config=self.engine_config,
            new_id=new_run_id,
            history=lambda: self.history,
            sandbox=lambda: self.sandbox,
            knows=lambda name: self.catalog.knows(name),  # noqa: PLW0108  (the catalog is built when asked)
            runtime=lambda: self.runtime,
            is_role_trusted=lambda *asked: skillyard.trust.consent.is_role_trusted(self.grants, *asked),
            restore=lambda: self.installer().restore(lambda _: None),
            reopened=self._reopened,
            worker=lambda lang: self.worker(lang, self.decider),
            make_request=self.make_dispatch_request,
            dispatch=lambda request, stop: self.dispatcher.dispatch(request, stop=stop),
            back_up=self.back_up_if_due,
            notify_to=self.settings.notify,
        )

    def engine_config(self) -> "skillyard.jobs.engine.EngineConfig":
        """The user's settings first; the project's database if a person trusted the project, else NotGranted."""
        asked, mine, database = self._project_file.engine(), self.settings.engine, self._shared_database()
        if asked.database and not database:
            raise NotGranted(Message("the database of jobs that skillyard.toml names"), "skillyard trust")
        return skillyard.jobs.engine.EngineConfig(
            folder=self.paths.own_home / "engine",
            project=skillyard.jobs.project_jobs.project_key(self.root, database, asked.project or mine.project),
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

    @contextmanager
    def _reopened(self) -> "Iterator[skillyard.jobs.project_jobs.ProjectJobs]":
        at_end = self._ends_with_process
        with Project(  # the sandbox stays ours to close
            self.paths, lang=self.lang, notify=self._notify, sandbox=self.sandbox, ends_with_process=at_end
        ) as own:
            yield own.jobs


@lru_cache(maxsize=64)
def _content_cache(_paths: ProjectPaths) -> "dict[str, skillyard.dispatch.activation.SkillContent]":
    """The cache outlives a project: the next one with the same paths in this process uses it."""
    return {}


def new_run_id() -> str:
    """Unique, and in the order of time as text: lists sort themselves."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(6).hex()}"


def open_project(*, ends_with_process: bool = False) -> Project:
    return Project(ends_with_process=ends_with_process)


def run(request: "skillyard.core.result.Request") -> "skillyard.core.result.Result":
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


def _write_error(error: SkillError) -> None:
    lang = Lang.choose(None, os.environ)
    said = error.summary(lang).removeprefix(f"{error.type}: ")
    sys.stderr.write(f"skillyard: {said}\n  {error.hint(lang)}\n")
