"""MCP servers by the names that the agents' configurations give them, and which of them may be started.

A server is a program, or a web address that gets headers. What the user's own files name is the user's word. What comes
with a clone (`.mcp.json` and the like, or a command in skillyard.lock) is not: a person must have allowed exactly that
command, environment and address, with `skillyard trust --server`.
"""

import hashlib
import json
import os
import re
import shlex
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.files import read_whole
from skillyard.core.capability import MCP_SERVER
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.errors import InvalidArgs, NotGranted
from skillyard.core.messages import Message
from skillyard.store.grants import Grant, Grants

PREFIX = "mcp:"
_MOST_BYTES = 50_000_000
_MOST_NAME, _MOST_COMMAND = 200, 1_000
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
#: The file, and the table in it that holds the servers. A file with comments (opencode.jsonc) is not read.
_PROJECT_FILES = (
    (".mcp.json", "mcpServers"),
    (".codex/config.toml", "mcp_servers"),
    ("opencode.json", "mcp"),
)
_USER_FILES = (
    (".claude.json", "mcpServers"),
    (".codex/config.toml", "mcp_servers"),
    (".config/opencode/opencode.json", "mcp"),
)


class McpServer(NamedTuple):
    """How to reach one server: a command, or an address with headers."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    #: The file that names it; None for what a person typed.
    file: Path | None = None
    #: Whether the file may come with a clone.
    needs_grant: bool = False

    @property
    def shown(self) -> str:
        """The command or address, as a person must see it before allowing it."""
        variables = [f"{key}={value}" for key, value in sorted(self.env.items())]
        headers = [f"{key}: {value}" for key, value in sorted(self.headers.items())]
        return " ".join([shlex.join([*variables, *self.command]), self.url, *headers]).strip()

    @property
    def fingerprint(self) -> str:
        told = [self.command, sorted(self.env.items()), self.url, sorted(self.headers.items())]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=20).hexdigest()

    @property
    def capability(self) -> str:
        return f"{MCP_SERVER}:{self.name}"


class McpServers(NamedTuple):
    """The servers that can be named in one project."""

    project: Path | None
    user_home: Path
    grants: Grants | None
    env: Mapping[str, str]

    def find(self, name: str, *, typed: bool = True) -> McpServer:
        """Return the server of a name, or the one that a command or an address is. InvalidArgs if there is none.

        `typed` says that a person wrote a command or address; otherwise it comes from skillyard.lock.
        """
        if not name.isprintable() or len(name) > _MOST_COMMAND:
            raise InvalidArgs(Message("{name!r} is no MCP server", name=name[:80]))
        if name.startswith(("http://", "https://")):
            return McpServer(name, url=name)
        if is_command(name):
            file = None if typed or self.project is None else self.project / "skillyard.lock"
            return McpServer(name, _split(name), file=file, needs_grant=not typed)
        known: list[str] = []
        for server in self._configured():
            if server.name == name:
                return server
            known.append(server.name)
        names = ", ".join(dict.fromkeys(known)) or "-"
        raise InvalidArgs(Message("no MCP server is called {name!r}; there are: {names}", name=name[:80], names=names))

    def check(self, server: McpServer) -> None:
        """Raise NotGranted if a person must allow this server first."""
        if server.needs_grant and not self.is_allowed(server):
            what = Message("start or reach the MCP server {shown} (from {file})", shown=server.shown, file=server.file)
            raise NotGranted(what, shlex.join(["skillyard", "trust", "--server", server.name]))

    def is_allowed(self, server: McpServer) -> bool:
        if self.grants is None or server.file is None:
            return False
        return server.capability in self.grants.of(str(server.file), server.fingerprint)

    def allow(self, server: McpServer) -> None:
        """Store that a person allowed it, as it is now."""
        refuse_inside_agents()
        if self.grants is not None and server.file is not None:
            self.grants.add(Grant(str(server.file), server.fingerprint, server.capability, time.time()))

    def counts(self, grant: Grant) -> bool:
        """Whether a stored grant is still for a server as it is."""
        name = grant.capability.removeprefix(f"{MCP_SERVER}:")
        try:
            server = self.find(name, typed=False)
        except InvalidArgs:
            return False  # it is not named any more
        return str(server.file) == grant.skill and server.fingerprint == grant.fingerprint

    def expanded(self, server: McpServer) -> McpServer:
        """Return it with `${NAME}` and `${NAME:-default}` filled in. InvalidArgs for a variable that is not set."""

        def fill(text: str) -> str:
            def value(found: re.Match[str]) -> str:
                name, default = found[1], found[2]
                if name not in self.env and default is None:
                    told = {"name": server.name, "variable": name}
                    raise InvalidArgs(Message("the MCP server {name} needs the variable {variable}", **told))
                return self.env.get(name, default)

            return _VARIABLE.sub(value, text)

        return server._replace(
            command=tuple(map(fill, server.command)),
            env={key: fill(value) for key, value in server.env.items()},
            url=fill(server.url),
            headers={key: fill(value) for key, value in server.headers.items()},
        )

    def _configured(self) -> Iterator[McpServer]:
        """The user's own first: a clone must not take the name of one of them."""
        for name, table in _USER_FILES:
            file = self.user_home / name
            fields = _read(file)
            tables = [fields.get(table)]
            if self.project and isinstance(projects := fields.get("projects"), dict):
                mine = projects.get(str(self.project))
                tables.insert(0, mine.get(table) if isinstance(mine, dict) else None)
            for each in tables:
                yield from _servers(each, file, needs_grant=False)
        for name, table in _PROJECT_FILES if self.project else ():
            file = (self.project or Path()) / name
            yield from _servers(_read(file).get(table), file, needs_grant=True)


#: Where no project and no user is known.
NO_SERVERS = McpServers(None, Path("/nonexistent"), None, {})


def is_server(grant: Grant) -> bool:
    return grant.capability.startswith(f"{MCP_SERVER}:")


def is_command(name: str) -> bool:
    return name.startswith((".", "/", "~")) or any(letter.isspace() for letter in name)


def _split(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidArgs(Message("{text!r} is no command: {reason}", text=text[:200], reason=error)) from None
    return (os.path.expanduser(words[0]), *words[1:]) if words else ()  # noqa: PTH111  (`~nobody` stays)


def _read(file: Path) -> dict[str, Any]:
    """The tables of a configuration; nothing if there is none, or it cannot be read: it is another program's."""
    try:
        content = read_whole(file, _MOST_BYTES, follow=True)
        fields = tomllib.loads(content) if file.suffix == ".toml" else json.loads(content)
    except (OSError, ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _servers(table: object, file: Path, *, needs_grant: bool) -> Iterator[McpServer]:
    for name, entry in table.items() if isinstance(table, dict) else ():
        if not isinstance(entry, dict) or not 0 < len(name) <= _MOST_NAME or not name.isprintable():
            continue
        command, args = entry.get("command"), entry.get("args")
        words: list[object] = command if isinstance(command, list) else [command]
        words = [*words, *(args if isinstance(args, list) else ())]
        url = entry.get("url")
        texts = tuple(word for word in words if isinstance(word, str))
        if command and len(texts) == len(words):
            env = _texts(entry.get("env") or entry.get("environment"))
            yield McpServer(name, texts, env, file=file, needs_grant=needs_grant)
        elif isinstance(url, str) and url.startswith(("http://", "https://")):
            headers = _texts(entry.get("headers") or entry.get("http_headers"))
            yield McpServer(name, url=url, headers=headers, file=file, needs_grant=needs_grant)


def _texts(table: object) -> dict[str, str]:
    pairs = table.items() if isinstance(table, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}
