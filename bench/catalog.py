"""How fast the catalog finds, reads and lists, against the tools people use for the same."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, command, interleaved, peak_megabytes
from bench.ground import SKILLYARD, make_env, make_project
from bench.peers import find_openskills, find_skillport


def measure(folder: Path) -> Iterator[Figure]:
    yield from _against_peers(folder)
    yield from _ten_thousand(folder)


def _against_peers(folder: Path) -> Iterator[Figure]:
    project, env = make_project(folder, 1000), make_env(folder)
    command([SKILLYARD, "list"], project, env)()
    cases = {"ours": command([SKILLYARD, "list"], project, env)}
    if openskills := find_openskills():
        cases["openskills"] = command([openskills, "list"], project, env)
    if skillport := find_skillport():
        skills = str(project / ".claude" / "skills")
        cases["skillport"] = command([skillport, "--skills-dir", skills, "list", "--limit", "1000"], project, env)
    taken = interleaved(cases, rounds=7)
    for peer in ("openskills", "skillport"):
        if peer in taken:
            what = f"`{peer} list` against `skillyard list`, warm, 1,000 skills"
            yield Figure(what, taken[peer] / taken["ours"], at_least=5)


def _ten_thousand(folder: Path) -> Iterator[Figure]:
    project, env = make_project(folder, 10_000), make_env(folder)
    home = Path(env["SKILLYARD_HOME"])
    listing: list[str | Path] = [SKILLYARD, "list"]
    cold: list[float] = []
    for _ in range(3):
        shutil.rmtree(home, ignore_errors=True)
        started = time.perf_counter()
        subprocess.run(listing, cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)
        cold.append(time.perf_counter() - started)
    warm = interleaved({"warm": command(listing, project, env)}, rounds=7)["warm"]
    yield Figure("10,000 skills, cold `list`", min(cold), " s", at_most=3)
    yield Figure("10,000 skills, warm `list`", warm, " s", at_most=0.3)
    yield Figure(
        "10,000 skills, peak memory of a warm `list`", peak_megabytes(listing, project, env), " MB", at_most=120
    )
    shutil.rmtree(home)
    yield Figure(
        "10,000 skills, peak memory of a cold `list`", peak_megabytes(listing, project, env), " MB", at_most=120
    )
