"""Where a skill is tried out: a project of its own that is thrown away, the real sandbox, and no grants."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import PermissionDenied, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.core.request import Call, Request
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runtime.check import check
from skillyard.runtime.role_policy import bound
from skillyard.sandbox.launch import Exit, Launch, Sandbox
from skillyard.trust.permit import demand, make_box, make_folders, permit

SAMPLE = "sample.txt"
_SAMPLE_TEXT = "name,value\nexample,1\n示例,2\n"
_RUN_ID = "check"


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Probe(NamedTuple):
    """One thing that was tried: what came of it, and what to do about it."""

    name: str
    verdict: Verdict
    says: str
    #: Also where it passed: what would be better still.
    advice: str = ""

    def as_dict(self) -> dict[str, Json]:
        return {"name": self.name, "verdict": str(self.verdict), "says": self.says, "advice": self.advice}


def passed(name: str, says: str, advice: str = "") -> Probe:
    return Probe(name, Verdict.PASSED, says, advice)


def failed(name: str, says: str, advice: str = "") -> Probe:
    return Probe(name, Verdict.FAILED, says, advice)


def skipped(name: str, says: str, advice: str = "") -> Probe:
    return Probe(name, Verdict.SKIPPED, says, advice)


class Bench(NamedTuple):
    """The same steps as a run, but for the record: check, permit, start."""

    sandbox: Sandbox
    root: Path
    own_home: Path
    limit_seconds: float

    def check(self, skill: Skill, params: Mapping[str, Json], action: str | None = None) -> Call:
        limit = self.limit_seconds
        request = Request(name=skill.name, params=params, action=action, timeout_seconds=limit)
        return check(skill, request, self.root, _RUN_ID)

    def start(self, call: Call, launch: Launch) -> Exit:
        """Nothing is granted, whatever this skill was granted elsewhere."""
        found = permit(call, launch.argv[0], frozenset(), self.own_home)
        if call.skill.role:  # its secrets are not given here, so they are not asked for either
            found = bound(call, found, frozenset())._replace(missing=found.missing)
        demand(call, found)
        make_folders(found.folders)
        try:
            return self.sandbox(launch._replace(policy=found.policy))
        except PermissionError as error:
            raise PermissionDenied(f"{launch.argv[0]}: {error.strerror}") from None
        except OSError as error:
            raise RuntimeFailed(
                Message("{argv} cannot be started: {strerror}", argv=launch.argv[0], strerror=error.strerror)
            ) from None

    def strays(self) -> list[str]:
        """What was written where it should not be."""
        found = (path.relative_to(self.root) for path in self.root.rglob("*") if not path.is_dir())
        return sorted(str(path) for path in found if path.parts[0] not in {"mybox", SAMPLE})


#: Not /tmp: inside the sandbox that is a private one, where a stray file would be welcome and vanish.
_PLACE = "/var/tmp"  # noqa: S108


@contextmanager
def open_bench(sandbox: Sandbox, own_home: Path, limit_seconds: float) -> Iterator[Bench]:
    place = _PLACE if os.access(_PLACE, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="skillyard-check-", dir=place) as folder:
        root = Path(folder).resolve()
        make_box(root)
        (root / SAMPLE).write_text(_SAMPLE_TEXT, "utf-8")
        yield Bench(sandbox, root, own_home, limit_seconds)
