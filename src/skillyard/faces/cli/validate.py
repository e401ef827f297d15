"""Check SKILL.md files: what is wrong, where, how bad, and what to do.

A path is a SKILL.md, a skill's folder, or a folder of skills. Errors fail; with --strict warnings fail too.

examples:
  skillyard validate .claude/skills/my-skill
  skillyard validate --strict --json skills/
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import Reading, read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Severity
from skillyard.core.states import State
from skillyard.faces.cli.findings import finding_lines, verdict_line
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.present import Lines, Progress
from skillyard.faces.skill_data import as_reading_data, find_files, passes

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
            "skills": [as_reading_data(path, reading) for path, reading in readings],
        },
        page=Lines(
            [*_lines(readings, passed, lang, notes=options.notes), verdict_line(len(passed), passed.count(False), lang)]
        ),
        state=State.ERROR if failed else State.SUCCESS,
    )


def _shown(given: str, file: Path) -> str:
    """As it was given, where one thing was given."""
    return given if file in {Path(given), Path(given) / SKILL_FILE} else str(file)


def _lines(readings: list[tuple[str, Reading]], passed: list[bool], lang: Lang, *, notes: bool) -> Iterator[str]:
    for (path, reading), ok in zip(readings, passed, strict=True):
        shown = [f for f in reading.findings if notes or not ok or f.severity is not Severity.NOTE]
        if not shown and ok and len(readings) > 1:
            continue
        yield from finding_lines(path, shown, lang, ok=ok)
