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
from functools import partial

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of, positive
from skillyard.faces.labels import label
from skillyard.faces.present import Lines, Table, printable
from skillyard.faces.skill_data import as_run_data, started_of
from skillyard.store.runs import RUNNING, Run

_LISTED = Message("`skillyard runs` lists them")
_EMPTY = Message("Nothing has run here yet.")
_NO_LOG = Message("empty")
_LOOK_SECONDS = 0.2


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _list))
    commands = parser.add_subparsers(metavar="list | show | tail")
    listing = commands.add_parser("list", help="the latest runs")
    for each in (parser, listing):
        each.add_argument("--limit", type=positive, default=20, help="how many, the latest first (20)")
    listing.set_defaults(answer=partial(answer_with, _list))
    showing = commands.add_parser("show", help="everything that is known of a run, with its log")
    showing.set_defaults(answer=partial(answer_with, _show))
    tailing = commands.add_parser("tail", help="what a run says, until it ends")
    tailing.set_defaults(answer=partial(answer_with, _tail))
    for each in (showing, tailing):
        each.add_argument("run_id", metavar="ID", help="the id, or how it starts")
    for each in (parser, listing, showing, tailing):
        add_output_options(each)


def _list(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        runs = yard.runs(options.limit)
    return Answer(
        summary=Message("{count} runs"),
        words={"count": len(runs)},
        data={"runs": [as_run_data(run) for run in runs]},
        page=Table(
            columns=("id", "started", "state", "time", "skill"),
            rows=[
                (_short(run.id), started_of(run), run.state, _seconds(run), run.skill or f"→ {run.agent}")
                for run in runs
            ],
            empty=_EMPTY.render(lang_of(options)),
        ),
    )


def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        run = _found(yard, options.run_id)
        log = yard.logs.read(run.id)
    data = {**as_run_data(run), "log": log}
    return Answer(
        summary=Message("run {id}"),
        words={"id": run.id},
        data={"runs": [data]},
        page=Lines(list(as_lines(data, lang_of(options)))),
    )


def _tail(options: Options) -> Answer:
    """Follow the log: to stdout for people, nothing before the envelope for programs."""
    with open_project(ends_with_process=True) as yard:
        run = _found(yard, options.run_id)
        shown = 0
        while True:
            held = run.state == RUNNING and yard.logs.is_held(run.id)
            log = yard.logs.read(run.id)
            if not options.json:
                sys.stdout.write(printable(log[shown:]))
                sys.stdout.flush()
            shown = len(log)
            if not held:
                break
            time.sleep(_LOOK_SECONDS)
            run = yard.find_run(run.id) or run
        run = yard.find_run(run.id) or run
    return Answer(
        summary=Message("run {id}"),
        words={"id": run.id},
        data={"runs": [{**as_run_data(run), "log": log}]},
        page=Lines([] if run.state == "success" else [f"-- {run.state}"]),
    )


def _found(yard: Project, run_id: str) -> Run:
    run = yard.find_run(run_id)
    if run is None:
        raise InvalidArgs(Message("no run {run_id!r} here, or more than one starts so", run_id=run_id), advice=_LISTED)
    return run


def as_lines(data: Mapping[str, Json], lang: Lang) -> Iterator[str]:
    for key, value in data.items():
        named = label(key, lang)
        if key in {"request", "launch", "result"} and isinstance(value, dict):
            yield f"{named}:"
            yield from (f"  {name}: {_shown(item)}" for name, item in value.items() if item not in (None, "", [], {}))
        elif key == "log":
            yield f"{named}:" if value else f"{named}: {_NO_LOG.render(lang)}"
            yield from (f"  {line}" for line in str(value).splitlines())
        else:
            yield f"{named}: {_shown(value)}"


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=dict)


def _short(run_id: str) -> str:
    """The runs of one flow start alike."""
    return run_id if "." in run_id else run_id[:14]


def _seconds(run: Run) -> str:
    return f"{run.seconds:.3f}s" if run.seconds is not None else "…"
