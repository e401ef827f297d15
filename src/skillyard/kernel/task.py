"""The Kernel of the seeds: Task in, one result out."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.phrases import Lang
from skillyard.core.request import Request
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.values import Json
from skillyard.kernel.assembly import Yard, open_yard
from skillyard.kernel.prompt import parse_prompt

#: S0: a Task to the skills agent may take this long, over everything.
DEADLINE_SECONDS = 90.0
SKILLS, WORKER = "skills", "worker_agent"
_AGENTS: Mapping[str, str] = {"skills": SKILLS, "skills_agent": SKILLS, "worker": WORKER, "worker_agent": WORKER}


class Kernel:
    """Dispatches a Task to the skills agent. Synchronous: the result is the return value."""

    def __init__(self, yard: Yard | None = None, lang: Lang | None = None) -> None:
        self._yard = yard or open_yard()
        self._lang = lang or Lang.choose(None, os.environ)

    def task(
        self,
        agent: str,
        description: str,
        prompt: str,
        *,
        idempotency_key: str | None = None,
        model: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Result:
        """S0 §1.1 and S1 §1.2. Bad calls come back as results too; the description is for people and logs."""
        del description
        started, moment = time.monotonic(), datetime.now(UTC)
        named = _AGENTS.get(agent, SKILLS)
        try:
            if agent not in _AGENTS:
                raise InvalidArgs(f"no agent {agent!r}; there are {', '.join(_AGENTS)}")
            if named == WORKER or idempotency_key is not None:
                raise InvalidArgs("the worker agent is not built yet")
            result = self._run_skill(prompt, timeout_seconds)
        except SkillError as error:
            result = error_result(error, named, self._lang, make_meta(named, time.monotonic() - started, moment))
        return result._replace(meta={**result.meta, "model": model}) if model else result

    def _run_skill(self, prompt: str, timeout_seconds: float | None) -> Result:
        catalog = self._yard.catalog
        catalog.sync()
        asked = parse_prompt(prompt, catalog.knows)
        request = Request(
            name=asked.name,
            script=asked.script,
            args=asked.args,
            timeout_seconds=timeout_seconds,
            deadline_seconds=DEADLINE_SECONDS,
            lang=self._lang,
        )
        return self._yard.runtime.run(request)


def execute_skill(
    *,
    agent_role: str,
    skill_name: str,
    action: str,
    params: Mapping[str, Json] | None = None,
    context: Mapping[str, Json] | None = None,
    yard: Yard | None = None,
) -> dict[str, Json]:
    """S3: run a JSON skill of agents/<role>/agent.yaml; the response is S3's own."""
    place = yard or open_yard()
    request = Request(
        name=f"{agent_role}/{skill_name}",
        action=action,
        params=params or {},
        context=context or {},
        interactive=False,
    )
    return place.runtime.respond(request)
