"""Notifies the owner of a job that failed for good: by a command in the sandbox, or by a webhook.

The command gets the whole result as JSON on stdin. What leaves the machine is less: a webhook gets the job's name, its
id and the summary, with what looks like a key masked. Both have ten seconds; the outcome is kept with the job.

Covered: a notifier that fails, hangs, drips or is not there changes nothing else; a redirect is not followed, no proxy
is used, an answer is not read. Inside an agent nobody is notified: only a person may send something out.
Not covered: a webhook that must not be called twice; like every step it is called at least once.
"""

import http.client
import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.secrets import Redactor
from skillyard.core.values import Json
from skillyard.install.source import Deadline
from skillyard.jobs.jobs import Job
from skillyard.runners.interpreters import find_program, reach_of
from skillyard.runners.kind import base_environment, quoted
from skillyard.runners.leftovers import BOX
from skillyard.sandbox.launch import Launch, Policy, Sandbox

_WEBHOOKS = ("https://", "http://")
#: What may stand in an address beside letters and digits.
_AS_IT_IS = "/%:@!$&'()*+,;=~?"
_SUMMARY_CHARS = 2000


class Notifier(NamedTuple):
    sandbox: Callable[[], Sandbox]
    root: Path
    own_home: Path
    limit_seconds: float = 10.0
    env: Mapping[str, str] = os.environ

    def notify(self, job: Job, result: Mapping[str, Json]) -> dict[str, Json]:
        """Tell the owner of a job that failed for good. Return what is kept of it with the job."""
        told: dict[str, Json] = {"job": job.label, "id": job.first, "attempts": job.attempt}
        to, is_webhook = job.on_failure, job.on_failure.startswith(_WEBHOOKS)
        if is_webhook:  # what may leave the machine
            data, summary = result.get("data"), Redactor().text(str(result.get("summary", "")))
            kind = data.get("type") if isinstance(data, Mapping) else None
            told |= {"state": result.get("state"), "type": kind, "summary": summary[:_SUMMARY_CHARS]}
        else:
            told["result"] = dict(result)
        body = json.dumps(told, ensure_ascii=False, default=dict).encode("utf-8", "replace")
        try:
            if self.env.get(DEPTH):
                raise PermissionDenied(Message("inside an agent nobody is told: only a person may send something out"))
            said = _post(to, body, self.limit_seconds) if is_webhook else self._run(to, body)
        except (OSError, ValueError, SkillError) as error:
            said = f"{type(error).__name__}: {error}"
        if is_webhook:  # the host alone: the rest of a webhook's address is often its password
            scheme, _, rest = to.partition("://")
            to = f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/…"
        return {"to": to, "ok": not said, "msg": said}

    def _run(self, command: str, body: bytes) -> str:
        """Run the command in the sandbox. Return what went wrong, or ""."""
        words = shlex.split(command)
        if not words:
            raise InvalidArgs(Message("on_failure names no command"))
        inside = self.root / words[0]
        program = str(inside) if "/" in words[0] and inside.is_file() else find_program(words[0])
        root, reach = self.root.resolve(), reach_of(Path(program))
        for path in reach.unknown:
            if not path.is_relative_to(root):
                msg = Message("on_failure names {path}: use a program of the system or of the project", path=path)
                raise PermissionDenied(msg)
        (root / BOX).mkdir(exist_ok=True)
        launch = Launch(
            argv=(program, *words[1:]),
            cwd=root,
            env=base_environment(),
            stdin=body,
            limit_seconds=self.limit_seconds,
            policy=Policy(read=(root, *reach.known), write=(root / BOX,), hide=(self.own_home.resolve(),)),
        )
        ended = self.sandbox()(launch)
        if ended.timed_out:
            return Message("no answer within {limit_seconds:g} s", limit_seconds=self.limit_seconds)
        return "" if ended.code == 0 else quoted(ended.stderr) or Message("exit code {code}", code=ended.code)


def _post(address: str, body: bytes, limit_seconds: float) -> str:
    """Post to exactly the named host, within the limit however slowly it answers. Return what went wrong, or ""."""
    named = urlsplit(address)
    if not named.hostname or named.username or named.password:
        raise InvalidArgs(Message("a webhook is http(s)://host/path, without a user"))
    kind = http.client.HTTPSConnection if named.scheme == "https" else http.client.HTTPConnection
    connection = kind(named.hostname, named.port, timeout=limit_seconds)
    path = quote(f"{named.path or '/'}{'?' if named.query else ''}{named.query}", safe=_AS_IT_IS)
    deadline = Deadline(limit_seconds)

    def ask() -> int:
        connection.connect()
        deadline.watch(connection.sock)
        connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "skillyard"})
        return connection.getresponse().status

    try:
        status = deadline.run(ask)
    except http.client.HTTPException as error:
        return type(error).__name__  # its text may quote the address, which is often a secret itself
    finally:
        connection.close()
    return "" if status < 300 else f"HTTP {status}"
