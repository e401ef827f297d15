"""A backend agent as the decider of interrupts: asked in an empty folder, without tools, one question."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from skillyard.core.child_process import DEPTH
from skillyard.core.errors import BackendFailed
from skillyard.dispatch.order import Order
from skillyard.dispatch.text import Enhanced
from skillyard.scripts.interrupt import BackendDecider

if TYPE_CHECKING:
    from skillyard.app.project import Project

_LIMIT_SECONDS = 300.0


def agent_decider(yard: "Project", backend: str, env: Mapping[str, str] = os.environ) -> BackendDecider | None:
    """None inside an agent: there nobody keeps anything."""
    return None if env.get(DEPTH) else BackendDecider(lambda question: _ask(yard, backend, question))


def _ask(yard: "Project", backend: str, question: str) -> str:
    with TemporaryDirectory(prefix="skillyard-") as folder:
        result = yard.dispatcher(
            Order(
                task=question,
                enhanced=Enhanced(question),
                folder=Path(folder).resolve(),
                to=backend,
                limit_seconds=_LIMIT_SECONDS,
                alone=True,
            )
        )
    if not result.ok:
        raise BackendFailed(backend, result.summary)
    return str(result.data["content"])
