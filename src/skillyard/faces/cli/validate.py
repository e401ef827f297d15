"""Check SKILL.md files: what is wrong, where, how bad, and what to do.

A path is a SKILL.md, a skill's folder, or a folder of skills. Errors fail; with --strict warnings fail too.

examples:
  skillyard validate .claude/skills/my-skill
  skillyard validate --strict --json skills/
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message, join_messages
from skillyard.core.skill import Finding, Severity
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines, Progress
from skillyard.faces.skill_data import as_reading_data, find_files, passes


def arguments(parser: Parser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a SKILL.md, a skill's folder, or a folder of skills")
    parser.add_argument("--strict", action="store_true", help="warnings fail too")
    parser.add_argument("--notes", action="store_true", help="show the notes of files that pass, too")


def answer(options: Options) -> Answer:
    files = [(given, file) for given in options.paths for file in find_files(Path(given))]
    data, lines, bad = [], list[str](), 0
    with Progress(Message("checking"), lang_of(options)) as progress:
        for position, (given, file) in enumerate(files, 1):
            shown = given if file in {Path(given), Path(given) / SKILL_FILE} else str(file)
            reading = lint(read_skill(file))
            ok = passes(reading, strict=options.strict)
            bad += not ok
            data.append(as_reading_data(shown, reading))
            findings = [f for f in reading.findings if options.notes or not ok or f.severity is not Severity.NOTE]
            if findings or not ok or len(files) == 1:
                lines += _lines(shown, findings, ok=ok)
            progress(position, len(files))
    total = len(files)
    return Answer(
        Message("{total} skills checked: {bad} with problems", total=total, bad=bad),
        {"skills": data},
        Lines([*lines, _verdict(total, bad)]),
        failure=RuntimeFailed(Message("{bad} of {count} skills have problems", bad=bad, count=total)) if bad else None,
    )


def check_findings(files: "Mapping[Path, Sequence[Finding]]", *, strict: bool) -> tuple[int, list[str]]:
    """Return how many of the files have problems, and the lines that tell of them."""
    worst = Severity.WARNING if strict else Severity.ERROR
    lines, bad = list[str](), 0
    for path, findings in files.items():
        ok = all(finding.severity.rank < worst.rank for finding in findings)
        lines += _lines(os.path.relpath(path), findings, ok=ok)
        bad += not ok
    return bad, [*lines, _verdict(len(files), bad)]


def _lines(path: str, findings: Sequence[Finding], *, ok: bool) -> Iterator[str]:
    """Where, how bad, what, and what to do."""
    yield f"{'ok  ' if ok else 'FAIL'} {path}"
    for finding in findings:
        place = f"{finding.line}:{finding.column}"
        yield join_messages("", (f"     {place:<8}{finding.severity:<8} {finding.code}: ", finding.message))
        if finding.advice:
            yield join_messages("", ("             → ", finding.advice))


def _verdict(total: int, bad: int) -> Message:
    if bad:
        return Message("{total} checked, {bad} with problems", total=total, bad=bad)
    return Message("{total} checked, all fine", total=total)
