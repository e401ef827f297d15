"""Counts what a run leaves out or skips, and prints both at its end.

`./dev test` leaves out what is marked `ci`; each mark has its reason: `@pytest.mark.ci("real agents, every case")`.
What is marked `slow` is marked `ci` too.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

_Counts = Counter[str]
_LEFT_OUT = pytest.StashKey[_Counts]()
_WIRE = "left_out"


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.ci("crash and escape rounds"))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Called where the tests are collected: in the process itself, or in each of its workers."""
    for item in items:
        if mark := item.get_closest_marker("ci"):
            item.config.stash.setdefault(_LEFT_OUT, Counter())[str(mark.args[0])] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_WIRE] = dict(session.config.stash.get(_LEFT_OUT, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects the same tests, so any of them will do."""
    counted = getattr(node, "workeroutput", {}).get(_WIRE)
    if counted:
        node.config.stash[_LEFT_OUT] = Counter(counted)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if skipped:
        terminalreporter.write_line(f"skipped: {_told(skipped)}")
    left_out = config.stash.get(_LEFT_OUT, Counter())
    marks = config.option.markexpr
    if left_out and "not ci" in marks and not marks.startswith("alone"):  # the second pass need not say it again
        terminalreporter.write_line(f"left out: {_told(left_out)}; ./dev test --all runs them too")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")


def _told(counts: _Counts) -> str:
    reasons = "; ".join(f"{reason}: {count}" for reason, count in counts.most_common())
    return f"{counts.total()} ({reasons})"
