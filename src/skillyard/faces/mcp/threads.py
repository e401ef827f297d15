"""The threads behind the server: the runtime waits for programs, and the protocol must not wait with it.

Runs and lookups have threads of their own, so that a search never waits for runs that take minutes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from skillyard.app.project import Project
from skillyard.sandbox.cancel_token import Stop

#: Programs that run at once; more wait for their turn.
_MOST_RUNS = 32
_MOST_LOOKS = 4
#: As long as a stopped run may take to be gone, and more.
_END_SECONDS = 10.0

T = TypeVar("T")


class Threads:
    def __init__(self, yard: Project) -> None:
        self._yard = yard
        self._runs = ThreadPoolExecutor(_MOST_RUNS, "run")
        self._looks = ThreadPoolExecutor(_MOST_LOOKS, "look")
        self._watch = ThreadPoolExecutor(1, "watch")
        self._running: dict[Future[Any], Stop] = {}

    async def look(self, work: Callable[[Project], T]) -> T:
        """Something short: what the catalog or the history knows."""
        return await asyncio.get_running_loop().run_in_executor(self._looks, lambda: work(self._yard))

    async def watch(self, work: Callable[[Project], T]) -> T:
        """The same, always in the one thread: what it saw last time is what it compares with.

        The hourly backup of our database is made here too, where nobody waits for it."""

        def watch() -> T:
            self._yard.back_up_if_due()
            return work(self._yard)

        return await asyncio.get_running_loop().run_in_executor(self._watch, watch)

    async def run(self, work: Callable[[Project, Stop], T]) -> T:
        """A run. Whoever is cancelled here takes the run with it."""
        stop = Stop()
        future = self._runs.submit(lambda: work(self._yard, stop))
        self._running[future] = stop
        future.add_done_callback(lambda ended: self._running.pop(ended, None))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            stop.ask()
            raise

    def close(self) -> None:
        """End every run, and return when each has its end in the history, or cannot have one in time."""
        running = dict(self._running)
        for stop in running.values():
            stop.ask()
        for pool in (self._runs, self._looks, self._watch):
            pool.shutdown(wait=False, cancel_futures=True)
        wait(running, timeout=_END_SECONDS)
