"""How long installing a whole repository takes, against the bare steps that nobody can do without."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figures import Figure, command, interleaved
from bench.ground import SKILLYARD, make_env, make_skills

SCRIPT = '''\
"""Counts the words of a file."""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    text = parser.parse_args().file.read_text("utf-8")
    print({"words": len(text.split()), "number": %d})


if __name__ == "__main__":
    main()
'''


def measure(folder: Path) -> Iterator[Figure]:
    env = make_env(folder)
    yield from _repository(folder, env)
    yield from _scan(folder, env)


def make_repository(folder: Path, count: int) -> Path:
    """Every skill with a script and a page of reference beside its SKILL.md, as real ones have."""
    repository = folder / f"repository-{count}"
    make_skills(repository / "skills", count)
    for number, skill in enumerate(sorted((repository / "skills").iterdir())):
        (skill / "scripts").mkdir()
        (skill / "scripts" / "count.py").write_text(SCRIPT % number, "utf-8")
        (skill / "reference.md").write_text(f"# Reference {number}\n\n" + "One more thing to know.\n" * 80, "utf-8")
    words = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for step in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*words, *step], cwd=repository, check=True)
    return repository


def _repository(folder: Path, env: dict[str, str]) -> Iterator[Figure]:
    repository = make_repository(folder, 200)
    projects, clones = folder / "projects", folder / "clones"
    for place in (projects, clones):
        place.mkdir()
    numbers = iter(range(1_000_000))

    def bare() -> None:
        clone = clones / str(next(numbers))
        subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repository}", clone], check=True)
        shutil.copytree(clone / "skills", clone / "copy")
        command([SKILLYARD, "scan", clone / "copy"], clone, env)()

    def ours() -> None:
        project = projects / str(next(numbers))
        (project / ".git").mkdir(parents=True)
        command([SKILLYARD, "add", f"file://{repository}", "--all", "--yes"], project, env)()

    cases: dict[str, Callable[[], None]] = {"bare": bare, "ours": ours}
    taken = interleaved(cases, rounds=5)
    what = "`add --all` of 200 skills from git, against `git clone`, copy and `skillyard scan`"
    yield Figure(what, taken["ours"] / taken["bare"], at_most=1.5)
    shutil.rmtree(projects)
    shutil.rmtree(clones)


def _scan(folder: Path, env: dict[str, str]) -> Iterator[Figure]:
    repository = make_repository(folder, 1000)
    one = min((repository / "skills").iterdir())
    taken = interleaved(
        {
            "one": command([SKILLYARD, "scan", one], folder, env),
            "start": command([SKILLYARD, "scan", "--help"], folder, env),
            "all": command([SKILLYARD, "scan", repository / "skills"], folder, env),
        },
        rounds=3,
    )
    yield Figure(
        "`scan` of one skill, beyond the start of the command",
        (taken["one"] - taken["start"]) * 1000,
        " ms",
        at_most=50,
    )
    yield Figure("`scan` of 1,000 skills", taken["all"], " s", at_most=20)
