"""Bundled scripts: any program that a skill ships, started by its interpreter with the words as they came."""

from itertools import islice
from pathlib import Path

from skillyard.core.errors import PermissionDenied, ScriptNotFound
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import Skill
from skillyard.runners.command import launch_in_project, run
from skillyard.runners.interpreters import interpreter_of
from skillyard.runners.kind import is_of_skill
from skillyard.sandbox.launch import Launch

__all__ = ["find_program", "plan", "run"]
_ENDINGS = frozenset({".py", ".sh", ".bash", ".js", ".mjs", ".ts"})


def plan(call: Call) -> Launch:
    folder, files = call.skill.folder, call.files
    if not is_of_skill(call, call.script):
        raise PermissionDenied(Message("{name} leads out of {folder}/", name=call.script, folder=folder.name))
    program = find_program(call.skill._replace(path=files / call.skill.path.name), call.script)
    if not program.is_file():
        found = (path for path in sorted(files.rglob("*")) if path.suffix in _ENDINGS and path.is_file())
        offered = [path.relative_to(files).as_posix() for path in islice(found, 20)]
        raise ScriptNotFound(f"{folder.name}/{call.script}", details={"scripts": [*offered]})
    seen = call.run_folder / program.relative_to(files)
    return launch_in_project(call, (*interpreter_of(program), str(seen), *call.args))


def find_program(skill: Skill, script: str) -> Path:
    """Return the file; of a folder, what `python -m` would run."""
    path = skill.folder / script
    return path / "__main__.py" if path.is_dir() else path
