"""A worker for the crash tests: one line in a journal for everything it does, slowly enough to be killed in the middle.

usage: python -m tests.jobs.serving FOLDER DATABASE STEP_SECONDS AT_A_TIME [LIMIT]
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from skillyard.core.values import Json
from skillyard.jobs.dbos_engine import DurableEngine, DurableSteps
from skillyard.jobs.engine import EngineConfig, Ticket

STEPS = ("one", "two", "three")


class Journal:
    """Who did what, in the order in which it happened: each line is one write to the end of one file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "journal"

    def write(self, *words: str) -> None:
        file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{' '.join(words)}\n".encode())
        os.close(file)

    def read(self) -> list[list[str]]:
        return [line.split() for line in self.file.read_text().splitlines()] if self.file.exists() else []


def make_work(journal: Journal, step_seconds: float, lost: threading.Event) -> Callable[..., Mapping[str, Json]]:
    me = str(os.getpid())

    def work(ticket: Ticket, steps: DurableSteps) -> Mapping[str, Json]:
        def act(step: str) -> str:
            journal.write("begin", ticket.id, step, me)
            lost.wait(step_seconds)
            journal.write("end", ticket.id, step, me)
            return f"{step} {ticket.body.get('number')}"

        journal.write("take", ticket.id, "-", me)
        did = [steps.run(step, lambda step=step: act(step)) for step in STEPS]  # type: ignore[misc]
        journal.write("give", ticket.id, "-", me)
        return {"did": did}

    return work


def main(folder: Path, database: str, step_seconds: float, at_a_time: int, limit: int = 0) -> None:
    limits = {"default": limit} if limit else {}
    engine = DurableEngine(EngineConfig(folder, "skillyard-crash", database, poll_seconds=0.05, limits=limits))
    lost = threading.Event()
    engine.serve(make_work(Journal(folder), step_seconds, lost), {"default": at_a_time}, lost.set)
    print("serving", flush=True)
    while not lost.wait(0.2):
        engine.take_over()
    print("lost", flush=True)
    os._exit(1)  # as a worker does: what is under way ends with us


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *map(int, sys.argv[4:]))
