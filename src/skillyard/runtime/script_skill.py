"""A folder that a person at the terminal points at: a skill for this one run, installed nowhere."""

import os
from pathlib import Path

from skillyard.catalog.files import expand_home, is_folder, is_utf8
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import MetadataMissing, SkillNotFound
from skillyard.core.kinds import Kind
from skillyard.core.messages import Message
from skillyard.core.skill import Skill


def read_adhoc(name: str, where: Path) -> Skill | None:
    """None where the name is no path: `./x`, `../x`, `/x` and `~/x` are."""
    if not name.startswith(("./", "../", "/", "~/")) and name not in {".", ".."}:
        return None
    place = where / expand_home(name)
    if not is_folder(place):
        raise SkillNotFound(name)
    folder = Path(os.path.realpath(place))
    if not is_utf8(folder):
        raise MetadataMissing(Message("{folder!r} is not UTF-8: rename the folder", folder=str(folder)))
    return read_folder(folder)


def read_folder(folder: Path) -> Skill:
    file = folder / SKILL_FILE
    if not file.is_file():
        # Scripts can be run from any folder; there is just nothing else to say about it.
        return Skill(name=folder.name, path=file, kind=Kind.PROMPT)
    from skillyard.catalog.manifest import read_skill

    reading = read_skill(file)
    if reading.skill is None:
        raise MetadataMissing(
            Message(
                "{place}: {reason}",
                place=file,
                reason=reading.findings[0].message if reading.findings else Message("unreadable"),
            )
        )
    return reading.skill
