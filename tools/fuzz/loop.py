"""Runs one target: mutates, remembers what reached new lines, saves what broke."""

import hashlib
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tools.fuzz.mutate import mutate
from tools.fuzz.targets import Target, found

OURS = str(Path(__file__).parents[2] / "src")
#: One input may take this long; longer is a finding too.
MOST_SECONDS = 60
#: Tracing costs time: one input in this many is traced.
TRACED = 8


class Finding(NamedTuple):
    """An input that broke a promise, and where it was saved."""

    target: str
    file: Path
    error: str

    @property
    def replay(self) -> str:
        return f"./dev fuzz {self.target} --replay {self.file}"


class Report(NamedTuple):
    target: str
    runs: int
    corpus: int
    lines: int
    findings: tuple[Finding, ...]


class TookTooLong(BaseException):
    """Not an Exception, so that no handler of ours takes it for something else."""


def fuzz(target: Target, seconds: float, folder: Path, seed: int | None = None) -> Report:
    """Until the time is over. Each kind of failure is saved once."""
    chance = random.Random(seed)
    lines: set[tuple[str, int]] = set()
    corpus = [
        *target.seeds(),
        *found(target.name),
        *(path.read_bytes() for path in sorted(folder.glob(f"{target.name}/corpus/*"))),
    ]
    findings: dict[str, Finding] = {}
    runs, end = 0, time.monotonic() + seconds
    with target.open() as run:
        for content in tuple(corpus):
            with _tracing(lines):
                _keep(findings, target, folder, content, _tried(target, run, content))
            runs += 1
        while time.monotonic() < end:
            content = mutate(chance, chance.choice(corpus), corpus, target.most_bytes)
            runs += 1
            if target.traced and runs % TRACED == 0:
                before = len(lines)
                with _tracing(lines):
                    error = _tried(target, run, content)
                if len(lines) > before and error is None:
                    corpus.append(content)
            else:
                error = _tried(target, run, content)
            _keep(findings, target, folder, content, error)
    return Report(target.name, runs, len(corpus), len(lines), tuple(findings.values()))


def replay(target: Target, content: bytes) -> str:
    """What is wrong with one input; empty where nothing is."""
    with target.open() as run:
        error = _tried(target, run, content)
    return "" if error is None else "".join(traceback.format_exception(error))


def _tried(target: Target, run: Any, content: bytes) -> BaseException | None:
    try:
        with _deadline() if target.traced else nullcontext():
            run(content)
    except target.allowed:
        return None
    except (Exception, TookTooLong) as error:  # noqa: BLE001  (finding it is what this is for)
        return error
    return None


@contextmanager
def _deadline() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TookTooLong(f"more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _tracing(lines: set[tuple[str, int]]) -> Iterator[None]:
    """Note the lines of our own code that run."""

    def inside(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return inside

    def entered(frame: FrameType, _event: str, _: object) -> Any:
        return inside if frame.f_code.co_filename.startswith(OURS) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)


def _keep(
    findings: dict[str, Finding], target: Target, folder: Path, content: bytes, error: BaseException | None
) -> None:
    if error is None:
        return
    kind = _kind(error)
    smaller = kind in findings and len(content) < findings[kind].file.stat().st_size
    if kind in findings and not smaller:
        return
    place = folder / target.name / "crashes"
    place.mkdir(parents=True, exist_ok=True)
    file = place / hashlib.blake2b(kind.encode(), digest_size=6).hexdigest()
    file.write_bytes(content)
    findings[kind] = Finding(target.name, file, kind)


def _kind(error: BaseException) -> str:
    """Its type and the last line of ours that it passed: two inputs with the same are one finding."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(OURS)]
    where = f" at {Path(frames[-1].filename).relative_to(OURS)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {str(error)[:80]!r}{where}" if not where else f"{type(error).__name__}{where}"
