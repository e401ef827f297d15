"""skillyard runs"""

from datetime import UTC, datetime

import click

from skillyard.core.errors import InvalidArgs
from skillyard.core.phrases import Text
from skillyard.core.values import Json
from skillyard.faces.cli.answer import Answer, answering
from skillyard.faces.present import Table
from skillyard.kernel.assembly import open_yard
from skillyard.store.runs import Run


@click.group("runs", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show what ran."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_runs)


@command.command("list")
@click.option("--limit", default=20, show_default=True, help="How many, the latest first.")
@answering
def list_runs(limit: int = 20) -> Answer:
    """List the latest runs."""
    runs = open_yard().runs.list(limit)
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


@command.command("show")
@click.argument("run_id")
@answering
def show_run(run_id: str) -> Answer:
    """Show everything that is known of a run."""
    run = open_yard().runs.find(run_id)
    if run is None:
        raise InvalidArgs(f"no run {run_id!r} here; `skillyard runs` lists them")
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
        "log": run.log,
    }


def _when(run: Run) -> str:
    return datetime.fromtimestamp(run.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
