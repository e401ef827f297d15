"""An install workflow that is killed with SIGKILL at a step: before it, or after it and before LangGraph knows.

usage: python dying.py PROJECT HOME THREAD before|after STEP SOURCE_OR_DECISIONS
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.values import Json
from skillyard.scripts.install_graph import InstallSteps, open_workflow


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Dying(InstallSteps):
    """The real steps, up to the one that is the last."""

    def __init__(self, yard: Project, moment: str, step: str) -> None:
        super().__init__(yard.installer(), yard.reviews, lambda _: None, on_terminal=False)
        self._moment, self._step = moment, step

    def begin(self, source: str, skills: Sequence[str]) -> tuple[list[str], str]:
        self._reach("before", "begin")
        begun = super().begin(source, skills)
        self._reach("after", "begin")
        return begun

    def settle(self, review: str, decisions: Mapping[str, Json]) -> Sequence[str]:
        self._reach("before", "settle")
        changed = super().settle(review, decisions)
        self._reach("after", "settle")
        return changed

    def _reach(self, moment: str, step: str) -> None:
        if (moment, step) == (self._moment, self._step):
            die()


def main() -> None:
    project, home, thread, moment, step, given = sys.argv[1:]
    root = Path(project)
    yard = Project(ProjectPaths(project=root, user_home=root, own_home=Path(home)))
    with open_workflow(Dying(yard, moment, step), Path(home) / "workflows.db", root) as workflow:
        if given.startswith("{"):
            workflow.resume(thread, json.loads(given))
        else:
            workflow.start(thread, given)


if __name__ == "__main__":
    main()
