"""Regular expressions that are compiled at their first use: a run has dozens of them, and needs a few."""

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    """Becomes what `re.compile` returns, one method at a time."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what can be used like a compiled pattern of the text. A mistake in it shows at the first use."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))
