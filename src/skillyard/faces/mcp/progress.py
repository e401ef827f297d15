"""What a run says while it runs, as progress notifications.

Covered: a program that says much is told in its latest words; what it says neither holds the run up nor fills memory.
"""

import asyncio
import threading
from typing import Any

from skillyard.faces.mcp.text import clean

_LONGEST = 500
_LONGEST_PIECE = 65_536
#: Between two notifications at least this long: clients draw each.
_PAUSE_SECONDS = 0.05


class Progress:
    """Heard in the run's thread, told in the loop's."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._rest = b""
        self._latest = ""
        self._lines = 0
        self._heard = asyncio.Event()

    def hear(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-_LONGEST_PIECE:]
        said = [text for text in (clean(line.decode("utf-8", "replace"), _LONGEST) for line in lines[-20:]) if text]
        if said:
            with self._lock:
                self._latest = said[-1]
                self._lines += len(lines)
            self._loop.call_soon_threadsafe(self._heard.set)

    async def tell(self) -> None:
        """Until cancelled; the last word is told by `finish`."""
        while True:
            await self._heard.wait()
            await self.finish()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def finish(self) -> None:
        self._heard.clear()
        with self._lock:
            said, self._latest = self._latest, ""
        if said:
            await self._session.report_progress(float(self._lines), None, said)
