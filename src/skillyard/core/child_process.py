"""What child processes are started with: our own command line, a PATH without the current folder, the depth.

How we start ourselves: by this very Python and this very package, whatever the folder or the environment say.
Covered: Python runs isolated (`-I`), so neither the current folder nor PYTHONPATH, PYTHONHOME, PYTHONSTARTUP,
PYTHONUSERBASE or any other PYTHON* variable can add a module; the package is named by its absolute path.
Not covered: a package in the user's own site-packages, which must stay visible. There `-E -P` is used, which
ignores all of that but PYTHONUSERBASE.
"""

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skillyard.core.errors import PermissionDenied, TooDeep
from skillyard.core.messages import Message

PACKAGE = Path(__file__).resolve().parents[1]
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import {function}; {function}()"
#: Set for every program that an agent of ours starts.
DEPTH: Final = "SKILLYARD_DEPTH"
DEEPEST: Final = 2
#: Set beside it: what the agent may do unasked. An agent that it starts through us may do no more.
PROFILE: Final = "SKILLYARD_PERMISSIONS"
#: Set for the scripts of ours that a Task runs.
IN_TASK: Final = "SKILLYARD_IN_TASK"


def own_command(*words: str) -> tuple[str, ...]:
    """Return the argument vector that runs `skillyard WORDS` from any folder and in any environment."""
    return (sys.executable, *_flags(), str(PACKAGE / "__main__.py"), *words)


def own_function(module: str, function: str, *words: str) -> tuple[str, ...]:
    """Return the argument vector that calls a function of ours; the words are in `sys.argv[1:]`."""
    code = _BOOT.format(module=module, function=function)
    return (sys.executable, *_flags(), "-c", code, str(PACKAGE.parent), *words)


def absolute_entries(env: Mapping[str, str]) -> str:
    """Return the PATH without empty and relative entries, which mean the current folder or a part of it."""
    entries = env.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if entry.startswith("/"))


def deeper(env: Mapping[str, str]) -> str:
    """Return the depth for an agent that is started from here: it may start us, and we an agent, without end.

    Raise TooDeep at the limit. A depth that cannot be read counts as the limit.
    """
    now = env.get(DEPTH) or "0"
    depth = int(now) if now.isascii() and now.isdigit() else DEEPEST
    if depth >= DEEPEST:
        raise TooDeep(depth, DEEPEST)
    return str(depth + 1)


def refuse_inside_agents(env: Mapping[str, str] = os.environ) -> None:
    if env.get(DEPTH):
        raise PermissionDenied(Message("an agent cannot grant anything: a person must do it, outside"))


def _flags() -> tuple[str, ...]:
    user_site = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    in_user_site = bool(user_site) and PACKAGE.is_relative_to(os.path.realpath(user_site))
    return ("-E", "-P") if in_user_site else ("-I",)
