"""What a person allows: grants for a skill's exact bytes, and trust in what a project's files ask for.

Only a person grants, by a command of its own or by answering a question on a terminal. Inside an agent (where the depth
counter is set) nothing is granted at all.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.depth import DEPTH
from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.skill import Skill
from skillyard.runtime.permit import PLAIN, WITH_ARGUMENT, is_capability
from skillyard.store.grants import Grant, Grants


class Want(NamedTuple):
    """Something wide that a project's file asks for."""

    what: str
    where: str


def refuse_inside_agents(env: Mapping[str, str] = os.environ) -> None:
    if env.get(DEPTH):
        raise PermissionDenied("an agent cannot grant anything: a person must do it, outside")


def grant(grants: Grants, skill: Skill, capabilities: tuple[str, ...]) -> None:
    refuse_inside_agents()
    for capability in capabilities:
        if not is_capability(capability):
            known = ", ".join((*PLAIN, *(f"{name}:…" for name in WITH_ARGUMENT)))
            raise InvalidArgs(f"{capability!r} is no capability; there are {known}")
    mark = fingerprint(skill.folder)
    for capability in capabilities:
        grants.add(Grant(str(skill.folder), mark, capability, time.time()))


def wants(root: Path) -> tuple[Want, ...]:
    """Everything in the project's files that is wider than the rules; it takes effect only after `trust`."""
    return (*_scripts(root), *_settings(root))


def mark_of(found: tuple[Want, ...]) -> str:
    import hashlib

    return hashlib.blake2b(repr(found).encode(), digest_size=20).hexdigest()


def is_trusted(grants: Grants, root: Path) -> bool:
    """Whether everything that the project asks for now was shown to a person who said yes."""
    return grants.trusted() == mark_of(wants(root))


def trust(grants: Grants, root: Path) -> None:
    refuse_inside_agents()
    grants.trust(mark_of(wants(root)), time.time())


def _scripts(root: Path) -> Iterator[Want]:
    from skillyard.kernel.layout import is_ours

    folder = root / "bin"
    if folder.is_dir() and not all(is_ours(script) for script in folder.glob("*.py")):
        yield Want("run the scripts in bin/ with read access to the whole project", "bin/")


def _settings(root: Path) -> Iterator[Want]:
    file = root / "skillyard.toml"
    if not file.is_file():
        return
    from skillyard.kernel.settings import read_toml

    fields = read_toml(file)
    for table, what in (("catalog", "look for skills in"), ("editor", "edit files in")):
        asked = fields.get(table)
        roots = asked.get("roots") if isinstance(asked, Mapping) else None
        for folder in roots if isinstance(roots, list) else ():
            yield Want(f"{what} {folder}", f"skillyard.toml [{table}] roots")
