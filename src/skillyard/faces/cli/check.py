"""Check that a skill behaves as its kind must: every probe, in the sandbox.

Bad requests, unknown actions, missing and wrong params, stdout, exit codes, the same request twice: each probe is
listed with what came of it and what to do. It runs in a folder that is thrown away, with no grants and no record.

examples:
  skillyard check .claude/skills/my-skill
  skillyard check @log-analyzer --json
"""

from functools import partial
from pathlib import Path

from skillyard.app.project import open_project
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Lang, Message, render
from skillyard.core.states import State
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of, seconds
from skillyard.faces.present import Lines, Progress
from skillyard.runners.probes import Probe, ProbeVerdict
from skillyard.runtime.trial import find_target, open_trial, probe

_SUMMARY = Message("{type}{name}: {passed} passed, {failed} failed, {skipped} skipped")
_COUNTS = Message("{passed} passed, {failed} failed, {skipped} skipped")
_CHECKING = Message("checking {name}")
_MARKS = {ProbeVerdict.PASSED: "ok  ", ProbeVerdict.FAILED: "FAIL", ProbeVerdict.SKIPPED: "skip"}


def arguments(parser: Parser) -> None:
    parser.add_argument("target", metavar="PATH|@NAME", help="a skill's folder or SKILL.md, or an installed skill")
    parser.add_argument("--timeout", type=seconds, default=10.0, metavar="S", help="seconds for each request (10)")
    parser.add_argument("--strict", action="store_true", help="advice fails too")
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    probes: list[Probe] = []
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        skill = find_target(options.target, yard.catalog, Path.cwd())
        with (
            open_trial(yard.sandbox, yard.paths.own_home, options.timeout) as trial,
            Progress(_CHECKING.render(lang, name=skill.name)) as progress,
        ):
            for done in probe(skill, trial):
                probes.append(_judged(done, strict=options.strict))
                progress(len(probes), len(probes))
    counts = {str(verdict): sum(done.verdict is verdict for done in probes) for verdict in ProbeVerdict}
    told = (
        RuntimeFailed(
            Message("{counts} of {count} probes failed", counts=counts[ProbeVerdict.FAILED], count=len(probes))
        )
        if counts[ProbeVerdict.FAILED]
        else None
    )
    return Answer(
        summary=_SUMMARY,
        words={"type": f"{told.type}: " if told else "", "name": skill.name, **counts},
        data={
            **(told.data() if told else {}),
            "skill": skill.name,
            "kind": str(skill.kind),
            "path": str(skill.path),
            "probes": [done.as_dict() for done in probes],
            **counts,
        },
        page=Lines(_lines(skill.name, str(skill.kind), probes, counts, lang)),
        state=State.ERROR if told else State.SUCCESS,
    )


def _judged(done: Probe, *, strict: bool) -> Probe:
    return (
        done._replace(verdict=ProbeVerdict.FAILED)
        if strict and done.advice and done.verdict is ProbeVerdict.PASSED
        else done
    )


def _lines(name: str, kind: str, probes: list[Probe], counts: dict[str, int], lang: Lang) -> list[str]:
    lines = [f"{name} ({kind})"]
    for done in probes:
        lines.append(f"{_MARKS[done.verdict]} {render(done.name, lang)}: {render(done.says, lang)}")
        if done.advice:
            lines.append(f"       → {render(done.advice, lang)}")
    return [*lines, _COUNTS.render(lang, **counts)]
