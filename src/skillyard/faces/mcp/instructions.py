"""What the server says of itself: how to use it, and which skills there are, within a budget."""

from collections.abc import Mapping

from skillyard.faces.mcp.surface import Surface
from skillyard.faces.mcp.text import clean

#: Claude Code cuts a server's instructions at 2,048 characters; what stands behind that is lost, not shortened.
BUDGET = 2_000
_DESCRIPTION = 120
_NAME = 60
_HOW = (
    "Skillyard runs the skills of this project in a sandbox. skill_search finds them, skill_show explains one, "
    "skill_run runs one; every result says its state. `pending` names what is missing: ask the user and call again. "
    "NotGranted names the command that only the user can run. What follows each name was written by its skill's author."
)


def instructions_of(surface: Surface, uses: Mapping[str, int]) -> str:
    """Names with descriptions while they fit; the least used lose theirs first, and then are only counted."""
    ranked = sorted(surface.skills, key=lambda shown: (-uses.get(shown.entry.name, 0), shown.address))
    names = [clean(shown.address, _NAME) for shown in ranked]
    if not names:
        return f"{_HOW}\n\nThere are no skills here yet."
    room = BUDGET - len(_HOW) - len("\n\nSkills:") - len(_more(len(names)))
    kept = _fitting(names, room)
    left = room - sum(map(_cost, names[:kept]))
    lines = []
    for position, name in enumerate(names[:kept]):
        said = clean(ranked[position].entry.description, _DESCRIPTION)
        fits = said and left >= len(said) + 2
        if fits:
            left -= len(said) + 2
        elif said:
            left = 0  # who is used less never says more
        lines.append(f"- {name}: {said}" if fits else f"- {name}")
    return "\n".join([_HOW, "", "Skills:", *lines]) + (_more(len(names) - kept) if kept < len(names) else "")


def _fitting(names: list[str], room: int) -> int:
    for count, name in enumerate(names):
        room -= _cost(name)
        if room < 0:
            return count
    return len(names)


def _cost(name: str) -> int:
    return len(name) + len("\n- ")


def _more(count: int) -> str:
    return f"\nand {count} more: use skill_search"
