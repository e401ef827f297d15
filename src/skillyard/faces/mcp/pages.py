"""Long lists, a page at a time."""

from collections.abc import Sequence

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillyard.faces.mcp.surface import Shown

#: So that no other text passes for one of ours.
_AFTER = "after:"


def page_of(skills: Sequence[Shown], cursor: str | None, size: int) -> tuple[Sequence[Shown], str | None]:
    """The skills behind the cursor, and the next one. A cursor names the last of its page: a list that changes between
    two pages neither repeats what stayed nor skips it."""
    if cursor is not None and not cursor.startswith(_AFTER):
        raise MCPError(types.INVALID_PARAMS, "this cursor is not one of ours")
    rest = [shown for shown in skills if shown.address > cursor.removeprefix(_AFTER)] if cursor else skills
    page = rest[:size]
    return page, f"{_AFTER}{page[-1].address}" if len(rest) > size else None
