"""Bundled scripts: any program that a skill ships, started by its interpreter with the words as they came."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.core.errors import PermissionDenied, ScriptNotFound
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import Skill
from skillyard.runners.command import launch_in_project, run
from skillyard.runners.interpreters import interpreter_of
from skillyard.runners.kind import in_repository
from skillyard.sandbox.launch import Launch

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial

__all__ = ["find_program", "plan", "probe", "run"]
_ENDINGS = frozenset({".py", ".sh", ".bash", ".js", ".mjs", ".ts"})


def plan(call: Call) -> Launch:
    folder = call.skill.folder
    script = call.files / call.script
    if not script.resolve().is_relative_to(call.files.resolve()) or in_repository(Path(call.script)):
        raise PermissionDenied(Message("{name} leads out of {folder}/", name=call.script, folder=folder.name))
    if not script.is_file():
        raise ScriptNotFound(f"{folder.name}/{call.script}", details={"scripts": _offered(call)})
    return launch_in_project(call, (*interpreter_of(script), str(call.run_folder / call.script), *call.args))


def find_program(skill: Skill, script: str) -> Path:
    return skill.folder / script


def probe(skill: Skill, trial: "Trial") -> "Iterator[Probe]":
    """A script promises nothing that could be checked."""
    del skill, trial
    return iter(())


def _offered(call: Call) -> list[str]:
    """Return the scripts that could have been meant."""
    found = (path for path in sorted(call.files.rglob("*")) if path.suffix in _ENDINGS and path.is_file())
    return [path.relative_to(call.files).as_posix() for path, _ in zip(found, range(20), strict=False)]
