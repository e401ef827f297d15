"""Tell what this machine can guard, and what is missing.

The sandbox uses whatever the system offers; each layer that is not there is named with its reason. The files of
SKILLYARD_HOME are checked too, and nothing is changed.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from skillyard.app.project import Project, open_project
from skillyard.app.sandbox_cache import find_layers, holds
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import SandboxUnavailable, SkillError, StateDamaged
from skillyard.core.messages import Lang, Message, render
from skillyard.core.result import as_size
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import label, yes_or_no
from skillyard.faces.present import Table

_MISSING = Message("NO")


class Diagnosis(NamedTuple):
    part: str
    ok: bool
    detail: str
    #: A run cannot be guarded, or cannot be recorded, without it.
    needed: bool = False
    #: A file of ours that is damaged, locked or not ours to read.
    is_state: bool = False


def arguments(parser: Parser) -> None:
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        found = [*_sandbox(), *_programs(), *_places(yard), *_state(yard)]
    bad = [finding for finding in found if finding.needed and not finding.ok]
    data: list[Json] = [{"part": f.part, "ok": f.ok, "detail": f.detail} for f in found]
    missing = ", ".join(finding.part for finding in bad)
    failed = _failure(bad, missing) if bad else None
    return Answer(
        summary=_WITH_PROBLEMS if any(f.is_state for f in bad) else _WITH_MISSING,
        words={"type": f"{failed.type}: " if failed else "", "total": len(found), "bad": len(bad)},
        data={**(failed.data() if failed else {}), "findings": data},
        page=Table(
            columns=("part", "ok", "detail"),
            rows=[(label(f.part, lang), _claim(f, lang), render(f.detail, lang)) for f in found],
        ),
        state=State.ERROR if bad else State.SUCCESS,
    )


_WITH_MISSING = Message("{type}{total} things looked at: {bad} missing")
_WITH_PROBLEMS = Message("{type}{total} things looked at: {bad} with a problem")


def _failure(bad: list[Diagnosis], missing: str) -> SkillError:
    if all(finding.is_state for finding in bad):
        return StateDamaged(bad[0].detail)
    return SandboxUnavailable(Message("missing: {missing}", missing=missing), missing=missing)


def _claim(finding: Diagnosis, lang: Lang) -> str:
    return _MISSING.render(lang) if finding.needed and not finding.ok else yes_or_no(finding.ok, lang)


def _sandbox() -> Iterator[Diagnosis]:
    from skillyard.sandbox.layers import plan
    from skillyard.sandbox.policy import Policy

    layers = find_layers()
    if layers is None:
        yield Diagnosis(
            "sandbox",
            ok=False,
            detail=Message("none on {platform}: runs need --no-sandbox", platform=sys.platform),
            needed=True,
        )
        return
    missing = ", ".join(plan(layers, Policy(demand=frozenset())).missing)
    level = (
        Message("{layers}; not covered: {missing}", layers=layers.level, missing=missing)
        if missing
        else str(layers.level)
    )
    yield Diagnosis("sandbox", ok=holds(layers), detail=level, needed=True)
    for name, there in (
        ("namespaces", layers.namespaces),
        ("overlay", layers.overlay),
        ("landlock", bool(layers.landlock)),
        ("seccomp", layers.seccomp),
        ("cgroup", bool(layers.cgroup.memory)),
        ("bubblewrap", bool(layers.bubblewrap)),
    ):
        reason = layers.reasons.get(name, "")
        unasked = Message("not needed: namespaces are there") if name == "bubblewrap" and layers.namespaces else ""
        yield Diagnosis(
            f"  {name}",
            ok=there,
            detail=f"ABI {layers.landlock}" if name == "landlock" and there else reason or unasked,
        )


def _programs() -> Iterator[Diagnosis]:
    yield Diagnosis("python", ok=True, detail=f"{sys.version.split()[0]} {sys.executable}")
    for name in ("git", "node", "uv"):
        path = shutil.which(name, path=absolute_entries(os.environ))
        yield Diagnosis(name, ok=path is not None, detail=path or Message("not on the PATH"))


def _places(yard: Project) -> Iterator[Diagnosis]:
    home = yard.paths.own_home
    parent = next((folder for folder in (home, *home.parents) if folder.exists()), home)
    writable = os.access(parent, os.W_OK)
    yield Diagnosis(
        "home",
        ok=writable,
        detail=str(home) if writable else Message("{home} cannot be written", home=home),
        needed=True,
    )
    yield Diagnosis(
        "project", ok=yard.paths.project is not None, detail=str(yard.paths.project or Message("not in one"))
    )


def _state(yard: Project) -> Iterator[Diagnosis]:
    """The files of ours. Each problem comes with the next step."""
    from skillyard.store.repair import check_database, inspect_backups, inspect_state, list_set_aside

    home, path = yard.paths.own_home, yard.paths.database
    report = inspect_state(path, yard.settings.lock_seconds)
    if report.problem:
        yield Diagnosis("state", ok=False, detail=report.problem, needed=True, is_state=True)
    elif not report.version:
        yield Diagnosis("state", ok=True, detail=Message("not there yet: the first run makes it"))
    else:
        yield Diagnosis(
            "state",
            ok=True,
            detail=Message(
                "version {version}, {size_bytes}, sound", version=report.version, size_bytes=as_size(report.size_bytes)
            ),
        )
    backups = inspect_backups(path)
    for backup in backups:
        age = Message(
            "{path} was made {age_seconds} min ago", path=backup.path, age_seconds=round(backup.age_seconds / 60)
        )
        told = (
            Message("{path} is damaged and will not be used: {problem}", path=backup.path, problem=backup.problem)
            if backup.problem
            else age
        )
        yield Diagnosis("  backup", ok=not backup.problem, detail=told, needed=bool(backup.problem), is_state=True)
    if report.version and not backups:
        yield Diagnosis("  backup", ok=True, detail=Message("none yet: one is made every hour while something runs"))
    yield _grants(home)
    engine = home / "engine" / "engine.db"
    if engine.is_file():
        complaint = _complaint(check_database, engine)
        told = Message(
            "{engine} is damaged: {complaint}: stop the workers, then `mv {engine} {engine}.damaged`",
            engine=engine,
            complaint=complaint,
        )
        yield Diagnosis(
            "jobs database", ok=not complaint, detail=told if complaint else "", needed=bool(complaint), is_state=True
        )
    for name in list_set_aside(home):
        yield Diagnosis(
            "  set aside",
            ok=False,
            detail=Message("{name}: remove it when you do not need it: `rm -r {name}*`", name=name),
        )


def _complaint(check: Callable[[Path], str], path: Path) -> str:
    try:
        return check(path)
    except (SkillError, sqlite3.Error) as error:
        return str(error)


def _grants(home: Path) -> Diagnosis:
    from skillyard.store.grants import inspect_grants

    report = inspect_grants(home)
    if not report.problem and report.copy_intact:
        told = Message(
            "{grants} grants, {trusts} trusted projects, checksum matches", grants=report.grants, trusts=report.trusts
        )
        return Diagnosis("grants", ok=True, detail=told)
    if not report.problem:
        told = Message("the file is sound, its copy is not: the next `skillyard grant` writes both")
    elif report.copy_intact:
        told = Message("{problem}: its copy is sound, and the next command restores it", problem=report.problem)
    else:
        told = Message("{problem}: nothing is granted; grant again what you need", problem=report.problem)
    return Diagnosis("grants", ok=False, detail=told, needed=True, is_state=True)
