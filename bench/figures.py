"""A figure, its goal, and how it is shown and recorded."""

import random
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """`at_most` or `at_least` the goal; where both are None it is only told."""

    what: str
    value: float
    unit: str = "×"
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}{self.unit}"
        return f"≥ {self.at_least:g}{self.unit}" if self.at_least is not None else ""

    @property
    def met(self) -> bool:
        too_much = self.at_most is not None and self.value > self.at_most
        too_little = self.at_least is not None and self.value < self.at_least
        return not (too_much or too_little)

    def as_row(self) -> str:
        verdict = "" if not self.goal else "yes" if self.met else "**no**"
        return f"| {self.what} | {self.value:.2f}{self.unit} | {self.goal} | {verdict} |"


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each case, taken turn by turn so that a noisy minute hits all alike."""
    return {name: statistics.median(seconds) for name, seconds in samples(cases, rounds).items()}


def samples(
    cases: Mapping[str, Callable[[], object]], rounds: int, pause_seconds: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of each case in each round, in another order each time.

    With a pause, what one case leaves to be done afterwards does not count for the next one.
    """
    taken: dict[str, list[float]] = {name: [] for name in cases}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(sorted(cases), len(cases)):
            time.sleep(pause_seconds)
            started = time.perf_counter()
            cases[name]()
            taken[name].append(time.perf_counter() - started)
    return taken


def command(argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> Callable[[], None]:
    """A whole command as a case, its output read and thrown away."""

    def case() -> None:
        subprocess.run([str(word) for word in argv], cwd=cwd, env=dict(env), check=True, stdout=subprocess.PIPE)

    return case


def peak_megabytes(argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> float:
    """The most memory that the command held, as the kernel counted it."""
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)"
    script += "; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    words = ["python3", "-c", script, *[str(word) for word in argv]]
    done = subprocess.run(words, cwd=cwd, env=dict(env), check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def own_peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
