"""Probes for command skills: can the command be filled in, is the program there, does it keep to its place."""

import re
import shlex
from collections.abc import Iterator

from skillyard.core.errors import ParamMissing, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import SLOT, Skill
from skillyard.runners.command import plan, split
from skillyard.runners.kind import quoted, usage_of
from skillyard.runners.probes import SAMPLE, Probe, Trial, declared, failed, least, passed, skipped
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
        yield failed(
            Message("command"), error.msg, Message("write one program with its arguments, and {{slots}} for params")
        )
        return
    if absent := _absent(words, skill):
        yield failed(
            "program",
            Message("{absent} is not in the skill's folder", absent=absent),
            Message("add it, or correct the command"),
        )
        return
    yield passed(Message("command"), shlex.join(launch.argv))
    try:
        yield _runs(trial.start(call, launch), trial)
        yield _usage(call, launch, trial)
    except SkillError as error:
        yield failed(
            Message("starts"), error.msg, Message("see what the command starts: it must be there, and need no grant")
        )


def _missing_params(skill: Skill, trial: Trial) -> Probe:
    name = Message("missing params")
    if not any(param.required and param.default is None for param in skill.params):
        return skipped(name, Message("none is required"))
    try:
        trial.check(skill, {})
    except ParamMissing as error:
        asked = {param.name for param in skill.params if param.prompt or param.description}
        silent = [param for param in error.required if param not in asked]
        advice = (
            Message("describe {silent}: people are asked with these words", silent=", ".join(silent)) if silent else ""
        )
        return passed(name, Message("the run waits for {required}", required=", ".join(error.required)), advice)
    except SkillError as error:
        return failed(name, error.msg, Message("correct the params in SKILL.md"))
    return failed(name, Message("nothing is asked for"), Message("correct the params in SKILL.md"))


def _absent(words: tuple[str, ...], skill: Skill) -> str:
    """Return the first word that names a script the skill does not have, or an empty text."""
    named = (word for word in words if _PROGRAM.fullmatch(word) and not SLOT.search(word))
    return next((word for word in named if not (skill.folder / word).is_file()), "")


def _runs(ended: Exit, trial: Trial) -> Probe:
    name = "runs"
    said = quoted(ended.stderr) or Message("exit code {code}", code=ended.code)
    advice = Message("write below {{output}} only, and read only what a param names")
    if strays := trial.strays():
        return failed(name, Message("it wrote outside mybox/: {strays}", strays=", ".join(strays[:3])), advice)
    if ended.timed_out:
        advice = Message("end sooner, or allow more with --timeout")
        return failed(name, Message("no end within {limit_seconds:g} s", limit_seconds=trial.limit_seconds), advice)
    if ended.code == 0:
        return passed(
            name,
            Message("with made-up values, in {seconds:.2g} s; it wrote nothing outside mybox/", seconds=ended.seconds),
        )
    if _REFUSED.search(said):
        return failed(name, Message("the sandbox refused something: {said}", said=said), advice)
    advice = Message("give params defaults that work as examples")
    return skipped(name, Message("it refused values that we made up: {said}", said=said), advice)


def _usage(call: Call, launch: Launch, trial: Trial) -> Probe:
    name = Message("wrong option")
    ended = trial.start(call, launch._replace(argv=(*launch.argv, _NO_OPTION)))
    said = ended.stderr.decode("utf-8", "replace")
    advice = Message("answer with a usage text on stderr and exit code 2")
    if ended.timed_out or "Traceback (most recent call last)" in said:
        return failed(name, quoted(ended.stderr) or Message("no end within the limit"), advice)
    if usage_of(ended):
        return passed(name, Message("usage text and exit code {code}", code=ended.code))
    told = (
        Message("exit code {code} without a usage text", code=ended.code) if ended.code else Message("it was ignored")
    )
    return passed(name, told, advice)
