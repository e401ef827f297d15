"""Show what ran.

examples:
  skillyard runs
  skillyard runs show 1a1e10
  skillyard runs tail 1a1e10
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.child_process import DEPTH, refuse_inside_agents
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, ask_key, at_least, takes
from skillyard.faces.present import Diff, Page, Record, Table, change_line, printable, write_lines
from skillyard.faces.skill_data import as_run_data, timestamp

if TYPE_CHECKING:
    from skillyard.editor.change_set import Change
    from skillyard.store.changes import KeptChanges
    from skillyard.store.runs import Run

_LOOK_SECONDS = 0.2
_VERBS = ("apply", "discard")
_MOST_SHOWN = 20
_ID = takes("run_id", "the id, or how it starts", metavar="ID")


def arguments(parser: Parser) -> None:
    add = parser.add_commands("list | show | tail")
    add("list", "the latest runs", answer)
    add("show", "everything that is known of a run, with its log", _show)
    add("tail", "what a run says, until it ends", _tail)


@takes("--limit", "how many, the latest first (20)", type=at_least(1), default=20)
def answer(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        runs = project.runs(options.limit)
    rows = []
    for run in runs:
        shown = run.id if "." in run.id else run.id[:14]  # the runs of one flow start alike
        took = f"{run.seconds:.3f}s" if run.seconds is not None else "…"
        rows.append((shown, timestamp(run.started), run.state, took, run.skill or f"→ {run.agent}"))
    table = Table(("id", "started", "state", "time", "skill"), rows, empty=Message("Nothing has run here yet."))
    return Answer(Message("{count} runs", count=len(runs)), {"runs": [as_run_data(run) for run in runs]}, table)


@_ID
def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        run = _found(project, options.run_id)
        data = {**as_run_data(run), "log": project.logs.read(run.id)}
    return Answer(Message("run {id}", id=run.id), {"runs": [data]}, Record(data))


@_ID
def _tail(options: Options) -> Answer:
    """Follow the log: to stdout for people, nothing before the envelope for programs."""
    with open_project(ends_with_process=True) as project:
        run, shown = _found(project, options.run_id), 0
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
    page = [] if run.state == "success" else [f"-- {run.state}"]
    return Answer(Message("run {id}", id=run.id), {"runs": [{**as_run_data(run), "log": log}]}, page)


def _found(project: Project, run_id: str) -> "Run":
    run = project.find_run(run_id)
    if run is None:
        why = Message("no run {run_id!r} here, or more than one starts so", run_id=run_id)
        raise InvalidArgs(why, advice=Message("`skillyard runs` lists them"))
    return run


@takes("words", "a run, and what to do with its changes", nargs="*", metavar="ID apply|discard")
@takes("--diff", "show the changes line by line")
def answer_changes(options: Options) -> Answer:
    """Show what runs changed in this project, and apply or discard it.

    A run sees the project copy-on-write: what it changes stays aside until you apply it, all or nothing. A file that
    somebody else changed since the run started is never overwritten: nothing is applied then, and the file is named.

    examples:
      skillyard changes
      skillyard changes 1a1e10 --diff
      skillyard changes 1a1e10 apply
      skillyard changes discard
    """
    verbs = [word for word in options.words if word in _VERBS]
    ids = [word for word in options.words if word not in _VERBS]
    if len(verbs) > 1 or len(ids) > 1:
        raise InvalidArgs(Message("name one run, and apply or discard"))
    with open_project(ends_with_process=True) as project:
        project.changes.recover()
        if not options.words and not options.diff:
            return _list_changes(project)
        kept = _kept(project, ids)
        changes = project.read_changes(kept).changes
        told: list[Json] = [change.as_dict() for change in changes]
        data: dict[str, Json] = {"run": kept.run, "state": str(kept.state), "changes": told}
        if verbs == ["apply"]:
            refuse_inside_agents()
            project.changes.apply(kept, changes)
            return Answer(Message("applied the changes of {run} ({count})", count=len(changes), run=kept.run), data)
        if verbs == ["discard"]:
            project.changes.discard(kept)
            return Answer(Message("discarded the changes of {run}", run=kept.run), data)
        page: Page = [change_line(change.as_dict()) for change in changes]
        if options.diff:
            data["diff"] = text = project.diff_changes(kept, changes)
            page = Diff(text.splitlines())
        return Answer(Message("changes of {run}: {count}", count=len(changes), run=kept.run), data, page)


def _list_changes(project: Project) -> Answer:
    rows, data = list[tuple[str, ...]](), list[Json]()
    for kept in project.changes.list(project.root):
        count = len(project.read_changes(kept).changes)
        rows.append((kept.run[:14], timestamp(kept.ended), str(kept.state), str(count), kept.skill))
        data.append({"run": kept.run, "skill": kept.skill, "state": str(kept.state), "changes": count})
    table = Table(("id", "ended", "state", "changes", "skill"), rows, empty=Message("No run has changes here."))
    return Answer(Message("change sets: {count}", count=len(rows)), {"change_sets": data}, table)


def _kept(project: Project, ids: list[str]) -> "KeptChanges":
    every = project.changes.list(project.root)
    found = project.changes.find(ids[0], project.root) if ids else every[0] if len(every) == 1 else None
    if found is None:
        why = Message("no changes of the run {run!r} here", run=ids[0]) if ids else Message("say which run is meant")
        raise InvalidArgs(why, advice=Message("`skillyard changes` lists them"))
    return found


def ask_about_changes(project: Project, result: Result, lang: Lang) -> Result:
    """Show what a run changed, and let the person at the terminal decide; whoever leaves decides later."""
    kept = project.changes.find(str(result.meta["run"]), project.root)
    if kept is None or DEPTH in os.environ:  # an agent's terminal is no person's
        return result
    changes = project.read_changes(kept).changes
    needed = {folder.as_posix() for change in changes for folder in PurePosixPath(change.path).parents}
    # A new folder is asked about only if it is empty: otherwise it comes with what lies in it.
    asked = [change for change in changes if str(change.kind) != "added" or change.path not in needed]
    write_lines([Message("changed in the project ({count}):", count=len(asked))], lang)
    write_lines([f"  {change_line(change.as_dict())}" for change in asked[:_MOST_SHOWN]], lang)
    if len(asked) > _MOST_SHOWN:
        write_lines([Message("  … and {count} more", count=len(asked) - _MOST_SHOWN)], lang)
    question = Message("k keep all · d show the diff · c choose · x discard · q decide later ").render(lang)
    while (key := ask_key(question, "kdcxq")) == "d":
        sys.stderr.write(printable(project.diff_changes(kept, changes)))
    match key:
        case "k":
            chosen = changes
        case "c":
            keys = [ask_key(f"{change_line(change.as_dict())}? y/n ", "yn") for change in asked]
            if "" in keys:  # the person has left
                return result
            pairs = zip(asked, keys, strict=True)
            chosen = project.complete_changes(kept, [change for change, key in pairs if key == "y"])
        case "x":
            chosen = ()
        case _:
            return result
    if not chosen:
        project.changes.discard(kept)
        return result._replace(meta={**result.meta, "changes": "discarded"})
    project.changes.apply(kept, chosen)
    return _without(result, [change for change in changes if change not in chosen], chosen)


def _without(result: Result, dropped: "Sequence[Change]", applied: "Sequence[Change]") -> Result:
    """Return the result as it is now: without the files that the person did not keep."""
    data, gone = dict(result.data), {change.as_dict()["path"] for change in dropped}
    if gone:
        data["changes"] = [change.as_dict() for change in applied]
        if isinstance(outputs := data.get("outputs"), list):
            data["outputs"] = [path for path in outputs if path not in gone]
        if data.get("output_path") in gone:
            del data["output_path"], data["output_size"]
    return result._replace(data=data, meta={**result.meta, "changes": "applied"})
