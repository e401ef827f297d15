"""Who decides what is kept: rules, the person at the terminal, or a backend agent. One seam, injected.

Whoever decides, a missing, broken or unknown answer is never "keep".
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from skillyard.core.values import Json
from skillyard.install.threats.severity import Severity
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
    """Decides by the severity that the workflow gave each skill; one without a rule, or unheard of, stays undecided."""

    def __init__(self, by_severity: Mapping[Severity, Decision]) -> None:
        self._by_severity = by_severity

    def __call__(self, interrupt: Interrupt) -> Mapping[str, Decision]:
        severities = interrupt.about.get("severities")
        known = severities if isinstance(severities, Mapping) else {}
        named = {name: str(known.get(name, "")).upper() for name in interrupt.skills}
        return {
            name: self._by_severity[Severity[said]]
            for name, said in named.items()
            if said in Severity.__members__ and Severity[said] in self._by_severity
        }


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
