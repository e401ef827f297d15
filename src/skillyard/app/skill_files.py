"""Skill files as they are on the disk, whether a project uses them or not: found, checked, scanned for threats."""

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from skillyard import __version__
from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import Reading, read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import find_skill_files
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.threats import rule as threat_rules
from skillyard.install.threats.rule import ScanVerdict, ThreatHit, ThreatLevel, ThreatRule, all_rules
from skillyard.install.threats.scan import scan_skill


def find_files(given: str) -> Iterator[tuple[str, Path]]:
    """Yield each SKILL.md that is meant by a path: a SKILL.md, a skill's folder, or a folder of skills.

    Before it stands what to call it for a person. Raise InvalidArgs if there is none.
    """
    path = Path(given)
    if path.is_file() or (path / SKILL_FILE).is_file():
        yield given, path if path.is_file() else path / SKILL_FILE
    elif path.is_dir():
        found = sorted(find_skill_files(path, {}, (), time_ns()).skills)
        if not found:
            raise InvalidArgs(Message("{path}: no {skill_file} in it or below it", path=path, skill_file=SKILL_FILE))
        yield from ((file, Path(file)) for file in found)
    else:
        raise InvalidArgs(Message("{path}: there is no such file or folder", path=path))


def validate(file: Path) -> Reading:
    """Read a SKILL.md with everything that is wrong with it."""
    return lint(read_skill(file))


def read_schema(name: str) -> str:
    """Return the JSON Schema of `agent` (agent.yaml) or `workflow` (workflow.yaml)."""
    return files("skillyard.catalog").joinpath(f"{name}.schema.json").read_text("utf-8")


class FolderVerdict(NamedTuple):
    """The verdict on one skill. `path` is its folder as it was given or found."""

    path: str
    name: str
    verdict: ScanVerdict

    def is_at_least(self, level: str) -> bool:
        return self.verdict.severity >= ThreatLevel[level]

    def hits(self) -> Sequence[tuple[ThreatHit, ThreatRule]]:
        return [(hit, all_rules()[hit.rule]) for hit in self.verdict.hits]


def scan_folder(path: str, folder: Path) -> FolderVerdict:
    """Nothing is run."""
    skill = read_skill(folder / SKILL_FILE).skill
    return FolderVerdict(path, skill.name if skill else folder.name, scan_skill(folder))


def as_sarif(scanned: Iterable[FolderVerdict]) -> dict[str, Json]:
    return threat_rules.as_sarif(((one.path, one.verdict) for one in scanned), __version__)
