"""Keeps what a run did: the row from before it starts, the log while it runs, the result when it ended."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from skillyard.core.errors import SkillError
from skillyard.core.messages import Lang
from skillyard.core.request import Call, Outcome, Request
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.values import Json
from skillyard.runners.leftovers import Leftovers
from skillyard.runtime.redact import Redactor
from skillyard.sandbox.launch import Exit, Launch
from skillyard.store.runs import RUNNING, Log, Logs, Run, Runs

_DAY = 86_400
_LONGEST_LINE = 65_536
#: Of each end of an output that is too large.
_KEPT_BYTES = 4096


class Recorder:
    def __init__(self, runs: Runs, logs: Logs, keep: int = 1000, keep_days: float = 30) -> None:
        self._runs = runs
        self._logs = logs
        self._keep = keep
        self._keep_days = keep_days

    @contextmanager
    def recording(self, run: Run, lang: Lang) -> Iterator["Record"]:
        """The row and the log of one run. Whatever happens inside, the row gets its end."""
        with self._logs.open(run.id) as log:
            self._runs.put(run)
            record = Record(self._runs, run, lang, log)
            try:
                yield record
            finally:
                record.close()
        self._forget(run.started)

    def _forget(self, now: float) -> None:
        for run_id in self._runs.forget_before(now - self._keep_days * _DAY, self._keep):
            self._logs.remove(run_id)


class Record:
    """One run while it runs."""

    def __init__(self, runs: Runs, run: Run, lang: Lang, log: Log) -> None:
        self._runs, self._run, self._lang, self._log = runs, run, lang, log
        self._started = time.monotonic()
        self._result: Result | None = None
        self._redactor, self._secrets = Redactor(), Redactor(keys=False)
        self._line = b""
        self.sandbox: str | None = None
        self._not_covered: tuple[str, ...] = ()
        #: For `meta`: links that were removed after the run, and files whose setuid bits were cleared.
        self.cleaned: dict[str, Json] = {}
        #: The capabilities of hosts that the run was refused.
        self.refused: tuple[str, ...] = ()
        self.stderr = ""

    def starting(self, launch: Launch, secrets: tuple[str, ...]) -> None:
        """What is started, as it stands before it starts."""
        self._redactor, self._secrets = Redactor(secrets), Redactor(secrets, keys=False)
        self._tell(
            argv=list(launch.argv),
            cwd=str(launch.cwd),
            env=sorted(launch.env),
            limit_seconds=launch.limit_seconds,
            output_bytes=launch.output_bytes,
        )

    def hear(self, piece: bytes) -> bytes:
        """A piece of stderr: kept line by line, so that a secret cut in two is still seen. What of it may be shown."""
        *lines, self._line = (self._line + piece).split(b"\n")
        if len(self._line) > _LONGEST_LINE:
            # What may be the start of a secret waits for the rest of it.
            masked = self._secrets.blob(self._line)
            cut = len(masked) - self._secrets.longest_bytes
            lines, self._line = [*lines, masked[:cut]], masked[cut:]
        for line in lines:
            self._log.write(self._redacted(line) + b"\n")
        return b"".join(self._secrets.blob(line) + b"\n" for line in lines) if self._secrets.knows else piece

    def rest(self) -> bytes:
        """What was heard after the last line's end and not shown yet."""
        return self._secrets.blob(self._line) if self._secrets.knows else b""

    def clean(self, ended: Exit) -> Exit:
        """The same end with every secret masked, before anything is cut, quoted or parsed."""
        if not self._secrets.knows:
            return ended
        stdout = self._secrets.document(ended.stdout)
        return ended._replace(
            stdout=stdout,
            stdout_bytes=ended.stdout_bytes - len(ended.stdout) + len(stdout),
            stdout_tail=self._secrets.blob(ended.stdout_tail),
            stderr=self._secrets.blob(ended.stderr),
        )

    @property
    def facts(self) -> dict[str, Json]:
        """What `meta` says about the run itself, its sandbox and what was done after it."""
        not_covered = {"not_covered": list(self._not_covered)} if self._not_covered else {}
        return {"sandbox": self.sandbox, **not_covered, **self.cleaned}

    def left(self, left: Leftovers) -> None:
        """What the run left behind and was cleaned up."""
        cleaned = {"removed_links": list(left.removed_links), "cleared_setuid": list(left.cleared_setuid)}
        self.cleaned = {name: paths for name, paths in cleaned.items() if paths}
        self._tell(**self.cleaned)

    def ended(self, ended: Exit) -> None:
        self.sandbox = ended.sandbox
        self._not_covered = tuple(dict.fromkeys((*self._not_covered, *ended.missing)))
        self.refused = tuple(dict.fromkeys((*self.refused, *ended.refused)))
        self.stderr = ended.stderr.decode("utf-8", "replace")
        self._tell(
            exit=ended.code,
            seconds=round(ended.seconds, 4),
            stdout_bytes=ended.stdout_bytes,
            stderr_bytes=len(ended.stderr),
            timed_out=ended.timed_out,
            sandbox=ended.sandbox,
            missing=list(ended.missing),
            hit=ended.hit,
            **({"refused": list(ended.refused)} if ended.refused else {}),
        )
        if ended.overflowed:
            self._keep_ends(ended)

    def _tell(self, **facts: Json) -> None:
        self._run = self._run._replace(launch={**self._run.launch, **self._redactor.mapping(facts)})

    def _keep_ends(self, ended: Exit) -> None:
        """Of an output that was too much, what tells whose it is."""
        head, tail = ended.stdout[:_KEPT_BYTES], ended.stdout_tail[-_KEPT_BYTES:]
        left_out = ended.stdout_bytes - len(head) - len(tail)
        self._log.write(self._redacted(self._line) + b"\n")
        self._line = b""
        for part in (b"stdout starts:", head, b"[... %d bytes left out ...]" % left_out, tail):
            self._log.write(self._redacted(part) + b"\n")

    def _redacted(self, line: bytes) -> bytes:
        return self._redactor.text(line.decode("utf-8", "replace")).encode()

    def keep(self, run: Callable[[], Outcome]) -> Outcome:
        """Run it, and remember the result whichever way it ends."""
        try:
            outcome = run()
        except SkillError as error:
            self._result = error_result(error, self._run.agent, self._lang, self._meta())
            raise
        outcome = outcome._replace(data=self._secrets.mapping(outcome.data))
        moment = datetime.fromtimestamp(self._run.started).astimezone()
        self._result = outcome.as_result(self._run.agent, self._lang, self._seconds(), moment, run=self._run.id)
        return outcome

    def settle(self, result: Result) -> None:
        """The result of a run that has one already, whoever made it."""
        self._result = result

    def close(self) -> None:
        """Without a result there was a bug or an interrupt: said so, never left as running."""
        self._log.write(self._redacted(self._line))
        state = str(self._result.state) if self._result else "error"
        told = self._result.as_dict() if self._result else {"state": "error", "summary": "interrupted"}
        result = self._redactor.mapping(told)
        self._runs.finish(self._run._replace(state=state, seconds=self._seconds(), result=result))

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _meta(self) -> dict[str, Json]:
        moment = datetime.fromtimestamp(self._run.started).astimezone()
        return make_meta(self._run.agent, self._seconds(), moment, run=self._run.id)


def as_run(request: Request, call: Call, moment: datetime, secrets: Iterable[str] = ()) -> Run:
    """The row of a call before it starts."""
    return Run(
        id=call.run_id,
        agent=request.agent,
        skill=call.skill.name,
        kind="script" if call.script else str(call.skill.kind),
        state=RUNNING,
        started=moment.timestamp(),
        job=str(request.job.get("label", "")),
        request=_as_request(request, call, Redactor(secrets)),
    )


def _as_request(request: Request, call: Call, redact: Redactor) -> dict[str, Json]:
    told: dict[str, Json] = {
        "name": request.name,
        "staged": str(request.staged or ""),
        "args": list(request.args),
        "params": dict(call.params),
        "script": request.script,
        "action": call.action,
        "context": dict(call.context),
        "timeout_seconds": request.timeout_seconds,
        "limit_seconds": call.limit_seconds,
        "job": dict(request.job),
    }
    return redact.mapping({key: value for key, value in told.items() if value not in (None, "", [], {})})
