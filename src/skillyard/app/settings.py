"""Settings: the user's, and what a project's file may add once it is trusted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from skillyard.catalog.files import read_toml
from skillyard.core.dispatch_settings import DispatchSettings, PermissionProfile
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message


class EngineSettings(NamedTuple):
    """Where jobs are kept."""

    #: `postgresql://…` for many machines; nothing for SQLite in our own home.
    database: str = ""
    #: What the project is called there; nothing for its folder's name.
    project: str = ""
    #: SQLite: whether each commit waits for the disk.
    full_sync: bool = False
    poll_seconds: float = 1.0
    limits: Mapping[str, int] = {}


class Settings(NamedTuple):
    roots: tuple[Path, ...] = ()
    #: Folders that the file editor may reach beside `mybox/`.
    editor_roots: tuple[Path, ...] = ()
    #: Whether a run sees the whole project, or only what is named.
    reads_project: bool = True
    keep_runs: int = 1000
    keep_days: float = 30.0
    #: How long a key's success answers for it.
    key_seconds: float = 5.0
    #: How long to wait for another process that holds a file of ours.
    lock_seconds: float = 30.0
    #: Where `owner/repo` is looked for; nothing for the usual place.
    forge: str = ""
    #: A command or webhook that is told of jobs that fail and name nobody, and of schedules that wait for trust.
    notify: str = ""
    dispatch: DispatchSettings = DispatchSettings()
    engine: EngineSettings = EngineSettings()


class ConfigTable(NamedTuple):
    """A table of a TOML file, with a method for each type of value. A wrong one raises InvalidArgs, with its place."""

    path: Path
    fields: Mapping[str, Any]
    #: Empty for the whole file.
    name: str = ""

    def table(self, key: str) -> "ConfigTable":
        fields, name = self.fields.get(key, {}), f"{self.name}.{key}".strip(".")
        if not isinstance(fields, Mapping):
            raise InvalidArgs(Message("{file}: [{name}] must be a table", file=self.path, name=name))
        return ConfigTable(self.path, fields, name)

    def text(self, key: str, default: str = "") -> str:
        value = self.fields.get(key, default)
        return value if isinstance(value, str) else self.refuse(key, Message("a text"))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.fields.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            self.refuse(key, Message("a list of texts"))
        return tuple(values)

    def number(self, key: str, default: float) -> float:
        value = self.fields.get(key, default)
        # TOML has numbers that are none, and such without an end.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            self.refuse(key, Message("a number that is not negative"))
        return float(value)

    def profile(self) -> PermissionProfile | None:
        value = self.text("permissions")
        if value and value not in set(PermissionProfile):
            self.refuse("permissions", Message("one of {names}", names=", ".join(PermissionProfile)))
        return PermissionProfile(value) if value else None

    def folders(self, base: Path, home: Path) -> tuple[Path, ...]:
        """The folders at `roots`, relative to `base`."""
        roots = self.texts("roots")
        return tuple(home / root[2:] if root.startswith("~/") else base / root for root in roots)

    def refuse(self, key: str, wanted: Message) -> NoReturn:
        values = {"file": self.path, "table": self.name, "key": key, "wanted": wanted}
        raise InvalidArgs(Message("{file}: [{table}] {key} must be {wanted}", **values))

    # -- what several tables of a whole file say together

    def reads_project(self) -> bool:
        """A project's file may only narrow it, so this counts without trust."""
        read = self.table("run").text("read", "project")
        if read not in {"project", "params"}:
            raise InvalidArgs(Message("{file}: [run] read is project or params", file=self.path))
        return read == "project"

    def engine(self) -> EngineSettings:
        table = self.table("engine")
        database, synchronous = table.text("database"), table.text("synchronous", "normal").lower()
        if database and not database.startswith(("postgresql://", "postgres://")):
            raise InvalidArgs(Message("{file}: [engine] database must start with postgresql://", file=self.path))
        if synchronous not in {"normal", "full"}:
            raise InvalidArgs(Message("{file}: [engine] synchronous is normal or full", file=self.path))
        poll_seconds = max(table.number("poll_seconds", EngineSettings().poll_seconds), 0.01)
        limits: dict[str, int] = {}
        for name in table.table("queues").fields:
            queue = table.table("queues").table(name)
            limit = queue.fields.get("limit")
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                queue.refuse("limit", Message("a whole number from 1 on"))
            limits[name] = limit
        return EngineSettings(database, table.text("project"), synchronous == "full", poll_seconds, limits)

    def dispatching(self) -> DispatchSettings:
        dispatch, backends, default = self.table("dispatch"), self.table("backends"), DispatchSettings()
        agents = {name: backends.table(name) for name in backends.fields}
        return DispatchSettings(
            order=dispatch.texts("order"),
            limit_seconds=dispatch.number("limit", default.limit_seconds) or default.limit_seconds,
            silent_seconds=dispatch.number("silent", default.silent_seconds) or default.silent_seconds,
            at_once=max(1, int(dispatch.number("at_once", default.at_once))),
            commands={name: command for name, agent in agents.items() if (command := agent.texts("command"))},
            allowed_tools={name: tools for name, agent in agents.items() if (tools := agent.texts("allowed_tools"))},
            profile=dispatch.profile(),
            decider=self.table("worker").text("decider"),
        )


def read_project_file(project: Path | None) -> ConfigTable:
    """A project's skillyard.toml. Each table is read when it is needed; it counts only if the project is trusted."""
    file = (project or Path()) / "skillyard.toml"
    return ConfigTable(file, read_toml(file) if project and file.is_file() else {})


def read_settings(own_home: Path, user_home: Path) -> Settings:
    """The user's own file: everything in it counts."""
    file = own_home / "config.toml"
    return parse_settings(ConfigTable(file, read_toml(file, follow=True)), own_home, user_home)


def parse_settings(whole: ConfigTable, own_home: Path, user_home: Path) -> Settings:
    """What the user's file says; docs/reference/settings.md says the same for people."""
    runs, default = whole.table("runs"), Settings()
    return Settings(
        roots=whole.table("catalog").folders(own_home, user_home),
        editor_roots=whole.table("editor").folders(own_home, user_home),
        reads_project=whole.reads_project(),
        keep_runs=int(runs.number("keep", default.keep_runs)),
        keep_days=runs.number("keep_days", default.keep_days),
        lock_seconds=whole.table("store").number("lock_seconds", default.lock_seconds),
        key_seconds=whole.table("worker").number("key_seconds", default.key_seconds),
        forge=whole.table("install").text("forge"),
        notify=whole.table("jobs").text("notify"),
        dispatch=whole.dispatching(),
        engine=whole.engine(),
    )
