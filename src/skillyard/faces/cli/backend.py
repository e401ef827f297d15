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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message, render
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    add_output_options,
    answer_with,
    positive,
    seconds,
    style_of,
)
from skillyard.faces.present import Lines, Steps, Table, one_line
from skillyard.store.conversations import Conversation, ConversationEvent, ConversationState

if TYPE_CHECKING:
    from skillyard.backends.driver import Driver
    from skillyard.dispatch.warm import WarmBackend

_LOOK_SECONDS = 0.2
_AT_WORK = (ConversationState.STARTING, ConversationState.RUNNING)
_COUNTED = Message("{count} backends, {talks} conversations")
_ALL_WELL = Message("{count} backends work")
_SOME_FAIL = Message("{failed} of {count} backends do not work")
_STOPPED = Message("{count} conversations stopped")
_STOPPED_ONE = Message("stopped {session} with {backend}")
_NOTHING = Message("nothing is running")
_WARM = Message("{backend} is warm for --session {session}, until it rests for {idle:g} s")
_WARM_ALREADY = Message("{backend} was warm already for --session {session}")
_SPEAKS = Message("✓ {name}{version} speaks with us{said}")
_SAYS = Message(", and says: {said}")
_SINCE = Message("{state} since {when}")
_ALLOWED, _REFUSED = Message("allowed"), Message("refused")
_HISTORY = Message("conversation {session} with {backend}: {state}")


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _list), limit=20)
    commands = parser.add_subparsers(metavar="list | check | start | log | stop")
    listing = commands.add_parser("list", help="every backend, with its version and its conversations")
    listing.add_argument("--limit", type=positive, default=20, help="how many conversations, the latest first (20)")
    listing.set_defaults(answer=partial(answer_with, _list))
    checking = commands.add_parser("check", help="start it and make it say hello")
    checking.add_argument("names", nargs="*", metavar="NAME", help="a backend; all of them where none is named")
    checking.add_argument("--ask", action="store_true", help="ask its model one word too, which costs a few tokens")
    checking.set_defaults(answer=partial(answer_with, _check))
    starting = commands.add_parser("start", help="keep it warm in the background, for one conversation")
    starting.add_argument("name", metavar="NAME", help="a backend")
    starting.add_argument("--session", metavar="ID", help="the conversation; a new one where it is not given")
    starting.add_argument("--model", metavar="M", help="the agent's model")
    starting.add_argument("--cwd", type=Path, metavar="DIR", help="where the agent works; here where it is not given")
    starting.add_argument("--idle", type=seconds, metavar="S", default=900.0, help="end it after so long a rest (900)")
    starting.set_defaults(answer=partial(answer_with, _start))
    logging = commands.add_parser("log", help="what was told in a conversation, from its beginning")
    logging.add_argument("--follow", action="store_true", help="go on until the turn that runs is over")
    logging.set_defaults(answer=partial(answer_with, _log))
    stopping = commands.add_parser("stop", help="end what is running or warm; the conversation can be gone on with")
    stopping.set_defaults(answer=partial(answer_with, _stop))
    for each in (logging, stopping):
        each.add_argument("name", nargs="?", default="", metavar="NAME", help="a backend")
        each.add_argument("--session", default="", metavar="ID", help="a conversation")
    for each in (parser, listing, checking, starting, logging, stopping):
        add_output_options(each)


def _list(options: Options) -> Answer:
    with open_project() as yard:
        drivers = yard.drivers
        exists = yard.paths.database.exists()
        talks, warm = yard.dispatcher.list_conversations(options.limit) if exists else ((), {})
    with ThreadPoolExecutor() as pool:  # each program takes its time to say its version
        backends = list(pool.map(_found, drivers.values()))
    for backend in backends:
        of_it = [talk for talk in talks if talk.backend == backend["name"]]
        backend["conversations"] = [as_talk_data(talk, warm.get(talk.id)) for talk in of_it]
    return Answer(
        summary=_COUNTED,
        words={"count": len(backends), "talks": len(talks)},
        data={"backends": list(backends)},
        page=Table(
            columns=("backend", "version", "session", "state", "warm", "last", "folder"),
            rows=[row for backend in backends for row in _rows(backend, talks, warm, style_of(options).lang)],
        ),
    )


def _found(driver: "Driver") -> dict[str, Json]:
    try:
        found = driver.find()
    except SkillError as error:
        return {"name": driver.name, "installed": False, "error": error.msg, "hint": error.hint(Lang.EN)}
    return {"name": driver.name, "installed": True, "version": found.version, "program": str(found.program)}


def _rows(
    backend: dict[str, Json], talks: Sequence[Conversation], warm: "Mapping[int, WarmBackend]", lang: Lang
) -> Iterator[tuple[str, ...]]:
    name = str(backend["name"])
    version = str(backend["version"] or "?") if backend["installed"] else "-"
    of_it = [talk for talk in talks if talk.backend == name]
    if not of_it:
        yield (name, version, "", "", "", "", "")
    for talk in of_it:
        kept = warm.get(talk.id)
        warmth = _SINCE.render(lang, state=kept.state, when=_when(kept.since)) if kept else ""
        yield (name, version, talk.name, str(talk.state), warmth, _when(talk.last), talk.folder)
        name = version = ""


def _check(options: Options) -> Answer:
    style = style_of(options)
    with open_project() as yard, Steps("→") as step:
        drivers = [yard.backend(name) for name in options.names or yard.drivers]
        checked: list[dict[str, Json]] = []
        for driver in drivers:
            step(driver.name)
            checked.append(_checked(yard, driver, ask=options.ask))
    failed = [each for each in checked if not each["ok"]]
    return Answer(
        summary=_SOME_FAIL if failed else _ALL_WELL,
        words={"count": len(checked), "failed": len(failed)},
        data={"backends": list(checked)},
        page=Lines([line for each in checked for line in _check_lines(each, style.lang)]),
        state=State.ERROR if len(failed) == len(checked) else State.PARTIAL if failed else State.SUCCESS,
    )


def _checked(yard: Project, driver: "Driver", *, ask: bool) -> dict[str, Json]:
    told: dict[str, Json] = {"name": driver.name, "ok": False}
    try:
        found = driver.find()
        told |= {"version": found.version, "program": str(found.program)}
        said = yard.check_backend(driver.name, ask=ask)
    except SkillError as error:
        return {**told, "type": error.type, "error": error.msg, "hint": error.hint(Lang.EN)}
    return {**told, "ok": True, **({"said": said} if ask else {})}


def _check_lines(each: dict[str, Json], lang: Lang) -> Iterator[str]:
    version = f" {each['version']}" if each.get("version") else ""
    if each["ok"]:
        said = _SAYS.render(lang, said=each["said"]) if "said" in each else ""
        yield _SPEAKS.render(lang, name=each["name"], version=version, said=said)
    else:
        yield f"✗ {each['name']}{version}: {render(str(each['error']), lang)}"
        yield f"  → {render(str(each['hint']), lang)}"


def _start(options: Options) -> Answer:
    with open_project() as yard, Steps("→") as step:
        step(options.name)
        warmed = yard.dispatcher.start_warm(
            options.name,
            session=options.session,
            model=options.model,
            cwd=options.cwd,
            idle_seconds=options.idle,
        )
    words = {"session": warmed.conversation.name, "backend": options.name, "idle": warmed.backend.idle_seconds}
    summary = _WARM_ALREADY if warmed.already else _WARM
    return Answer(
        summary=summary,
        words=words,
        data={**as_talk_data(warmed.conversation, warmed.backend), "already": warmed.already},
        page=Lines([summary.render(style_of(options).lang, **words)]),
    )


def _log(options: Options) -> Answer:
    style = style_of(options)
    with open_project() as yard:
        talk = _one(yard, options)
        told: list[tuple[int, ConversationEvent]] = []
        while True:
            at_work = talk.state in _AT_WORK
            fresh = yard.conversations.history(talk, told[-1][0] if told else 0)
            told += fresh
            if not style.json:
                _write([line for _, telling in fresh for line in lines_of(telling, style.lang)])
            if not (options.follow and at_work):
                break
            time.sleep(_LOOK_SECONDS)
            talk = yard.conversations.find(talk.backend, talk.folder, talk.name) or talk
    events: list[Json] = [
        {**telling._asdict(), "data": dict(telling.data), "at": _when(telling.at)} for _, telling in told
    ]
    return Answer(
        summary=_HISTORY,
        words={"session": talk.name, "backend": talk.backend, "state": talk.state},
        data={**as_talk_data(talk), "events": events},
        page=Lines([f"-- {talk.state}"]),
    )


def _stop(options: Options) -> Answer:
    lang = style_of(options).lang
    with open_project() as yard:
        stopped = yard.dispatcher.stop_conversations(backend=options.name, name=options.session)
    return Answer(
        summary=_STOPPED,
        words={"count": len(stopped)},
        data={"conversations": [as_talk_data(talk) for talk in stopped]},
        page=Lines(
            [_STOPPED_ONE.render(lang, session=talk.name, backend=talk.backend) for talk in stopped]
            or [_NOTHING.render(lang)]
        ),
    )


def _one(yard: Project, options: Options) -> Conversation:
    """The latest that fits."""
    found, _ = yard.dispatcher.list_conversations(backend=options.name, name=options.session)
    if not found:
        raise InvalidArgs(Message("no such conversation; `skillyard backend list` shows them"))
    return found[0]


def as_talk_data(talk: Conversation, kept: "WarmBackend | None" = None) -> dict[str, Json]:
    warm: Json = None
    if kept:
        warm = {
            "state": str(kept.state),
            "since": _when(kept.since),
            "idle_since": _when(kept.idle_since),
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
        "started": _when(talk.started),
        "last": _when(talk.last),
        "run": talk.run or None,
        "warm": warm,
    }


def lines_of(telling: ConversationEvent, lang: Lang) -> list[str]:
    """What was said as it was said, the rest a line each."""
    from skillyard.faces.skill_data import line_of

    if telling.told == "task":
        return [f"[{_when(telling.at)}] ←", *(f"  {line}" for line in telling.text.splitlines())]
    if telling.told == "text":
        return telling.text.splitlines()
    if telling.told == "permission":
        allowed = (_ALLOWED if telling.data.get("allowed") else _REFUSED).render(lang)
        return [f"→ {allowed}: {telling.data.get('tool')} {telling.text}"]
    if telling.told == "warm":
        return [f"→ [{_when(telling.at)}] {telling.text}"]
    line = line_of(telling.told, telling.text, dict(telling.data), lang)
    return [f"→ {line}"] if line else []


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))
    sys.stdout.flush()


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
