"""The one pipeline: Request → resolve → check → prepare → run → record → Result.

`plan` decides and changes nothing; `prepare` also refuses what a person did not grant and reads the secrets.
The only place where errors become results. Bugs still raise."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.files import (
    expand_home,
    is_folder,
    is_utf8,
    make_below,
    make_file,
    remove_if_empty,
)
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.capability import PACKAGES, READ
from skillyard.core.errors import (
    InvalidArgs,
    InvalidRequirements,
    MetadataMissing,
    NotGranted,
    ParamMissing,
    PythonMissing,
    RuntimeFailed,
    SkillError,
    SkillNotFound,
)
from skillyard.core.messages import PLANNED, Message
from skillyard.core.result import Call, Clock, Outcome, Request, Result, error_result, pending_result
from skillyard.core.secrets import Redactor
from skillyard.core.skill import Kind, Severity, Skill
from skillyard.core.values import Json
from skillyard.runners.kind import Permit, Prepared, Runner, load_kind
from skillyard.runners.leftovers import BOX, Cleanup
from skillyard.runners.requirements import Requirements, describe_needs, find_packages
from skillyard.runtime.changes import open_layers, settle
from skillyard.runtime.check import check, check_text_of
from skillyard.runtime.record import OnProgress, Recorder, RunRecord, as_run
from skillyard.sandbox.launch import Sandbox, can_mount
from skillyard.store.changes import ChangeSets
from skillyard.store.grants import Grants
from skillyard.trust.run_policy import Approved, Surroundings, approve, env_command, not_granted, noted_names, permit

if TYPE_CHECKING:
    from skillyard.core.cancel_token import CancelToken


def plan(call: Call, granted: frozenset[str], around: Surroundings) -> Prepared:
    """Return what a run would start and may touch."""
    # The skill as if it lay where its files are read.
    skill = call.skill._replace(path=call.files / call.skill.path.name)
    with advise_to_leave_out(call.known_as or call.asked_as, call.script):
        packages, imports = find_packages(skill, call.script, granted, around.own_home, call.skill.folder)
    launch = load_kind(call.skill, call.script).plan(call)
    if launch is None:
        return Prepared(call)
    if any(imports):
        launch = imports.applied(launch, call.run_folder)
    if packages:
        launch = packages.in_environment(launch)
    readable = packages.readable if packages else None
    found = permit(call, launch.argv[0], granted, around, readable)
    if packages and packages.mounts and call.copy_is_mounted:  # a grant has a copy, and this sandbox can mount
        policy = found.policy._replace(mounts=(*found.policy.mounts, *packages.mounts))
        found = found._replace(policy=policy)
    return Prepared(call, launch, found, packages, optional_modules=imports.optional)


def prepare(call: Call, granted: frozenset[str], around: Surroundings, *, sandboxed: bool = True) -> Prepared:
    """Return the plan ready to run. Raise NotGranted or SecretMissing if something it needs is missing."""
    prepared = plan(call, granted, around)
    if prepared.launch is None:
        return prepared
    found = prepared.permit
    if found.missing:
        raise not_granted(call, found.missing)
    if prepared.packages and prepared.packages.missing:
        raise packages_not_granted(call.known_as or call.asked_as, call.script, (prepared.packages.needs,))
    passed = {name: os.environ[name] for name in found.variables if sandboxed and name in os.environ}
    if found.secrets:
        from skillyard.runtime.role_secrets import read_secrets  # noqa: PLC0415  (only roles have any)

        passed |= read_secrets(found.secrets, around.own_home, os.environ)
    policy = found.policy._replace(home_names=noted_names(found.policy, around.user_home)) if sandboxed else None
    launch = prepared.launch._replace(env={**prepared.launch.env, **passed}, policy=policy)
    return prepared._replace(launch=launch, passed=passed)


def packages_not_granted(asked_as: str, script: str, needs: tuple[Requirements, ...], more: str = "") -> NotGranted:
    """Return the error with the packages and the command that shows them, asks and builds."""
    details: dict[str, Json] = {
        "capability": PACKAGES,
        "packages": sorted({package for each in needs for package in each.packages}),
        "imported": sorted({package for each in needs for package in each.imported}),
        "requires_python": sorted({each.python for each in needs if each.python}),
    }
    told, command = Message("packages {told}", told=describe_needs(needs)), env_command(asked_as, script)
    return NotGranted(told, f"{command}{more}", details=details)


@contextmanager
def advise_to_leave_out(asked_as: str, script: str) -> Iterator[None]:
    """Add to an error about one requirement how to go on without it."""
    try:
        yield
    except (InvalidRequirements, PythonMissing) as error:
        if line := "python" if isinstance(error, PythonMissing) else error.details.get("line"):
            command = f"{env_command(asked_as, script)} {shlex.quote(f'--without={line}')}"
            error.details = {**error.details, "grant": command}
            error.extra_hint = Message("the person can go on without it: {command}", command=command)
        raise


def as_plan(prepared: Prepared, *, sandboxed: bool) -> dict[str, Json]:
    """Return what a dry run shows."""
    launch, found, packages = prepared.launch, prepared.permit, prepared.packages
    if launch is None:
        return {"starts": False}
    policy = found.policy
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
        "sandboxed": sandboxed,
        "reads": [str(path) for path in (*policy.read, *policy.tools)],
        "writes": [str(path) for path in policy.write],
        "hides": [str(path) for path in policy.hide],
        "network": policy.network,
        "hosts": list(policy.hosts),
        **({"environment": packages.as_dict()} if packages else {}),
        "missing_grants": [*found.missing, *((PACKAGES,) if packages and packages.missing else ())],
    }


@contextmanager
def open_workspace(root: Path, prepared: Prepared) -> Iterator[None]:
    """Make the files and folders that the sandbox opens. Outputs that the run left empty are removed again."""
    if prepared.launch is None:
        yield
        return
    make_box(root)
    made = {path: make_file(path) for path in prepared.permit.outputs if not path.is_dir()}
    make_folders(prepared.permit)
    try:
        yield
    finally:
        for path, inode in made.items():
            if inode is not None:
                remove_if_empty(path, inode)


def make_box(root: Path) -> None:
    """Make the folders that every run may write. PermissionDenied if one of them is a link."""
    for folder in ("output", "workspace", "temp"):
        make_below(root.resolve(), root.resolve() / BOX / folder)


def make_folders(found: Permit) -> None:
    """Make the folders that the sandbox opens or covers. They are not removed: another run may be using them."""
    for path in found.folders:  # resolved before: a link on the way came later, and is refused
        make_below(Path(path.anchor), path)


class Runtime(NamedTuple):
    """Everything that a run needs, passed in: nothing here looks at the world by itself."""

    catalog: Catalog
    sandbox: Sandbox
    recorder: Recorder
    grants: Grants
    root: Path
    own_home: Path
    new_id: Callable[[], str]
    changes: ChangeSets
    user_home: Path | None = None
    #: Whether a run sees the project it runs in; else only what is named.
    reads_project: bool = True

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
        return Redactor().mapping(responses[0].fields)

    def plan(self, request: Request) -> Result:
        """Return what a run would do, down to the last argument; nothing is started."""
        clock = Clock()
        try:
            call, granted = self._check(request)
            prepared = plan(call, granted, self._around(granted))
        except SkillError as error:
            return as_result(error, request, clock.meta(request.agent))
        data = {"skill": call.asked_as, **as_plan(prepared, sandboxed=request.sandboxed)}
        outcome = Outcome(data=data, says=PLANNED, words={"label": call.skill.title or call.asked_as})
        return outcome.as_result(request.agent, request.lang, clock.seconds, clock.moment)

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

    def _run(
        self, request: Request, respond: Runner | None, on_progress: OnProgress, stop: "CancelToken | None" = None
    ) -> tuple[Result, SkillError | None]:
        """Return the result and the error that it reports. `respond` replaces the runner of a JSON skill."""
        clock, facts = Clock(), dict[str, Json]()
        try:
            call, granted = self._check(request)
            if respond and (kind := call.skill.kind) is not Kind.JSON:
                told = Message("{name} is a {kind} skill and speaks no JSON", name=request.name, kind=kind)
                raise InvalidArgs(told)
            prepared = prepare(call, granted, self._around(granted), sandboxed=request.sandboxed)
            runner = respond or load_kind(call.skill, call.script).run
            cleanup = Cleanup(self.root, prepared.permit.policy.write)
            layered = open_layers(self.changes, prepared, self.root.resolve(), granted)
            with open_workspace(self.root, prepared), layered as (prepared, layers):
                facts["run"] = call.run_id
                with self.recorder.recording(as_run(request, prepared, clock.moment)) as record:
                    secrets, shown = prepared.passed.values(), request.show_secrets
                    sandbox = record.wrap(self.sandbox, cleanup, on_progress, stop, *secrets, show_secrets=shown)
                    result, error = _run_recorded(request, prepared, runner, sandbox, record, clock)
                    if layers:
                        try:
                            result = settle(result, layers, self.changes, granted, record.exit, apply=request.apply)
                        except SkillError as refused:
                            error = refused
                            result = as_result(error, request, clock.meta(request.agent, record.facts))
                    result = record.settle(result)
        except SkillError as error:
            return Redactor().result(as_result(error, request, clock.meta(request.agent, facts))), error
        return result, error

    def _around(self, granted: frozenset[str]) -> Surroundings:
        opens = any(capability.startswith(f"{READ}:") for capability in granted)
        return Surroundings(self.own_home, self.user_home, opens and can_mount(self.sandbox), self.reads_project)

    def _check(self, request: Request) -> tuple[Call, frozenset[str]]:
        """Return the checked call and its grants. Without a sandbox grants have no effect."""
        check_text_of(request)
        skill = self.resolve(request)
        starts_program = skill.kind.starts_program or request.script
        # What a person granted to the present bytes of the skill.
        approved = approve(skill, self.grants, self.own_home) if starts_program else Approved(skill)
        call = check(approved.skill, request, self.root, self.new_id(), self.changes.below)
        if approved.copy is not None and request.sandboxed:
            call = call._replace(copy=approved.copy.files, copy_is_mounted=can_mount(self.sandbox))
        return call, approved.granted


def _run_recorded(
    request: Request, prepared: Prepared, runner: Runner, sandbox: Sandbox, record: RunRecord, clock: Clock
) -> tuple[Result, SkillError | None]:
    """Run it and return the result, with the error if there was one."""
    error: SkillError | None = None
    try:
        outcome = runner(prepared, sandbox)
    except SkillError as failed:
        error = failed
    if ended := record.exit:
        missed = ended.looked_for or ended.home_files or ended.read_only or ended.tried_network
        if missed or isinstance(error, RuntimeFailed):
            from skillyard.runtime.grant_hints import advise, note  # noqa: PLC0415  (most runs miss nothing)

            record.notes = tuple(text.render(request.lang) for text in note(ended, prepared.call))
            if isinstance(error, RuntimeFailed):
                advise(error, prepared, ended)
    facts = record.facts
    if count := sum(finding.severity is not Severity.NOTE for finding in prepared.call.skill.findings):
        facts["findings"] = count
    if error:
        return as_result(error, request, clock.meta(request.agent, facts)), error
    return outcome.as_result(request.agent, request.lang, clock.seconds, clock.moment, **facts), None


def find_folder(name: str, where: Path) -> Skill | None:
    """Return the skill in a folder that a person names, for one run; None if the name is no path like `./x`."""
    if not name.startswith(("./", "../", "/", "~/")) and name not in {".", ".."}:
        return None
    place = where / expand_home(name)
    if not is_folder(place):
        raise SkillNotFound(name)
    return read_folder(Path(os.path.realpath(place)))


def read_folder(folder: Path) -> Skill:
    """Return the skill in a folder. Without SKILL.md it is a prompt skill whose scripts can be run."""
    if not is_utf8(folder):
        raise MetadataMissing(Message("{folder!r} is not UTF-8: rename the folder", folder=str(folder)))
    file = folder / SKILL_FILE
    if not file.is_file():
        return Skill(name=folder.name, path=file, kind=Kind.PROMPT)
    from skillyard.catalog.manifest import read_skill  # noqa: PLC0415  (brings YAML)

    reading = read_skill(file)
    if reading.skill is None:
        reason = reading.findings[0].message if reading.findings else Message("unreadable")
        raise MetadataMissing(Message("{place}: {reason}", place=file, reason=reason))
    return reading.skill


def as_result(error: SkillError, request: Request, meta: Mapping[str, Json]) -> Result:
    """Return the error as a result. A missing param leaves the run pending if somebody can answer."""
    if isinstance(error, ParamMissing) and error.required and request.interactive:
        return pending_result(error, request.agent, request.lang, meta)
    return error_result(error, request.agent, request.lang, meta)
