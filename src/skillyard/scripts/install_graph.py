"""The install workflow as a LangGraph graph: install → ask about what is held back → settle → ask again.

The graph keeps no skills and no verdicts: what waits is a review, and the review is the only truth. So it may be
decided elsewhere too (`skillyard review resume`), and the graph finds that out. A node runs again from its top when the
graph resumes: nothing has an effect before `interrupt()`, and every step can be done twice. LangGraph stores where a
thread stands and restarts nothing: `resume` continues after a decision, and after a crash.

Needs the extra `skillyard[langgraph]`: only whoever runs the workflow imports this module.
"""

import operator
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateSnapshot, interrupt
from langsmith import tracing_context

from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.installer import Installer
from skillyard.install.review import Review, Reviews
from skillyard.install.source import Tell
from skillyard.scripts.interrupt import Decision
from skillyard.store.database import make_private


class InstallSteps:
    """What the graph does to skills: the steps of `skillyard add` and `skillyard review`. Each can be done twice.

    `on_terminal` says who decides: a person may keep anything, else only up to MEDIUM.
    """

    def __init__(self, installer: Installer, reviews: Reviews, tell: Tell, *, on_terminal: bool) -> None:
        self._installer, self._reviews, self._tell, self._on_terminal = installer, reviews, tell, on_terminal

    def begin(self, source: str, skills: Sequence[str]) -> tuple[list[str], str]:
        """Return what was clean and is installed, and the review in which the rest waits, if there is any."""
        result = self._installer.add(source, skills, self._tell, everything=True)
        return [skill.folder for skill in result.installed], result.review.id if result.review else ""

    def find(self, review: str) -> Review | None:
        return self._reviews.find(review)

    def held(self, review: str) -> Mapping[str, str]:
        """What waits there, each with the hash of its files; nothing where there is no such review any more."""
        found = self.find(review)
        return {name: held.skill.hash for name, held in found.held.items()} if found else {}

    def check(self, review: str, decisions: Mapping[str, Json]) -> None:
        """Raise PermissionDenied if whoever decides may not keep one of these; before anything is stored."""
        if found := self.find(review):
            self._reviews.check(found, decisions, on_terminal=self._on_terminal)

    def settle(self, review: str, decisions: Mapping[str, Json]) -> Sequence[str]:
        """Do what was decided. Those that are not what was shown are returned, and go on waiting."""
        found = self.find(review)
        return self._reviews.resume(found, decisions, on_terminal=self._on_terminal).changed if found else ()

    def is_installed(self, name: str, content_hash: str) -> bool:
        return self._installer.is_installed(name, content_hash)


class InstallStatus(NamedTuple):
    """The state of a thread: what waits for a decision, and what became of the rest."""

    review: str
    waiting: tuple[str, ...]
    outcomes: Mapping[str, Decision]
    #: Not what was shown before.
    changed: tuple[str, ...] = ()
    #: Why the last decisions were not carried out.
    refused: str = ""


class _State(TypedDict, total=False):
    source: str
    skills: list[str]
    review: str
    installed: list[str]
    #: Every skill that was ever asked about, with the hash that was shown last.
    shown: Annotated[dict[str, str], operator.or_]
    decisions: dict[str, str]
    changed: list[str]
    refused: str


class InstallWorkflow:
    def __init__(self, steps: InstallSteps, saver: SqliteSaver, project: str) -> None:
        self._steps = steps
        self._graph = _build(steps).compile(checkpointer=saver)
        self._project = project

    def start(self, thread: str, source: str, skills: Sequence[str] = ()) -> InstallStatus:
        """A thread that failed before anything was brought in may start again."""
        if "review" in self._state(thread).values:
            raise InvalidArgs(Message("{thread} was started before: resume it, or choose another name", thread=thread))
        return self._go({"source": source, "skills": list(skills)}, thread)

    def stand(self, thread: str) -> InstallStatus:
        """After a crash, first to the end of what was begun."""
        state = self._state(thread)
        if not state.created_at:
            raise InvalidArgs(Message("no workflow {thread!r} in this project", thread=thread))
        if state.next and not state.interrupts:
            return self._go(None, thread)
        return self._stand(thread)

    def resume(self, thread: str, decisions: Mapping[str, str]) -> InstallStatus:
        """Go on with these answers; without any, with what was decided elsewhere."""
        stand = self.stand(thread)
        answers = {skill: decision for skill, decision in decisions.items() if stand.outcomes.get(skill) != decision}
        for skill, decision in answers.items():
            if skill not in stand.waiting:
                waiting = ", ".join(stand.waiting) or Message("nothing")
                raise InvalidArgs(
                    Message("{skill!r} waits for no decision; waiting: {waiting}", skill=skill, waiting=waiting)
                )
            if decision not in set(Decision):
                raise InvalidArgs(
                    Message("{skill}: {decision!r} is neither keep nor uninstall", skill=skill, decision=decision)
                )
        questions = self._state(thread).interrupts
        if not questions or (stand.waiting and not answers):
            return stand
        return self._go(Command(resume={questions[0].id: answers}), thread)

    def _go(self, given: Any, thread: str) -> InstallStatus:
        # Nothing of a project goes to a tracing service, whatever the environment says.
        with tracing_context(enabled=False):
            self._graph.invoke(given, self._config(thread), durability="sync")
        return self._stand(thread)

    def _stand(self, thread: str) -> InstallStatus:
        values = self._state(thread).values
        review, shown = values.get("review", ""), values.get("shown", {})
        waiting = self._steps.held(review)
        outcomes = dict.fromkeys(values.get("installed", ()), Decision.KEEP)
        for name, content_hash in shown.items():
            if name not in waiting:
                is_kept = self._steps.is_installed(name, content_hash)
                outcomes[name] = Decision.KEEP if is_kept else Decision.UNINSTALL
        changed = tuple(name for name in values.get("changed", ()) if name in waiting)
        return InstallStatus(review, tuple(sorted(waiting)), outcomes, changed, values.get("refused", ""))

    def _state(self, thread: str) -> StateSnapshot:
        return self._graph.get_state(self._config(thread))

    def _config(self, thread: str) -> RunnableConfig:
        return {"configurable": {"thread_id": f"{self._project}#{thread}"}}


@contextmanager
def open_workflow(steps: InstallSteps, database: Path, project: Path) -> Iterator[InstallWorkflow]:
    make_private(database)
    connection = sqlite3.connect(database, timeout=30, check_same_thread=False)
    try:
        yield InstallWorkflow(steps, SqliteSaver(connection), str(project))
    finally:
        connection.close()


def _build(steps: InstallSteps) -> StateGraph[_State]:
    def bring(state: _State) -> _State:
        installed, review = steps.begin(state["source"], state["skills"])
        return {"installed": installed, "review": review, "shown": {**steps.held(review)}}

    def ask(state: _State) -> Command[str]:
        held = steps.held(state["review"])
        if not held:
            return Command(goto=END)
        answer = interrupt({"review": state["review"], "skills": sorted(held)})
        # What was shown is what counts; whoever resumes with nothing of use is asked again.
        decisions = dict(answer) if isinstance(answer, dict) else {}
        return Command(goto="settle", update={"decisions": decisions, "shown": {**held}})

    def settle(state: _State) -> _State:
        try:
            changed = steps.settle(state["review"], state["decisions"])
        except SkillError as error:  # nothing was done, so everything goes on waiting
            return {"refused": error.msg}
        return {"changed": [*changed], "refused": ""}

    graph = StateGraph(_State)
    graph.add_node("bring", bring)
    graph.add_node("ask", ask, destinations=("settle", END))
    graph.add_node("settle", settle)
    graph.add_edge(START, "bring")
    graph.add_edge("bring", "ask")
    graph.add_edge("settle", "ask")
    return graph
