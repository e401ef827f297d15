"""Tells the owner of a job that failed for good: by a command in the sandbox, or by a webhook.

The command gets the result as JSON on stdin; so does the webhook, as the body of a POST. Both in ten seconds each, both
with what came of it kept beside the job. Covered: a notifier that fails, hangs or is not there changes nothing else.
Not covered: a webhook that must not be told twice; like every step it is told at least once.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.core.values import Json
from skillyard.runners.interpreters import find_program
from skillyard.runners.program import BOX, base_environment, quoted
from skillyard.sandbox.launch import Launch, Sandbox
from skillyard.sandbox.policy import Policy, interpreter_paths
from skillyard.work.jobs import Job

_LIMIT_SECONDS = 10.0
_WEBHOOKS = ("https://", "http://")


class Notifier(NamedTuple):
    sandbox: Callable[[], Sandbox]
    root: Path
    own_home: Path

    def __call__(self, job: Job, result: Mapping[str, Json]) -> dict[str, Json]:
        told: dict[str, Json] = {"job": job.label, "id": job.first, "attempts": job.attempt, "result": dict(result)}
        body = json.dumps(told, ensure_ascii=False, default=dict).encode()
        try:
            if job.on_failure.startswith(_WEBHOOKS):
                said = _post(job.on_failure, body)
            else:
                said = self._run(job.on_failure, body)
        except (OSError, ValueError, SkillError) as error:
            said = f"{type(error).__name__}: {error}"
        return {"to": job.on_failure, "ok": not said, "msg": said}

    def _run(self, command: str, body: bytes) -> str:
        """Nothing where it went well."""
        words = shlex.split(command)
        inside = self.root / words[0]
        program = str(inside) if "/" in words[0] and inside.is_file() else find_program(words[0])
        root = self.root.resolve()
        policy = Policy(
            read=(root, *interpreter_paths(Path(program))),
            write=(root / BOX,),
            hide=(self.own_home.resolve(),),
        )
        (root / BOX).mkdir(exist_ok=True)
        launch = Launch(
            argv=(program, *words[1:]),
            cwd=root,
            env=base_environment(),
            stdin=body,
            limit_seconds=_LIMIT_SECONDS,
            policy=policy,
        )
        ended = self.sandbox()(launch)
        if ended.timed_out:
            return f"no answer within {_LIMIT_SECONDS:g} s"
        return "" if ended.code == 0 else quoted(ended.stderr) or f"exit code {ended.code}"


def _post(address: str, body: bytes) -> str:
    import urllib.request  # noqa: PLC0415  (few jobs have a webhook)

    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(address, body, headers)  # noqa: S310  (http and https alone come here)
    with urllib.request.urlopen(asked, timeout=_LIMIT_SECONDS) as answer:  # noqa: S310
        return "" if answer.status < 300 else f"HTTP {answer.status}"
