"""Keep the worker of this project alive, also after a reboot.

Writes one file, a systemd unit of yours or a launchd agent on macOS, after showing it. Without it nothing fires while
no `skillyard worker` runs.

examples:
  skillyard service install --dry-run
  skillyard service install --concurrency 2
  skillyard service status
  skillyard service remove
"""

from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.faces.ask import require_yes
from skillyard.faces.command import Answer, Options, Parser, add_commands, at_least, lang_of
from skillyard.faces.present import Lines
from skillyard.jobs.jobs import QUEUE
from skillyard.trust.grant_rules import refuse_inside_agents

if TYPE_CHECKING:
    from skillyard.jobs.service import WorkerService


def arguments(parser: Parser) -> None:
    parser.set_defaults(concurrency=1, queues=QUEUE)
    add = add_commands(parser, "install | status | remove")
    installing = add("install", "write the service, and start it", _install)
    installing.add_argument("--concurrency", type=at_least(1), default=1, metavar="N", help="runs at a time (1)")
    installing.add_argument("--queues", default=QUEUE, metavar="A,B", help=f"which queues ({QUEUE})")
    installing.add_argument("--dry-run", action="store_true", help="show the file, and write nothing")
    installing.add_argument("--accept", action="store_true", help="say yes without being asked")
    add("status", "whether it is there, and runs", answer)
    add("remove", "stop it, and take the file away", _remove)


def _service(options: Options) -> "WorkerService":
    with open_project(ends_with_process=True) as project:
        return project.worker_service(("--concurrency", str(options.concurrency), "--queues", options.queues))


def _install(options: Options) -> Answer:
    service = _service(options)
    data = {"service": service.name, "file": str(service.file), "text": service.text}
    if options.dry_run:
        lines = [f"# {service.file}", *service.text.splitlines()]
        return Answer(Message("would write: {file}", file=service.file), data, Lines(lines))
    refuse_inside_agents()
    question = Message("{text}\nWrite this to {file} and start it?", text=service.text, file=service.file)
    refused = Message("nothing was written: say yes on a terminal, or give --accept")
    require_yes(question.render(lang_of(options)), refused, accepted=options.accept, details=data)
    service.install()
    if not service.may_linger():
        return Answer(Message("installed: {name}", name=service.name), data)
    return Answer(
        Message(
            "installed: {name}; it starts when you log in, and with the machine after `loginctl enable-linger`",
            name=service.name,
        ),
        data,
    )


def answer(options: Options) -> Answer:
    service = _service(options)
    there, active = service.file.is_file(), service.is_active()
    state = Message("installed, but not running: install it again") if there else Message("not installed")
    return Answer(
        Message("service: {state}", state=Message("active") if active else state),
        {"service": service.name, "file": str(service.file), "installed": there, "active": active},
    )


def _remove(options: Options) -> Answer:
    service = _service(options)
    if not service.remove():
        why = Message("no service is installed for this project ({file})", file=service.file)
        raise InvalidArgs(why, advice=Message("`skillyard service install` makes one"))
    return Answer(Message("removed: {name}", name=service.name), {"service": service.name})
