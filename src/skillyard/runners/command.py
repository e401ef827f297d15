"""Command skills: the `command` of SKILL.md, filled in and started without a shell."""

from pathlib import Path

from skillyard.core.phrases import RAN, RAN_TO
from skillyard.core.request import Call, Outcome
from skillyard.core.result import as_size
from skillyard.core.values import Json
from skillyard.runners.printed import as_printed
from skillyard.runners.program import check_exit, environment, find_program
from skillyard.runners.template import SLOT, fill, split
from skillyard.sandbox.launch import Launch, Sandbox

OUTPUT_FOLDER = "mybox/output"


def plan(call: Call) -> Launch:
    words = tuple(_in_skill(word, call) for word in split(call.skill.command))
    options = frozenset(param.name for param in call.skill.params if param.option)
    filled = fill(words, _values(call), options)
    return Launch(
        argv=(find_program(filled[0], call.skill.folder), *filled[1:]),
        cwd=call.root,
        env=environment(call),
        limit_seconds=call.limit_seconds,
    )


def run(call: Call, sandbox: Sandbox) -> Outcome:
    launch = plan(call)
    (call.root / OUTPUT_FOLDER).mkdir(parents=True, exist_ok=True)
    ended = sandbox(launch)
    check_exit(call, ended)
    printed, _ = as_printed(ended.stdout)
    written = _written(call)
    data: dict[str, Json] = {"skill": call.asked_as, **written, **printed}
    label = call.skill.title or call.asked_as
    path = data.get("output_path")
    if isinstance(path, str):
        return Outcome(data=data, says=RAN_TO, words={"label": label, "path": path})
    return Outcome(data=data, says=RAN, words={"label": label})


def _in_skill(word: str, call: Call) -> str:
    """A word of the template that names a file of the skill means that file, wherever we stand."""
    if SLOT.search(word) or word.startswith(("-", "/")):
        return word
    own = call.skill.folder / word
    if not own.is_file():
        return word
    return str(own.relative_to(call.root)) if own.is_relative_to(call.root) else str(own)


def _values(call: Call) -> dict[str, str]:
    values = {name: _as_argument(value) for name, value in call.params.items() if value is not None}
    folder = str(call.skill.folder)
    output = str(call.output) if call.output else f"{OUTPUT_FOLDER}/"
    return {"output": output, "skill": folder, "baseDir": folder, "CLAUDE_SKILL_DIR": folder, **values}


def _as_argument(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _written(call: Call) -> dict[str, Json]:
    if call.output is None:
        return {}
    target = call.root / call.output
    if not target.is_file():
        return {}
    return {"output_path": Path(call.output).as_posix(), "output_size": as_size(target.stat().st_size)}
