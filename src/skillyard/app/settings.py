"""Settings: the user's, and what a project's file may add once it is trusted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from skillyard.catalog.files import read_toml
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

#: TOML has numbers that are none, and such without an end.
_ENDLESS = float("inf")


class Dispatching(NamedTuple):
    """`[dispatch]` and `[backends.NAME]`: which agents there are, and what holds for every task for one."""

    #: Which one is taken where nobody says; the rest of them never. Empty: all that we know, in our order.
    order: tuple[str, ...] = ()
    limit_seconds: float = 3600.0
    silent_seconds: float = 300.0
    at_once: int = 4
    #: Agents beside those that we know, by name: the command line of each, which must speak ACP.
    commands: Mapping[str, tuple[str, ...]] = {}
    #: What an agent may do unasked, by its name.
    allowed_tools: Mapping[str, tuple[str, ...]] = {}
    #: The backend that decides on interrupts where no person can.
    decider: str = ""

    def over(self, other: "Dispatching") -> "Dispatching":
        """Ours where it says something, else the other's; an agent that both name is ours."""
        said = {name: value for name, value in self._asdict().items() if value != getattr(_NOTHING_SAID, name)}
        said["commands"] = {**other.commands, **self.commands}
        said["allowed_tools"] = {**other.allowed_tools, **self.allowed_tools}
        return other._replace(**said)


_NOTHING_SAID = Dispatching()


class EngineSettings(NamedTuple):
    """Where jobs are kept."""

    #: `postgresql://…` for many machines; nothing for SQLite in our own home.
    database: str = ""
    #: What the project is called there; nothing for its folder's name.
    project: str = ""
    #: SQLite: whether each commit waits for the disk.
    full_sync: bool = False
    #: How often a worker looks for jobs.
    poll_seconds: float = 1.0
    #: How many of a queue all workers together may do at a time.
    limits: Mapping[str, int] = {}


class Settings(NamedTuple):
    #: Folders of skills beside the usual ones.
    roots: tuple[Path, ...] = ()
    #: Folders that the file editor may reach beside `mybox/`.
    editor_roots: tuple[Path, ...] = ()
    #: How many runs are kept, and for how long.
    keep_runs: int = 1000
    keep_days: float = 30.0
    #: How long a key's success answers for it.
    key_seconds: float = 5.0
    #: How long to wait for another process that holds a file of ours.
    lock_seconds: float = 30.0
    #: Where `owner/repo` is looked for; nothing for the usual place.
    forge: str = ""
    dispatch: Dispatching = Dispatching()
    engine: EngineSettings = EngineSettings()


class ProjectFile(NamedTuple):
    """A project's skillyard.toml. Each table is read when it is needed; it counts only if the project is trusted."""

    file: Path
    fields: Mapping[str, Any]

    def roots(self, table: str) -> tuple[Path, ...]:
        """Folders of skills (`catalog`), or folders that the file editor may reach (`editor`)."""
        return _Table(self.file, "", self.fields).table(table).folders(self.file.parent, self.file.parent)

    def dispatching(self) -> Dispatching:
        return _dispatching(_Table(self.file, "", self.fields))

    def engine(self) -> EngineSettings:
        return _engine(_Table(self.file, "", self.fields).table("engine"))


def read_project_file(project: Path | None) -> ProjectFile:
    file = (project or Path()) / "skillyard.toml"
    return ProjectFile(file, read_toml(file) if project and file.is_file() else {})


def read_settings(own_home: Path, user_home: Path) -> Settings:
    """The user's own file: everything in it counts."""
    file = own_home / "config.toml"
    return parse_settings(read_toml(file, follow=True), file, own_home, user_home)


def parse_settings(fields: Mapping[str, Any], file: Path, own_home: Path, user_home: Path) -> Settings:
    """What the fields of the user's file say; docs/reference/settings.md says the same for people."""
    whole, default = _Table(file, "", fields), Settings()
    runs = whole.table("runs")
    return Settings(
        roots=whole.table("catalog").folders(own_home, user_home),
        editor_roots=whole.table("editor").folders(own_home, user_home),
        keep_runs=int(runs.number("keep", default.keep_runs)),
        keep_days=runs.number("keep_days", default.keep_days),
        lock_seconds=whole.table("store").number("lock_seconds", default.lock_seconds),
        key_seconds=whole.table("worker").number("key_seconds", default.key_seconds),
        forge=whole.table("install").text("forge"),
        dispatch=_dispatching(whole),
        engine=_engine(whole.table("engine")),
    )


class _Table(NamedTuple):
    """A table of a file, with a method for each type of value. A wrong one raises InvalidArgs, with its place."""

    file: Path
    name: str
    fields: Mapping[str, Any]

    def table(self, key: str) -> "_Table":
        fields, name = self.fields.get(key, {}), f"{self.name}.{key}".strip(".")
        if not isinstance(fields, Mapping):
            raise InvalidArgs(Message("{file}: [{name}] must be a table", file=self.file, name=name))
        return _Table(self.file, name, fields)

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
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _ENDLESS:
            self.refuse(key, Message("a number that is not negative"))
        return float(value)

    def folders(self, base: Path, home: Path) -> tuple[Path, ...]:
        """The folders at `roots`, relative to `base`."""
        roots = self.texts("roots")
        return tuple(home / root[2:] if root.startswith("~/") else base / root for root in roots)

    def refuse(self, key: str, wanted: Message) -> NoReturn:
        values = {"file": self.file, "table": self.name, "key": key, "wanted": wanted}
        raise InvalidArgs(Message("{file}: [{table}] {key} must be {wanted}", **values))


def _engine(table: _Table) -> EngineSettings:
    database, synchronous = table.text("database"), table.text("synchronous", "normal").lower()
    if database and not database.startswith(("postgresql://", "postgres://")):
        raise InvalidArgs(Message("{file}: [engine] database must start with postgresql://", file=table.file))
    if synchronous not in {"normal", "full"}:
        raise InvalidArgs(Message("{file}: [engine] synchronous is normal or full", file=table.file))
    poll_seconds = max(table.number("poll_seconds", EngineSettings().poll_seconds), 0.01)
    limits: dict[str, int] = {}
    for name in table.table("queues").fields:
        queue = table.table("queues").table(name)
        limit = queue.fields.get("limit")
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            queue.refuse("limit", Message("a whole number from 1 on"))
        limits[name] = limit
    return EngineSettings(database, table.text("project"), synchronous == "full", poll_seconds, limits)


def _dispatching(whole: _Table) -> Dispatching:
    dispatch, backends, default = whole.table("dispatch"), whole.table("backends"), _NOTHING_SAID
    agents = {name: backends.table(name) for name in backends.fields}
    return Dispatching(
        order=dispatch.texts("order"),
        limit_seconds=dispatch.number("limit", default.limit_seconds) or default.limit_seconds,
        silent_seconds=dispatch.number("silent", default.silent_seconds) or default.silent_seconds,
        at_once=max(1, int(dispatch.number("at_once", default.at_once))),
        commands={name: command for name, agent in agents.items() if (command := agent.texts("command"))},
        allowed_tools={name: tools for name, agent in agents.items() if (tools := agent.texts("allowed_tools"))},
        decider=whole.table("worker").text("decider"),
    )
