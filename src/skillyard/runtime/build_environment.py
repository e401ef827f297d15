"""Builds the environments of a skill once a person said yes: stores the grant, then installs."""

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skillyard.core.capability import PACKAGES, is_capability
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.errors import EnvironmentFailed, InvalidArgs, NotGranted, RequirementFailed, ScriptNotFound
from skillyard.core.messages import Message
from skillyard.core.result import Request
from skillyard.core.skill import Skill
from skillyard.runners.environments import Environment, Progress, build, find, list_built
from skillyard.runners.requirements import (
    NPM,
    PackageChoice,
    Requirements,
    describe_needs,
    find_requirements,
    list_requirements,
)
from skillyard.runners.specifiers import as_requirement
from skillyard.runtime.pipeline import Runtime, advise_to_leave_out, packages_not_granted
from skillyard.store.grants import Grant
from skillyard.trust.run_policy import env_command, mark_of_skill


class NeededPackages(NamedTuple):
    """What a person is asked about: these packages, for exactly these bytes of the skill."""

    skill: Skill
    asked_as: str
    script: str
    fingerprint: str
    needs: tuple[Requirements, ...]
    #: What a person added with `--with` and left out with `--without`.
    choice: PackageChoice
    granted: bool
    built: bool

    @property
    def ready(self) -> bool:
        """True if there is nothing to ask and nothing to build."""
        return (self.granted and self.built) or not (self.needs or self.choice.capabilities)

    @property
    def told(self) -> str:
        return describe_needs(self.needs)

    def not_granted(self, more: str = "") -> NotGranted:
        return packages_not_granted(self.asked_as, self.script, self.needs, more)


def as_choice(more: Iterable[str], without: Iterable[str]) -> PackageChoice:
    """Return the choice that a person typed, in its normal form. Raise InvalidArgs for what names no package."""
    choice = PackageChoice(
        tuple(each if each.startswith(f"{NPM}:") else as_requirement(each, "--with") for each in more), tuple(without)
    )
    for capability in choice.capabilities:
        if not is_capability(capability):
            raise InvalidArgs(Message("{text!r} names no package", text=capability.partition(":")[2]))
    return choice


def find_needed(
    runtime: Runtime, request: Request, *, every: bool = False, change: PackageChoice | None = None
) -> NeededPackages:
    """Return the packages that the request's program needs, with a change; with `every`, those of all its programs."""
    skill = runtime.resolve(request)
    mark = mark_of_skill(skill)  # before anything is read: a later change voids the grant
    if request.script and not (skill.folder / request.script).exists():
        raise ScriptNotFound(f"{skill.folder.name}/{request.script}")
    granted = runtime.grants.of(str(skill.folder), mark)
    before = PackageChoice.of(granted)
    choice = before.changed(change) if change else before
    asked_as = str(request.staged or request.name)
    with advise_to_leave_out(asked_as, request.script):
        if every and not request.script:
            found = list_requirements(skill, choice)
        else:
            found = tuple(filter(None, (find_requirements(skill, request.script, choice),)))
    needs = tuple(each for each in found if each.packages)  # another Python alone needs no environment
    return NeededPackages(
        skill=skill,
        asked_as=asked_as,
        script=request.script,
        fingerprint=mark,
        needs=needs,
        choice=choice,
        granted=PACKAGES in granted and choice == before,
        built=all(find(each, runtime.own_home) for each in needs),
    )


def build_environments(
    runtime: Runtime, needed: NeededPackages, progress: Progress = lambda _: None, env: Mapping[str, str] = os.environ
) -> tuple[Environment, ...]:
    """Store the grant of a person who said yes, then build what is missing. Raise RequirementFailed for one package."""
    if not needed.ready:
        refuse_inside_agents(env)
    folder, chosen = str(needed.skill.folder), needed.choice.capabilities
    for capability in PackageChoice.of(runtime.grants.of(folder, needed.fingerprint)).capabilities - chosen:
        runtime.grants.revoke(folder, capability)
    for capability in (PACKAGES, *sorted(chosen)):
        runtime.grants.add(Grant(folder, needed.fingerprint, capability, time.time()))
    for needs in needed.needs:
        try:
            build(needs, runtime.own_home, runtime.sandbox, progress, env)
        except EnvironmentFailed as error:
            raise _blame(error, needs, needed) or error from None
    digests = {needs.digest for needs in needed.needs}
    return tuple(each for each in list_built(runtime.own_home) if each.digest in digests)


def _blame(error: EnvironmentFailed, needs: Requirements, needed: NeededPackages) -> RequirementFailed | None:
    """Return the failure with the requirement that the installer names, and where it is written."""
    names = {package: re.split(r"(?<=.)[^\w./-]", package, maxsplit=1)[0] for package in needs.packages}
    found = [(package, name) for package, name in names.items() if _form_of(name).search(error.msg)]
    if len(found) != 1:
        return None
    ((package, name),) = found
    file = needed.skill.folder / needs.source.partition(",")[0]
    lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    line = next((number for number, text in enumerate(lines, 1) if _form_of(name).search(text)), None)
    place = Message("{source}, line {line}", source=file.name, line=line) if line else needs.source
    command = f"{env_command(needed.asked_as, needed.script)} --without {name}"
    return RequirementFailed(name, package, place, error, command)


def _form_of(name: str) -> re.Pattern[str]:
    """Return a pattern for the name of a package, however its words are joined."""
    words = "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", name)))
    return re.compile(rf"(?<![\w-]){words}(?![\w-])", re.IGNORECASE)
