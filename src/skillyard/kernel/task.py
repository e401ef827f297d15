"""The Kernel of the seeds: Task in, one result out."""

from skillyard.core.request import Request
from skillyard.core.result import Result
from skillyard.kernel.assembly import Yard, open_yard


class Kernel:
    def __init__(self, yard: Yard | None = None) -> None:
        self._yard = yard or open_yard()

    def run(self, request: Request) -> Result:
        return self._yard.runtime.run(request)
