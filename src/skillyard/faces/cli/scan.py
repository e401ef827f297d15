"""Scan skills for threats: what in them may harm you, where, and what to do.

Nothing is run, and nothing is sent anywhere. A path is a SKILL.md, a skill's folder, or a folder of skills; anything
else is the name of a skill that can be used here. Exit code 1 where something is MEDIUM or worse, or could not be
read (UNKNOWN); --fail-on moves that line.

examples:
  skillyard scan .claude/skills
  skillyard scan @markdown-converter --json
  skillyard scan --sarif skills/ > scan.sarif
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from skillyard import __version__
from skillyard.app.project import open_project
from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Lang, Message, join_messages
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Progress
from skillyard.faces.skill_data import find_files
from skillyard.install.threats.rule import all_rules
from skillyard.install.threats.sarif import as_sarif
from skillyard.install.threats.scan import scan_skill
from skillyard.install.threats.verdict import HELD, ScanVerdict, ThreatLevel

_LEVELS = [severity.name for severity in ThreatLevel if severity > ThreatLevel.SAFE]


class Scanned(NamedTuple):
    """One skill: its folder as it was given or found, its name, and the verdict."""

    path: str
    name: str
    verdict: ScanVerdict


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="PATH|NAME",
        help="a SKILL.md, a skill's folder, a folder of skills, or a skill's name",
    )
    parser.add_argument(
        "--fail-on", choices=_LEVELS, default=HELD.name, type=str.upper, help="exit with 1 from here on (MEDIUM)"
    )
    parser.add_argument("--sarif", action="store_true", help="a SARIF 2.1.0 document on stdout and nothing else")


def answer(options: Options) -> Answer:
    level = options.fail_on
    scanned = _scan(options.targets, lang_of(options))
    total, bad = len(scanned), sum(one.verdict.severity >= ThreatLevel[level] for one in scanned)
    if options.sarif:
        document = as_sarif(((one.path, one.verdict) for one in scanned), __version__)
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        raise SystemExit(int(bad > 0))
    why = Message("{bad} of {count} skills are {fail_on} or worse", bad=bad, count=total, fail_on=level)
    last = Message("{total} scanned, none at {level} or worse", total=total, level=level)
    if bad:
        last = Message("{total} scanned, {bad} at {level} or worse", total=total, bad=bad, level=level)
    return Answer(
        Message("{total} skills scanned: {bad} with threats", total=total, bad=bad),
        {"skills": [_as_data(one) for one in scanned]},
        Lines([*_lines(scanned), last]),
        failure=RuntimeFailed(why) if bad else None,
    )


def _scan(targets: list[str], lang: Lang) -> list[Scanned]:
    folders = [found for target in targets for found in _folders(target)]
    scanned: list[Scanned] = []
    with Progress(Message("scanning"), lang) as progress:
        for position, (shown, folder) in enumerate(folders, 1):
            skill = read_skill(folder / SKILL_FILE).skill
            scanned.append(Scanned(shown, skill.name if skill else folder.name, scan_skill(folder)))
            progress(position, len(folders))
    return scanned


def _folders(target: str) -> Iterator[tuple[str, Path]]:
    """A path wins over a name: what is on the disk is what somebody points at."""
    path = Path(target)
    if path.exists():
        for file in find_files(path):
            folder = file.parent
            yield (target if folder in {path, path.parent} and path.is_dir() else str(folder)), folder
    else:
        with open_project() as project:
            project.catalog.sync()
            folder = project.catalog.resolve(target.removeprefix("@")).folder
        yield str(folder), folder


def _as_data(one: Scanned) -> dict[str, Json]:
    hits: list[Json] = []
    for hit in one.verdict.hits:
        rule = all_rules()[hit.rule]
        hits.append({**hit.as_dict(), "title": rule.title, "advice": rule.advice})
    return {"path": one.path, "name": one.name, "severity": one.verdict.severity.name, "hits": hits}


def _lines(scanned: list[Scanned]) -> Iterator[str]:
    for one in scanned:
        if one.verdict.severity is ThreatLevel.SAFE and len(scanned) > 1:
            continue
        yield f"{one.verdict.severity.name:<9}{one.path}"
        for hit in one.verdict.hits:
            rule = all_rules()[hit.rule]
            place = f"  {hit.severity.name:<9}{hit.file}:{hit.line}  {hit.rule}: "
            yield join_messages("", (place, rule.title))
            yield f"           | {hit.excerpt}"
            if hit.severity >= HELD:
                yield join_messages("", ("           → ", rule.advice))
