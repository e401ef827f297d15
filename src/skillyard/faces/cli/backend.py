"""The agents: which are there, what they are doing, what they said; keep them warm, stop them.

`check` starts each agent and makes it say hello, without calling a model; with --ask it is asked one word, which its
model must answer. `start` keeps an agent warm for a conversation: the next `dispatch --session` need not wait for its
start. It ends after a while without a task, with a turn that fails or is stopped, and when a task comes to its
conversation that it was not started for (another model, other settings). `stop` ends what an agent is doing, whichever
process started it, and the warm ones.

examples:
  skillyard backend
  skillyard backend check codex
  skillyard backend start opencode --session review --idle 3600
  skillyard backend log --session review --follow
  skillyard backend stop --session review
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message, join_messages
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_commands, at_least, lang_of, seconds
from skillyard.faces.present import Lines, Steps, Table, write_lines
from skillyard.faces.skill_data import line_of, timestamp

if TYPE_CHECKING:
    from skillyard.backends.driver import Driver
    from skillyard.dispatch.warm import WarmBackend
    from skillyard.store.conversations import Conversation, ConversationEvent

_LOOK_SECONDS = 0.2


def arguments(parser: Parser) -> None:
    parser.set_defaults(limit=20)
    add = add_commands(parser, "list | check | start | log | stop")
    listing = add("list", "every backend, with its version and its conversations", answer)
    listing.add_argument("--limit", type=at_least(1), default=20, help="how many conversations, the latest first (20)")
    checking = add("check", "start it and make it say hello", _check)
    checking.add_argument("names", nargs="*", metavar="NAME", help="a backend; all of them where none is named")
    checking.add_argument("--ask", action="store_true", help="ask its model one word too, which costs a few tokens")
    starting = add("start", "keep it warm in the background, for one conversation", _start)
    starting.add_argument("name", metavar="NAME", help="a backend")
    starting.add_argument("--session", metavar="ID", help="the conversation; a new one where it is not given")
    starting.add_argument("--model", metavar="M", help="the agent's model")
    starting.add_argument("--cwd", type=Path, metavar="DIR", help="where the agent works; here where it is not given")
    starting.add_argument("--idle", type=seconds, metavar="S", default=900.0, help="end it after so long a rest (900)")
    logging = add("log", "what was told in a conversation, from its beginning", _log)
    logging.add_argument("--follow", action="store_true", help="go on until the turn that runs is over")
    stopping = add("stop", "end what is running or warm; the conversation can be gone on with", _stop)
    for each in (logging, stopping):
        each.add_argument("name", nargs="?", default="", metavar="NAME", help="a backend")
        each.add_argument("--session", default="", metavar="ID", help="a conversation")


def answer(options: Options) -> Answer:
    with open_project() as project:
        drivers = project.drivers
        exists = project.paths.database.exists()
        talks, warm = project.dispatcher.list_conversations(options.limit) if exists else ((), {})
    with ThreadPoolExecutor() as pool:  # each program takes its time to say its version
        backends = list(pool.map(_found, drivers.values()))
    rows: list[tuple[str, ...]] = []
    for backend in backends:
        of_it = [talk for talk in talks if talk.backend == backend["name"]]
        rows += _rows(backend, of_it, warm)
        backend["conversations"] = [_as_data(talk, warm.get(talk.id)) for talk in of_it]
    return Answer(
        Message("{count} backends, {talks} conversations", count=len(backends), talks=len(talks)),
        {"backends": list(backends)},
        Table(("backend", "version", "session", "state", "warm", "last", "folder"), rows),
    )


def _found(driver: "Driver") -> dict[str, Json]:
    try:
        found = driver.find()
    except SkillError as error:
        return {"name": driver.name, "installed": False, "error": error.msg, "hint": error.hint(Lang.EN)}
    return {"name": driver.name, "installed": True, "version": found.version, "program": str(found.program)}


def _rows(
    backend: dict[str, Json], talks: "Sequence[Conversation]", warm: "Mapping[int, WarmBackend]"
) -> Iterator[tuple[str, ...]]:
    name = str(backend["name"])
    version = str(backend["version"] or "?") if backend["installed"] else "-"
    if not talks:
        yield (name, version, "", "", "", "", "")
    for talk in talks:
        kept = warm.get(talk.id)
        warmth = Message("{state} since {when}", state=kept.state, when=timestamp(kept.since)) if kept else ""
        yield (name, version, talk.name, str(talk.state), warmth, timestamp(talk.last), talk.folder)
        name = version = ""


def _check(options: Options) -> Answer:
    checked: list[Json] = []
    lines: list[str] = []
    failed = 0
    with open_project() as project, Steps("→") as step:
        for driver in [project.backend(name) for name in options.names or project.drivers]:
            step(driver.name)
            told: dict[str, Json] = {"name": driver.name, "ok": False}
            version = ""
            try:
                found = driver.find()
                told |= {"version": found.version, "program": str(found.program)}
                version = f" {found.version}" if found.version else ""
                said = project.check_backend(driver.name, ask=options.ask)
            except SkillError as error:
                failed += 1
                told |= {"type": error.type, "error": error.msg, "hint": error.hint(Lang.EN)}
                lines.append(join_messages("", (f"✗ {driver.name}{version}: ", error.msg)))
                lines.append(join_messages("", ("  → ", error.hint_message())))
            else:
                told |= {"ok": True, **({"said": said} if options.ask else {})}
                says = Message(", and says: {said}", said=said) if options.ask else ""
                lines.append(
                    Message("✓ {name}{version} speaks with us{said}", name=driver.name, version=version, said=says)
                )
            checked.append(told)
    summary = Message("{count} backends work", count=len(checked))
    if failed:
        summary = Message("{failed} of {count} backends do not work", failed=failed, count=len(checked))
    state = State.ERROR if failed == len(checked) else State.PARTIAL if failed else State.SUCCESS
    return Answer(summary, {"backends": checked}, Lines(lines), state)


def _start(options: Options) -> Answer:
    with open_project() as project, Steps("→") as step:
        step(options.name)
        warmed = project.dispatcher.start_warm(
            options.name, session=options.session, model=options.model, cwd=options.cwd, idle_seconds=options.idle
        )
    words = {"backend": options.name, "session": warmed.conversation.name, "idle": warmed.backend.idle_seconds}
    summary = Message("{backend} is warm for --session {session}, until it rests for {idle:g} s", **words)
    if warmed.already:
        summary = Message("{backend} was warm already for --session {session}", **words)
    data = _as_data(warmed.conversation, warmed.backend)
    return Answer(summary, {**data, "already": warmed.already}, Lines([summary]))


def _log(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project() as project:
        talk = _latest(project, options)
        told: list[tuple[int, ConversationEvent]] = []
        while True:
            at_work = talk.state in {"starting", "running"}
            fresh = project.conversations.history(talk, told[-1][0] if told else 0)
            told += fresh
            if not options.json:
                write_lines((line for _, event in fresh for line in _lines_of(event, lang)), lang, sys.stdout)
            if not (options.follow and at_work):
                break
            time.sleep(_LOOK_SECONDS)
            talk = project.conversations.find(talk.backend, talk.folder, talk.name) or talk
    events: list[Json] = [{**each._asdict(), "data": dict(each.data), "at": timestamp(each.at)} for _, each in told]
    words = {"session": talk.name, "backend": talk.backend, "state": talk.state}
    summary = Message("conversation {session} with {backend}: {state}", **words)
    return Answer(summary, {**_as_data(talk), "events": events}, Lines([f"-- {talk.state}"]))


def _latest(project: Project, options: Options) -> "Conversation":
    found, _ = project.dispatcher.list_conversations(backend=options.name, name=options.session)
    if not found:
        raise InvalidArgs(Message("no such conversation; `skillyard backend list` shows them"))
    return found[0]


def _stop(options: Options) -> Answer:
    with open_project() as project:
        stopped = project.dispatcher.stop_conversations(backend=options.name, name=options.session)
    lines = [
        Message("stopped {session} with {backend}", session=talk.name, backend=talk.backend) for talk in stopped
    ] or [Message("nothing is running")]
    summary = Message("{count} conversations stopped", count=len(stopped))
    return Answer(summary, {"conversations": [_as_data(talk) for talk in stopped]}, Lines(lines))


def _as_data(talk: "Conversation", kept: "WarmBackend | None" = None) -> dict[str, Json]:
    warm: Json = None
    if kept:
        warm = {
            "state": str(kept.state),
            "since": timestamp(kept.since),
            "idle_since": timestamp(kept.idle_since),
            "idle_seconds": kept.idle_seconds,
            "model": kept.model or None,
            "pid": kept.pid,
        }
    return {
        "session": talk.name,
        "backend": talk.backend,
        "folder": talk.folder,
        "agent_session": talk.session or None,
        "state": str(talk.state),
        "started": timestamp(talk.started),
        "last": timestamp(talk.last),
        "run": talk.run or None,
        "warm": warm,
    }


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
