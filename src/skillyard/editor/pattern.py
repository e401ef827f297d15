"""Regular expressions under a time limit: some patterns take longer than the universe on a line of text."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.editor.text_edits import Splice

_MATCHER = Path(__file__).with_name("regex_process.py")


def substitute(
    text: str, pattern: str, replacement: str, *, flags: re.RegexFlag, count: int, seconds: float
) -> tuple[Splice, ...]:
    """What `re.sub` would change. The match runs in a child that is killed at the limit."""
    order = {
        "text": text,
        "pattern": pattern,
        "replacement": replacement,
        "flags": int(flags),
        "count": count,
        "cpu_seconds": math.ceil(seconds) + 1,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_MATCHER)],
            input=json.dumps(order).encode(),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeFailed(
            Message("the pattern was stopped after {seconds:g} s: it may never end on this text", seconds=seconds),
            details={"limit": seconds},
        ) from None
    if done.returncode != 0:
        raise RuntimeFailed(Message("the matcher ended with {returncode}", returncode=done.returncode))
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise InvalidArgs(Message("the pattern or its replacement cannot be used: {error}", error=answer["error"]))
    return tuple(Splice(*match) for match in answer["matches"])
