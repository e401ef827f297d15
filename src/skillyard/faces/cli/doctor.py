"""Tell what this machine can guard, and what is missing.

The sandbox uses whatever the system offers; each layer that is not there is named with its reason. The files of
SKILLYARD_HOME are checked too, and nothing is changed.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from skillyard.app.project import Project, open_project
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import SandboxUnavailable, SkillError, StateDamaged
from skillyard.core.messages import Message
from skillyard.core.result import as_size
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, lang_of
from skillyard.faces.labels import label, yes_or_no
from skillyard.faces.present import Table
from skillyard.sandbox.layers import find_layers, holds, not_covered


class Diagnosis(NamedTuple):
    part: str
    ok: bool
    detail: str
    #: A run cannot be guarded, or cannot be recorded, without it.
    needed: bool = False
    #: A file of ours that is damaged, locked or not ours to read.
    is_state: bool = False


def answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project(ends_with_process=True) as project:
        found = [*_sandbox(), *_programs(), *_paths(project), *_state(project), *_grants(project)]
    bad = [each for each in found if each.needed and not each.ok]
    missing = ", ".join(each.part for each in bad)
    failure: SkillError | None = None
    if bad and all(each.is_state for each in bad):
        failure = StateDamaged(bad[0].detail)
    elif bad:
        failure = SandboxUnavailable(Message("missing: {missing}", missing=missing), missing=missing)
    data: list[Json] = [{"part": each.part, "ok": each.ok, "detail": each.detail} for each in found]
    rows = [
        (label(each.part, lang), Message("NO") if each in bad else yes_or_no(each.ok), each.detail) for each in found
    ]
    summary = Message("{total} things looked at: {bad} missing", total=len(found), bad=len(bad))
    if any(each.is_state for each in bad):
        summary = Message("{total} things looked at: {bad} with a problem", total=len(found), bad=len(bad))
    return Answer(summary, {"findings": data}, Table(("part", "ok", "detail"), rows), failure=failure)


def _sandbox() -> Iterator[Diagnosis]:
    layers = find_layers()
    if layers is None:
        none = Message("none on {platform}: runs need --no-sandbox", platform=sys.platform)
        yield Diagnosis("sandbox", False, none, needed=True)
        return
    missing = ", ".join(not_covered(layers))
    detail = str(layers.level)
    if missing:
        detail = Message("{layers}; not covered: {missing}", layers=layers.level, missing=missing)
    yield Diagnosis("sandbox", holds(layers), detail, needed=True)
    for name, there in (
        ("namespaces", layers.namespaces),
        ("overlay", layers.overlay),
        ("landlock", bool(layers.landlock)),
        ("seccomp", layers.seccomp),
        ("cgroup", bool(layers.cgroup.memory)),
        ("bubblewrap", bool(layers.bubblewrap)),
    ):
        detail = layers.reasons.get(name, "")
        if name == "landlock" and there:
            detail = f"ABI {layers.landlock}"
        elif name == "bubblewrap" and layers.namespaces:
            detail = detail or Message("not needed: namespaces are there")
        yield Diagnosis(f"  {name}", there, detail)


def _programs() -> Iterator[Diagnosis]:
    yield Diagnosis("python", True, f"{sys.version.split()[0]} {sys.executable}")
    for name in ("git", "node", "uv"):
        path = shutil.which(name, path=absolute_entries(os.environ))
        yield Diagnosis(name, path is not None, path or Message("not on the PATH"))


def _paths(project: Project) -> Iterator[Diagnosis]:
    home, root = project.paths.own_home, project.paths.project
    parent = next((folder for folder in (home, *home.parents) if folder.exists()), home)
    writable = os.access(parent, os.W_OK)
    detail = str(home) if writable else Message("{home} cannot be written", home=home)
    yield Diagnosis("home", writable, detail, needed=True)
    yield Diagnosis("project", root is not None, str(root) if root else Message("not in one"))


def _state(project: Project) -> Iterator[Diagnosis]:
    """The files of ours. Each problem comes with the next step."""
    from skillyard.store.repair import inspect_backups, inspect_state, list_set_aside

    home, path = project.paths.own_home, project.paths.database
    report = inspect_state(path, project.settings.lock_seconds)
    detail = Message("not there yet: the first run makes it")
    if report.version:
        size = as_size(report.size_bytes)
        detail = Message("version {version}, {size}, sound", version=report.version, size=size)
    yield Diagnosis("state", not report.problem, report.problem or detail, bool(report.problem), is_state=True)
    backups = inspect_backups(path)
    for backup in backups:
        minutes, problem = round(backup.age_seconds / 60), backup.problem
        detail = Message("{path} was made {minutes} min ago", path=backup.path, minutes=minutes)
        if problem:
            detail = Message("{path} is damaged and will not be used: {problem}", path=backup.path, problem=problem)
        yield Diagnosis("  backup", not problem, detail, bool(problem), is_state=True)
    if report.version and not backups:
        yield Diagnosis("  backup", True, Message("none yet: one is made every hour while something runs"))
    engine = home / "engine" / "engine.db"
    if engine.is_file():
        complaint = _complaint_about(engine)
        words = {"engine": engine, "complaint": complaint}
        told = Message(
            "{engine} is damaged: {complaint}: stop the workers, then `mv {engine} {engine}.damaged`", **words
        )
        yield Diagnosis("jobs database", not complaint, told if complaint else "", bool(complaint), is_state=True)
    for name in list_set_aside(home):
        detail = Message("{name}: remove it when you do not need it: `rm -r {name}*`", name=name)
        yield Diagnosis("  set aside", False, detail)


def _complaint_about(database: Path) -> str:
    from skillyard.store.repair import check_database

    try:
        return check_database(database)
    except (SkillError, sqlite3.Error) as error:
        return str(error)


def _grants(project: Project) -> Iterator[Diagnosis]:
    from skillyard.store.grants import inspect_grants

    report = inspect_grants(project.paths.own_home)
    ok = not report.problem and report.copy_intact
    if ok:
        words = {"grants": report.grants, "trusts": report.trusts}
        told = Message("{grants} grants, {trusts} trusted projects, checksum matches", **words)
    elif not report.problem:
        told = Message("the file is sound, its copy is not: the next `skillyard grant` writes both")
    elif report.copy_intact:
        told = Message("{problem}: its copy is sound, and the next command restores it", problem=report.problem)
    else:
        told = Message("{problem}: nothing is granted; grant again what you need", problem=report.problem)
    yield Diagnosis("grants", ok, told, needed=not ok, is_state=True)
