"""The form of a capability: which names there are, and what may stand after the colon.

Here because both what grants it and what keeps it check it: a capability that was kept must be read again later.
"""

import os
import re

READ_PROJECT, NETWORK, PACKAGES = "read-project", "network", "packages"
#: Each with an argument: a path, or the name of a variable.
READ, WRITE, ENV = "read", "write", "env"
#: What only the file of a role asks for.
SECRET, MEMORY, PROCESSES = "secret", "memory", "processes"
SCHEDULE, ON_FAILURE, ALLOWED_TOOLS = "schedule", "on-failure", "allowed-tools"
PLAIN = (READ_PROJECT, NETWORK, PACKAGES, SCHEDULE, ON_FAILURE, ALLOWED_TOOLS)
WITH_ARGUMENT = (READ, WRITE, ENV, SECRET, MEMORY, PROCESSES)
#: The form of the argument. `network` takes a host, whose spelling the sandbox checks.
_ARGUMENTS = {
    ENV: re.compile(r"[^=\s\x00-\x1f\x7f]{1,255}"),
    SECRET: re.compile(r"[^=\x00-\x1f\x7f]{1,255}"),
    MEMORY: re.compile(r"[0-9]{1,18}"),
    PROCESSES: re.compile(r"[0-9]{1,18}"),
    NETWORK: re.compile(r"[^\s\x00-\x1f\x7f/@?#]{1,300}"),
}
#: As long as a path may be for the kernel.
MOST_PATH_BYTES = 4_096


def is_capability(text: str) -> bool:
    """Whether it has the form of a capability. Whether its path or host exists is not checked."""
    name, colon, argument = text.partition(":")
    if not colon:
        return text in PLAIN
    if name in {READ, WRITE}:
        return is_path(argument)
    form = _ARGUMENTS.get(name)
    return form is not None and form.fullmatch(argument) is not None and is_path(argument)


def is_path(text: str) -> bool:
    """Whether the kernel could be asked for it: some bytes, not too many, and no NUL."""
    try:
        return 0 < len(os.fsencode(text)) < MOST_PATH_BYTES and "\0" not in text
    except UnicodeEncodeError:
        return False
