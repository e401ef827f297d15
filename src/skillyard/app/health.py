"""What `skillyard doctor` finds: the sandbox of this machine, the programs, and the files of ours."""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from skillyard.app.project import Project
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.core.result import as_size
from skillyard.sandbox.launch import CopyOnWrite, Launch, Policy
from skillyard.sandbox.layers import find_layers, holds, not_covered
from skillyard.store.grants import inspect_grants
from skillyard.store.repair import check_database, inspect_backups, inspect_state, list_set_aside


class Diagnosis(NamedTuple):
    part: str
    ok: bool
    detail: str
    #: A run cannot be guarded, or cannot be recorded, without it.
    needed: bool = False
    #: A file of ours that is damaged, locked or not ours to read.
    is_state: bool = False


def diagnose(project: Project) -> Iterator[Diagnosis]:
    """Nothing is changed. Each problem comes with the next step."""
    yield from _sandbox()
    yield from _copy_on_write(project)
    yield Diagnosis("python", True, f"{sys.version.split()[0]} {sys.executable}")
    for name in ("git", "node", "uv"):
        path = shutil.which(name, path=absolute_entries(os.environ))
        yield Diagnosis(name, path is not None, path or Message("not on the PATH"))
    home, root = project.paths.own_home, project.paths.project
    parent = next((folder for folder in (home, *home.parents) if folder.exists()), home)
    writable = os.access(parent, os.W_OK)
    detail = str(home) if writable else Message("{home} cannot be written", home=home)
    yield Diagnosis("home", writable, detail, needed=True)
    yield Diagnosis("project", root is not None, str(root) if root else Message("not in one"))
    yield from _state(project)
    yield _grants(project)
    if root is not None:
        yield from _schedules(project)


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
    noted = layers.namespaces and os.access("/dev/fuse", os.R_OK | os.W_OK)
    unnoted = Message("you may not open /dev/fuse: results do not tell which hidden files a run looked for")
    yield Diagnosis("  fuse", noted, "" if noted else unnoted)


def _copy_on_write(project: Project) -> Iterator[Diagnosis]:
    """Whether a run can change the project without touching it, tried with the folders that it would use."""
    root = project.paths.project
    if root is None:
        return
    try:
        with project.changes.open(f"doctor-{os.getpid()}", root, "") as layers:
            over = CopyOnWrite(root.resolve(), layers.upper.resolve(), layers.work.resolve())
            policy = Policy(read=(over.folder,), copy_on_write=over)
            reason = project.sandbox(Launch(("/bin/true",), Path("/"), policy=policy)).read_only
    except (OSError, SkillError) as error:
        reason = error.msg if isinstance(error, SkillError) else str(error)
    only = Message("the project is only read by runs, which write below mybox/: {reason}", reason=reason)
    yield Diagnosis("  copy-on-write", not reason, only if reason else "")


def _schedules(project: Project) -> Iterator[Diagnosis]:
    """The schedules of roles that do not run: nobody trusted them, or their file is broken."""
    schedules = project.jobs.schedules()
    waiting = schedules.untrusted()
    if waiting:
        names = ", ".join(each.name for each in waiting)
        yield Diagnosis("schedules", False, Message("wait for `skillyard trust`: {names}", names=names))
    for mistake in schedules.mistakes.values():
        yield Diagnosis("schedules", False, mistake)


def _state(project: Project) -> Iterator[Diagnosis]:
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
        try:
            complaint = check_database(engine)
        except (SkillError, sqlite3.Error) as error:
            complaint = str(error)
        words = {"engine": engine, "complaint": complaint}
        told = Message(
            "{engine} is damaged: {complaint}: stop the workers, then `mv {engine} {engine}.damaged`", **words
        )
        yield Diagnosis("jobs database", not complaint, told if complaint else "", bool(complaint), is_state=True)
    for name in list_set_aside(home):
        detail = Message("{name}: remove it when you do not need it: `rm -r {name}*`", name=name)
        yield Diagnosis("  set aside", False, detail)


def _grants(project: Project) -> Diagnosis:
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
    return Diagnosis("grants", ok, told, needed=not ok, is_state=True)
