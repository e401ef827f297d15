"""Settings: the user's, and what a project's file may add once it is trusted."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

USER_FILE = "config.toml"
PROJECT_FILE = "skillyard.toml"
_MOST_BYTES = 1_000_000

NO_LIMITS: Mapping[str, int] = {}


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
        default = Dispatching()
        said = {name: value for name, value in self._asdict().items() if value != getattr(default, name)}
        merged = other._replace(**said)
        return merged._replace(
            commands={**other.commands, **self.commands}, allowed_tools={**other.allowed_tools, **self.allowed_tools}
        )


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
    limits: Mapping[str, int] = NO_LIMITS


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


#: TOML has numbers that are none, and such without an end.
_ENDLESS = float("inf")


def read_toml(file: Path, *, follow: bool = False) -> dict[str, Any]:
    """An empty table where there is no file; InvalidArgs says where it is not TOML. `follow` the user's own links."""
    if not os.path.lexists(file):
        return {}
    import tomllib  # most people have no such file

    from skillyard.catalog.files import read_whole

    try:
        return tomllib.loads(read_whole(file, _MOST_BYTES, follow=follow))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgs(Message("{place}: {reason}", place=file, reason=error)) from None


def read_settings(own_home: Path, user_home: Path) -> Settings:
    """The user's own file: everything in it counts."""
    file = own_home / USER_FILE
    return parse_settings(read_toml(file, follow=True), file, own_home, user_home)


def parse_settings(fields: Mapping[str, Any], file: Path, own_home: Path, user_home: Path) -> Settings:
    """What the fields of the user's file say; docs/reference/settings.md says the same for people."""
    runs, catalog, worker, install = (_table(fields, name, file) for name in ("runs", "catalog", "worker", "install"))
    default = Settings()
    return Settings(
        roots=tuple(_folders(catalog, "catalog", own_home, user_home, file)),
        editor_roots=tuple(_folders(_table(fields, "editor", file), "editor", own_home, user_home, file)),
        keep_runs=int(_number(runs, "keep", default.keep_runs, file)),
        keep_days=_number(runs, "keep_days", default.keep_days, file),
        lock_seconds=_number(_table(fields, "store", file), "lock_seconds", default.lock_seconds, file),
        key_seconds=_number(worker, "key_seconds", default.key_seconds, file),
        forge=_text(install, "forge", default.forge, file),
        dispatch=_dispatching(fields, file),
        engine=_engine(fields, file),
    )


def project_engine(root: Path) -> EngineSettings:
    """What the project's own file says of the engine; its database is to be used only where the project is trusted."""
    file = root / PROJECT_FILE
    return _engine(read_toml(file), file)


def _engine(fields: Mapping[str, Any], file: Path) -> EngineSettings:
    table = _table(fields, "engine", file)
    database = _text(table, "database", "", file)
    if database and not database.startswith(("postgresql://", "postgres://")):
        raise InvalidArgs(Message("{file}: [engine] database must start with postgresql://", file=file))
    synchronous = _text(table, "synchronous", "normal", file).lower()
    if synchronous not in {"normal", "full"}:
        raise InvalidArgs(Message("{file}: [engine] synchronous is normal or full", file=file))
    poll_seconds = max(_number(table, "poll_seconds", EngineSettings().poll_seconds, file), 0.01)
    limits = _limits(table, file)
    return EngineSettings(database, _text(table, "project", "", file), synchronous == "full", poll_seconds, limits)


def _limits(table: Mapping[str, Any], file: Path) -> dict[str, int]:
    limits = {}
    for name, queue in _table(table, "queues", file).items():
        limit = queue.get("limit") if isinstance(queue, Mapping) else None
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidArgs(
                Message("{file}: [engine.queues.{name}] limit must be a whole number from 1 on", file=file, name=name)
            )
        limits[name] = limit
    return limits


def project_roots(root: Path, table: str = "catalog") -> tuple[Path, ...]:
    """Folders that the project's own file adds; to be used only where the project is trusted."""
    file = root / PROJECT_FILE
    return tuple(_folders(_table(read_toml(file), table, file), table, root, root, file))


def project_dispatching(root: Path) -> Dispatching:
    """What the project's own file says of agents; to be used only where the project is trusted."""
    file = root / PROJECT_FILE
    return _dispatching(read_toml(file), file)


def _dispatching(fields: Mapping[str, Any], file: Path) -> Dispatching:
    dispatch, backends, worker = (_table(fields, name, file) for name in ("dispatch", "backends", "worker"))
    if not (dispatch or backends or worker):
        return Dispatching()
    default = Dispatching()
    agents = {name: _table(backends, name, file) for name in backends}
    return Dispatching(
        order=_texts(dispatch, "order", file),
        limit_seconds=_number(dispatch, "limit", default.limit_seconds, file) or default.limit_seconds,
        silent_seconds=_number(dispatch, "silent", default.silent_seconds, file) or default.silent_seconds,
        at_once=max(1, int(_number(dispatch, "at_once", default.at_once, file))),
        commands=_of_each(agents, "command", file),
        allowed_tools=_of_each(agents, "allowed_tools", file),
        decider=_text(worker, "decider", default.decider, file),
    )


def _of_each(agents: Mapping[str, Mapping[str, Any]], key: str, file: Path) -> dict[str, tuple[str, ...]]:
    return {name: texts for name, agent in agents.items() if (texts := _texts(agent, key, file))}


def _texts(table: Mapping[str, Any], key: str, file: Path) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise InvalidArgs(Message("{file}: {key} must be a list of texts", file=file, key=key))
    return tuple(values)


def _table(fields: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    table = fields.get(name, {})
    if not isinstance(table, Mapping):
        raise InvalidArgs(Message("{file}: [{name}] must be a table", file=file, name=name))
    return table


def _folders(fields: Mapping[str, Any], table: str, base: Path, home: Path, file: Path) -> list[Path]:
    roots = fields.get("roots", [])
    if not isinstance(roots, list) or not all(isinstance(root, str) for root in roots):
        raise InvalidArgs(Message("{file}: [{table}] roots must be a list of folders", file=file, table=table))
    return [home / root[2:] if root.startswith("~/") else base / root for root in roots]


def _number(table: Mapping[str, Any], key: str, default: float, file: Path) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _ENDLESS:
        raise InvalidArgs(Message("{file}: {key} must be a number that is not negative", file=file, key=key))
    return float(value)


def _text(table: Mapping[str, Any], key: str, default: str, file: Path) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise InvalidArgs(Message("{file}: {key} must be a text", file=file, key=key))
    return value
