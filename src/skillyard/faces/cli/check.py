"""Check that a skill behaves as its kind must: every probe, in the sandbox.

Bad requests, unknown actions, missing and wrong params, stdout, exit codes, the same request twice: each probe is
listed with what came of it and what to do. It runs in a folder that is thrown away, with no grants and no record.

examples:
  skillyard check .claude/skills/my-skill
  skillyard check @log-analyzer --json
"""

from typing import TYPE_CHECKING

from skillyard.app.project import open_project
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message, join_messages
from skillyard.faces.command import Answer, Options, Parser, lang_of, seconds
from skillyard.faces.present import Lines, Progress

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


def arguments(parser: Parser) -> None:
    parser.add_argument("target", metavar="PATH|@NAME", help="a skill's folder or SKILL.md, or an installed skill")
    parser.add_argument("--timeout", type=seconds, default=10.0, metavar="S", help="seconds for each request (10)")
    parser.add_argument("--strict", action="store_true", help="advice fails too")


def answer(options: Options) -> Answer:
    probes: list[tuple[Probe, str]] = []
    with open_project(ends_with_process=True) as project:
        skill, results = project.probe_skill(options.target, options.timeout)
        with Progress(Message("checking {name}", name=skill.name), lang_of(options)) as progress:
            for done in results:
                fails = options.strict and done.advice and done.verdict == "passed"
                probes.append((done, "failed" if fails else str(done.verdict)))
                progress(len(probes), len(probes))
    counts = {each: sum(verdict == each for _, verdict in probes) for each in _MARKS}
    told = Message("{passed} passed, {failed} failed, {skipped} skipped", **counts)
    lines: list[str] = [f"{skill.name} ({skill.kind})"]
    for done, verdict in probes:
        lines.append(join_messages("", (f"{_MARKS[verdict]} ", done.name, ": ", done.says)))
        if done.advice:
            lines.append(join_messages("", ("       → ", done.advice)))
    failed = Message("{failed} of {count} probes failed", failed=counts["failed"], count=len(probes))
    return Answer(
        Message("{name}: {counts}", name=skill.name, counts=told),
        {
            "skill": skill.name,
            "kind": str(skill.kind),
            "path": str(skill.path),
            "probes": [{**done.as_dict(), "verdict": verdict} for done, verdict in probes],
            **counts,
        },
        Lines([*lines, told]),
        failure=RuntimeFailed(failed) if counts["failed"] else None,
    )
