"""How deep we are: an agent that we start may start us again, and we an agent. This counter ends that."""

from collections.abc import Mapping
from typing import Final

from skillyard.core.errors import TooDeep

#: Set in whatever an agent of ours starts.
DEPTH: Final = "SKILLYARD_DEPTH"
DEEPEST: Final = 2


def deeper(env: Mapping[str, str]) -> str:
    """What an agent that is started from here is told. Raises TooDeep; what cannot be read counts as deep."""
    now = env.get(DEPTH) or "0"
    depth = int(now) if now.isascii() and now.isdigit() else DEEPEST
    if depth >= DEEPEST:
        raise TooDeep(depth, DEEPEST)
    return str(depth + 1)
