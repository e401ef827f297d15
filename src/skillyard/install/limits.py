"""How much may come from outside. Far above any real collection of skills, far below what hurts."""

from typing import NamedTuple


class Limits(NamedTuple):
    total_bytes: int = 512 * 1024 * 1024
    files: int = 20_000
    #: Unpacked over packed; only asked where more than `free_bytes` come out.
    ratio: int = 100
    free_bytes: int = 16 * 1024 * 1024
    path_bytes: int = 1024
    #: For a fetch from another place, whole.
    seconds: float = 300.0


LIMITS = Limits()
