"""Who decides what is kept: rules, the person at the terminal, or a backend agent. One seam, injected.

Whoever decides, a missing, broken or unknown answer is never "keep".
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from skillyard.core.values import Json
from skillyard.work.interrupt import Interrupt


class Decision(StrEnum):
    KEEP = "keep"
    UNINSTALL = "uninstall"


class Decider(Protocol):
    """Decides on what it can; what it leaves out stays undecided. Never executes anything."""

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]: ...


def checked(interrupt: Interrupt, answers: Mapping[str, Json]) -> dict[str, Decision]:
    """Only known skills and known words count."""
    words = {decision.value: decision for decision in Decision}
    given = {name: answers.get(name) for name in interrupt.skills}
    return {name: words[word] for name, word in given.items() if isinstance(word, str) and word in words}


class Rules:
    """Decides by the severity that the workflow gave each skill; a severity without a rule stays undecided."""

    def __init__(self, by_severity: Mapping[str, Decision]) -> None:
        self._by_severity = {name.lower(): decision for name, decision in by_severity.items()}

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        severities = interrupt.about.get("severities")
        known = severities if isinstance(severities, Mapping) else {}
        found = {name: self._by_severity.get(str(known.get(name, "")).lower()) for name in interrupt.skills}
        return {name: decision for name, decision in found.items() if decision}


class Person:
    """Asks for each skill; anything but a clear answer leaves it undecided."""

    def __init__(self, ask: Callable[[str], str | None]) -> None:
        self._ask = ask

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        answers: dict[str, Json] = {}
        for name in interrupt.skills:
            said = self._ask(f"{name}: keep or uninstall? ")
            short = {"k": "keep", "u": "uninstall"}
            answers[name] = short.get((said or "").strip().lower(), (said or "").strip().lower())
        return checked(interrupt, answers)
