"""How bad a threat is, as an ordered type: `severity >= HELD` is the whole question of a review."""

from enum import IntEnum


class Severity(IntEnum):
    """From nothing to worst; its name is what goes on the wire."""

    SAFE = 0
    INFO = 1
    LOW = 2
    MEDIUM = 3
    #: Something could not be read. It may be anything, so it stands above what an agent may decide.
    UNKNOWN = 4
    HIGH = 5
    CRITICAL = 6

    def __str__(self) -> str:
        return self.name

    def lowered(self, steps: int) -> "Severity":
        """So many steps milder, at least INFO; what could not be read stays unknown."""
        if self not in _LADDER:
            return self
        return _LADDER[max(_LADDER.index(self) - steps, 0)]


_LADDER = (Severity.INFO, Severity.LOW, Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL)

#: From here on an install is held back, and `scan` fails.
HELD = Severity.MEDIUM
