"""Whether an agent works: it starts, and speaks with us; with a question, its model too."""

from pathlib import Path

from skillyard.backends.driver import Driver, Start, Told, Turn

_HELLO_SECONDS = 120.0
_QUESTION = "Answer with the one word: ok"


def check(driver: Driver, folder: Path, *, ask: bool = False) -> str:
    """What it answered, where it was asked. Raises what a turn raises."""
    running = driver.start(Start(folder))
    try:
        if not ask:
            running.hello(_HELLO_SECONDS)
            return ""
        events = list(running.turn(Turn(_QUESTION, _HELLO_SECONDS, _HELLO_SECONDS)))
        return next((event.text for event in reversed(events) if event.told is Told.DONE), "")
    finally:
        running.close()
