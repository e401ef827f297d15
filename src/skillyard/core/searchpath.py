"""The PATH that programs of the user's are found on: never the current folder, which may be anybody's. Pure."""

import os
from collections.abc import Mapping


def absolute_entries(env: Mapping[str, str]) -> str:
    """The PATH without empty and relative entries, which mean the current folder or a part of it."""
    entries = env.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if entry.startswith("/"))
