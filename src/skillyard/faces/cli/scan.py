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
from typing import NamedTuple, NoReturn

from skillyard import __version__
from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import RuntimeFailed, SkillError
from skillyard.core.messages import Lang, Message, render
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    add_output_options,
    answer_with,
    lang_of,
    show_failure,
    style_of,
)
from skillyard.faces.present import Lines, Progress
from skillyard.faces.skill_data import find_files
from skillyard.install.threats.rule import all_rules
from skillyard.install.threats.sarif import as_sarif
from skillyard.install.threats.scan import scan_skill
from skillyard.install.threats.verdict import HELD, ScanVerdict, ThreatHit, ThreatLevel

_SOME = Message("{total} scanned, {bad} at {level} or worse")
_NONE = Message("{total} scanned, none at {level} or worse")
_SCANNING = Message("scanning")
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
    add_output_options(parser)
    parser.set_defaults(answer=_start)


def _start(options: Options) -> NoReturn:
    if options.sarif:
        _write_sarif(options)
    answer_with(_answer, options)


def _write_sarif(options: Options) -> NoReturn:
    try:
        scanned = _scan(options.targets, lang_of(options))
    except SkillError as error:
        show_failure(error, style_of(options))
        raise SystemExit(1) from None
    document = as_sarif(((one.path, one.verdict) for one in scanned), __version__)
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    raise SystemExit(int(any(_fails(one.verdict, options) for one in scanned)))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    scanned = _scan(options.targets, lang)
    bad = sum(_fails(one.verdict, options) for one in scanned)
    failed = (
        RuntimeFailed(
            Message(
                "{bad} of {count} skills are {fail_on} or worse", bad=bad, count=len(scanned), fail_on=options.fail_on
            )
        )
        if bad
        else None
    )
    return Answer(
        summary=Message("{type}{total} skills scanned: {bad} with threats"),
        words={"type": "RuntimeFailed: " if failed else "", "total": len(scanned), "bad": bad},
        data={**(failed.data() if failed else {}), "skills": [_as_data(one) for one in scanned]},
        page=Lines([*_lines(scanned, lang), _summary(len(scanned), bad, options.fail_on, lang)]),
        state=State.ERROR if failed else State.SUCCESS,
    )


def _scan(targets: list[str], lang: Lang) -> list[Scanned]:
    folders = [found for target in targets for found in _folders(target)]
    scanned: list[Scanned] = []
    with Progress(_SCANNING.render(lang)) as progress:
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
        folder = _resolve(target)
        yield str(folder), folder


def _resolve(name: str) -> Path:
    from skillyard.app.project import open_project

    with open_project() as yard:
        yard.catalog.sync()
        return yard.catalog.resolve(name.removeprefix("@")).folder


def _fails(verdict: ScanVerdict, options: Options) -> bool:
    return verdict.severity >= ThreatLevel[options.fail_on]


def _as_data(one: Scanned) -> dict[str, Json]:
    return {
        "path": one.path,
        "name": one.name,
        "severity": one.verdict.severity.name,
        "hits": [_as_hit(hit) for hit in one.verdict.hits],
    }


def _as_hit(hit: ThreatHit) -> dict[str, Json]:
    rule = all_rules()[hit.rule]
    return {**hit.as_dict(), "title": rule.title, "advice": rule.advice}


def _lines(scanned: list[Scanned], lang: Lang) -> Iterator[str]:
    for one in scanned:
        if one.verdict.severity is ThreatLevel.SAFE and len(scanned) > 1:
            continue
        yield f"{one.verdict.severity.name:<9}{one.path}"
        for hit in one.verdict.hits:
            rule = all_rules()[hit.rule]
            yield f"  {hit.severity.name:<9}{hit.file}:{hit.line}  {hit.rule}: {rule.title.render(lang)}"
            yield f"           | {hit.excerpt}"
            if hit.severity >= HELD:
                yield f"           → {render(rule.advice, lang)}"


def _summary(total: int, bad: int, level: str, lang: Lang) -> str:
    return (_SOME if bad else _NONE).render(lang, total=total, bad=bad, level=level)
