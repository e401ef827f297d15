"""Notifies the owner of a job that failed for good: by a command in the sandbox, or by a webhook.

The command gets the whole result as JSON on stdin, and has the network: a person named it. A webhook gets less: the
job's name, its id and the summary, with what looks like a key masked. Both have ten seconds; the outcome is kept with
the job, and a notice that failed is sent again, later and later. A schedule that fails in the same way each time is
told of once, then once a day with the count.

Covered: a notifier that fails, hangs, drips or is not there changes nothing else; a redirect is not followed, no proxy
is used, an answer is not read. Inside an agent nobody is notified: only a person may send something out.
Not covered: a webhook that must not be called twice; like every step it is called at least once.
"""

import http.client
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
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
from skillyard.store.runs import RUNNING, Run

_WEBHOOKS = ("https://", "http://")
#: What may stand in an address beside letters and digits.
_AS_IT_IS = "/%:@!$&'()*+,;=~?"
_SUMMARY_CHARS = 2000
_DAY = 86_400.0
_NUMBER = re.compile(r"\b[0-9a-f]*\d[0-9a-f.:-]*")


class Notifier(NamedTuple):
    sandbox: Callable[[], Sandbox]
    root: Path
    own_home: Path
    limit_seconds: float = 10.0
    env: Mapping[str, str] = os.environ

    def notify(self, job: Job, result: Mapping[str, Json], repeats: int = 0) -> dict[str, Json]:
        """Tell the owner of a job that failed for good. Return what is kept of it with the job."""
        return self.send(job.on_failure, failure_notice(job, result, repeats))

    def send(self, to: str, told: Mapping[str, Json]) -> dict[str, Json]:
        """Send a notice, with its `result` to a command only. Return what is kept of it."""
        is_webhook = to.startswith(_WEBHOOKS)
        if is_webhook:  # what may leave the machine
            told = {key: value for key, value in told.items() if key != "result"}
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
            policy=Policy(
                read=(root, *reach.known), write=(root / BOX,), hide=(self.own_home.resolve(),), network=True
            ),
        )
        ended = self.sandbox()(launch)
        if ended.timed_out:
            return Message("no answer within {limit_seconds:g} s", limit_seconds=self.limit_seconds)
        return "" if ended.code == 0 else quoted(ended.stderr) or Message("exit code {code}", code=ended.code)


def failure_notice(job: Job, result: Mapping[str, Json], repeats: int = 0) -> dict[str, Json]:
    """`repeats`: how often the same came before and was not told."""
    data, summary = result.get("data"), Redactor().text(str(result.get("summary", "")))
    kind = data.get("type") if isinstance(data, Mapping) else None
    told: dict[str, Json] = {"job": job.label, "id": job.first, "attempts": job.attempt}
    told |= {"state": result.get("state"), "type": kind, "summary": summary[:_SUMMARY_CHARS], "result": dict(result)}
    return {**told, "repeats": repeats} if repeats else told


def failure_mark(result: Mapping[str, Json]) -> str:
    """Return what is the same for two failures of one kind, whatever numbers and ids they name."""
    data, meta = result.get("data"), result.get("meta")
    kind = data.get("type") if isinstance(data, Mapping) else ""
    code = meta.get("code") if isinstance(meta, Mapping) else ""
    return f"{kind} {code} {_NUMBER.sub('#', Redactor().text(str(result.get('summary', ''))))}"


def untold_repeats(job: Job, result: Mapping[str, Json], before: Iterable[Run], now: float) -> tuple[bool, int]:
    """Return whether a failure is to be told, and how many like it came since the last that was.

    `before` are the runs of its schedule, the latest first. The first of a row of equal failures is told, then the
    first of each day after it.
    """
    mark, started, seen = failure_mark(result), [now], {job.first}
    for run in before:
        about = run.request.get("job")
        first = str(about.get("first") or run.id) if isinstance(about, Mapping) else run.id
        if first in seen or run.state == RUNNING:
            continue
        seen.add(first)
        if run.state in {"success", "partial"} or failure_mark(run.result) != mark:
            break
        started.append(run.started)
    days = [int((moment - started[-1]) // _DAY) for moment in started]
    if len(days) == 1:
        return True, 0
    is_told = days[0] != days[1]
    return is_told, (days[1:].count(days[1]) if is_told else days.count(days[0])) - 1


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
