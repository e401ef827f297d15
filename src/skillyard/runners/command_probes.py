"""Probes for command skills: can the command be filled in, is the program there, does it keep to its place."""

import re
import shlex
from collections.abc import Iterator

from skillyard.core.errors import ParamMissing, SkillError
from skillyard.core.request import Call
from skillyard.core.skill import Skill
from skillyard.core.slots import SLOT
from skillyard.runners.command import plan, split
from skillyard.runners.probes import SAMPLE, Probe, Trial, declared, failed, least, passed, skipped
from skillyard.runners.process import quoted, usage_of
from skillyard.sandbox.launch import Exit, Launch

_PROGRAM = re.compile(r"[\w./-]+\.(?:py|sh|bash|js|mjs|cjs|ts|rb|pl)")
_REFUSED = re.compile(r"read-only file system|permission denied|operation not permitted|EROFS|EACCES", re.IGNORECASE)
_NO_OPTION = "--no-such-option-of-any-program"


def command_probes(skill: Skill, trial: Trial) -> Iterator[Probe]:
    yield _missing_params(skill, trial)
    try:
        words = split(skill.command)
        call = trial.check(skill, least(declared(skill.params), SAMPLE))
        launch = plan(call)
    except SkillError as error:
        yield failed("command", error.msg, "write one program with its arguments, and {slots} for params")
        return
    if absent := _absent(words, skill):
        yield failed("program", f"{absent} is not in the skill's folder", "add it, or correct the command")
        return
    yield passed("command", shlex.join(launch.argv))
    try:
        yield _runs(trial.start(call, launch), trial)
        yield _usage(call, launch, trial)
    except SkillError as error:
        yield failed("starts", error.msg, "see what the command starts: it must be there, and need no grant")


def _missing_params(skill: Skill, trial: Trial) -> Probe:
    name = "missing params"
    if not any(param.required and param.default is None for param in skill.params):
        return skipped(name, "none is required")
    try:
        trial.check(skill, {})
    except ParamMissing as error:
        asked = {param.name for param in skill.params if param.prompt or param.description}
        silent = [param for param in error.required if param not in asked]
        advice = f"describe {', '.join(silent)}: people are asked with these words" if silent else ""
        return passed(name, f"the run waits for {', '.join(error.required)}", advice)
    except SkillError as error:
        return failed(name, error.msg, "correct the params in SKILL.md")
    return failed(name, "nothing is asked for", "correct the params in SKILL.md")


def _absent(words: tuple[str, ...], skill: Skill) -> str:
    """Return the first word that names a script the skill does not have, or an empty text."""
    named = (word for word in words if _PROGRAM.fullmatch(word) and not SLOT.search(word))
    return next((word for word in named if not (skill.folder / word).is_file()), "")


def _runs(ended: Exit, trial: Trial) -> Probe:
    name = "runs"
    said = quoted(ended.stderr) or f"exit code {ended.code}"
    advice = "write below {output} only, and read only what a param names"
    if strays := trial.strays():
        return failed(name, f"it wrote outside mybox/: {', '.join(strays[:3])}", advice)
    if ended.timed_out:
        return failed(name, f"no end within {trial.limit_seconds:g} s", "end sooner, or allow more with --timeout")
    if ended.code == 0:
        return passed(name, f"with made-up values, in {ended.seconds:.2g} s; it wrote nothing outside mybox/")
    if _REFUSED.search(said):
        return failed(name, f"the sandbox refused something: {said}", advice)
    return skipped(name, f"it refused values that we made up: {said}", "give params defaults that work as examples")


def _usage(call: Call, launch: Launch, trial: Trial) -> Probe:
    name = "wrong option"
    ended = trial.start(call, launch._replace(argv=(*launch.argv, _NO_OPTION)))
    said = ended.stderr.decode("utf-8", "replace")
    advice = "answer with a usage text on stderr and exit code 2"
    if ended.timed_out or "Traceback (most recent call last)" in said:
        return failed(name, quoted(ended.stderr) or "no end within the limit", advice)
    if usage_of(ended):
        return passed(name, f"usage text and exit code {ended.code}")
    told = f"exit code {ended.code} without a usage text" if ended.code else "it was ignored"
    return passed(name, told, advice)
