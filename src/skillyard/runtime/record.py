"""Keeps what a run did: the row from before it starts, the log while it runs, the result when it ended."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from skillyard.core.errors import Stopped
from skillyard.core.messages import Message
from skillyard.core.result import Request, Result
from skillyard.core.secrets import Redactor
from skillyard.core.values import Json
from skillyard.runners.kind import Prepared, start
from skillyard.runners.leftovers import Cleanup
from skillyard.sandbox.launch import Exit, Launch, Sandbox
from skillyard.store.changes import ChangeSets
from skillyard.store.runs import RUNNING, Log, Logs, Run, Runs

if TYPE_CHECKING:
    from skillyard.core.cancel_token import CancelToken

#: Called with each piece of stderr as it comes.
OnProgress: TypeAlias = Callable[[bytes], None] | None
_DAY = 86_400
#: Of each end of an output that is too large.
_KEPT_BYTES = 4096


class Recorder(NamedTuple):
    runs: Runs
    logs: Logs
    keep: int = 1000
    keep_days: float = 30
    changes: ChangeSets | None = None

    @contextmanager
    def recording(self, run: Run) -> Iterator["RunRecord"]:
        """Open the row and the log of one run. Whatever happens inside, the row is finished."""
        with self.logs.open(run.id) as log:
            self.runs.put(run)
            record = RunRecord(self.runs, run, log)
            try:
                yield record
            finally:
                record.close()
        oldest = run.started - self.keep_days * _DAY
        if run.job:
            gone = self.runs.forget_jobs_before(oldest, self.keep, run.started)
        else:
            gone = self.runs.forget_before(oldest, self.keep)
        for run_id in gone:
            self.logs.remove(run_id)
            if self.changes:
                self.changes.forget(run_id)


class RunRecord:
    """The row and the log of a run in progress."""

    def __init__(self, runs: Runs, run: Run, log: Log) -> None:
        self._runs, self._run, self._log = runs, run, log
        self._started = time.monotonic()
        self._result: Result | None = None
        self._redactor, self._show_secrets = Redactor(), False
        #: The end of stderr, which could be the start of a secret.
        self._held = b""
        #: Links that were removed after the run, and files whose setuid bits were cleared.
        self._cleaned: dict[str, tuple[str, ...]] = {}
        #: None until the program ended.
        self.exit: Exit | None = None
        #: What the run missed because of us, in sentences.
        self.notes: tuple[str, ...] = ()

    def wrap(
        self,
        sandbox: Sandbox,
        cleanup: Cleanup,
        on_progress: OnProgress,
        stop: "CancelToken | None",
        *secrets: str,
        show_secrets: bool = False,
    ) -> Sandbox:
        """Return the sandbox of this run, which records, cleans up, and masks every secret that the program prints.

        `show_secrets`: what is shown is not masked, what is kept is.
        """
        self._redactor, self._show_secrets = Redactor(secrets), show_secrets

        def show(piece: bytes) -> None:
            if on_progress and piece:
                on_progress(piece)

        def run(launch: Launch) -> Exit:
            if stop and stop.cancelled:
                raise Stopped(Message("it was stopped before it started"))
            limits: dict[str, Json] = {"limit_seconds": launch.limit_seconds, "output_bytes": launch.output_bytes}
            self._tell(argv=list(launch.argv), cwd=str(launch.cwd), env=sorted(launch.env), **limits)
            cleanup.before()
            launch = launch._replace(on_stderr=lambda piece: show(self.hear(piece)), cancel=stop)
            try:
                self.exit = self._masked_exit(start(sandbox, launch))
            finally:
                left = cleanup.after()
                cleaned = {"removed_links": left.removed_links, "cleared_setuid": left.cleared_setuid}
                self._cleaned = {name: paths for name, paths in cleaned.items() if paths}
                self._tell(**self._cleaned)
            show(self._flush())
            self._ended(self.exit)
            if stop and stop.cancelled:
                raise Stopped(Message("it was stopped, with everything that it had started"))
            return self.exit._replace(files=left.files)

        return run

    def hear(self, piece: bytes) -> bytes:
        """Log a piece of stderr and return what of it may be shown. No secret is cut in two."""
        safe, self._held = self._redactor.split_safe(self._held + piece)
        self._log.write(safe)
        return piece if self._show_secrets else safe

    def _flush(self) -> bytes:
        """Log the end of stderr and return what of it was not shown yet."""
        rest, self._held = self._redactor.blob(self._held), b""
        self._log.write(rest)
        return b"" if self._show_secrets else rest

    def _tell(self, **facts: Json) -> None:
        self._run = self._run._replace(launch={**self._run.launch, **self._redactor.mapping(facts)})

    def _masked_exit(self, ended: Exit) -> Exit:
        """Return the exit with every secret masked, before anything is cut, quoted or parsed."""
        if self._show_secrets:
            return ended
        stdout = self._redactor.document(ended.stdout)
        return ended._replace(
            stdout=stdout,
            stdout_bytes=ended.stdout_bytes - len(ended.stdout) + len(stdout),
            stdout_tail=self._redactor.blob(ended.stdout_tail),
            stderr=self._redactor.blob(ended.stderr),
        )

    def _ended(self, ended: Exit) -> None:
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
        if ended.overflowed:  # the log keeps the start and the end
            head, tail = ended.stdout[:_KEPT_BYTES], ended.stdout_tail[-_KEPT_BYTES:]
            left_out = b"[... %d bytes left out ...]" % (ended.stdout_bytes - len(head) - len(tail))
            text = b"\n".join((b"stdout starts:", head, left_out, tail, b""))
            self._log.write(self._redactor.blob(text))

    @property
    def facts(self) -> dict[str, Json]:
        """What `meta` says about the run: its id, its sandbox, and what was cleaned up."""
        not_covered, refused = (self.exit.missing, self.exit.refused) if self.exit else ((), ())
        lists = {"not_covered": not_covered, **self._cleaned, "refused": refused, "sandbox_notes": self.notes}
        told = {name: list(dict.fromkeys(texts)) for name, texts in lists.items() if texts}
        return {"run": self._run.id, "sandbox": self.exit.sandbox if self.exit else None, **told}

    def settle(self, result: Result) -> Result:
        """Keep the result with every secret masked, and return what the caller gets."""
        self._result = self._redactor.result(result)
        return result if self._show_secrets else self._result

    def close(self) -> None:
        """Finish the row. Without a result there was a bug or an interrupt, and the row says so."""
        self._flush()
        state = str(self._result.state) if self._result else "error"
        told = self._result.as_dict() if self._result else {"state": "error", "summary": "interrupted"}
        seconds = time.monotonic() - self._started
        self._runs.finish(self._run._replace(state=state, seconds=seconds, result=told))


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
        **request.task,
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
