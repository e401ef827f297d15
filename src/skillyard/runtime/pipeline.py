"""The one pipeline: Request → resolve → check → run → record → Result.

The only place where errors become results. Bugs still raise.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.catalog import Catalog
from skillyard.core.errors import ParamMissing, SkillError
from skillyard.core.request import Call, Request
from skillyard.core.result import Result, error_result, make_meta, pending_result
from skillyard.core.skill import Kind
from skillyard.core.values import Json
from skillyard.runners.runner import PLANNERS, RUNNERS
from skillyard.runtime.check import check
from skillyard.sandbox.launch import Sandbox
from skillyard.store.runs import RUNNING, Run, Runs


class Runtime(NamedTuple):
    """Everything that a run needs, passed in: nothing here looks at the world by itself."""

    catalog: Catalog
    sandbox: Sandbox
    runs: Runs
    root: Path
    new_id: Callable[[], str]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run(self, request: Request) -> Result:
        """Run one skill. Expected failures come back as results; bugs still raise."""
        started, moment = time.monotonic(), self.now()
        run_id = self.new_id()
        recorded = False

        def meta() -> Mapping[str, Json]:
            known = {"run": run_id} if recorded else {}
            return make_meta(request.agent, time.monotonic() - started, moment, **known)

        try:
            self.catalog.sync()
            skill = self.catalog.resolve(request.name)
            call = check(skill, request, self.root, run_id)
            if skill.kind is not Kind.PROMPT:
                self._record_start(request, call, moment)
                recorded = True
            outcome = RUNNERS[skill.kind](call, self.sandbox)
            seconds = time.monotonic() - started
            known = {"run": run_id} if recorded else {}
            result = outcome.as_result(request.agent, request.lang, seconds, moment, **known)
        except ParamMissing as error:
            tell = pending_result if request.interactive else error_result
            result = tell(error, request.agent, request.lang, meta())
        except SkillError as error:
            result = error_result(error, request.agent, request.lang, meta())
        if recorded:
            self.runs.finish(run_id, str(result.state), time.monotonic() - started, result.as_dict(), "")
            self.runs.record_use(skill.name, moment.timestamp())
        return result

    def _record_start(self, request: Request, call: Call, moment: datetime) -> None:
        launch = PLANNERS[call.skill.kind](call)
        self.runs.start(
            Run(
                id=call.run_id,
                agent=request.agent,
                skill=call.skill.name,
                kind=str(call.skill.kind),
                state=RUNNING,
                started=moment.timestamp(),
                request={"name": request.name, "args": list(request.args), "params": request.params},
                launch={"argv": list(launch.argv), "cwd": str(launch.cwd)} if launch else {},
            )
        )
