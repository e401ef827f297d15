"""What the kinds that start a program have in common: the environment, and what its end means."""

import os
import shutil
import sys
from pathlib import Path

from skillyard.core.errors import InvalidCommand, OutputTooLarge, RuntimeFailed, Timeout
from skillyard.core.request import Call
from skillyard.core.result import as_size, meaningful
from skillyard.sandbox.launch import Exit

_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SKILL_DEBUG")
_QUOTED_CHARACTERS = 200


def environment(call: Call) -> dict[str, str]:
    """Only what every program needs, and where it is."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **passed,
        "PYTHONIOENCODING": "utf-8",
        "CLAUDE_SKILL_DIR": str(call.skill.folder),
        "SKILLYARD_RUN": call.run_id,
    }


def find_program(name: str, folder: Path) -> str:
    """A program of the skill's own folder, else one on the PATH."""
    own = folder / name
    if own.is_file():
        return str(own)
    found = sys.executable if name in {"python", "python3"} else shutil.which(name)
    if found is None:
        raise InvalidCommand(f"no program named {name!r}")
    return found


def check_exit(call: Call, ended: Exit) -> None:
    """Raise what went wrong, if anything did."""
    if ended.timed_out:
        raise Timeout(call.asked_as, meaningful(ended.seconds), call.limit_seconds)
    if ended.overflowed:
        limit = as_size(len(ended.stdout))
        raise OutputTooLarge(f"more than {limit} on stdout", limit=limit, log=call.run_id)
    if ended.code != 0:
        raise RuntimeFailed(quoted(ended.stderr) or f"exit code {ended.code}", details={"exit_code": ended.code})


def quoted(stderr: bytes) -> str:
    """The end of what it said, where the reason usually stands."""
    text = " ".join(stderr.decode("utf-8", "replace").split())
    return text if len(text) <= _QUOTED_CHARACTERS else "…" + text[1 - _QUOTED_CHARACTERS :]
