"""The seeds' install workflow as a LangGraph graph: fetch → scan → ask about each doubtful skill → keep or uninstall.

A node runs again from its top when the graph resumes: nothing has an effect before `interrupt()`, and every step can
be done twice. LangGraph stores where a thread stands and restarts nothing: `resume` picks up after a decision, and
after a crash. A missing or unknown decision never means keep.

Needs the extra `skillyard[langgraph]`: only whoever runs the workflow imports this module.
"""

import operator
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, StateSnapshot, interrupt
from langsmith import tracing_context

from skillyard.core.errors import InvalidArgs
from skillyard.core.values import Json

KEEP, UNINSTALL = "keep", "uninstall"

Findings: TypeAlias = list[dict[str, Json]]


class Steps(Protocol):
    """What the graph does to skills. Each step can be done again after a crash."""

    def fetch(self, source: Path) -> tuple[str, ...]: ...

    def examine(self, name: str) -> Findings: ...

    def keep(self, name: str) -> str: ...

    def drop(self, name: str) -> str: ...


class Stand(NamedTuple):
    """Where a thread stands: what waits for a decision, and what became of the rest."""

    waiting: Mapping[str, Findings]
    outcomes: Mapping[str, str]


class _State(TypedDict, total=False):
    source: str
    doubts: dict[str, Findings]
    outcomes: Annotated[dict[str, str], operator.or_]


class _One(TypedDict):
    """What a fanned-out node gets: one skill."""

    skill: str
    findings: Findings
    decision: str


class Workflow:
    def __init__(self, steps: Steps, saver: SqliteSaver, project: str) -> None:
        self._graph = _build(steps).compile(checkpointer=saver)
        self._project = project

    def start(self, thread: str, source: Path) -> Stand:
        if self._state(thread).created_at:
            raise InvalidArgs(f"{thread} was started before: resume it, or choose another name")
        return self._go({"source": str(source)}, thread)

    def resume(self, thread: str, decisions: Mapping[str, str]) -> Stand:
        """Go on with these answers; without any, go on where a crash ended it."""
        if not self._state(thread).created_at:
            raise InvalidArgs(f"no workflow {thread!r} in this project")
        asked = self._asked(thread)
        for skill, decision in decisions.items():
            if skill not in asked:
                raise InvalidArgs(f"{skill!r} waits for no decision; waiting: {', '.join(asked) or 'nothing'}")
            if decision not in {KEEP, UNINSTALL}:
                raise InvalidArgs(f"{skill}: {decision!r} is no decision; write {KEEP} or {UNINSTALL}")
        answers = {asked[skill].id: decision for skill, decision in decisions.items()}
        if not self._state(thread).next:
            return self._stand(thread)
        return self._go(Command(resume=answers) if answers else None, thread)

    def _go(self, given: Any, thread: str) -> Stand:
        # Nothing of a project goes to a tracing service, whatever the environment says.
        with tracing_context(enabled=False):
            self._graph.invoke(given, self._config(thread), durability="sync")
        return self._stand(thread)

    def _stand(self, thread: str) -> Stand:
        waiting = {skill: question.value["findings"] for skill, question in self._asked(thread).items()}
        return Stand(waiting=waiting, outcomes=self._state(thread).values.get("outcomes", {}))

    def _asked(self, thread: str) -> dict[str, Any]:
        return {question.value["skill"]: question for question in self._state(thread).interrupts}

    def _state(self, thread: str) -> StateSnapshot:
        return self._graph.get_state(self._config(thread))

    def _config(self, thread: str) -> RunnableConfig:
        return {"configurable": {"thread_id": f"{self._project}#{thread}"}}


@contextmanager
def open_workflow(steps: Steps, database: Path, project: Path) -> Iterator[Workflow]:
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    connection = sqlite3.connect(database, timeout=30, check_same_thread=False)
    try:
        yield Workflow(steps, SqliteSaver(connection), str(project))
    finally:
        connection.close()


def _build(steps: Steps) -> StateGraph[_State]:
    def fetch(state: _State) -> _State:
        return {"doubts": {name: [] for name in steps.fetch(Path(state["source"]))}}

    def scan(state: _State) -> _State:
        return {"doubts": {name: steps.examine(name) for name in state["doubts"]}}

    def fan_out(state: _State) -> list[Send]:
        return [
            Send("ask" if findings else "settle", _One(skill=skill, findings=findings, decision=KEEP))
            for skill, findings in state["doubts"].items()
        ]

    def ask(state: _One) -> Command[str]:
        answer = interrupt({"skill": state["skill"], "findings": state["findings"]})
        decision = KEEP if answer == KEEP else UNINSTALL
        return Command(goto=Send("settle", {**state, "decision": decision}))

    def settle(state: _One) -> _State:
        step = steps.keep if state["decision"] == KEEP else steps.drop
        return {"outcomes": {state["skill"]: step(state["skill"])}}

    graph = StateGraph(_State)
    graph.add_node("fetch", fetch)
    graph.add_node("scan", scan)
    graph.add_node("ask", ask, destinations=("settle",))
    graph.add_node("settle", settle)
    graph.add_edge(START, "fetch")
    graph.add_edge("fetch", "scan")
    graph.add_conditional_edges("scan", fan_out, ["ask", "settle"])
    return graph
