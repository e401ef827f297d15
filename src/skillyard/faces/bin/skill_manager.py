"""Manage the skills of this project: list, search, info, validate, record, install, resume, uninstall."""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, open_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import PAUSED, Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.bin import script
from skillyard.faces.command import Answer, Options, on_terminal
from skillyard.faces.skill_data import as_full_data, as_reading_data, as_search_data, as_skill_data, passes

if TYPE_CHECKING:
    from skillyard.install.review import Review


main = partial(script.run, "skill_manager")


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, says, answer, argument in (
        ("list", "the skills that can be used here", _list, None),
        ("search", "skills by name, description and tags, with the folder of each", _search, "words"),
        ("info", "everything that is known of a skill", _info, "name"),
        ("validate", "what is wrong with a skill, by path or by name", _validate, "what"),
        ("record", "count one use of a skill that the caller ran itself", _record, "name"),
        ("install", "install the skills of a source; what the scan holds back waits (exit code 5)", _install, "source"),
        ("resume", "decide on what an install held back", _resume, "review"),
        ("uninstall", "remove an installed skill; files that you made or edited stay", _uninstall, "name"),
    ):
        command = commands.add_parser(name, help=says, description=says)
        command.set_defaults(answer=answer)
        if argument:
            command.add_argument(argument, nargs="+" if argument == "words" else None)
        if name == "install":
            command.add_argument("--skill", action="append", default=[], metavar="NAME", help="only this one")
            command.add_argument("--all", action="store_true", help="every skill that the source holds")
        if name == "resume":
            script.add_decisions(command)


def _list(_options: Options) -> Answer:
    with _synced() as project:
        skills = [as_skill_data(entry, project.catalog) for entry in project.catalog.list()]
    return Answer(Message("{count} skills", count=len(skills)), {"total": len(skills), "skills": list(skills)})


def _search(options: Options) -> Answer:
    query = " ".join(options.words)
    with _synced() as project:
        hits = project.catalog.search(query)
        data = as_search_data(hits, query, project.catalog)
    summary = Message("{count} skills match: {query}", count=len(hits), query=query)
    return Answer(summary, {"total": len(hits), **data})


def _info(options: Options) -> Answer:
    with _synced() as project:
        skill = project.catalog.resolve(_plain(options.name))
        data = {"folder_name": skill.folder_name, **as_full_data(skill, project)}
    return Answer(Message("skill: {name}", name=skill.name), data)


def _validate(options: Options) -> Answer:
    from skillyard.app.skill_files import find_files, validate

    path = options.what
    if not Path(path).exists():
        with _synced() as project:
            path = project.catalog.choose(_plain(path)).file
    readings = [(str(file), validate(file)) for _, file in find_files(path)]
    bad = sum(not passes(reading, strict=False) for _, reading in readings)
    data = [as_reading_data(file, reading) for file, reading in readings]
    return Answer(
        Message("{total} skills checked: {bad} with problems", total=len(readings), bad=bad),
        {"total": len(readings), "bad": bad, "skills": [*data]},
        state=State.ERROR if bad else State.SUCCESS,
    )


def _record(options: Options) -> Answer:
    with _synced() as project:
        name = project.catalog.resolve(_plain(options.name)).name
        project.history.record_use(name, time.time())
        count = project.history.uses()[name]
    summary = Message("recorded: {name} ({count} uses)", name=name, count=count)
    return Answer(summary, {"skill": name, "uses": count})


def _install(options: Options) -> Answer:
    with open_project() as project:
        brought = project.installer().add(options.source, options.skill, script.tell, everything=options.all)
        installed: dict[str, Json] = {"installed": [skill.folder for skill in brought.installed]}
        if brought.review:
            return _waits(project, brought.review, installed)
    return Answer(Message("{count} skills installed", count=len(brought.installed)), installed)


def _resume(options: Options) -> Answer:
    with open_project() as project:
        review = project.installer().read_review(options.review)
        resumed = project.reviews.resume(review, options.decisions, on_terminal=on_terminal())
        data: dict[str, Json] = {"installed": list(resumed.installed), "uninstalled": list(resumed.uninstalled)}
        if resumed.changed:
            data["changed"] = list(resumed.changed)
        if resumed.review.held:
            return _waits(project, resumed.review, data)
    return Answer(Message("{count} skills installed", count=len(resumed.installed)), data)


def _waits(project: Project, review: "Review", done: Mapping[str, Json]) -> Answer:
    command = f"python bin/skill_manager.py resume {review.id} --decisions {script.SLOT}"
    data = {**script.paused(project, review, command), **done}
    return Answer(Message(PAUSED.template, count=len(review.held)), data, state=State.INTERRUPTED)


def _uninstall(options: Options) -> Answer:
    with open_project() as project:
        folders, own = project.plan_removal([options.name])
        if own:
            words = {"place": own[0].folder, "command": f"skillyard remove {options.name}"}
            raise InvalidArgs(Message("{place} was not installed; only a person removes it: {command}", **words))
        kept = project.installer().remove(folders)
    data: dict[str, Json] = {"kept": {folder: list(paths) for folder, paths in kept.items()}}
    return Answer(Message("{count} skills removed", count=len(folders)), {"removed": [*folders], **data})


def _synced() -> Project:
    project = open_project()
    project.catalog.sync()
    return project


def _plain(name: str) -> str:
    return name.removeprefix("@")
