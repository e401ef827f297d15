"""A tool call: from the client's arguments to one result, with progress and questions in between."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from skillyard.app.project import Project
from skillyard.core.cancel_token import CancelToken
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import AGENT
from skillyard.faces.mcp import tools
from skillyard.faces.mcp.listing import Options, Shown, clean
from skillyard.faces.mcp.model_results import as_answer, for_model
from skillyard.faces.mcp.protocol import INVALID_PARAMS, ClientRequest, Fields, FormAnswer, ProtocolError
from skillyard.faces.mcp.tools import Signature, form_of, signature_of

#: Of a line of a run's output, and of one that has no end.
_LONGEST, _LONGEST_PIECE = 500, 65_536
#: Between two notifications at least this long: clients draw each.
_PAUSE_SECONDS = 0.05
#: And at most: OpenCode ends a call after a minute without news.
_HEARTBEAT_SECONDS = 10.0
_KEY, _CHANGES_KEY = "params", "changes"
_DECISION = {"type": "string", "enum": [tools.APPLY, tools.DISCARD, "later"]}
_CHANGES_FORM = {"type": "object", "properties": {_CHANGES_KEY: _DECISION}, "required": [_CHANGES_KEY]}
_MOST_UNDECIDED = 100
_MOST_STARTED = 32
_MOST_WAIT_SECONDS = 3_600
_LOOK_SECONDS = 0.2
_END_SECONDS = 10.0
#: An action, then its params, then one that only the skill knows of; more is a skill that never has enough.
_MOST_QUESTIONS = 5


class RunProgress:
    """Sends the latest line that a run printed to the client; where it prints none, that it is still running.

    Clients end a call that nothing is heard of. `add` is called in the run's thread."""

    def __init__(self, request: ClientRequest, lang: Lang) -> None:
        self._request, self._lang = request, lang
        self._rest = b""
        self._latest, self._is_over = "", False
        self._clock = Clock()
        self._changed = threading.Condition()

    def add(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-_LONGEST_PIECE:]
        shown = (clean(line.decode("utf-8", "replace"), _LONGEST) for line in reversed(lines[-20:]))
        if latest := next(filter(None, shown), ""):
            with self._changed:
                self._latest = latest
                self._changed.notify()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send from a thread of its own, as long as the block runs, and its last line at the end."""
        if not self._request.wants_progress:
            yield
            return
        thread = threading.Thread(target=self._send_all, daemon=True)
        thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify()
            thread.join()

    def _send_all(self) -> None:
        is_over = False
        while not is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._latest or self._is_over, timeout=_HEARTBEAT_SECONDS)
                is_over, latest, self._latest = self._is_over, self._latest, ""
            seconds = self._clock.seconds
            if not latest and not is_over:
                latest = Message("running for {seconds} s", seconds=round(seconds)).render(self._lang)
            if latest:
                self._request.report_progress(round(seconds, 3), latest)
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, timeout=_PAUSE_SECONDS)


class Answering:
    def __init__(self, project: Project, options: Options) -> None:
        self._project, self._options, self._lang = project, options, options.lang
        #: Results with changes that a client was asked about, by their runs, where it answers in a call of its own.
        self._undecided: dict[str, Result] = {}
        #: The runs that nobody waits for: how to stop them, and when they have ended.
        self._started: dict[str, tuple[CancelToken, threading.Event]] = {}

    def answer(self, request: ClientRequest, shown: Shown | None) -> Fields:
        """`shown` is the skill that the tool stands for, where it is not one of ours."""
        name = request.text("name")
        given = tools.Arguments(name, request.mapping("arguments"))
        try:
            if shown is not None:
                return self._converse(request, self._exposed(shown, given))
            ours = {tool["name"]: tool for tool in tools.own_tools(self._options.allowed)}
            if name not in ours:
                raise ProtocolError(INVALID_PARAMS, f"no tool {name[:100]!r} here")
            given.check(ours[name]["inputSchema"]["properties"])
            if run := tools.RUNNING.get(name):
                return self._converse(request, run(given, self._options))
            if "wait" in given.values:
                self._wait_for_run(request, given)
            return self._told(tools.look(self._project, given, self._lang))
        except SkillError as error:
            return self._told(error_result(error, AGENT, self._lang, Clock().meta(AGENT)))

    def _told(self, result: Result) -> Fields:
        return as_answer(for_model(self._project, result, self._lang))

    def _exposed(self, shown: Shown, given: tools.Arguments) -> tools.Asked:
        """A skill's own tool: its properties are its params."""
        self._project.catalog.sync()
        skill = self._project.catalog.resolve(shown.address)
        known = {**signature_of(skill).params, **({"action": "action"} if skill.kind.has_actions else {})}
        if skill.kind.takes_only_declared or set(given.values) - set(known):
            given.check(known if skill.kind.takes_only_declared else {**known, **given.values})
        named = {known.get(key, key): value for key, value in given.values.items()}
        action = named.pop("action", None) if skill.kind.has_actions else None
        if action is not None and not isinstance(action, str):
            raise InvalidArgs(Message("action must be a text"))
        return tools.run_skill(Request(name=shown.address, params=named, action=action, lang=self._lang))

    def _converse(self, request: ClientRequest, asked: tools.Asked) -> Fields:
        """Run it; where the client can ask, ask for what is missing and go on with the answers."""
        if _CHANGES_KEY in request.responses:
            return self._answered_about_changes(request)
        if asked.run_id:
            return self._told(self._start(asked))
        said: dict[str, Json] = dict(request.state) if isinstance(request.state, dict) else {}
        for _ in range(_MOST_QUESTIONS):
            result = self._once(request, asked.answered(said) if said and asked.answered else asked)
            form = self._form(asked, result) if request.can_ask else None
            if form is None:
                break
            about = {"name": clean(asked.name, 80), "names": ", ".join(form.params)}
            message = Message("The skill {name} needs: {names}", **about).render(self._lang)
            answer = request.ask(_KEY, message, form.schema, said)
            content = answer.content if answer else {}
            values = {form.params[key]: content[key] for key in content if key in form.params}
            values = {name: value for name, value in values.items() if value is not None}
            if not values:
                refused = answer.action if answer else "unavailable"
                result = result._replace(meta={**result.meta, "elicitation": refused})
                break
            said |= values
        if result.meta.get("changes") != "pending":
            return self._told(result)
        return self._ask_about_changes(request, result)

    def _form(self, asked: tools.Asked, result: Result) -> Signature | None:
        """What to ask for, where the run waits for it and its skill is known."""
        required, prompts = result.data.get("required"), result.data.get("prompts")
        if result.state is not State.PENDING or not asked.name or not isinstance(required, list):
            return None
        skill = self._project.catalog.resolve(asked.name)
        return form_of(skill, [str(each) for each in required], prompts if isinstance(prompts, Mapping) else {})

    def _ask_about_changes(self, request: ClientRequest, result: Result) -> Fields:
        """Tell what the run changed; where the client can ask the person, they decide now, else by the command."""
        result = tools.with_diff(self._project, result, self._lang)
        if not request.can_ask or DEPTH in os.environ:
            return self._told(result)
        run_id = str(result.meta["run"])
        if request.is_modern:
            self._undecided[run_id] = result
            if len(self._undecided) > _MOST_UNDECIDED:
                self._undecided.pop(next(iter(self._undecided)))
        question = tools.changes_question(result, self._lang)
        return self._decided(result, request.ask(_CHANGES_KEY, question, _CHANGES_FORM, run_id))

    def _answered_about_changes(self, request: ClientRequest) -> Fields:
        run_id = str(request.state)
        if run_id not in self._undecided:  # only what was asked here is decided here
            raise InvalidArgs(Message("nothing was asked about the run {run}", run=run_id[:100]))
        return self._decided(self._undecided.pop(run_id), request.ask(_CHANGES_KEY, "", {}, run_id))

    def _decided(self, result: Result, answer: FormAnswer | None) -> Fields:
        said = str(answer.content.get(_CHANGES_KEY)) if answer and answer.action == "accept" else ""
        if said not in {tools.APPLY, tools.DISCARD}:
            action = answer.action if answer else "unavailable"
            return self._told(result._replace(meta={**result.meta, "elicitation": action}))
        return self._told(tools.decide(self._project, result, said, self._lang))

    def _start(self, asked: tools.Asked) -> Result:
        """Run it in a thread of its own, until the server ends. Return what it came to, or that it is running now."""
        clock, stop, ended = Clock(), CancelToken(), threading.Event()
        results: list[Result] = []

        def work() -> None:
            try:
                results.append(tools.attempt(asked.agent, self._lang, lambda _: asked.run(self._project, None, stop)))
            finally:
                self._started.pop(asked.run_id, None)
                ended.set()

        if len(self._started) >= _MOST_STARTED:
            raise InvalidArgs(Message("{count} runs are going on already: wait for one of them", count=_MOST_STARTED))
        self._started[asked.run_id] = stop, ended
        threading.Thread(target=work, daemon=True).start()
        while not ended.wait(_LOOK_SECONDS) and self._project.find_run(asked.run_id) is None:
            pass
        if results:
            return results[0]
        data: dict[str, Json] = {"skill": asked.name, "run_id": asked.run_id}
        said = Message("running: {name}; runs with run_id and wait gives its result", name=asked.name).render(
            self._lang
        )
        return Result(asked.agent, State.SUCCESS, said, data, clock.meta(asked.agent, {"run": asked.run_id}))

    def _wait_for_run(self, request: ClientRequest, given: tools.Arguments) -> None:
        """Until the run has ended, or the time is over. Other processes' runs are looked for again and again."""
        run_id, until = given.text("run_id"), time.monotonic() + min(given.whole("wait", 1), _MOST_WAIT_SECONDS)
        with RunProgress(request, self._lang).sending():
            while (left := until - time.monotonic()) > 0 and not request.stop.cancelled:
                run = self._project.find_run(run_id)
                if run is None or run.state != "running":
                    return
                _, ended = self._started.get(run.id, (None, threading.Event()))
                ended.wait(min(left, _LOOK_SECONDS))

    def close(self) -> None:
        """End the runs that nobody waits for."""
        started = tuple(self._started.values())
        for stop, _ in started:
            stop.cancel()
        for _, ended in started:
            ended.wait(_END_SECONDS)

    def _once(self, request: ClientRequest, asked: tools.Asked) -> Result:
        progress = RunProgress(request, self._lang)
        with progress.sending():
            return tools.attempt(
                asked.agent, self._lang, lambda _: asked.run(self._project, progress.add, request.stop)
            )
