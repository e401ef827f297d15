"""Commands that hand skills to agents: activate, deactivate, active, dispatch, backend."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from skillyard.app.project import open_project
from skillyard.core.backend_events import Event, EventKind, Permission, Tell
from skillyard.core.cancel_token import CancelToken
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message, join_messages
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import (
    YES,
    Answer,
    Options,
    Parser,
    ask,
    at_least,
    on_terminal,
    seconds,
    show_and_exit,
    takes,
)
from skillyard.faces.present import StatusLine, Table, one_line, printable, put_aside, write_lines, yes_or_no
from skillyard.faces.skill_data import fields_of, line_of, timestamp

if TYPE_CHECKING:
    from skillyard.backends.driver import Driver
    from skillyard.dispatch.activation import ActivationChange
    from skillyard.dispatch.request import DispatchRequest
    from skillyard.dispatch.warm import WarmBackend
    from skillyard.store.conversations import Conversation, ConversationEvent

_LOOK_SECONDS = 0.2
#: The Ctrl-C that waits for nothing; one more is for a program that hangs itself.
_FORCING = 2
_ALWAYS: Final = frozenset({"a", "always", "总是"})


_MODEL = takes("--model", "the agent's model", metavar="M")
_PERMISSIONS = takes(
    "--permissions",
    "what the agent may do unasked: read, edit (files too) or full; by default what the settings say",
    choices=[str(profile) for profile in PermissionProfile],
    metavar="P",
)
_CWD = takes("--cwd", "where the agent works; here where it is not given", type=Path, metavar="DIR")


@takes("names", "folder, name or title of a skill", nargs="+", metavar="NAME")
@takes("--session", "in this conversation only", one_of="scope", metavar="ID")
@takes("--global", "in every conversation (the default)", one_of="scope", dest="is_global", action="store_true")
@takes("--here", "a skill of yours: in this project only")
@takes("--first", "before everything that is active", one_of="place")
@takes("--before", "before this active skill", one_of="place", metavar="NAME")
def answer_activate(options: Options) -> Answer:
    """Activate skills: from now on they go with every task for an agent.

    Without --session a skill is active in every conversation: your own skills everywhere, or with --here in this
    project only, a project's in that project. To activate one again changes nothing; with --first or --before it
    moves. The order decides which fit into the limit of size.

    examples:
      skillyard activate code-review
      skillyard activate house-style --here --before code-review
      skillyard activate pdf docx --session release-notes
    """
    with open_project() as project:
        project.catalog.sync()
        changes = project.activate(
            *options.names, conversation=options.session, here=options.here, first=options.first, before=options.before
        )
    told = Message("{count} skills activated"), Message("activated {name}"), Message("already active: {name}")
    return _activated(changes, options, *told)


@takes("names", "folder, name, title or path of an active skill", nargs="*", metavar="NAME")
@takes("--all", "everything that is active there")
@takes("--session", "in this conversation only", one_of="scope", metavar="ID")
@takes("--global", "in every conversation (the default)", one_of="scope", dest="is_global", action="store_true")
def answer_deactivate(options: Options) -> Answer:
    """Take skills out of what goes with a task.

    Without --session it is about what is active in every conversation; what a conversation activated for itself
    stays.

    examples:
      skillyard deactivate code-review
      skillyard deactivate --all --session release-notes
    """
    if bool(options.names) == options.all:
        raise InvalidArgs(Message("say which: names, or --all"))
    with open_project() as project:
        project.catalog.sync()
        if options.all:
            changes = project.activator.deactivate_all(options.session)
        else:
            changes = project.activator.deactivate(options.names, options.session)
    told = Message("{count} skills deactivated"), Message("deactivated {name}"), Message("not active there: {name}")
    return _activated(changes, options, *told)


def _activated(
    changes: "Sequence[ActivationChange]", options: Options, summary: Message, changed: Message, unchanged: Message
) -> Answer:
    skills: list[Json] = [{"name": each.name, "path": each.folder, "changed": each.changed} for each in changes]
    lines = [Message((changed if each.changed else unchanged).template, name=each.name) for each in changes]
    summary = Message(summary.template, count=sum(each.changed for each in changes))
    data: dict[str, Json] = {"skills": skills, "session": options.session}
    return Answer(summary, data, lines or [Message("nothing was active there")])


@takes("--session", "with what is active in this conversation", metavar="ID")
def answer_active(options: Options) -> Answer:
    """Show the active skills in the order in which they are handed over.

    With --session those of the conversation are among them. `sent` tells which fit into the limit of 30,000
    characters.

    examples:
      skillyard active
      skillyard active --session release-notes --json
    """
    with open_project() as project:
        active = project.contents.active(options.session)
    data, rows = list[Json](), list[tuple[str, ...]]()
    for position, skill in enumerate(active.skills):
        size, sent = len(skill.content), position < active.fitting
        told: dict[str, Json] = {"name": skill.name, "path": skill.path, "session": skill.conversation or None}
        data.append({**told, "characters": size, "sent": sent, "imitates": list(skill.imitates)})
        rows.append((skill.name, skill.conversation or "*", str(size), yes_or_no(sent), skill.path))
    rows += [(lost.name, "", "", yes_or_no(False), f"{lost.path}: {lost.reason}") for lost in active.unreadable]
    unreadable: list[Json] = [lost._asdict() for lost in active.unreadable]
    empty = Message("Nothing is active yet: skillyard activate NAME.")
    return Answer(
        Message("{count} active skills", count=len(active.skills)),
        {"skills": data, "unreadable": unreadable, "session": options.session, "limit": active.limit},
        Table(("name", "session", "characters", "sent", "path"), rows, empty),
    )


@takes("task", "what the agent is to do; - reads it from stdin")
@takes("--to", "claude-code, codex, opencode or another backend", metavar="NAME")
@takes("--session", "the conversation that it belongs to", metavar="ID")
@takes("--model", "the agent's model", metavar="M")
@takes("--cwd", "where the agent works; here where it is not given", type=Path, metavar="DIR")
@_PERMISSIONS
@takes("--timeout", "seconds that it may take (3600)", type=seconds, metavar="S")
@takes("--stream", "show what the agent does while it does it")
@takes("--dry-run", "show the exact text, and start nothing")
def answer_dispatch(options: Options) -> Answer:
    """Hand a task with the active skills to an agent.

    The skills are those of the project that the command is given in; --cwd is where the agent works. --session names a
    conversation of ours: what is active in it goes along, and a second task in it goes on where the first ended.

    What the agent may do unasked is said by --permissions, else by `permissions` in the settings (read). What it wants
    beyond that is asked on the terminal, and refused where nobody is there; the result is then `partial`. Ctrl-C stops
    the agent; the conversation can be gone on with.

    examples:
      skillyard dispatch "Find the flaky test" --to claude-code --stream
      skillyard dispatch "And now fix it" --session flaky --to codex --model gpt-5
      skillyard dispatch --dry-run "Review the auth module for security issues"
      git diff | skillyard dispatch - --session review --dry-run --json
    """
    if options.stream and options.json:
        reason = Message("not allowed with argument {name}", name="--json")
        options.parser.error(Message("argument {name}: {reason}", name="--stream", reason=reason))
    try:
        task = sys.stdin.buffer.read().decode() if options.task == "-" else options.task  # line ends stay as they came
    except UnicodeDecodeError as error:
        words = {"reason": error.reason, "start": error.start}
        raise InvalidArgs(Message("the task on stdin is not UTF-8: {reason} at byte {start}", **words)) from None
    with open_project() as project:
        request = project.make_dispatch_request(task, options.session, options.cwd)._replace(
            to=options.to, model=options.model, limit_seconds=options.timeout, lang=options.lang
        )
        request = request._replace(profile=project.choose_profile(_profile(options)))
        if not options.json:
            write_lines((join_messages("", ("→ ", note)) for note in _notes(request)), options.lang)
        if not options.dry_run:
            watched = Watching(options.lang)
            with watched.watching(stream=options.stream) as tell:
                result = project.dispatcher.dispatch(request, tell, watched.allows, watched.stop)
            if not options.json:  # what was sent is known, what is empty says nothing, and what is long goes to a file
                known = {"text", "characters", "newline_added", "to"}
                empty = {key for key, value in result.data.items() if value in (None, [], {})} - {"recoverable"}
                if watched.streamed == result.data.get("content") and sys.stdout.isatty() and sys.stderr.isatty():
                    known.add("content")  # the person has just read it
                shown = {key: value for key, value in result.data.items() if key not in known | empty}
                result = result._replace(data=shown)
                if project.paths.project and not (options.style.human or options.style.raw):
                    result = put_aside(result, project.write_file)
            show_and_exit(result, options.style)
    text = request.enhanced.text
    return Answer(Message("would send {count} characters (nothing was sent)", count=len(text)), request.as_data(), text)


def _profile(options: Options) -> PermissionProfile | None:
    return PermissionProfile(options.permissions) if options.permissions else None


def _notes(request: "DispatchRequest") -> Iterator[Message]:
    enhanced = request.enhanced
    if enhanced.omitted:
        names = ", ".join(skill.name for skill in enhanced.omitted)
        yield Message("left out, over the limit of size: {names}", names=names)
    for skill in enhanced.marked:
        lines = ", ".join(f"`{line}`" for line in skill.imitates)
        yield Message("{name} imitates the structure around it: {lines}", name=skill.name, lines=lines)
    for lost in request.unreadable:
        yield Message("{name} cannot be read: {reason}", name=lost.name, reason=lost.reason)
    if request.profile:
        yield Message("the agent may do unasked: {profile}", profile=_PROFILES[request.profile])
    if enhanced.shielded:
        yield Message("the task starts with / and got a newline before it")


_PROFILES: Final = {
    PermissionProfile.READ: Message("read (what only reads)"),
    PermissionProfile.EDIT: Message("edit (read, and change files)"),
    PermissionProfile.FULL: Message("full (everything)"),
}


class Watching:
    """One task, watched by the person who gave it: what is shown, what is asked, and Ctrl-C."""

    def __init__(self, lang: Lang) -> None:
        self._lang = lang
        self._asking = False
        self._signals = 0
        self._line: StatusLine | None = None
        self._at_line_start = True
        #: The tools that the person allowed for the whole turn.
        self._always: set[str] = set()
        #: The latest message as it was streamed.
        self.streamed = ""
        self._message: Json = None
        self.stop = CancelToken()

    @contextmanager
    def watching(self, *, stream: bool) -> Iterator[Tell]:
        """Within it the first Ctrl-C stops the agent, the second ends it at once. Gives who is to be told.

        Neither raises: an exception between any two lines would cut short what puts an end to the conversation. After
        them another Ctrl-C means nothing any more: all that is left is to show the result.
        """
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with nullcontext() if stream else StatusLine("→") as self._line:
                yield self._stream if stream else self._step
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self._signals else handler)
            self._end_line()

    def _end_line(self) -> None:
        if not self._at_line_start:
            _write("\n")
            self._at_line_start = True

    def allows(self, permission: Permission) -> bool:
        """A person at the terminal, or nobody."""
        if permission.tool in self._always:
            return True
        if not on_terminal():
            return False
        self._asking = True
        try:
            self._end_line()
            if self._line:
                self._line.wipe()
            asks = Message("{tool} asks: {says}  Allow it?", tool=permission.tool, says=permission.says)
            keys = Message("a: always in this turn").render(self._lang)
            answer = (ask(f"{one_line(asks.render(self._lang))} ({keys}) [y/N/a] ") or "").strip().lower()
            if answer in _ALWAYS:
                self._always.add(permission.tool)
            return answer in _ALWAYS | YES
        except KeyboardInterrupt:
            self.stop.cancel()
            return False
        finally:
            self._asking = False

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        """Hand the work to a thread: whoever was interrupted may hold a lock that it needs, or be writing to stderr."""
        self._signals += 1
        if self._asking or self._signals > _FORCING:
            raise KeyboardInterrupt
        threading.Thread(target=self._stop if self._signals < _FORCING else self.stop.force).start()

    def _stop(self) -> None:
        _write(f"\n{Message('stopping (Ctrl-C again ends it at once)').render(self._lang)}\n")
        self.stop.cancel()

    def _step(self, event: Event) -> None:
        """The latest of it, on one line, on a terminal only; what has to be waited for, always."""
        line = line_of(event.kind, event.text, event.data, self._lang)
        if self._line and event.kind is EventKind.NOTE:
            self._line.say(f"→ {line}")
        elif event.kind is EventKind.WAITING and not sys.stderr.isatty():
            _write(f"→ {line}\n")
        elif self._line and line:
            self._line(line)

    def _stream(self, event: Event) -> None:
        """Everything: text as it comes, the rest a line each."""
        if event.kind is EventKind.TEXT:
            if event.data.get("message") != self._message:
                self._end_line()
                self.streamed, self._message = "", event.data.get("message")
            self.streamed += event.text
            _write(event.text)
            if event.text:
                self._at_line_start = event.text.endswith("\n")
        elif line := line_of(event.kind, event.text, event.data, self._lang):
            if event.kind is EventKind.ERROR:  # it tries again: what came before is void
                self.streamed, self._message = "", None
            self._end_line()
            _write(f"→ {one_line(line)}\n")


def _write(text: str) -> None:
    sys.stderr.write(printable(text))  # nothing of it can move the cursor
    sys.stderr.flush()


def backend_arguments(parser: Parser) -> None:
    parser.set_defaults(limit=20)
    add = parser.add_commands("list | check | start | log | stop")
    listing = add("list", "every backend, with its version and its conversations", answer_backend)
    listing.add_argument("--limit", type=at_least(1), default=20, help="how many conversations, the latest first (20)")
    add("check", "start it and make it say hello", _check)
    add("start", "keep it warm in the background, for one conversation", _start)
    add("log", "what was told in a conversation, from its beginning", _log)
    add("stop", "end what is running or warm; the conversation can be gone on with", _stop)


def answer_backend(options: Options) -> Answer:
    """The agents: which are there, what they are doing, what they said; keep them warm, stop them.

    `check` starts each agent and makes it say hello, without calling a model; with --ask it is asked one word, which
    its model must answer. `start` keeps an agent warm for a conversation: the next `dispatch --session` need not wait
    for its start. It ends after a while without a task, with a turn that fails or is stopped, and when a task comes to
    its conversation that it was not started for (another model, other settings). `stop` ends what an agent is doing,
    whichever process started it, and the warm ones.

    examples:
      skillyard backend
      skillyard backend check codex
      skillyard backend start opencode --session review --idle 3600
      skillyard backend log --session review --follow
      skillyard backend stop --session review
    """
    with open_project() as project:
        drivers = project.drivers
        exists = project.paths.database.exists()
        talks, warm = project.dispatcher.list_conversations(options.limit) if exists else ((), {})
    with ThreadPoolExecutor() as pool:  # each program takes its time to say its version
        backends = list(pool.map(_find_backend, drivers.values()))
    rows: list[tuple[str, ...]] = []
    for backend in backends:
        of_it = [talk for talk in talks if talk.backend == backend["name"]]
        backend["conversations"] = [_as_data(talk, warm.get(talk.id)) for talk in of_it]
        name = str(backend["name"])
        version = str(backend["version"] or "?") if backend["installed"] else "-"
        if not of_it:
            rows.append((name, version, "", "", "", "", ""))
        for talk in of_it:
            kept = warm.get(talk.id)
            warmth = Message("{state} since {when}", state=kept.state, when=timestamp(kept.since)) if kept else ""
            rows.append((name, version, talk.name, str(talk.state), warmth, timestamp(talk.last), talk.folder))
            name = version = ""
    return Answer(
        Message("{count} backends, {talks} conversations", count=len(backends), talks=len(talks)),
        {"backends": list(backends)},
        Table(("backend", "version", "session", "state", "warm", "last", "folder"), rows),
    )


def _find_backend(driver: "Driver") -> dict[str, Json]:
    try:
        found = driver.find()
    except SkillError as error:
        return {"name": driver.name, "installed": False, "error": error.msg, "hint": error.hint(Lang.EN)}
    return {"name": driver.name, "installed": True, "version": found.version, "program": str(found.program)}


@takes("names", "a backend; all of them where none is named", nargs="*", metavar="NAME")
@takes("--ask", "ask its model one word too, which costs a few tokens")
def _check(options: Options) -> Answer:
    checked, lines, failed = list[Json](), list[str](), 0
    with open_project() as project, StatusLine("→") as line:
        for driver in [project.backend(name) for name in options.names or project.drivers]:
            line(driver.name)
            told: dict[str, Json] = {"name": driver.name, "ok": False}
            words = {"name": driver.name, "version": "", "said": ""}
            try:
                found = driver.find()
                told |= {"version": found.version, "program": str(found.program)}
                words["version"] = f" {found.version}" if found.version else ""
                said = project.check_backend(driver.name, ask=options.ask)
            except SkillError as error:
                failed += 1
                told |= {"type": error.type, "error": error.msg, "hint": error.hint(Lang.EN)}
                lines.append(join_messages("", (f"✗ {driver.name}{words['version']}: ", error.msg)))
                lines.append(join_messages("", ("  → ", error.hint_message())))
            else:
                told["ok"] = True
                if options.ask:
                    told["said"], words["said"] = said, Message(", and says: {said}", said=said)
                lines.append(Message("✓ {name}{version} speaks with us{said}", **words))
            checked.append(told)
    summary = Message("{count} backends work", count=len(checked))
    if failed:
        summary = Message("{failed} of {count} backends do not work", failed=failed, count=len(checked))
    state = State.ERROR if failed == len(checked) else State.PARTIAL if failed else State.SUCCESS
    return Answer(summary, {"backends": checked}, lines, state)


@takes("name", "a backend", metavar="NAME")
@takes("--session", "the conversation; a new one where it is not given", metavar="ID")
@_MODEL
@_CWD
@_PERMISSIONS
@takes("--idle", "end it after so long a rest (900)", type=seconds, metavar="S", default=900.0)
def _start(options: Options) -> Answer:
    with open_project() as project, StatusLine("→") as line:
        line(options.name)
        warmed = project.dispatcher.start_warm(
            options.name,
            session=options.session,
            model=options.model,
            cwd=options.cwd,
            profile=_profile(options),
            idle_seconds=options.idle,
        )
    words = {"backend": options.name, "session": warmed.conversation.name, "idle": warmed.backend.idle_seconds}
    summary = Message("{backend} is warm for --session {session}, until it rests for {idle:g} s", **words)
    if warmed.already:
        summary = Message("{backend} was warm already for --session {session}", **words)
    data = _as_data(warmed.conversation, warmed.backend)
    return Answer(summary, {**data, "already": warmed.already}, [summary])


@takes("--follow", "go on until the turn that runs is over")
@takes("name", "a backend", nargs="?", default="", metavar="NAME")
@takes("--session", "a conversation", default="", metavar="ID")
def _log(options: Options) -> Answer:
    with open_project() as project:
        found, _ = project.dispatcher.list_conversations(backend=options.name, name=options.session)
        if not found:
            raise InvalidArgs(Message("no such conversation; `skillyard backend list` shows them"))
        talk = found[0]
        told: list[tuple[int, ConversationEvent]] = []
        while True:
            at_work = talk.state in {"starting", "running"}
            fresh = project.conversations.history(talk, told[-1][0] if told else 0)
            told += fresh
            if not options.json:
                lines = (line for _, event in fresh for line in _lines_of(event, options.lang))
                write_lines(lines, options.lang, sys.stdout)
            if not (options.follow and at_work):
                break
            time.sleep(_LOOK_SECONDS)
            talk = project.conversations.find(talk.backend, talk.folder, talk.name) or talk
    events: list[Json] = [{**each._asdict(), "data": dict(each.data), "at": timestamp(each.at)} for _, each in told]
    words = {"session": talk.name, "backend": talk.backend, "state": talk.state}
    summary = Message("conversation {session} with {backend}: {state}", **words)
    return Answer(summary, {**_as_data(talk), "events": events}, [f"-- {talk.state}"])


def _lines_of(event: "ConversationEvent", lang: Lang) -> list[str]:
    """What was said as it was said, the rest a line each."""
    match event.told:
        case "task":
            return [f"[{timestamp(event.at)}] ←", *(f"  {line}" for line in event.text.splitlines())]
        case "text":
            return event.text.splitlines()
        case "permission":
            allowed = Message("allowed") if event.data.get("allowed") else Message("refused")
            return [join_messages("", ("→ ", allowed, f": {event.data.get('tool')} {event.text}"))]
        case "warm":
            return [f"→ [{timestamp(event.at)}] {event.text}"]
    line = line_of(event.told, event.text, dict(event.data), lang)
    return [f"→ {line}"] if line else []


@takes("name", "a backend", nargs="?", default="", metavar="NAME")
@takes("--session", "a conversation", default="", metavar="ID")
def _stop(options: Options) -> Answer:
    with open_project() as project:
        stopped = project.dispatcher.stop_conversations(backend=options.name, name=options.session)
    lines = [Message("stopped {session} with {backend}", session=talk.name, backend=talk.backend) for talk in stopped]
    summary = Message("{count} conversations stopped", count=len(stopped))
    data: dict[str, Json] = {"conversations": [_as_data(talk) for talk in stopped]}
    return Answer(summary, data, lines or [Message("nothing is running")])


def _as_data(talk: "Conversation", kept: "WarmBackend | None" = None) -> dict[str, Json]:
    warm: dict[str, Json] | None = None
    if kept:
        warm = {"state": str(kept.state), "since": timestamp(kept.since), "idle_since": timestamp(kept.idle_since)}
        warm |= {"idle_seconds": kept.idle_seconds, "model": kept.model or None, "pid": kept.pid}
    return {
        "session": talk.name,
        **fields_of(talk, "backend", "folder"),
        "agent_session": talk.session or None,
        "state": str(talk.state),
        "started": timestamp(talk.started),
        "last": timestamp(talk.last),
        "run": talk.run or None,
        "warm": warm,
    }
