"""Read the skill folders of this project and say what changed."""

import argparse
from functools import partial
from pathlib import Path

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.bin import script
from skillyard.faces.command import Answer, Options
from skillyard.faces.skill_data import display_name

main = partial(script.run, "skill_scanner")


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="scan")
    commands.add_parser("scan", help="what is new and what changed since the last scan").set_defaults(answer=_scan)


def _scan(_options: Options) -> Answer:
    with open_project() as project:
        changes = project.changes_since_last_scan()
        entries = project.catalog.list()
    names: dict[str, list[str]] = {}
    for entry in entries:
        names.setdefault(entry.file, []).append(display_name(entry))
    # As people call them; a skill that a stronger one hides goes by its folder.
    added, updated = (
        [name for file in files for name in names.get(file, [Path(file).parent.name])]
        for files in (changes.added, changes.updated)
    )
    data: dict[str, Json] = {"added": list(added), "updated": list(updated), "total": len(entries)}
    if changes.removed:
        data["removed"] = [Path(file).parent.name for file in changes.removed]
    summary = Message("scanned: {added} added, {updated} updated", added=len(added), updated=len(updated))
    return Answer(summary, data)
