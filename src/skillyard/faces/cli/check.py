"""Commands that look for what is wrong with skills: check, validate, scan."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.app.skill_files import FolderVerdict, as_sarif, find_files, read_schema, scan_folder, validate
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message, join_messages
from skillyard.core.skill import Finding, Severity
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, seconds, takes
from skillyard.faces.present import StatusLine
from skillyard.faces.skill_data import as_reading_data, passes

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}
_LEVELS = ("INFO", "LOW", "MEDIUM", "UNKNOWN", "HIGH", "CRITICAL")


@takes("target", "a skill's folder or SKILL.md, or an installed skill", metavar="PATH|@NAME")
@takes("--timeout", "seconds for each request (10)", type=seconds, default=10.0, metavar="S")
@takes("--strict", "advice fails too")
def answer_check(options: Options) -> Answer:
    """Check that a skill behaves as its kind must: every probe, in the sandbox.

    Bad requests, unknown actions, missing and wrong params, stdout, exit codes, the same request twice: each probe is
    listed with what came of it and what to do. It runs in a folder that is thrown away, with no grants and no record.

    examples:
      skillyard check .claude/skills/my-skill
      skillyard check @log-analyzer --json
    """
    probes: list[tuple[Probe, str]] = []
    with open_project(ends_with_process=True) as project:
        skill, results = project.probe_skill(options.target, options.timeout)
        with StatusLine(Message("checking {name}", name=skill.name), options.lang) as line:
            for done in results:
                fails = options.strict and done.advice and done.verdict == "passed"
                probes.append((done, "failed" if fails else str(done.verdict)))
                line.count(len(probes), len(probes))
    lines: list[str] = [f"{skill.name} ({skill.kind})"]
    for done, verdict in probes:
        lines.append(join_messages("", (f"{_MARKS[verdict]} ", done.name, ": ", done.says)))
        if done.advice:
            lines.append(join_messages("", ("       → ", done.advice)))
    counts = {each: sum(verdict == each for _, verdict in probes) for each in _MARKS}
    told = Message("{passed} passed, {failed} failed, {skipped} skipped", **counts)
    failed = Message("{failed} of {count} probes failed", failed=counts["failed"], count=len(probes))
    data: dict[str, Json] = {"skill": skill.name, "kind": str(skill.kind), "path": str(skill.path)}
    data["probes"] = [{**done.as_dict(), "verdict": verdict} for done, verdict in probes]
    summary = Message("{name}: {counts}", name=skill.name, counts=told)
    failure = RuntimeFailed(failed) if counts["failed"] else None
    return Answer(summary, {**data, **counts}, [*lines, told], failure=failure)


@takes("paths", "a SKILL.md, a skill's folder, or a folder of skills", nargs="+", metavar="PATH")
@takes("--strict", "warnings fail too")
@takes("--notes", "show the notes of files that pass, too")
def answer_validate(options: Options) -> Answer:
    """Check SKILL.md files: what is wrong, where, how bad, and what to do.

    A path is a SKILL.md, a skill's folder, or a folder of skills. Errors fail; with --strict warnings fail too.

    examples:
      skillyard validate .claude/skills/my-skill
      skillyard validate --strict --json skills/
    """
    files = [found for given in options.paths for found in find_files(given)]
    data, lines, bad = [], list[str](), 0
    with StatusLine(Message("checking"), options.lang) as line:
        for position, (shown, file) in enumerate(files, 1):
            reading = validate(file)
            ok = passes(reading, strict=options.strict)
            bad += not ok
            data.append(as_reading_data(shown, reading))
            findings = [f for f in reading.findings if options.notes or not ok or f.severity is not Severity.NOTE]
            if findings or not ok or len(files) == 1:
                lines += _finding_lines(shown, findings, ok=ok)
            line.count(position, len(files))
    counts = {"total": len(files), "bad": bad}
    summary = Message("{total} skills checked: {bad} with problems", **counts)
    why = Message("{bad} of {count} skills have problems", bad=bad, count=len(files))
    failure = RuntimeFailed(why) if bad else None
    return Answer(summary, {"skills": data}, [*lines, _verdict(**counts)], failure=failure)


def answer_schema(name: str) -> Answer:
    """Answer with the JSON Schema of agent.yaml or workflow.yaml."""
    text = read_schema(name)
    return Answer(Message("JSON Schema of {file}", file=f"{name}.yaml"), {"schema": json.loads(text)}, text)


def answer_findings(
    key: str,
    files: Sequence[tuple[Path, Mapping[str, Json], Sequence[Finding]]],
    options: Options,
    summary: Message,
    failed: Message,
) -> Answer:
    """Answer what is wrong with files: each with what is told of it. The messages are templates for the counts."""
    worst = Severity.WARNING if options.strict else Severity.ERROR
    data, lines, bad = list[Json](), list[str](), 0
    for path, told, findings in files:
        ok = all(finding.severity.rank < worst.rank for finding in findings)
        bad += not ok
        data.append({**told, "findings": [finding.as_dict() for finding in findings]})
        lines += _finding_lines(os.path.relpath(path), findings, ok=ok)
    counts = {"total": len(files), "bad": bad}
    failure = RuntimeFailed(Message(failed.template, count=len(files), bad=bad)) if bad else None
    return Answer(Message(summary.template, **counts), {key: data}, [*lines, _verdict(**counts)], failure=failure)


def _finding_lines(path: str, findings: Sequence[Finding], *, ok: bool) -> Iterator[str]:
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


@takes("targets", "a SKILL.md, a skill's folder, a folder of skills, or a skill's name", nargs="+", metavar="PATH|NAME")
@takes("--fail-on", "exit with 1 from here on (MEDIUM)", choices=_LEVELS, default="MEDIUM", type=str.upper)
@takes("--sarif", "a SARIF 2.1.0 document on stdout and nothing else")
def answer_scan(options: Options) -> Answer:
    """Scan skills for threats: what in them may harm you, where, and what to do.

    Nothing is run, and nothing is sent anywhere. A path is a SKILL.md, a skill's folder, or a folder of skills;
    anything else is the name of a skill that can be used here. Exit code 1 where something is MEDIUM or worse, or could
    not be read (UNKNOWN); --fail-on moves that line.

    examples:
      skillyard scan .claude/skills
      skillyard scan @markdown-converter --json
      skillyard scan --sarif skills/ > scan.sarif
    """
    folders = [found for target in options.targets for found in _folders(target)]
    scanned: list[FolderVerdict] = []
    with StatusLine(Message("scanning"), options.lang) as line:
        for position, (shown, folder) in enumerate(folders, 1):
            scanned.append(scan_folder(shown, folder))
            line.count(position, len(folders))
    level, total = options.fail_on, len(scanned)
    bad = sum(one.is_at_least(level) for one in scanned)
    if options.sarif:
        sys.stdout.write(json.dumps(as_sarif(scanned), indent=2) + "\n")
        raise SystemExit(int(bad > 0))
    why = Message("{bad} of {count} skills are {fail_on} or worse", bad=bad, count=total, fail_on=level)
    last = Message("{total} scanned, none at {level} or worse", total=total, level=level)
    if bad:
        last = Message("{total} scanned, {bad} at {level} or worse", total=total, bad=bad, level=level)
    data: list[Json] = []
    for one in scanned:
        hits: list[Json] = [{**hit.as_dict(), "title": rule.title, "advice": rule.advice} for hit, rule in one.hits()]
        data.append({"path": one.path, "name": one.name, "severity": one.verdict.severity.name, "hits": hits})
    summary = Message("{total} skills scanned: {bad} with threats", total=total, bad=bad)
    lines = [*_threat_lines(scanned), last]
    return Answer(summary, {"skills": data}, lines, failure=RuntimeFailed(why) if bad else None)


def _folders(target: str) -> Iterator[tuple[str, Path]]:
    """A path wins over a name: what is on the disk is what somebody points at."""
    if Path(target).exists():
        for _, file in find_files(target):
            yield (target if Path(target) == file.parent else str(file.parent)), file.parent
    else:
        with open_project() as project:
            project.catalog.sync()
            folder = project.catalog.resolve(target.removeprefix("@")).folder
        yield str(folder), folder


def _threat_lines(scanned: Sequence[FolderVerdict]) -> Iterator[str]:
    for one in scanned:
        if not one.is_at_least("INFO") and len(scanned) > 1:
            continue
        yield f"{one.verdict.severity.name:<9}{one.path}"
        for hit, rule in one.hits():
            place = f"  {hit.severity.name:<9}{hit.file}:{hit.line}  {hit.rule}: "
            yield join_messages("", (place, rule.title))
            yield f"           | {hit.excerpt}"
            if hit.severity.name not in {"INFO", "LOW"}:
                yield join_messages("", ("           → ", rule.advice))
