"""Tell what this machine can guard, and what is missing.

The sandbox uses whatever the system offers; each layer that is not there is named with its reason.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from skillyard.core.errors import SandboxUnavailable
from skillyard.core.phrases import Lang, Text, as_read
from skillyard.core.searchpath import absolute_entries
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.cli.command import Answer, Options, Parser, add_output_options, answer_with, lang_of
from skillyard.faces.labels import label, yes_or_no
from skillyard.faces.present import Table
from skillyard.kernel.assembly import Yard, open_yard
from skillyard.kernel.machine import find_layers, holds

_MISSING = Text("缺失", "NO")


class Finding(NamedTuple):
    part: str
    ok: bool
    detail: str
    #: A run cannot be guarded, or cannot be recorded, without it.
    needed: bool = False


def arguments(parser: Parser) -> None:
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, _answer))


def _answer(options: Options) -> Answer:
    lang = lang_of(options)
    with open_yard(ends_with_process=True) as yard:
        found = [*_sandbox(), *_programs(), *_places(yard)]
    bad = [finding for finding in found if finding.needed and not finding.ok]
    data: list[Json] = [{"part": f.part, "ok": f.ok, "detail": f.detail} for f in found]
    missing = ", ".join(finding.part for finding in bad)
    failed = SandboxUnavailable(f"missing: {missing}", missing=missing) if bad else None
    return Answer(
        summary=Text("{type}检查 {total} 项: {bad} 项缺失", "{type}{total} things looked at: {bad} missing"),
        words={"type": "SandboxUnavailable: " if bad else "", "total": len(found), "bad": len(bad)},
        data={**(failed.data() if failed else {}), "findings": data},
        page=Table(
            columns=("part", "ok", "detail"),
            rows=[(label(f.part, lang), _claim(f, lang), as_read(f.detail, lang)) for f in found],
        ),
        state=State.ERROR if bad else State.SUCCESS,
    )


def _claim(finding: Finding, lang: Lang) -> str:
    return _MISSING.fill(lang) if finding.needed and not finding.ok else yes_or_no(finding.ok, lang)


def _sandbox() -> Iterator[Finding]:
    from skillyard.sandbox.layers import choose

    layers = find_layers()
    if layers is None:
        yield Finding("sandbox", ok=False, detail=f"none on {sys.platform}: runs need --no-sandbox", needed=True)
        return
    yield Finding("sandbox", ok=holds(layers), detail=str(choose(layers)), needed=True)
    for name, there in (
        ("namespaces", layers.namespaces),
        ("landlock", bool(layers.landlock)),
        ("seccomp", layers.seccomp),
        ("cgroup", bool(layers.cgroup.memory)),
        ("bubblewrap", bool(layers.bubblewrap)),
    ):
        reason = layers.reasons.get(name, "")
        unasked = "not needed: namespaces are there" if name == "bubblewrap" and layers.namespaces else ""
        yield Finding(
            f"  {name}",
            ok=there,
            detail=f"ABI {layers.landlock}" if name == "landlock" and there else reason or unasked,
        )


def _programs() -> Iterator[Finding]:
    yield Finding("python", ok=True, detail=f"{sys.version.split()[0]} {sys.executable}")
    for name in ("git", "node", "uv"):
        path = shutil.which(name, path=absolute_entries(os.environ))
        yield Finding(name, ok=path is not None, detail=path or "not on the PATH")


def _places(yard: Yard) -> Iterator[Finding]:
    home = yard.places.own_home
    parent = next((folder for folder in (home, *home.parents) if folder.exists()), home)
    writable = os.access(parent, os.W_OK)
    yield Finding("home", ok=writable, detail=str(home) if writable else f"{home} cannot be written", needed=True)
    yield Finding("project", ok=yard.places.project is not None, detail=str(yard.places.project or "not in one"))
