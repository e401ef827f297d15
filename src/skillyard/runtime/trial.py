"""Tries a skill out for `skillyard check`: in a project that is thrown away, in the real sandbox, with no grants."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.files import exists, expand_home, is_folder
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.capability import SECRET
from skillyard.core.errors import MetadataMissing, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.result import Call, Request
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runners.kind import load_kind, start
from skillyard.runners.probes import SAMPLE, Probe, Trial, text_probes
from skillyard.runtime.check import check
from skillyard.runtime.pipeline import make_box, make_folders, read_folder
from skillyard.sandbox.launch import Exit, Launch, Sandbox
from skillyard.trust.run_policy import Surroundings, not_granted, permit

_SAMPLE_TEXT = "name,value\nexample,1\n示例,2\n"
_RUN_ID = "check"
#: Not /tmp: inside the sandbox that is a private one, where a stray file would be welcome and vanish.
_PLACE = "/var/tmp"  # noqa: S108


def find_target(target: str, catalog: Catalog, where: Path) -> Skill:
    """Return the skill at a path, or the installed skill of that name."""
    path = where / expand_home(target)
    if target.startswith("@") or not exists(path):
        if not target.startswith("@") and "/" in target and not is_folder(path.parent):
            raise SkillNotFound(target)
        catalog.sync()
        return catalog.resolve(target.removeprefix("@"))
    folder = path.parent if path.name == SKILL_FILE else path
    if not (folder / SKILL_FILE).is_file():
        raise MetadataMissing(Message("{folder}: no {skill_file} in it", folder=folder, skill_file=SKILL_FILE))
    return read_folder(folder.resolve())


def probe(skill: Skill, trial: Trial) -> Iterator[Probe]:
    """Yield the result of each probe as it ends."""
    if not skill.role:  # a role's skills are declared in its agent.yaml, without a text of their own
        yield from text_probes(skill)
    yield from load_kind(skill).probe(skill, trial)


@contextmanager
def open_trial(sandbox: Sandbox, own_home: Path, limit_seconds: float) -> Iterator[Trial]:
    """Open a temporary project for probes, which checks, permits and starts as a run does, but records nothing."""

    def check_params(skill: Skill, params: Mapping[str, Json], action: str | None = None) -> Call:
        request = Request(name=skill.name, params=params, action=action, timeout_seconds=limit_seconds)
        return check(skill, request, root, _RUN_ID)

    def start_ungranted(call: Call, launch: Launch) -> Exit:
        """Start a program under the policy of a skill without grants, whatever was granted to it elsewhere."""
        found = permit(call, launch.argv[0], frozenset(), Surroundings(own_home))
        # A role's secrets are not given here, so they are not asked for either.
        if missing := tuple(each for each in found.missing if not each.startswith(f"{SECRET}:")):
            raise not_granted(call, missing)
        make_folders(found)
        return start(sandbox, launch._replace(policy=found.policy))

    place = _PLACE if os.access(_PLACE, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="skillyard-check-", dir=place) as folder:
        root = Path(folder).resolve()
        make_box(root)
        (root / SAMPLE).write_text(_SAMPLE_TEXT, "utf-8")
        yield Trial(root, limit_seconds, check_params, start_ungranted)
