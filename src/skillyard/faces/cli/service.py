"""Keep the worker of this project alive, also after a reboot.

Writes one file, a systemd unit of yours or a launchd agent on macOS, after showing it. Without it nothing fires while
no `skillyard worker` runs.

examples:
  skillyard service install --dry-run
  skillyard service install --concurrency 2
  skillyard service status
  skillyard service remove
"""

from functools import partial

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.states import State
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of, positive
from skillyard.faces.present import Lines
from skillyard.jobs.jobs import QUEUE
from skillyard.jobs.service import WorkerService
from skillyard.trust.grant_rules import refuse_inside_agents

_INSTALLED = Message("installed: {name}")
_WAITS = Message("installed: {name}; it starts when you log in, and with the machine after `loginctl enable-linger`")
_ACTIVE = Message("active")
_RESTS = Message("installed, but not running: install it again")
_ABSENT = Message("not installed")
_QUESTION = Message("{text}\nWrite this to {file} and start it?")
_INSTALL_IT = Message("`skillyard service install` makes one")


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _status), concurrency=1, queues=QUEUE)
    commands = parser.add_subparsers(metavar="install | status | remove")
    installing = commands.add_parser("install", help="write the service, and start it")
    installing.add_argument("--concurrency", type=positive, default=1, metavar="N", help="runs at a time (1)")
    installing.add_argument("--queues", default=QUEUE, metavar="A,B", help=f"which queues ({QUEUE})")
    installing.add_argument("--dry-run", action="store_true", help="show the file, and write nothing")
    installing.add_argument("--accept", action="store_true", help="say yes without being asked")
    installing.set_defaults(answer=partial(answer_with, _install))
    status = commands.add_parser("status", help="whether it is there, and runs")
    status.set_defaults(answer=partial(answer_with, _status), concurrency=1, queues=QUEUE)
    removing = commands.add_parser("remove", help="stop it, and take the file away")
    removing.set_defaults(answer=partial(answer_with, _remove), concurrency=1, queues=QUEUE)
    for each in (parser, installing, status, removing):
        add_output_options(each)


def _service(options: Options) -> WorkerService:
    with open_project(ends_with_process=True) as project:
        return project.worker_service(("--concurrency", str(options.concurrency), "--queues", options.queues))


def _install(options: Options) -> Answer:
    service = _service(options)
    data = {"service": service.name, "file": str(service.file), "text": service.text}
    if options.dry_run:
        lines = [f"# {service.file}", *service.text.splitlines()]
        return Answer(Message("would write: {file}"), {"file": service.file}, data, Lines(lines))
    refuse_inside_agents()
    question = _QUESTION.render(lang_of(options), text=service.text, file=service.file)
    if not options.accept and not (on_terminal() and confirm(question)):
        raise InvalidArgs(Message("nothing was written: say yes on a terminal, or give --accept"), details=data)
    service.install()
    says = _WAITS if service.may_linger() else _INSTALLED
    return Answer(says, {"name": service.name}, data)


def _status(options: Options) -> Answer:
    service = _service(options)
    there, active = service.file.is_file(), service.is_active()
    state = _ACTIVE if active else _RESTS if there else _ABSENT
    return Answer(
        Message("service: {state}"),
        {"state": state.render(lang_of(options))},
        {"service": service.name, "file": str(service.file), "installed": there, "active": active},
        state=State.SUCCESS,
    )


def _remove(options: Options) -> Answer:
    service = _service(options)
    if not service.remove():
        raise InvalidArgs(
            Message("no service is installed for this project ({file})", file=service.file), advice=_INSTALL_IT
        )
    return Answer(Message("removed: {name}"), {"name": service.name}, {"service": service.name})
