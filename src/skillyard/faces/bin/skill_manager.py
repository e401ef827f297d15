"""Manage the skills of this project: list, search, info, validate, record, install, uninstall."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from skillyard.core.errors import ScriptFailed
from skillyard.core.phrases import Text
from skillyard.core.states import State
from skillyard.faces.bin import script
from skillyard.faces.cli.command import Answer, Options
from skillyard.faces.cli.entries import as_skill_data
from skillyard.kernel.assembly import Yard, open_yard

LISTED = Text("共 {count} 个技能", "{count} skills")
FOUND = Text("找到 {count} 个技能: {query}", "{count} skills match: {query}")
INFO = Text("技能: {name}", "skill: {name}")
CHECKED = Text("检查 {total} 个技能: {bad} 个有问题", "{total} skills checked: {bad} with problems")
RECORDED = Text("已记录: {name} (共 {count} 次)", "recorded: {name} ({count} uses)")


def main(words: Sequence[str]) -> NoReturn:
    script.run(sys.modules[__name__], words)


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, says, answer, argument in (
        ("list", "the skills that can be used here", _list, None),
        ("search", "skills by name, description and tags, with the folder of each", _search, "words"),
        ("info", "everything that is known of a skill", _info, "name"),
        ("validate", "what is wrong with a skill, by path or by name", _validate, "what"),
        ("record", "count one use of a skill that the caller ran itself", _record, "name"),
        ("install", "install a skill", _install, "source"),
        ("uninstall", "remove a skill", _uninstall, "name"),
    ):
        command = commands.add_parser(name, help=says, description=says)
        command.set_defaults(answer=answer)
        if argument:
            command.add_argument(argument, nargs="+" if argument == "words" else None)


def _list(_options: Options) -> Answer:
    with _synced() as yard:
        skills = [as_skill_data(entry, yard.catalog) for entry in yard.catalog.list()]
    return Answer(summary=LISTED, words={"count": len(skills)}, data={"total": len(skills), "skills": list(skills)})


def _search(options: Options) -> Answer:
    query = " ".join(options.words)
    with _synced() as yard:
        hits = yard.catalog.search(query)
        skills = [{**as_skill_data(hit.entry, yard.catalog), "snippet": hit.snippet} for hit in hits]
    return Answer(
        summary=FOUND,
        words={"count": len(skills), "query": query},
        data={"total": len(skills), "skills": list(skills)},
    )


def _info(options: Options) -> Answer:
    from skillyard.faces.cli.show import as_full_data

    with _synced() as yard:
        skill = yard.catalog.resolve(_plain(options.name))
        data = {"folder_name": skill.folder_name, **as_full_data(skill, yard)}
    return Answer(summary=INFO, words={"name": skill.name}, data=data)


def _validate(options: Options) -> Answer:
    from skillyard.catalog.lint import lint
    from skillyard.catalog.manifest import read_skill
    from skillyard.faces.cli.validate import as_data, find_files, passes

    path = Path(options.what)
    if not path.exists():
        with _synced() as yard:
            path = Path(yard.catalog.choose(_plain(options.what)).file)
    readings = [(str(file), lint(read_skill(file))) for file in find_files(path)]
    bad = sum(not passes(reading, strict=False) for _, reading in readings)
    return Answer(
        summary=CHECKED,
        words={"total": len(readings), "bad": bad},
        data={"total": len(readings), "bad": bad, "skills": [as_data(file, reading) for file, reading in readings]},
        state=State.ERROR if bad else State.SUCCESS,
    )


def _record(options: Options) -> Answer:
    with _synced() as yard:
        name = yard.catalog.resolve(_plain(options.name)).name
        yard.runs.record_use(name, time.time())
        count = yard.runs.uses()[name]
    return Answer(summary=RECORDED, words={"name": name, "count": count}, data={"skill": name, "uses": count})


def _install(options: Options) -> Answer:
    raise ScriptFailed(
        f"install is not built yet: copy {options.source} into .claude/skills/ and run "
        "`python bin/skill_scanner.py scan`, or let bin/skill_install_workflow.py copy it"
    )


def _uninstall(options: Options) -> Answer:
    raise ScriptFailed(
        f"uninstall is not built yet: delete the folder of {options.name} in .claude/skills/ and run "
        "`python bin/skill_scanner.py scan`"
    )


def _synced() -> Yard:
    yard = open_yard()
    yard.catalog.sync()
    return yard


def _plain(name: str) -> str:
    return name.removeprefix("@")
