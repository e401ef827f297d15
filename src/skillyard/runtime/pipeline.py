"""The one pipeline: Request → resolve → check → run → record → Result.

The only place where errors become results. Bugs still raise.
"""

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.bounds import bounds_of
from skillyard.catalog.catalog import Catalog
from skillyard.core.errors import InvalidArgs, ParamMissing, RuntimeFailed, SkillError
from skillyard.core.messages import PLANNED, Message
from skillyard.core.request import Call, Outcome, Request
from skillyard.core.result import Result, error_result, make_meta, pending_result
from skillyard.core.skill import Kind, Skill
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.runners.runner import Runner, plan_of, runner_of
from skillyard.runtime.check import check, check_text_of
from skillyard.runtime.cleanup import cleanup_of
from skillyard.runtime.guard import NO_SECRETS, OnProgress, guard
from skillyard.runtime.packages import Equipment, demand_packages, equip
from skillyard.runtime.record import Record, Recorder, as_run
from skillyard.sandbox.launch import Launch, Sandbox, can_mount
from skillyard.store.grants import Grants
from skillyard.trust.approve import Approved, approve
from skillyard.trust.permit import (
    Permit,
    demand,
    grant_command,
    make_box,
    make_folders,
    make_outputs,
    permit,
    remove_empty,
)

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
        started, moment = time.monotonic(), self.now()
        run_id = self.new_id()
        facts: dict[str, Json] = {}
        try:
            check_text_of(request)
            approved = self.approved(request)
            call = self._checked(approved, request, run_id)
            if call.skill.kind is Kind.PROMPT and not call.script:
                outcome = self._read(request, call, moment, facts)
            else:
                runner = runner_of(call)
                outcome = self._start(request, call, moment, runner, approved.granted, facts, on_progress, stop)
            seconds = time.monotonic() - started
            return outcome.as_result(request.agent, request.lang, seconds, moment, **facts)
        except SkillError as error:
            meta = make_meta(request.agent, time.monotonic() - started, moment, **facts)
            return told(error, request, meta)

    def respond(self, request: Request, on_progress: OnProgress = None) -> dict[str, Json]:
        """Run one JSON skill; the answer is S3's own response, whatever happened."""
        from skillyard.runners import jsonskill
        from skillyard.runners.responses import Response, as_response

        responses: list[Response] = []

        def runner(call: Call, sandbox: Sandbox) -> Outcome:
            responses.append(jsonskill.respond(call, sandbox))
            return jsonskill.as_outcome(call, responses[0])

        try:
            check_text_of(request)
            approved = self.approved(request)
            call = self._checked(approved, request, self.new_id())
            if call.skill.kind is not Kind.JSON:
                raise InvalidArgs(
                    Message("{name} is a {kind} skill and speaks no JSON", name=request.name, kind=call.skill.kind)
                )
            self._start(request, call, self.now(), runner, approved.granted, {}, on_progress)
        except SkillError as error:
            if not responses:
                responses.append(as_response(error, request.action))
        return dict(responses[0].fields)

    def _read(self, request: Request, call: Call, moment: datetime, facts: dict[str, Json]) -> Outcome:
        """A prompt skill starts nothing; that it was used is kept all the same."""
        facts["run"] = call.run_id
        with self.recorder.recording(as_run(request, call, moment), request.lang) as record:
            return record.keep(lambda: runner_of(call)(call, self.sandbox))

    def _start(
        self,
        request: Request,
        call: Call,
        moment: datetime,
        runner: Runner,
        granted: frozenset[str],
        facts: dict[str, Json],
        on_progress: OnProgress,
        stop: "CancelToken | None" = None,
    ) -> Outcome:
        """What every run that starts a program goes through: permission, the record, the sandbox."""
        equipment = equip(_at_its_files(call), call.script, granted, self.own_home)
        found = self.permit(call, equipment, granted)
        demand(call, found)
        demand_packages(call, equipment)
        secrets = self._secrets(found)
        make_box(self.root)
        fresh = make_outputs(found.outputs)
        make_folders(found.folders)
        facts["run"] = call.run_id
        with self.recorder.recording(as_run(request, call, moment, secrets.values()), request.lang) as record:
            policy = found if request.sandboxed else None
            cleanup = cleanup_of(self.root, found.policy.write)
            guarded = guard(self.sandbox, policy, record, on_progress, secrets, stop, cleanup)
            try:
                equipped = equipment.around(guarded)
                return record.keep(lambda: runner(call, equipped))
            except RuntimeFailed as error:
                raise self._with_advice(error, call, found, record) from None
            finally:
                remove_empty(fresh)
                facts |= record.facts
                if record.refused:
                    facts["refused"] = list(record.refused)

    def _with_advice(self, error: RuntimeFailed, call: Call, found: Permit, record: Record) -> RuntimeFailed:
        """The same failure, and what it seems to need, where the policy was narrower than that."""
        from skillyard.runtime.grant_hints import HINT, TRUST_HINT, seems_to_need
        from skillyard.runtime.role_policy import wider

        # What the proxy refused is known; only for the rest its last words must do.
        guessed = seems_to_need(record.stderr, found.policy, self.root.resolve(), call.skill.folder.resolve())
        if needed := record.refused or ((guessed,) if guessed else ()):
            asked = wider(bounds_of(call.skill), self.root, call.skill.folder) if call.skill.role else ()
            by_trust = bool(asked) and {*needed} <= {*asked}
            error.details = {**error.details, "may_need": " ".join(needed)}
            error.extra_hint = TRUST_HINT if by_trust else HINT
            error.values = {
                **error.values,
                "capability": " ".join(needed),
                "grant_command": grant_command(call, needed),
            }
        return error

    def plan(self, request: Request) -> Result:
        """What a run would do, down to the last argument; nothing is started."""
        started, moment = time.monotonic(), self.now()
        try:
            check_text_of(request)
            approved = self.approved(request)
            call = self._checked(approved, request, self.new_id())
            launch = plan_of(call)(call)
            equipment = equip(_at_its_files(call), call.script, approved.granted, self.own_home)
            found = self.permit(call, equipment, approved.granted) if launch else None
        except SkillError as error:
            return told(error, request, make_meta(request.agent, time.monotonic() - started, moment))
        meta = make_meta(request.agent, time.monotonic() - started, moment)
        summary = PLANNED.render(request.lang, label=call.skill.title or call.asked_as)
        data = {"skill": call.asked_as, **_as_plan(launch, found, equipment, request)}
        return Result(agent=request.agent, state=State.SUCCESS, summary=summary, data=data, meta=meta)

    def resolve(self, request: Request) -> Skill:
        """A skill of the catalog, or a folder that the person at the terminal points at, or that was staged."""
        if request.staged is not None:
            from skillyard.runtime.script_skill import read_folder

            return read_folder(request.staged)
        if request.typed_in is not None and request.name.startswith((".", "/", "~")):
            from skillyard.runtime.script_skill import read_adhoc

            if skill := read_adhoc(request.name, request.typed_in):
                return skill
        self.catalog.sync()
        if request.role:
            return self.catalog.resolve_in(request.role, request.name.removeprefix(f"{request.role}/"))
        return self.catalog.resolve(request.name)

    def permit(self, call: Call, equipment: Equipment, granted: frozenset[str]) -> Permit:
        launch = plan_of(call)(call)
        program = equipment.dress(launch).argv[0] if launch else ""
        found = permit(call, program, granted, self.own_home, equipment.readable)
        if not call.skill.role:
            return found
        from skillyard.runtime.role_policy import bound

        return bound(call, found, granted)

    def _secrets(self, found: Permit) -> Mapping[str, str]:
        if not found.secrets:
            return NO_SECRETS
        from skillyard.runtime.secrets import read_secrets

        return read_secrets(found.secrets, self.own_home, os.environ)

    def approved(self, request: Request) -> Approved:
        """The skill, and what a person allowed it as it is now."""
        skill = self.resolve(request)
        if skill.kind is Kind.PROMPT and not request.script:
            return Approved(skill)
        return approve(skill, self.grants, self.own_home)

    def _checked(self, approved: Approved, request: Request, run_id: str) -> Call:
        """The checked call. Without a sandbox there is nothing that a grant gives: the folder is used as it is."""
        call = check(approved.skill, request, self.root, run_id)
        if approved.copy is None or not request.sandboxed:
            return call
        return call._replace(copy=approved.copy.files, copy_is_mounted=can_mount(self.sandbox))


def _at_its_files(call: Call) -> Skill:
    """The skill as if it lay where its files are read."""
    return call.skill._replace(path=call.files / call.skill.path.name)


def told(error: SkillError, request: Request, meta: Mapping[str, Json]) -> Result:
    if isinstance(error, ParamMissing) and error.required and request.interactive:
        return pending_result(error, request.agent, request.lang, meta)
    return error_result(error, request.agent, request.lang, meta)


def _as_plan(launch: Launch | None, found: Permit | None, equipment: Equipment, request: Request) -> dict[str, Json]:
    if launch is None or found is None:
        return {"starts": False}
    policy, launch = found.policy, equipment.dress(launch)
    return {
        "starts": True,
        "argv": list(launch.argv),
        "cwd": str(launch.cwd),
        "env": sorted({*launch.env, *found.variables, *(secret.name for secret in found.secrets)}),
        "limits": {
            "seconds": launch.limit_seconds,
            "output_bytes": launch.output_bytes,
            "memory_bytes": policy.memory_bytes,
            "processes": policy.processes,
        },
        "sandboxed": request.sandboxed,
        "reads": [str(path) for path in (*policy.read, *policy.tools)],
        "writes": [str(path) for path in policy.write],
        "hides": [str(path) for path in policy.hide],
        "network": policy.network,
        "hosts": list(policy.hosts),
        **equipment.as_plan(),
        "missing_grants": [*found.missing, *equipment.missing],
    }
