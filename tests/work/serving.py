"""A worker for the crash tests: notes down each step that it does, slowly enough to be killed in the middle of one."""

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from skillyard.core.values import Json
from skillyard.work.engine import Steps, Ticket
from skillyard.work.engines.durable import DurableEngine, Place


def main(folder: Path, database: str) -> None:
    engine = DurableEngine(Place(folder, "skillyard-crash", database, poll_seconds=0.05))
    lost = threading.Event()

    def work(ticket: Ticket, steps: Steps) -> Mapping[str, Json]:
        def note(step: str) -> str:
            with (folder / "notes" / f"{ticket.id}.{step}").open("a") as stream:
                stream.write("x")
            lost.wait(0.02)
            return step

        return {"did": [steps.once(step, lambda step=step: note(step)) for step in ("one", "two")]}  # type: ignore[misc]

    engine.serve(work, {"default": 2}, lost.set)
    print("serving", flush=True)
    while not lost.wait(0.2):
        engine.take_over()
    print("lost", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
