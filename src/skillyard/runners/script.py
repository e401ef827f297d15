"""Bundled scripts: any program that a skill ships, started by its interpreter with the words as they came."""

from pathlib import Path

from skillyard.core.errors import PermissionDenied, ScriptNotFound
from skillyard.core.messages import Message
from skillyard.core.request import Call, Outcome
from skillyard.runners.command import launch_of, started
from skillyard.runners.interpreters import interpreter_of
from skillyard.runners.process import in_repository
from skillyard.sandbox.launch import Launch, Sandbox


def plan(call: Call) -> Launch:
    folder = call.skill.folder
    script = call.files / call.script
    if not script.resolve().is_relative_to(call.files.resolve()) or in_repository(Path(call.script)):
        raise PermissionDenied(Message("{name} leads out of {folder}/", name=call.script, folder=folder.name))
    if not script.is_file():
        raise ScriptNotFound(f"{folder.name}/{call.script}", details={"scripts": _offered(call)})
    return launch_of(call, (*interpreter_of(script), str(call.run_folder / call.script), *call.args))


def run(call: Call, sandbox: Sandbox) -> Outcome:
    return started(call, plan(call), sandbox)


def _offered(call: Call) -> list[str]:
    """What could have been meant."""
    endings = {".py", ".sh", ".bash", ".js", ".mjs", ".ts"}
    found = (path for path in sorted(call.files.rglob("*")) if path.suffix in endings and path.is_file())
    return [path.relative_to(call.files).as_posix() for path, _ in zip(found, range(20), strict=False)]
