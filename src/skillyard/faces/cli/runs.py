"""Show what ran.

examples:
  skillyard runs
  skillyard runs show 1a1e10
  skillyard runs tail 1a1e10
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_commands, at_least, lang_of
from skillyard.faces.labels import label
from skillyard.faces.present import Lines, Table, printable
from skillyard.faces.skill_data import as_run_data, timestamp

if TYPE_CHECKING:
    from skillyard.store.runs import Run

_LOOK_SECONDS = 0.2


def arguments(parser: Parser) -> None:
    add = add_commands(parser, "list | show | tail")
    for each in (parser, add("list", "the latest runs", answer)):
        each.add_argument("--limit", type=at_least(1), default=20, help="how many, the latest first (20)")
    showing = add("show", "everything that is known of a run, with its log", _show)
    tailing = add("tail", "what a run says, until it ends", _tail)
    for each in (showing, tailing):
        each.add_argument("run_id", metavar="ID", help="the id, or how it starts")


def answer(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        runs = project.runs(options.limit)
    rows = [
        (
            run.id if "." in run.id else run.id[:14],  # the runs of one flow start alike
            timestamp(run.started),
            run.state,
            f"{run.seconds:.3f}s" if run.seconds is not None else "…",
            run.skill or f"→ {run.agent}",
        )
        for run in runs
    ]
    table = Table(("id", "started", "state", "time", "skill"), rows, empty=Message("Nothing has run here yet."))
    return Answer(Message("{count} runs", count=len(runs)), {"runs": [as_run_data(run) for run in runs]}, table)


def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        run = _found(project, options.run_id)
        data = {**as_run_data(run), "log": project.logs.read(run.id)}
    lines = list(as_lines(data, lang_of(options)))
    return Answer(Message("run {id}", id=run.id), {"runs": [data]}, Lines(lines))


def _tail(options: Options) -> Answer:
    """Follow the log: to stdout for people, nothing before the envelope for programs."""
    with open_project(ends_with_process=True) as project:
        run = _found(project, options.run_id)
        shown = 0
        while True:
            is_over = run.state != "running" or not project.logs.is_held(run.id)
            log = project.logs.read(run.id)
            if not options.json:
                sys.stdout.write(printable(log[shown:]))
                sys.stdout.flush()
            shown = len(log)
            run = project.find_run(run.id) or run
            if is_over:
                break
            time.sleep(_LOOK_SECONDS)
    page = Lines([] if run.state == "success" else [f"-- {run.state}"])
    return Answer(Message("run {id}", id=run.id), {"runs": [{**as_run_data(run), "log": log}]}, page)


def _found(project: Project, run_id: str) -> "Run":
    run = project.find_run(run_id)
    if run is None:
        why = Message("no run {run_id!r} here, or more than one starts so", run_id=run_id)
        raise InvalidArgs(why, advice=Message("`skillyard runs` lists them"))
    return run


def as_lines(data: Mapping[str, Json], lang: Lang) -> Iterator[str]:
    for key, value in data.items():
        named = label(key, lang)
        if key in {"request", "launch", "result"} and isinstance(value, dict):
            yield f"{named}:"
            yield from (f"  {name}: {_shown(item)}" for name, item in value.items() if item not in (None, "", [], {}))
        elif key == "log":
            yield f"{named}:" if value else f"{named}: {Message('empty').render(lang)}"
            yield from (f"  {line}" for line in str(value).splitlines())
        else:
            yield f"{named}: {_shown(value)}"


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=dict)
