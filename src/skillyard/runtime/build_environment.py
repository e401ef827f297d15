"""Builds the environments of a skill once a person said yes: stores the grant, then installs."""

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from skillyard.core.capability import PACKAGES
from skillyard.core.errors import NotGranted, ScriptNotFound
from skillyard.core.result import Request
from skillyard.core.skill import Skill
from skillyard.runners.environments import Environment, build, find, list_built
from skillyard.runners.requirements import Requirements, find_requirements, list_requirements
from skillyard.runtime.pipeline import Runtime, packages_not_granted
from skillyard.store.grants import Grant
from skillyard.trust.grant_rules import mark_of_skill, refuse_inside_agents


class NeededPackages(NamedTuple):
    """What a person is asked about: these packages, for exactly these bytes of the skill."""

    skill: Skill
    asked_as: str
    script: str
    fingerprint: str
    needs: tuple[Requirements, ...]
    granted: bool
    built: bool

    @property
    def ready(self) -> bool:
        """True if there is nothing to ask and nothing to build."""
        return not self.needs or (self.granted and self.built)

    @property
    def told(self) -> str:
        """The packages in one line, like `pandas>=2, rich`."""
        return ", ".join(dict.fromkeys(part for needs in self.needs for part in needs.told.split(", ")))

    def not_granted(self, more: str = "") -> NotGranted:
        return packages_not_granted(self.asked_as, self.script, self.needs, more)


def find_needed(runtime: Runtime, request: Request, *, every: bool = False) -> NeededPackages:
    """Return the packages that the request's program needs; with `every`, those of all programs of the skill."""
    skill = runtime.resolve(request)
    mark = mark_of_skill(skill)  # before anything is read: a later change voids the grant
    if request.script and not (skill.folder / request.script).is_file():
        raise ScriptNotFound(f"{skill.folder.name}/{request.script}")
    one = None if every and not request.script else find_requirements(skill, request.script)
    needs = list_requirements(skill) if every and not request.script else (one,) if one else ()
    return NeededPackages(
        skill=skill,
        asked_as=str(request.staged or request.name),
        script=request.script,
        fingerprint=mark,
        needs=needs,
        granted=PACKAGES in runtime.grants.of(str(skill.folder), mark),
        built=all(find(each, runtime.own_home) for each in needs),
    )


def build_environments(
    runtime: Runtime,
    needed: NeededPackages,
    progress: Callable[[str], None] = lambda _: None,
    env: Mapping[str, str] = os.environ,
) -> tuple[Environment, ...]:
    """Store the grant of a person who said yes, then build every environment that is missing."""
    if not needed.ready:
        refuse_inside_agents(env)
    runtime.grants.add(Grant(str(needed.skill.folder), needed.fingerprint, PACKAGES, time.time()))
    for needs in needed.needs:
        build(needs, runtime.own_home, runtime.sandbox, progress, env)
    digests = {needs.digest for needs in needed.needs}
    return tuple(each for each in list_built(runtime.own_home) if each.digest in digests)
