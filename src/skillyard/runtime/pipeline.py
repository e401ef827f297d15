"""The one pipeline: Request → resolve → check → prepare → run → record → Result.

The only place where errors become results. Bugs still raise.
"""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.files import expand_home, is_folder, is_utf8
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs, MetadataMissing, ParamMissing, RuntimeFailed, SkillError, SkillNotFound
from skillyard.core.kinds import Kind
from skillyard.core.messages import PLANNED, Message
from skillyard.core.request import Call, Outcome, Request
from skillyard.core.result import Clock, Result, error_result, pending_result
from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.runners.kind import Prepared, Runner, load_kind
from skillyard.runners.leftovers import cleanup_of
from skillyard.runtime.check import check, check_text_of
from skillyard.runtime.prepare import as_plan, open_workspace, plan, prepare
from skillyard.runtime.record import OnProgress, RecordedSandbox, Recorder, RunRecord, as_run
from skillyard.sandbox.launch import Sandbox, can_mount
from skillyard.store.grants import Grants
from skillyard.trust.approved_copy import Approved, approve

if TYPE_CHECKING:
    from skillyard.sandbox.cancel_token import CancelToken


class Runtime(NamedTuple):
    """Everything that a run needs, passed in: nothing here looks at the world by itself."""

    catalog: Catalog
    sandbox: Sandbox
    recorder: Recorder
    grants: Grants
    root: Path
    own_home: Path
    new_id: Callable[[], str]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run(self, request: Request, on_progress: OnProgress = None, stop: "CancelToken | None" = None) -> Result:
        """Run one skill. Expected failures come back as results; bugs still raise. `stop` ends it from elsewhere."""
        return self._run(request, None, on_progress, stop)[0]

    def respond(self, request: Request, on_progress: OnProgress = None) -> dict[str, Json]:
        """Run one JSON skill and return its own response, whatever happened."""
        from skillyard.runners import json_skill  # noqa: PLC0415  (a run loads the module of its own kind only)

        responses: list[json_skill.JsonResponse] = []

        def runner(prepared: Prepared, sandbox: Sandbox) -> Outcome:
            responses.append(json_skill.respond(prepared, sandbox))
            return json_skill.as_outcome(prepared.call, responses[0])

        _, error = self._run(request, runner, on_progress)
        if error and not responses:
            responses.append(json_skill.as_response(error, request.action))
        return dict(responses[0].fields)

    def plan(self, request: Request) -> Result:
        """Return what a run would do, down to the last argument; nothing is started."""
        clock = Clock(self.now())
        try:
            call, granted = self._check(request)
            prepared = plan(call, granted, self.own_home)
        except SkillError as error:
            return as_result(error, request, clock.meta(request.agent))
        summary = PLANNED.render(request.lang, label=call.skill.title or call.asked_as)
        data = {"skill": call.asked_as, **as_plan(prepared, sandboxed=request.sandboxed)}
        return Result(request.agent, State.SUCCESS, summary, data, clock.meta(request.agent))

    def resolve(self, request: Request) -> Skill:
        """Return a skill of the catalog, of a folder that a person at the terminal names, or one that was staged."""
        if request.staged is not None:
            return read_folder(request.staged)
        if request.typed_in is not None and (skill := find_folder(request.name, request.typed_in)):
            return skill
        self.catalog.sync()
        if request.role:
            return self.catalog.resolve_in(request.role, request.name.removeprefix(f"{request.role}/"))
        return self.catalog.resolve(request.name)

    def approved(self, request: Request) -> Approved:
        """Return the skill with what a person granted to its present bytes."""
        skill = self.resolve(request)
        if not skill.kind.starts_program and not request.script:
            return Approved(skill)
        return approve(skill, self.grants, self.own_home)

    def _run(
        self,
        request: Request,
        respond: Runner | None = None,
        on_progress: OnProgress = None,
        stop: "CancelToken | None" = None,
    ) -> tuple[Result, SkillError | None]:
        """Return the result and the error that it reports. `respond` replaces the runner of a JSON skill."""
        clock, facts = Clock(self.now()), dict[str, Json]()
        try:
            call, granted = self._check(request)
            if respond and call.skill.kind is not Kind.JSON:
                raise InvalidArgs(
                    Message("{name} is a {kind} skill and speaks no JSON", name=request.name, kind=call.skill.kind)
                )
            prepared = prepare(call, granted, self.own_home, sandboxed=request.sandboxed)
            runner = respond or load_kind(call.skill, call.script).run
            with open_workspace(self.root, prepared):
                facts["run"] = call.run_id
                with self.recorder.recording(as_run(request, prepared, clock.moment)) as record:
                    sandbox = self._recorded(prepared, record, on_progress, stop)
                    result, error = self._tell(request, prepared, runner, sandbox, record, clock)
                    record.settle(result)
        except SkillError as error:
            return as_result(error, request, clock.meta(request.agent, facts)), error
        return result, error

    def _check(self, request: Request) -> tuple[Call, frozenset[str]]:
        """Return the checked call and its grants. Without a sandbox grants have no effect."""
        check_text_of(request)
        approved = self.approved(request)
        call = check(approved.skill, request, self.root, self.new_id())
        if approved.copy is not None and request.sandboxed:
            call = call._replace(copy=approved.copy.files, copy_is_mounted=can_mount(self.sandbox))
        return call, approved.granted

    def _recorded(
        self, prepared: Prepared, record: RunRecord, on_progress: OnProgress, stop: "CancelToken | None"
    ) -> RecordedSandbox:
        cleanup = cleanup_of(self.root, prepared.permit.policy.write)
        secrets = tuple(prepared.passed.values())
        return RecordedSandbox(self.sandbox, record, cleanup, on_progress, stop, secrets)

    def _tell(
        self, request: Request, prepared: Prepared, runner: Runner, sandbox: Sandbox, record: RunRecord, clock: Clock
    ) -> tuple[Result, SkillError | None]:
        """Run it and return the result, with the error if there was one."""
        try:
            outcome = record.masked(runner(prepared, sandbox))
        except SkillError as error:
            if isinstance(error, RuntimeFailed):
                from skillyard.runtime.grant_hints import advise  # noqa: PLC0415  (most runs work)

                advise(error, prepared, record.stderr, record.refused)
            return as_result(error, request, clock.meta(request.agent, record.facts)), error
        return outcome.as_result(request.agent, request.lang, clock.seconds, clock.moment, **record.facts), None


def find_folder(name: str, where: Path) -> Skill | None:
    """Return the skill in a folder that a person names, for one run; None if the name is no path like `./x`."""
    if not name.startswith(("./", "../", "/", "~/")) and name not in {".", ".."}:
        return None
    place = where / expand_home(name)
    if not is_folder(place):
        raise SkillNotFound(name)
    folder = Path(os.path.realpath(place))
    if not is_utf8(folder):
        raise MetadataMissing(Message("{folder!r} is not UTF-8: rename the folder", folder=str(folder)))
    return read_folder(folder)


def read_folder(folder: Path) -> Skill:
    """Return the skill in a folder. Without SKILL.md it is a prompt skill whose scripts can be run."""
    file = folder / SKILL_FILE
    if not file.is_file():
        return Skill(name=folder.name, path=file, kind=Kind.PROMPT)
    from skillyard.catalog.manifest import read_skill  # noqa: PLC0415  (brings YAML)

    reading = read_skill(file)
    if reading.skill is None:
        raise MetadataMissing(
            Message(
                "{place}: {reason}",
                place=file,
                reason=reading.findings[0].message if reading.findings else Message("unreadable"),
            )
        )
    return reading.skill


def as_result(error: SkillError, request: Request, meta: Mapping[str, Json]) -> Result:
    """Return the error as a result. A missing param leaves the run pending if somebody can answer."""
    if isinstance(error, ParamMissing) and error.required and request.interactive:
        return pending_result(error, request.agent, request.lang, meta)
    return error_result(error, request.agent, request.lang, meta)
