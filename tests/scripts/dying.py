"""An install workflow that is killed with SIGKILL at a step: before it, or after it and before LangGraph knows.

usage: python dying.py PROJECT HOME THREAD before|after STEP SOURCE_OR_DECISIONS
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.scripts.install_graph import InstallWorkflow, _State


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Dying(InstallWorkflow):
    """The real steps, up to the one that is the last."""

    def __init__(self, yard: Project, moment: str, step: str) -> None:
        database = yard.paths.own_home / "workflows.db"
        super().__init__(database, yard.root, yard.installer(), yard.reviews, lambda _: None, on_terminal=False)
        self._moment, self._step = moment, step

    def bring(self, state: _State) -> _State:
        self._reach("before", "begin")
        begun = super().bring(state)
        self._reach("after", "begin")
        return begun

    def settle(self, state: _State) -> _State:
        self._reach("before", "settle")
        changed = super().settle(state)
        self._reach("after", "settle")
        return changed

    def _reach(self, moment: str, step: str) -> None:
        if (moment, step) == (self._moment, self._step):
            die()


def main() -> None:
    project, home, thread, moment, step, given = sys.argv[1:]
    root = Path(project)
    yard = Project(ProjectPaths(project=root, user_home=root, own_home=Path(home)))
    workflow = Dying(yard, moment, step)
    if given.startswith("{"):
        workflow.resume(thread, json.loads(given))
    else:
        workflow.start(thread, given)


if __name__ == "__main__":
    main()
