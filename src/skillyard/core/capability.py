"""The form of a capability: its name, and the argument after the colon.

Checked both when a capability is granted and when a stored one is read.
"""

import os

from skillyard.core.values import lazy_pattern

READ_PROJECT, NETWORK, PACKAGES = "read-project", "network", "packages"
#: One more package for the environment of a skill; `packages` is the grant for those that it asks for itself.
PACKAGE = "package"
#: A requirement that cannot be had, and that the person goes on without: its name, or its whole line.
WITHOUT = "without-package"
#: Each with an argument: a path, or the name of a variable.
READ, WRITE, ENV = "read", "write", "env"
#: Asked for only by the file of a role.
SECRET, MEMORY, PROCESSES = "secret", "memory", "processes"
SCHEDULE, ON_FAILURE, ALLOWED_TOOLS = "schedule", "on-failure", "allowed-tools"
#: A server that a file of the project names may be started or reached; the argument is its name, or the command.
MCP_SERVER = "mcp-server"
PLAIN = (READ_PROJECT, NETWORK, PACKAGES, SCHEDULE, ON_FAILURE, ALLOWED_TOOLS)
WITH_ARGUMENT = (READ, WRITE, ENV, PACKAGE, WITHOUT, SECRET, MEMORY, PROCESSES)
#: The form of the argument. `network` takes a host, whose spelling the sandbox checks.
_ARGUMENTS = {
    ENV: lazy_pattern(r"[^=\s\x00-\x1f\x7f]{1,255}"),
    SECRET: lazy_pattern(r"[^=\x00-\x1f\x7f]{1,255}"),
    MEMORY: lazy_pattern(r"[0-9]{1,18}"),
    PROCESSES: lazy_pattern(r"[0-9]{1,18}"),
    PACKAGE: lazy_pattern(r"[A-Za-z0-9][\w.,<>=!~\[\] -]{0,200}|npm:[A-Za-z0-9@][\w.,<>=~^|*@/ -]{0,200}"),
    WITHOUT: lazy_pattern(r"[^\x00-\x1f\x7f]{1,1000}"),
    MCP_SERVER: lazy_pattern(r"[^\x00-\x1f\x7f]{1,1000}"),
    NETWORK: lazy_pattern(r"[^\s\x00-\x1f\x7f/@?#]{1,300}"),
}
#: The longest path that Linux takes.
MOST_PATH_BYTES = 4_096


def is_capability(text: str) -> bool:
    """Whether the text has the form of a capability. That its path or host exists is not checked."""
    name, colon, argument = text.partition(":")
    if not colon:
        return text in PLAIN
    if name in {READ, WRITE}:
        return is_path(argument)
    form = _ARGUMENTS.get(name)
    return form is not None and form.fullmatch(argument) is not None and is_path(argument)


def is_network(text: str) -> bool:
    """Whether it opens the network, as a whole or to one host."""
    return text.partition(":")[0] == NETWORK


def is_path(text: str) -> bool:
    """Whether the operating system could take it for a path: some bytes, not too many, and no NUL."""
    try:
        return 0 < len(os.fsencode(text)) < MOST_PATH_BYTES and "\0" not in text
    except UnicodeEncodeError:
        return False
