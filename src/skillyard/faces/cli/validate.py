"""Check SKILL.md files: what is wrong, where, how bad, and what to do.

A path is a SKILL.md, a skill's folder, or a folder of skills. Errors fail; with --strict warnings fail too.

examples:
  skillyard validate .claude/skills/my-skill
  skillyard validate --strict --json skills/
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import time_ns

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import Reading, read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import find_skill_files
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Severity
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.cli.findings import finding_lines, verdict_line
from skillyard.faces.present import Lines, Progress

_CHECKING = Message("checking")


def arguments(parser: Parser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a SKILL.md, a skill's folder, or a folder of skills")
    parser.add_argument("--strict", action="store_true", help="warnings fail too")
    parser.add_argument("--notes", action="store_true", help="show the notes of files that pass, too")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    files = [(given, file) for given in options.paths for file in find_files(Path(given))]
    readings: list[tuple[str, Reading]] = []
    with Progress(_CHECKING.render(lang)) as progress:
        for position, (given, file) in enumerate(files, 1):
            readings.append((_shown(given, file), lint(read_skill(file))))
            progress(position, len(files))
    passed = [passes(reading, strict=options.strict) for _, reading in readings]
    bad = passed.count(False)
    failed = (
        RuntimeFailed(Message("{bad} of {count} skills have problems", bad=bad, count=len(passed))) if bad else None
    )
    return Answer(
        summary=Message("{type}{total} skills checked: {bad} with problems"),
        words={"type": "RuntimeFailed: " if failed else "", "total": len(readings), "bad": bad},
        data={
            **(failed.data() if failed else {}),
            "skills": [as_data(path, reading) for path, reading in readings],
        },
        page=Lines(
            [*_lines(readings, passed, lang, notes=options.notes), verdict_line(len(passed), passed.count(False), lang)]
        ),
        state=State.ERROR if failed else State.SUCCESS,
    )


def find_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif (path / SKILL_FILE).is_file():
        yield path / SKILL_FILE
    elif path.is_dir():
        found = sorted(find_skill_files(path, {}, (), time_ns()).skills)
        if not found:
            raise InvalidArgs(Message("{path}: no {skill_file} in it or below it", path=path, skill_file=SKILL_FILE))
        yield from map(Path, found)
    else:
        raise InvalidArgs(Message("{path}: there is no such file or folder", path=path))


def _shown(given: str, file: Path) -> str:
    """As it was given, where one thing was given."""
    return given if file in {Path(given), Path(given) / SKILL_FILE} else str(file)


def passes(reading: Reading, *, strict: bool) -> bool:
    worst = Severity.WARNING if strict else Severity.ERROR
    return reading.skill is not None and all(finding.severity.rank < worst.rank for finding in reading.findings)


def as_data(path: str, reading: Reading) -> dict[str, Json]:
    skill = reading.skill
    return {
        "path": path,
        "name": skill.name if skill else None,
        "description": skill.description if skill else None,
        "kind": str(skill.kind) if skill else None,
        "findings": [finding.as_dict() for finding in reading.findings],
    }


def _lines(readings: list[tuple[str, Reading]], passed: list[bool], lang: Lang, *, notes: bool) -> Iterator[str]:
    for (path, reading), ok in zip(readings, passed, strict=True):
        shown = [f for f in reading.findings if notes or not ok or f.severity is not Severity.NOTE]
        if not shown and ok and len(readings) > 1:
            continue
        yield from finding_lines(path, shown, lang, ok=ok)
