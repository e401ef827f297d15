"""How long the command line takes to start."""

from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, command, interleaved
from bench.ground import PYTHON, SKILLYARD, make_env, make_project


def measure(folder: Path) -> Iterator[Figure]:
    project, env = make_project(folder, 20), make_env(folder)
    command([SKILLYARD, "list"], project, env)()  # reads the skills and compiles the modules, once
    taken = interleaved(
        {
            "pass": command([PYTHON, "-c", "pass"], project, env),
            "version": command([SKILLYARD, "--version"], project, env),
            "list": command([SKILLYARD, "list"], project, env),
            "search": command([SKILLYARD, "search", "markdown"], project, env),
        },
        rounds=30,
    )
    bare = taken["pass"]
    yield Figure("`skillyard --version` against `python -c pass`", taken["version"] / bare, at_most=1.5)
    yield Figure("`skillyard list` (20 skills) against `python -c pass`", taken["list"] / bare, at_most=5)
    yield Figure("`skillyard search` (20 skills) against `python -c pass`", taken["search"] / bare, at_most=5)
