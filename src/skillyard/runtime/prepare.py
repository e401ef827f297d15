"""Call → Prepared: what is started, under which policy, in which environment, with which secrets.

`plan` decides and changes nothing; `prepare` also refuses what a person did not grant and reads the secrets.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skillyard.catalog.files import make_below, make_file, open_resolved, remove_if_empty
from skillyard.core.capability import PACKAGES
from skillyard.core.errors import NotGranted
from skillyard.core.messages import Message
from skillyard.core.request import Call
from skillyard.core.values import Json
from skillyard.runners.kind import Permit, Prepared, load_kind
from skillyard.runners.leftovers import BOX
from skillyard.runners.requirements import Requirements, find_packages
from skillyard.trust.grant_rules import not_granted, spoken
from skillyard.trust.run_policy import permit


def plan(call: Call, granted: frozenset[str], own_home: Path) -> Prepared:
    """Return what a run would start and may touch."""
    # The skill as if it lay where its files are read.
    skill = call.skill._replace(path=call.files / call.skill.path.name)
    packages = find_packages(skill, call.script, granted, own_home)
    launch = load_kind(call.skill, call.script).plan(call)
    if launch is None:
        return Prepared(call)
    if packages:
        launch = packages.in_environment(launch)
    found = permit(call, launch.argv[0], granted, own_home, packages.readable if packages else None)
    return Prepared(call, launch, found, packages)


def prepare(call: Call, granted: frozenset[str], own_home: Path, *, sandboxed: bool = True) -> Prepared:
    """Return the plan ready to run. Raise NotGranted or SecretMissing if something it needs is missing."""
    prepared = plan(call, granted, own_home)
    if prepared.launch is None:
        return prepared
    found = prepared.permit
    if found.missing:
        raise not_granted(call, found.missing)
    if prepared.packages and prepared.packages.missing:
        raise packages_not_granted(call.known_as or call.asked_as, call.script, (prepared.packages.needs,))
    passed = {name: os.environ[name] for name in found.variables if sandboxed and name in os.environ}
    if found.secrets:
        from skillyard.runtime.role_secrets import read_secrets  # noqa: PLC0415  (only roles have any)

        passed |= read_secrets(found.secrets, own_home, os.environ)
    policy = found.policy if sandboxed else None
    launch = prepared.launch._replace(env={**prepared.launch.env, **passed}, policy=policy)
    return prepared._replace(launch=launch, passed=passed)


def packages_not_granted(asked_as: str, script: str, needs: tuple[Requirements, ...], more: str = "") -> NotGranted:
    """Return the error with the packages and the command that shows them, asks and builds."""
    packages = sorted({package for each in needs for package in each.packages})
    told = ", ".join(packages or sorted({each.told for each in needs}))
    target = f"{spoken(asked_as)}:{script}" if script else spoken(asked_as)
    details: dict[str, Json] = {
        "capability": PACKAGES,
        "packages": list(packages),
        "requires_python": sorted({each.python for each in needs if each.python}),
    }
    return NotGranted(Message("packages {told}", told=told), f"skillyard env {target}{more}", details=details)


def as_plan(prepared: Prepared, *, sandboxed: bool) -> dict[str, Json]:
    """Return what a dry run shows."""
    launch, found, packages = prepared.launch, prepared.permit, prepared.packages
    if launch is None:
        return {"starts": False}
    policy = found.policy
    return {
        "starts": True,
        "argv": list(launch.argv),
        "cwd": str(launch.cwd),
        "env": sorted({*launch.env, *found.variables, *(secret.name for secret in found.secrets)}),
        "limits": {
            "seconds": launch.limit_seconds,
            "output_bytes": launch.output_bytes,
            "memory_bytes": policy.memory_bytes,
            "processes": policy.processes,
        },
        "sandboxed": sandboxed,
        "reads": [str(path) for path in (*policy.read, *policy.tools)],
        "writes": [str(path) for path in policy.write],
        "hides": [str(path) for path in policy.hide],
        "network": policy.network,
        "hosts": list(policy.hosts),
        **({"environment": packages.as_dict()} if packages else {}),
        "missing_grants": [*found.missing, *((PACKAGES,) if packages and packages.missing else ())],
    }


@contextmanager
def open_workspace(root: Path, prepared: Prepared) -> Iterator[None]:
    """Make the files and folders that the sandbox opens. Outputs that the run left empty are removed again."""
    if prepared.launch is None:
        yield
        return
    make_box(root)
    made = {path: make_file(path) for path in prepared.permit.outputs if not path.is_dir()}
    make_folders(prepared.permit)
    try:
        yield
    finally:
        for path, inode in made.items():
            if inode is not None:
                remove_if_empty(path, inode)


def make_box(root: Path) -> None:
    """Make the folders that every run may write. PermissionDenied if one of them is a link."""
    real_root = root.resolve()
    for folder in ("output", "workspace", "temp"):
        make_below(real_root, real_root / BOX / folder)


def make_folders(found: Permit) -> None:
    """Make the folders that the sandbox opens or covers. They are not removed: another run may be using them."""
    for path in found.folders:
        os.close(open_resolved(path, create=True))
