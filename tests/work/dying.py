"""An install workflow that is killed with SIGKILL at a step: before it, or after it and before LangGraph knows.

usage: python dying.py PROJECT HOME THREAD before|after STEP SOURCE_OR_DECISIONS
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from skillyard.core.values import Json
from skillyard.work.graph import open_workflow
from skillyard.work.staging import Staging, make_staging


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Dying:
    """The real steps, up to the one that is the last."""

    def __init__(self, staging: Staging, moment: str, step: str) -> None:
        self._staging, self._moment, self._step = staging, moment, step

    def fetch(self, source: Path) -> tuple[str, ...]:
        self._reach("before", "fetch")
        names = self._staging.fetch(source)
        self._reach("after", "fetch")
        return names

    def examine(self, name: str) -> list[dict[str, Json]]:
        self._reach("before", "examine")
        return self._staging.examine(name)

    def keep(self, name: str) -> str:
        self._reach("before", "keep")
        outcome = self._staging.keep(name)
        self._reach("after", "keep")
        return outcome

    def drop(self, name: str) -> str:
        self._reach("before", "drop")
        outcome = self._staging.drop(name)
        self._reach("after", "drop")
        return outcome

    def _reach(self, moment: str, step: str) -> None:
        if (moment, step) == (self._moment, self._step):
            die()


def main() -> None:
    project, home, thread, moment, step, given = sys.argv[1:]
    root = Path(project)
    staging = make_staging(Path(home), root, thread)
    with open_workflow(Dying(staging, moment, step), Path(home) / "workflows.db", root) as workflow:
        if given.startswith("{"):
            workflow.resume(thread, json.loads(given))
        else:
            workflow.start(thread, Path(given))


if __name__ == "__main__":
    main()
