"""Commands that work off jobs: worker, and service, which keeps one alive."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.job_values import QUEUE, make_service
from skillyard.app.project import Project, open_project
from skillyard.core.child_process import own_command, refuse_inside_agents
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message, render
from skillyard.faces.command import Answer, Options, Parser, at_least, comma_list, require_yes, seconds, takes
from skillyard.faces.present import one_line

if TYPE_CHECKING:
    from skillyard.jobs.jobs import Jobs
    from skillyard.jobs.service import WorkerService

_RECONNECT_SECONDS = (0.5, 30.0)


@takes("--concurrency", "runs at a time in each queue (1)", type=at_least(1), default=1, metavar="N")
@takes("--queues", f"which queues ({QUEUE})", default=QUEUE, metavar="A,B")
@takes("--drain", "end when nothing is queued any more")
@takes("--grace", "at the end, seconds for runs under way (10)", type=seconds, default=10.0, metavar="S")
@takes("--reconnect", "wait for a database that is not there yet")
def answer_worker(options: Options) -> Answer:
    """Work off the jobs of this project, and fire what is scheduled.

    Any number of workers may serve a project; on PostgreSQL also from other machines. A worker that dies loses nothing:
    another one, or the next, takes over what it had. Ctrl-C ends it after the runs under way, twice at once.

    examples:
      skillyard worker
      skillyard worker --concurrency 4 --queues default,slow
      skillyard worker --drain
    """
    queues = dict.fromkeys(comma_list(options.queues), options.concurrency)
    if not queues:
        raise InvalidArgs(Message("--queues names none: {queue} is the one that jobs wait in by default", queue=QUEUE))
    ended = threading.Event()

    def end(*_: object) -> None:
        if ended.is_set():
            _leave()
        ended.set()

    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, end)

    def tell(text: str) -> None:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {one_line(render(text, options.lang))}\n")
        sys.stderr.flush()

    with open_project() as project:
        jobs = _open(project, tell, reconnect=options.reconnect)
        worker = project.jobs.worker_loop(jobs, tell, options.lang)
        count, names = options.concurrency, ", ".join(queues)
        tell(Message("working for {root}, {count} at a time in {queues}", root=project.root, count=count, queues=names))
        try:
            worker.serve(queues, ended, partial(_start_anew, tell), drain=options.drain)
        finally:
            jobs.engine.close(options.grace if worker.attempts.underway.list() else 0.0)
        if left := worker.attempts.underway.list():
            tell(Message("{count} runs go to the next worker", count=len(left)))
            _leave()  # before the sandbox is closed, which would wait for them
    return Answer(Message("the worker ended"), {"queues": list(queues)})


def _open(project: Project, tell: Callable[[str], None], *, reconnect: bool) -> "Jobs":
    pause, longest = _RECONNECT_SECONDS
    while True:
        try:
            return project.jobs.of(project.jobs.open_engine())
        except RuntimeFailed as error:
            if not reconnect:
                raise
            tell(error.msg)
        time.sleep(pause)
        pause = min(pause * 2, longest)


def _start_anew(tell: Callable[[str], None]) -> None:
    """Others may think that we are dead and do our jobs: what runs here must end, and we begin as another."""
    tell(Message("the database went away: the runs here end, and start again when it is back"))
    words = [word for word in sys.argv[1:] if word != "--reconnect"]
    os.execv(sys.executable, own_command(*words, "--reconnect"))  # noqa: S606


def _leave() -> NoReturn:
    """At once: threads that still wait for a run would hold us up, and the runs end with us."""
    sys.stderr.flush()
    os._exit(0)


def service_arguments(parser: Parser) -> None:
    parser.set_defaults(concurrency=1, queues=QUEUE)
    add = parser.add_commands("install | status | remove")
    add("install", "write the service, and start it", _install_service)
    add("status", "whether it is there, and runs", answer_service)
    add("remove", "stop it, and take the file away", _remove_service)


def _service(options: Options) -> "WorkerService":
    with open_project(ends_with_process=True) as project:
        words = ("--concurrency", str(options.concurrency), "--queues", options.queues)
        return make_service(project.root, project.paths.own_home, project.paths.user_home, words)


@takes("--concurrency", "runs at a time (1)", type=at_least(1), default=1, metavar="N")
@takes("--queues", f"which queues ({QUEUE})", default=QUEUE, metavar="A,B")
@takes("--dry-run", "show the file, and write nothing")
@takes("--accept", "say yes without being asked")
def _install_service(options: Options) -> Answer:
    service = _service(options)
    data = {"service": service.name, "file": str(service.file), "text": service.text}
    if options.dry_run:
        lines = [f"# {service.file}", *service.text.splitlines()]
        return Answer(Message("would write: {file}", file=service.file), data, lines)
    refuse_inside_agents()
    question = Message("{text}\nWrite this to {file} and start it?", text=service.text, file=service.file)
    refused = Message("nothing was written: say yes on a terminal, or give --accept")
    require_yes(question.render(options.lang), refused, accepted=options.accept, details=data)
    service.install()
    summary = Message("installed: {name}", name=service.name)
    if service.may_linger():
        summary = Message(
            "installed: {name}; it starts when you log in, and with the machine after `loginctl enable-linger`",
            name=service.name,
        )
    return Answer(summary, data)


def answer_service(options: Options) -> Answer:
    """Keep the worker of this project alive, also after a reboot.

    Writes one file, a systemd unit of yours or a launchd agent on macOS, after showing it. Without it nothing fires
    while no `skillyard worker` runs.

    examples:
      skillyard service install --dry-run
      skillyard service install --concurrency 2
      skillyard service status
      skillyard service remove
    """
    service = _service(options)
    there, active = service.file.is_file(), service.is_active()
    state = Message("installed, but not running: install it again") if there else Message("not installed")
    summary = Message("service: {state}", state=Message("active") if active else state)
    return Answer(summary, {"service": service.name, "file": str(service.file), "installed": there, "active": active})


def _remove_service(options: Options) -> Answer:
    service = _service(options)
    if not service.remove():
        why = Message("no service is installed for this project ({file})", file=service.file)
        raise InvalidArgs(why, advice=Message("`skillyard service install` makes one"))
    return Answer(Message("removed: {name}", name=service.name), {"service": service.name})
