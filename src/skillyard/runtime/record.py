"""Keeps what a run did: the row from before it starts, the log while it runs, the result when it ended.

`RecordedSandbox` is the sandbox of one run: everything that its program does is noted down, and the places that it
could write are cleaned up.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from skillyard.core.errors import Stopped
from skillyard.core.messages import Message
from skillyard.core.result import Outcome, Request, Result
from skillyard.core.secrets import Redactor
from skillyard.core.values import Json
from skillyard.runners.kind import Prepared, start
from skillyard.runners.leftovers import Cleanup, Leftovers
from skillyard.sandbox.launch import Exit, Launch, Sandbox
from skillyard.store.runs import RUNNING, Log, Logs, Run, Runs

if TYPE_CHECKING:
    from skillyard.sandbox.cancel_token import CancelToken

#: Called with each piece of stderr as it comes.
OnProgress: TypeAlias = Callable[[bytes], None] | None
_DAY = 86_400
_LONGEST_LINE = 65_536
#: Of each end of an output that is too large.
_KEPT_BYTES = 4096


class Recorder:
    def __init__(self, runs: Runs, logs: Logs, keep: int = 1000, keep_days: float = 30) -> None:
        self._runs, self._logs = runs, logs
        self._keep, self._keep_days = keep, keep_days

    @contextmanager
    def recording(self, run: Run) -> Iterator["RunRecord"]:
        """Open the row and the log of one run. Whatever happens inside, the row is finished."""
        with self._logs.open(run.id) as log:
            self._runs.put(run)
            record = RunRecord(self._runs, run, log)
            try:
                yield record
            finally:
                record.close()
        for run_id in self._runs.forget_before(run.started - self._keep_days * _DAY, self._keep):
            self._logs.remove(run_id)


class RunRecord:
    """The row and the log of a run in progress."""

    def __init__(self, runs: Runs, run: Run, log: Log) -> None:
        self._runs, self._run, self._log = runs, run, log
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
        """Note what is started."""
        self._redactor, self._secrets = Redactor(secrets), Redactor(secrets, keys=False)
        self._tell(
            argv=list(launch.argv),
            cwd=str(launch.cwd),
            env=sorted(launch.env),
            limit_seconds=launch.limit_seconds,
            output_bytes=launch.output_bytes,
        )

    def hear(self, piece: bytes) -> bytes:
        """Log a piece of stderr and return what of it may be shown. Whole lines only, so no secret is cut in two."""
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
        """Return the unfinished last line, masked, if it was not shown yet."""
        return self._secrets.blob(self._line) if self._secrets.knows else b""

    def clean(self, ended: Exit) -> Exit:
        """Return the exit with every secret masked, before anything is cut, quoted or parsed."""
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
        """What `meta` says about the run: its id, its sandbox, and what was cleaned up."""
        not_covered = {"not_covered": list(self._not_covered)} if self._not_covered else {}
        refused = {"refused": list(self.refused)} if self.refused else {}
        return {"run": self._run.id, "sandbox": self.sandbox, **not_covered, **self.cleaned, **refused}

    def left(self, left: Leftovers) -> None:
        """Note what the run left behind and was cleaned up."""
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
        """Log the start and the end of an output that was too large."""
        head, tail = ended.stdout[:_KEPT_BYTES], ended.stdout_tail[-_KEPT_BYTES:]
        left_out = ended.stdout_bytes - len(head) - len(tail)
        self._log.write(self._redacted(self._line) + b"\n")
        self._line = b""
        for part in (b"stdout starts:", head, b"[... %d bytes left out ...]" % left_out, tail):
            self._log.write(self._redacted(part) + b"\n")

    def _redacted(self, line: bytes) -> bytes:
        return self._redactor.text(line.decode("utf-8", "replace")).encode()

    def masked(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the values that were passed to the program masked."""
        return outcome._replace(data=self._secrets.mapping(outcome.data))

    def settle(self, result: Result) -> None:
        """Keep the result, in which what looks like a key is masked too."""
        self._result = result

    def close(self) -> None:
        """Finish the row. Without a result there was a bug or an interrupt, and the row says so."""
        self._log.write(self._redacted(self._line))
        state = str(self._result.state) if self._result else "error"
        told = self._result.as_dict() if self._result else {"state": "error", "summary": "interrupted"}
        result = self._redactor.mapping(told)
        seconds = time.monotonic() - self._started
        self._runs.finish(self._run._replace(state=state, seconds=seconds, result=result))


class RecordedSandbox:
    """The sandbox of one run. A secret that its program prints is masked here: whoever reads on never had it."""

    def __init__(
        self,
        sandbox: Sandbox,
        record: RunRecord,
        cleanup: Cleanup,
        on_progress: OnProgress = None,
        stop: "CancelToken | None" = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._sandbox, self._record, self._cleanup = sandbox, record, cleanup
        self._on_progress, self._stop, self._secrets = on_progress, stop, secrets

    def __call__(self, launch: Launch) -> Exit:
        launch = launch._replace(on_stderr=self._hear, cancel=self._stop)
        self._raise_if_stopped(Message("it was stopped before it started"))
        self._record.starting(launch, self._secrets)
        before = self._cleanup.before()
        try:
            ended = self._record.clean(start(self._sandbox, launch))
        finally:
            left = self._cleanup.after(before)
            self._record.left(left)
        self._show(self._record.rest())
        self._record.ended(ended)
        self._raise_if_stopped(Message("it was stopped, with everything that it had started"))
        return ended._replace(files=left.files)

    def _hear(self, piece: bytes) -> None:
        self._show(self._record.hear(piece))

    def _show(self, shown: bytes) -> None:
        if self._on_progress and shown:
            self._on_progress(shown)

    def _raise_if_stopped(self, reason: str) -> None:
        if self._stop and self._stop.cancelled:
            raise Stopped(reason)


def as_run(request: Request, prepared: Prepared, moment: datetime) -> Run:
    """Return the row of a run that is about to start."""
    call = prepared.call
    secrets = [prepared.passed[secret.name] for secret in prepared.permit.secrets]
    asked: dict[str, Json] = {
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
    given = {key: value for key, value in asked.items() if value not in (None, "", [], {})}
    return Run(
        id=call.run_id,
        agent=request.agent,
        skill=call.skill.name,
        kind="script" if call.script else str(call.skill.kind),
        state=RUNNING,
        started=moment.timestamp(),
        job=str(request.job.get("label", "")),
        request=Redactor(secrets).mapping(given),
    )
