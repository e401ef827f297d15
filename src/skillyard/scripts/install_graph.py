"""The install workflow as a LangGraph graph: install → ask about what is held back → settle → ask again.

The graph keeps no skills and no verdicts: what waits is a review, and the review is the only truth. So it may be
decided elsewhere too (`skillyard review resume`), and the graph finds that out. A node runs again from its top when the
graph resumes: nothing has an effect before `interrupt()`, and every step can be done twice. LangGraph stores where a
thread stands and restarts nothing: `resume` continues after a decision, and after a crash.

Needs the extra `skillyard[langgraph]`: only whoever runs the workflow imports this module.
"""

import operator
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateSnapshot, interrupt
from langsmith import tracing_context

from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.install.installer import Installer
from skillyard.install.review import Reviews
from skillyard.install.source import Tell
from skillyard.scripts.interrupt import Decision
from skillyard.store.database import make_private


class InstallStatus(NamedTuple):
    """The state of a thread: what waits for a decision, and what became of the rest."""

    review: str
    waiting: tuple[str, ...]
    outcomes: Mapping[str, Decision]
    changed: tuple[str, ...] = ()
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
    """The workflow of one project. Its nodes are the steps of `skillyard add` and `skillyard review`.

    `on_terminal` says who decides: a person may keep anything, else only up to MEDIUM.
    """

    def __init__(
        self, database: Path, project: Path, installer: Installer, reviews: Reviews, tell: Tell, *, on_terminal: bool
    ) -> None:
        self._project, self._installer, self._reviews = project, installer, reviews
        self._tell, self._on_terminal = tell, on_terminal
        make_private(database)
        self._connection = sqlite3.connect(database, timeout=30, check_same_thread=False)
        graph = StateGraph(_State)
        graph.add_node("bring", self.bring)
        graph.add_node("ask", self._ask, destinations=("settle", END))
        graph.add_node("settle", self.settle)
        graph.add_edge(START, "bring")
        graph.add_edge("bring", "ask")
        graph.add_edge("settle", "ask")
        self._graph = graph.compile(checkpointer=SqliteSaver(self._connection))

    def close(self) -> None:
        self._connection.close()

    def start(self, thread: str, source: str, skills: Sequence[str] = ()) -> InstallStatus:
        """A thread that failed before anything was brought in may start again."""
        if "review" in self._state(thread).values:
            raise InvalidArgs(Message("{thread} was started before: resume it, or choose another name", thread=thread))
        return self._go({"source": source, "skills": list(skills)}, thread)

    def resume(self, thread: str, decisions: Mapping[str, str]) -> InstallStatus:
        """Go on with these answers; without any, with what was decided elsewhere, or after a crash.

        Raise PermissionDenied, before anything is stored, if whoever decides may not keep one of these.
        """
        state = self._state(thread)
        if not state.created_at:
            raise InvalidArgs(Message("no workflow {thread!r} in this project", thread=thread))
        crashed = state.next and not state.interrupts
        status = self._go(None, thread) if crashed else self._status(thread)
        if review := self._reviews.find(status.review):
            self._reviews.check(review, {**decisions}, on_terminal=self._on_terminal)
        answers = {skill: decision for skill, decision in decisions.items() if status.outcomes.get(skill) != decision}
        for skill, decision in answers.items():
            if skill not in status.waiting:
                waiting = ", ".join(status.waiting) or Message("nothing")
                msg = Message("{skill!r} waits for no decision; waiting: {waiting}", skill=skill, waiting=waiting)
                raise InvalidArgs(msg)
            if decision not in set(Decision):
                msg = Message("{skill}: {decision!r} is neither keep nor uninstall", skill=skill, decision=decision)
                raise InvalidArgs(msg)
        questions = self._state(thread).interrupts
        if not questions or (status.waiting and not answers):
            return status
        return self._go(Command(resume={questions[0].id: answers}), thread)

    def _go(self, given: Any, thread: str) -> InstallStatus:
        # Nothing of a project goes to a tracing service, whatever the environment says.
        with tracing_context(enabled=False):
            self._graph.invoke(given, self._config(thread), durability="sync")
        return self._status(thread)

    def _status(self, thread: str) -> InstallStatus:
        values = self._state(thread).values
        review, shown = values.get("review", ""), values.get("shown", {})
        waiting = self._held(review)
        outcomes = dict.fromkeys(values.get("installed", ()), Decision.KEEP)
        for name, content_hash in shown.items():
            if name not in waiting:
                is_kept = self._installer.is_installed(name, content_hash)
                outcomes[name] = Decision.KEEP if is_kept else Decision.UNINSTALL
        changed = tuple(name for name in values.get("changed", ()) if name in waiting)
        return InstallStatus(review, tuple(sorted(waiting)), outcomes, changed, values.get("refused", ""))

    def _state(self, thread: str) -> StateSnapshot:
        return self._graph.get_state(self._config(thread))

    def _config(self, thread: str) -> RunnableConfig:
        return {"configurable": {"thread_id": f"{self._project}#{thread}"}}

    def _held(self, review: str) -> dict[str, str]:
        """Return what waits there, each with the hash of its files; nothing if there is no such review any more."""
        found = self._reviews.find(review)
        return {name: held.skill.hash for name, held in found.held.items()} if found else {}

    # -- the nodes, each of which can be done twice

    def bring(self, state: _State) -> _State:
        """Install what is clean, and hold back the rest in a review."""
        result = self._installer.add(state["source"], state["skills"], self._tell, everything=True)
        review = result.review.id if result.review else ""
        installed = [skill.folder for skill in result.installed]
        return {"installed": installed, "review": review, "shown": self._held(review)}

    def _ask(self, state: _State) -> Command[str]:
        held = self._held(state["review"])
        if not held:
            return Command(goto=END)
        answer = interrupt({"review": state["review"], "skills": sorted(held)})
        # What was shown is what counts; whoever resumes with nothing of use is asked again.
        decisions = dict(answer) if isinstance(answer, dict) else {}
        return Command(goto="settle", update={"decisions": decisions, "shown": held})

    def settle(self, state: _State) -> _State:
        """Do what was decided. Skills that are not what was shown go on waiting."""
        decisions = {**state["decisions"]}
        try:
            review = self._reviews.find(state["review"])
            resumed = self._reviews.resume(review, decisions, on_terminal=self._on_terminal) if review else None
        except SkillError as error:  # nothing was done, so everything goes on waiting
            return {"refused": error.msg}
        return {"changed": [*resumed.changed] if resumed else [], "refused": ""}
