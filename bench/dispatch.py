"""What it costs to put the active skills before a task."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.figures import Figure, interleaved
from bench.ground import make_skills
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.catalog.scan import is_settled, stamp_of

_SKILLS = 20


def measure(folder: Path) -> Iterator[Figure]:
    project = folder / "project"
    (project / ".git").mkdir(parents=True)
    make_skills(project / ".claude" / "skills", _SKILLS)
    _settle(project / ".claude" / "skills" / f"skill-{_SKILLS - 1:05d}" / "SKILL.md")
    places = ProjectPaths(project=project, user_home=folder / "home", own_home=folder / "skillyard")
    with Project(places) as yard:
        yard.catalog.sync()
        yard.activator.activate([f"skill-{number:05d}" for number in range(_SKILLS)], "talk", time.time())
        held = partial(yard.make_dispatch_request, "Review the auth module", session="talk")
        held()
        cases: dict[str, Callable[[], object]] = {
            "held": held,
            "anew": partial(_anew, places),
        }
        taken = interleaved(cases, rounds=501)
    yield Figure(f"the enhanced task of {_SKILLS} skills, warm", taken["held"] * 1000, " ms", at_most=1)
    yield Figure(f"what is active of {_SKILLS} skills, warm, database opened anew", taken["anew"] * 1000, " ms")


def _anew(places: ProjectPaths) -> None:
    with Project(places) as yard:
        yard.contents.active("talk")


def _settle(file: Path) -> None:
    """A file this fresh would be read again, to be sure."""
    while not is_settled(stamp_of(str(file)) or (0, 0, 0, 0), time.time_ns()):
        time.sleep(0.01)
