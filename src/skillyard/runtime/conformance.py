"""Does a skill behave as its kind must? Every probe there is, through the real sandbox."""

from collections.abc import Iterator
from pathlib import Path

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.files import exists, expand_home, is_folder
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import MetadataMissing, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.skill import Kind, Skill
from skillyard.runtime.commandprobes import command_probes
from skillyard.runtime.jsonprobes import json_probes
from skillyard.runtime.probe_sandbox import Bench, Probe
from skillyard.runtime.script_skill import read_adhoc
from skillyard.runtime.textprobes import text_probes


def find_target(target: str, catalog: Catalog, where: Path) -> Skill:
    """A path to a skill, or the name of one that is installed."""
    path = where / expand_home(target)
    if target.startswith("@") or not exists(path):
        if not target.startswith("@") and "/" in target and not is_folder(path.parent):
            raise SkillNotFound(target)
        catalog.sync()
        return catalog.resolve(target.removeprefix("@"))
    folder = path.parent if path.name == SKILL_FILE else path
    if not (folder / SKILL_FILE).is_file():
        raise MetadataMissing(Message("{folder}: no {skill_file} in it", folder=folder, skill_file=SKILL_FILE))
    skill = read_adhoc(str(folder.resolve()), where)
    assert skill is not None  # noqa: S101  (an absolute path is always one)
    return skill


def probe(skill: Skill, bench: Bench) -> Iterator[Probe]:
    """One after the other, as they come."""
    if not skill.role:  # a role's skills are declared in its agent.yaml, without a text of their own
        yield from text_probes(skill)
    if skill.kind is Kind.JSON:
        yield from json_probes(skill, bench)
    elif skill.kind is Kind.COMMAND:
        yield from command_probes(skill, bench)
