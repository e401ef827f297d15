"""Which packages a call needs, whether a person allowed them, and whether their environment is there.

A run never installs anything: it takes an environment that was built, or it says which command builds it.
"""

from pathlib import Path
from typing import NamedTuple

from skillyard.core.capability import PACKAGES
from skillyard.core.errors import NotGranted
from skillyard.core.messages import Message
from skillyard.core.request import Call
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runners.requirements import Requirements, find_requirements
from skillyard.sandbox.launch import Exit, Launch, Sandbox


class Equipment(NamedTuple):
    """Nothing at all for a program that the standard library is enough for."""

    needs: Requirements | None = None
    #: The environment's Python; where it will be, while it is not built.
    python: Path = Path()
    built: bool = False
    granted: bool = False
    #: The parts of the environment and of the interpreter behind it; None where the program needs no environment.
    readable: tuple[Path, ...] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        return (PACKAGES,) if self.needs and not (self.built and self.granted) else ()

    def dress(self, launch: Launch) -> Launch:
        """The same with the environment's Python, and with its programs in reach."""
        if self.needs is None:
            return launch
        programs = self.python.parent
        own = {"VIRTUAL_ENV": str(programs.parent), "PATH": f"{programs}:{launch.env.get('PATH', '')}".rstrip(":")}
        return launch._replace(argv=(str(self.python), *launch.argv[1:]), env={**launch.env, **own})

    def around(self, sandbox: Sandbox) -> Sandbox:
        def launch_it(launch: Launch) -> Exit:
            return sandbox(self.dress(launch))

        return launch_it

    def as_plan(self) -> dict[str, Json]:
        """For a dry run."""
        if self.needs is None:
            return {}
        return {
            "environment": {
                "packages": list(self.needs.packages),
                "requires_python": self.needs.python,
                "source": self.needs.source,
                "digest": self.needs.digest,
                "built": self.built,
            }
        }


def equip(skill: Skill, script: str, granted: frozenset[str], own_home: Path) -> Equipment:
    needs = find_requirements(skill, script)
    if needs is None:
        return Equipment()
    from skillyard.runners.environments import find, python_of, readable_parts

    return Equipment(
        needs=needs,
        python=python_of(needs, own_home),
        built=find(needs, own_home) is not None,
        granted=PACKAGES in granted,
        readable=readable_parts(needs, own_home),
    )


def demand_packages(call: Call, equipment: Equipment) -> None:
    """NotGranted, with the command that shows the packages, asks and builds."""
    if not equipment.needs or not equipment.missing:
        return
    raise packages_not_granted(call.known_as or call.asked_as, call.script, (equipment.needs,))


def packages_not_granted(asked_as: str, script: str, needs: tuple[Requirements, ...], more: str = "") -> NotGranted:
    packages = sorted({package for each in needs for package in each.packages})
    told = ", ".join(packages or sorted({each.told for each in needs}))
    name = asked_as if asked_as.startswith((".", "/", "~")) else f"@{asked_as}"
    target = f"{name}:{script}" if script else name
    details: dict[str, Json] = {
        "capability": PACKAGES,
        "packages": list(packages),
        "requires_python": sorted({each.python for each in needs if each.python}),
    }
    return NotGranted(Message("packages {told}", told=told), f"skillyard env {target}{more}", details=details)
