"""Show what ran.

examples:
  skillyard runs
  skillyard runs show 4cf6f635
"""

from datetime import UTC, datetime
from functools import partial

from skillyard.core.errors import InvalidArgs
from skillyard.core.phrases import Text
from skillyard.core.values import Json
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with, positive
from skillyard.faces.present import Table
from skillyard.kernel.assembly import open_yard
from skillyard.store.runs import Run


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _list), limit=20)
    commands = parser.add_subparsers(metavar="list | show")
    listing = commands.add_parser("list", help="the latest runs")
    listing.add_argument("--limit", type=positive, default=20, help="how many, the latest first (20)")
    listing.set_defaults(answer=partial(answer_with, _list))
    showing = commands.add_parser("show", help="everything that is known of a run")
    showing.add_argument("run_id", metavar="ID", help="the id, or how it starts")
    showing.set_defaults(answer=partial(answer_with, _show))
    for each in (parser, listing, showing):
        add_output_options(each)


def _list(options: Options) -> Answer:
    runs = open_yard().runs.list(options.limit)
    return Answer(
        summary=Text("共 {count} 次运行", "{count} runs"),
        words={"count": len(runs)},
        data={"runs": [as_run_data(run) for run in runs]},
        page=Table(
            columns=("id", "started", "state", "time", "skill"),
            rows=[(run.id[:12], _when(run), run.state, f"{run.seconds or 0:.3f}s", run.skill) for run in runs],
            empty="Nothing has run here yet.",
        ),
    )


def _show(options: Options) -> Answer:
    run = open_yard().runs.find(options.run_id)
    if run is None:
        raise InvalidArgs(f"no run {options.run_id!r} here; `skillyard runs` lists them")
    return Answer(summary=Text("运行记录: {id}", "run {id}"), words={"id": run.id}, data={"runs": [as_run_data(run)]})


def as_run_data(run: Run) -> dict[str, Json]:
    return {
        "id": run.id,
        "agent": run.agent,
        "skill": run.skill,
        "kind": run.kind,
        "state": run.state,
        "started": _when(run),
        "seconds": run.seconds,
        "request": run.request,
        "launch": run.launch,
        "result": run.result,
    }


def _when(run: Run) -> str:
    return datetime.fromtimestamp(run.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
