"""Our own tools and what each does, without the protocol; skills as tools of their own; params as JSON Schema.

What a tool does is synchronous, for a thread of its own: arguments in, one result out.
"""

import shlex
import time
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.app.project import Project, new_run_id
from skillyard.app.task import SKILLS, WORKER, Kernel
from skillyard.core.backend_events import Event
from skillyard.core.envelope import from_dict
from skillyard.core.errors import InvalidArgs, NotGranted
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Clock, Request, Result, error_result, split_name
from skillyard.core.secrets import Redactor
from skillyard.core.skill import Param, ParamType, Skill
from skillyard.core.states import State
from skillyard.core.values import Json, check_value
from skillyard.faces.command import AGENT, EXPECTED, as_skill_error
from skillyard.faces.mcp import listing
from skillyard.faces.mcp.listing import Shown, clean, safe_names
from skillyard.faces.mcp.protocol import Fields
from skillyard.faces.mcp.resources import list_files
from skillyard.faces.skill_data import as_full_data, as_run_data, as_search_data, as_skill_data, fields_of, line_of

if TYPE_CHECKING:
    from skillyard.core.cancel_token import CancelToken
    from skillyard.runtime.record import OnProgress

ACTION = "action"
APPLY, DISCARD = "apply", "discard"
_LOOK_SECONDS = 0.5
_MOST = 100
#: Of a log, which the model reads, the end.
_LOG_CHARACTERS = 20_000
_DIFF_CHARACTERS = 4_000
_MOST_NAMED = 20
#: More than a model could use, and less than a hostile file could hold.
_MOST_PARAMS = 64
_MOST_CHOICES = 100
_DESCRIPTION = 300
_TYPES = {
    ParamType.INT: "integer",
    ParamType.NUMBER: "number",
    ParamType.BOOL: "boolean",
    ParamType.OBJECT: "object",
    ParamType.ARRAY: "array",
}
_JSON_TYPES = frozenset({"string", *_TYPES.values()})
#: Levels of a nested declaration that are shown.
_DEEPEST = 4
_FORMATS = {"email": "email", "url_format": "uri"}


class Signature(NamedTuple):
    """What a tool takes, and which param of the skill each property stands for."""

    schema: Mapping[str, Any]
    params: Mapping[str, str]


def signature_of(skill: Skill) -> Signature:
    """The params of a skill. Their names are made safe too: for one bad name, model APIs refuse all tools at once."""
    params = skill.params[:_MOST_PARAMS]
    own = {ACTION: _action(skill)} if skill.kind.has_actions else {}
    names = safe_names((param.name for param in params), frozenset(own))
    properties = {**own, **{names[param.name]: _property(param) for param in params}}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    required = [ACTION] if len(skill.actions) > 1 else []
    required += [names[param.name] for param in params if param.required and param.default is None]
    if required:
        schema["required"] = required
    if skill.kind.takes_only_declared:
        schema["additionalProperties"] = False
    return Signature(schema, {safe: name for name, safe in names.items()})


def form_of(skill: Skill, missing: Sequence[str], prompts: Mapping[str, Json]) -> Signature:
    """The same for the missing ones alone: flat, and with primitive types only, as a form must be."""
    declared = {param.name: param for param in skill.params}
    names = safe_names(missing)
    properties: dict[str, Any] = {}
    for name in missing:
        param = declared.get(name) or Param(name=name, required=True)
        shown = _action(skill) if name == ACTION and name not in declared else _property(param)
        said = clean(str(prompts.get(name) or ""), _DESCRIPTION)
        properties[names[name]] = {**shown, "title": clean(name, 80), **({"description": said} if said else {})}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Signature(schema, {safe: name for name, safe in names.items()})


def _action(skill: Skill) -> dict[str, Any]:
    return {"type": "string", "description": "what the skill is to do", **_choices(skill.actions)}


def _property(param: Param) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": _TYPES.get(param.type, "string"), **_inside(param.inside or {})}
    if said := clean(param.description or param.prompt, _DESCRIPTION):
        shown["description"] = said
    shown |= _choices(param.choices)
    if param.validation in _FORMATS and param.type is ParamType.STRING:
        shown["format"] = _FORMATS[param.validation]
    default = param.default
    is_plain = clean(default, _DESCRIPTION) == default if isinstance(default, str) else isinstance(default, int | float)
    if is_plain:
        shown["default"] = default
    return shown


def _inside(declared: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    """Return what a declared object or list holds: the types by name, as deep as a model reads."""
    if depth > _DEEPEST:
        return {}
    shown: dict[str, Any] = {}
    if declared.get("type") in _JSON_TYPES:
        shown["type"] = declared["type"]
    if isinstance(text := declared.get("description"), str) and (said := clean(text, _DESCRIPTION)):
        shown["description"] = said
    if isinstance(listed := declared.get("enum"), list):
        shown |= _choices([each for each in listed if isinstance(each, str)])
    if isinstance(items := declared.get("items"), Mapping):
        shown["items"] = _inside(items, depth + 1)
    if isinstance(properties := declared.get("properties"), Mapping):
        plain = [name for name in properties if clean(name, 200) == name][:_MOST_CHOICES]
        specs = {name: properties[name] for name in plain}
        shown["properties"] = {
            name: _inside(spec, depth + 1) for name, spec in specs.items() if isinstance(spec, Mapping)
        }
        required = declared.get("required")
        if isinstance(required, list) and (names := [name for name in required if name in shown["properties"]]):
            shown["required"] = names
    return shown


def _choices(choices: Sequence[str]) -> dict[str, Any]:
    """Values are sent back as they are: one that cannot be shown as it is would be another one."""
    plain = [choice for choice in choices if choice and clean(choice, 200) == choice]
    return {"enum": plain} if 0 < len(plain) <= _MOST_CHOICES else {}


def skill_tool(shown: Shown, skill: Skill, granted: Sequence[str]) -> Fields:
    """What the hints say follows from what a person granted: without a grant nothing is reached outside, and whatever a
    run changes in the project waits for the person. A file that the caller names is written to mybox/."""
    is_open = any(capability.partition(":")[0] == "network" for capability in granted)
    is_writing = any(capability.partition(":")[0] == "write" for capability in granted)
    names_output = "{output}" in str(skill.command)
    hints = {"readOnlyHint": not (is_open or is_writing or names_output), "destructiveHint": is_writing}
    return {
        "name": shown.name,
        "title": clean(skill.title or shown.address, 80) or shown.name,
        "description": clean(skill.description, 1_000) or "A skill without a description.",
        "inputSchema": signature_of(skill).schema,
        "annotations": {**hints, "openWorldHint": is_open},
    }


class Arguments(NamedTuple):
    """The arguments of a tool, with a method for each type of value. A wrong one raises InvalidArgs."""

    tool: str
    values: Mapping[str, Any]

    def check(self, known: Mapping[str, Any]) -> None:
        """Nothing that nobody reads, and nothing that cannot be written down."""
        if unknown := ", ".join(sorted(set(self.values) - set(known))):
            takes = {"tool": self.tool, "unknown": unknown, "known": ", ".join(known)}
            raise InvalidArgs(Message("{tool} takes no {unknown}; it takes {known}", **takes))
        try:
            check_value(self.values)
        except ValueError as error:
            raise InvalidArgs(str(error)) from None

    def text(self, name: str) -> str:
        value = self.find_text(name)
        if value is None or not value.strip():
            raise InvalidArgs(Message("{tool} needs {name}, a text", tool=self.tool, name=name))
        return value

    def find_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArgs(Message("{name} must be a text", name=name))
        return value

    def whole(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgs(Message("{name} must be a whole number above zero", name=name))
        return value

    def mapping(self, name: str) -> Mapping[str, Json]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict):
            raise InvalidArgs(Message("{name} must be an object", name=name))
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InvalidArgs(Message("{name} must be a list of texts", name=name))
        return tuple(value)


class Asked(NamedTuple):
    """A run that a client asked for."""

    agent: str
    run: "Callable[[Project, OnProgress, CancelToken], Result]"
    #: The skill that it runs, if it is one that the client can be asked about.
    name: str = ""
    #: Returns the same run with what was missing.
    answered: "Callable[[Mapping[str, Json]], Asked] | None" = None
    #: The client does not wait for it: this is the id that it is found by.
    run_id: str = ""


def run_skill(request: Request, run_id: str = "") -> Asked:
    def answered(answers: Mapping[str, Json]) -> Asked:
        params, action = {**request.params, **answers}, request.action
        if action is None and "action" in answers:
            action = str(params.pop("action"))
        return run_skill(request._replace(params=params, action=action), run_id)

    def run(project: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        runtime = project.runtime
        return (runtime._replace(new_id=lambda: run_id) if run_id else runtime).run(request, on_progress, stop)

    return Asked(SKILLS, run, request.name, answered, run_id)


def _search(project: Project, given: Arguments) -> tuple[Message, dict[str, Json]]:
    query, limit = given.find_text("query") or "", min(given.whole("limit", 20), _MOST)
    if not query.strip():
        return _list_by_use(project, given.whole("page", 1), limit)
    hits = project.catalog.search(query, limit)
    if not hits and any(project.catalog.sync()[:3]):
        hits = project.catalog.search(query, limit)
    found = as_search_data(hits, query, project.catalog)
    return Message("{count} skills match: {query}", count=len(hits), query=query), {**found, "skills": _slim(found)}


def _list_by_use(project: Project, page: int, limit: int) -> tuple[Message, dict[str, Json]]:
    project.catalog.sync()
    uses = project.catalog.uses()
    entries = sorted(project.catalog.list(), key=lambda entry: -uses.get(entry.name, 0))
    shown = [as_skill_data(entry, project.catalog) for entry in entries[(page - 1) * limit : page * limit]]
    more: dict[str, Json] = {"next_page": page + 1} if page * limit < len(entries) else {}
    said = Message("{count} of {total} skills, the most used first", count=len(shown), total=len(entries))
    return said, {"skills": _slim({"skills": shown}), "total": len(entries), **more}


def _slim(found: Mapping[str, Json]) -> list[Json]:
    """The skills without what is empty or said already."""
    slim: list[Json] = []
    skills: Any = found["skills"]
    for skill in skills:
        said = {key: value for key, value in skill.items() if value not in _EMPTY}
        if clean(str(said.get("snippet", "")), _DESCRIPTION).strip("…") in clean(
            str(said.get("description", "")), 10_000
        ):
            said.pop("snippet", None)
        for key in ("folder_name", "title"):
            if said.get(key) == said["name"]:
                del said[key]
        slim.append(said)
    return slim


_EMPTY: tuple[Json, ...] = (None, "", [], {})
#: Keys of the frontmatter that are told under a name of ours.
_TOLD = frozenset(
    {
        *(
            "name",
            "title",
            "description",
            "command",
            "entry",
            "actions",
            "params",
            "parameters",
            "required_params",
            "tags",
        )
    }
)


def _show(project: Project, given: Arguments) -> tuple[Message, dict[str, Json]]:
    asked = split_name(given.text("name"))[0]
    project.catalog.sync()
    skill = project.catalog.resolve(asked)
    known = as_full_data(skill, project)
    known["fields"] = {
        key: value for key, value in skill.fields.items() if key not in _TOLD and value != known.get(key)
    }
    known["params"] = [
        {key: value for key, value in fields_of(param, *_PARAM).items() if value not in _EMPTY}
        for param in skill.params
    ]
    told: dict[str, Json] = {key: value for key, value in known.items() if value not in _EMPTY}
    return Message("skill: {name}", name=skill.name), {"skills": [{**told, "files": list(list_files(skill, asked))}]}


_PARAM = ("name", "type", "required", "default", "description", "choices")


def _skill_run(given: Arguments, options: listing.Options) -> Asked:
    name, script = split_name(given.text("name"))
    action, args, params = given.find_text("action"), given.words("args"), given.mapping("params")
    request = Request(name, script=script, args=args, params=params, action=action, lang=options.lang)
    waits = given.values.get("wait", True)
    if not isinstance(waits, bool):
        raise InvalidArgs(Message("{name} must be true or false", name="wait"))
    return run_skill(request, "" if waits else new_run_id())


def _task(given: Arguments, options: listing.Options) -> Asked:
    """A Task: docs/spec/task.md."""
    agent, prompt, about = given.text("subagent_type"), given.text("prompt"), given.find_text("description") or ""
    model, key = given.find_text("model"), given.find_text("idempotency_key")
    is_worker = agent in {"worker", "worker_agent"}

    def run(project: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        if is_worker and listing.WORKER not in options.allowed:
            raise NotGranted(Message("the worker over MCP"), "skillyard mcp --allow worker")
        kernel = Kernel(project, options.lang)
        return kernel.task(agent, about, prompt, idempotency_key=key, model=model, on_progress=on_progress, stop=stop)

    def answered(answers: Mapping[str, Json]) -> Asked:
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in answers.items()}
        words = " ".join(shlex.quote(f"--{name}={text}") for name, text in texts.items())
        return _task(given._replace(values={**given.values, "prompt": f"{prompt} {words}"}), options)

    if is_worker:
        return Asked(WORKER, run, answered=answered)
    named = next((word for word in prompt.split() if word.startswith("@")), "")
    return Asked(SKILLS, run, split_name(named)[0], answered)


def _runs(project: Project, given: Arguments) -> tuple[Message, dict[str, Json]]:
    run_id, limit = given.find_text("run_id") or "", given.whole("limit", 20)
    if run_id:
        run = project.find_run(run_id)
        if run is None:
            text = Message("no run {run_id!r} here, or more than one starts so; runs alone lists them", run_id=run_id)
            raise InvalidArgs(text)
        log, fields = project.logs.read(run.id)[-_LOG_CHARACTERS:], as_run_data(run)
        result: Any = fields["result"]
        is_told = isinstance(result, dict) and str(result.get("data", {}).get("content", "")).strip() == log.strip()
        return Message("run {id}", id=run.id), {"runs": [{**fields, **({} if is_told else {"log": log})}]}
    shown: list[Json] = []
    for run in project.runs(min(limit, _MOST)):  # a list is for choosing; the rest is one call away
        fields = as_run_data(run)
        result = fields.pop("result")
        del fields["launch"]
        shown.append({**fields, "summary": result.get("summary") if isinstance(result, Mapping) else None})
    return Message("{count} runs", count=len(shown)), {"runs": shown}


def _dispatch(given: Arguments, options: listing.Options) -> Asked:
    """A task with the active skills, for another agent. Nobody is there to allow it anything."""
    task, cwd = given.text("task"), given.find_text("cwd")
    whom: dict[str, Any] = {name: given.find_text(name) for name in ("to", "session", "model")}

    def run(project: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        from skillyard.app.dispatching import dispatch_task  # noqa: PLC0415  (only who may dispatch needs the agents)

        root = project.root.resolve()
        folder = (root / (cwd or ".")).resolve()
        if not folder.is_relative_to(root):
            raise InvalidArgs(Message("{cwd} is outside the project", cwd=cwd))

        def tell(event: Event) -> None:
            line = line_of(event.kind, event.text, event.data, options.lang)
            if on_progress and line:
                on_progress(f"{line}\n".encode())

        return dispatch_task(task, **whom, cwd=folder, lang=options.lang, tell=tell, stop=stop, project=project)

    return Asked(AGENT, run)


def _job_run(given: Arguments, options: listing.Options) -> Asked:
    """A job of a schedule or a skill, for a worker to do. Whoever stops waiting leaves it as it is."""
    schedule, skill = given.find_text("name") or "", (given.find_text("skill") or "").removeprefix("@")
    params, action, lang = given.mapping("params"), given.find_text("action") or "", options.lang
    wait_seconds = given.whole("wait", 1) if "wait" in given.values else 0
    if bool(schedule) == bool(skill):
        raise InvalidArgs(Message("job_run takes name, of a schedule, or skill, and not both"))
    if schedule and (params or action):
        raise InvalidArgs(Message("a schedule has its own params: they go with skill"))

    def run(project: Project, _: "OnProgress", stop: "CancelToken") -> Result:
        from skillyard.app.job_values import Job, refuse_loops  # noqa: PLC0415  (only who may queue jobs needs them)

        clock = Clock()
        with project.jobs.open() as jobs:
            if schedule:
                job = project.jobs.for_schedule(project.jobs.find_schedule(jobs, schedule), lang)
            else:
                job = project.jobs.prepare(Job(skill, params=params, action=action, lang=str(lang)))
            refuse_loops(job)
            job_id = jobs.enqueue(job)
            known, until = None, time.monotonic() + wait_seconds
            while known is None and not stop.cancelled and (left := until - time.monotonic()) > 0:
                known = jobs.wait(job_id, min(left, _LOOK_SECONDS))
            known = known or jobs.find(job_id)
        about: dict[str, Json] = {"job": {"id": known.id, "name": known.job.label, "state": known.state}}
        if known.result:
            result = from_dict(known.result)
            return result._replace(data={**result.data, **about})
        summary = Message("queued, a worker does it: {name} ({id})", name=known.job.label, id=known.id)
        return Result(AGENT, State.SUCCESS, summary.render(lang), about, clock.meta(AGENT))

    return Asked(AGENT, run)


def with_diff(project: Project, result: Result, lang: Lang) -> Result:
    """Return the result with the beginning of what it changed line by line, and how the person applies it."""
    run_id = str(result.meta["run"])
    kept = project.changes.find(run_id, project.root)
    if kept is None:
        return result
    text = ""
    for change in project.read_changes(kept).changes:
        text += project.diff_changes(kept, (change,))
        if len(text) > _DIFF_CHARACTERS:
            text = f"{text[:_DIFF_CHARACTERS]}\n…"
            break
    applied_by = Message("the user applies the changes with `skillyard changes {run} apply`", run=run_id).render(lang)
    hint = "; ".join(filter(None, (str(result.meta.get("hint") or ""), applied_by)))
    return result._replace(data={**result.data, "diff": Redactor().text(text)}, meta={**result.meta, "hint": hint})


def changes_question(result: Result, lang: Lang) -> str:
    listed: Any = result.data["changes"]
    asked = Message(
        "The run of {skill} changed {count} files of the project: {names}. Apply, discard, or decide later?",
        skill=result.data.get("skill", ""),
        count=result.data.get("changes_total") or len(listed),
        names=", ".join(f"{change['kind']} {change['path']}" for change in listed[:_MOST_NAMED]),
    )
    return clean(asked.render(lang), 2000)


def decide(project: Project, result: Result, decision: str, lang: Lang) -> Result:
    """Apply or discard what a run changed, as the person said."""

    def act(_: Clock) -> Result:
        kept = project.changes.find(str(result.meta["run"]), project.root)
        if kept is None:
            return result
        if decision == APPLY:
            project.changes.apply(kept, project.read_changes(kept).changes)
        else:
            project.changes.discard(kept)
        meta = {key: value for key, value in result.meta.items() if key != "hint"}
        return result._replace(meta={**meta, "changes": "applied" if decision == APPLY else "discarded"})

    return attempt(result.agent, lang, act)


def look(project: Project, given: Arguments, lang: Lang) -> Result:
    """Return what one of the tools that only read says."""

    def answer(clock: Clock) -> Result:
        summary, data = READING[given.tool](project, given)
        return Result(AGENT, State.SUCCESS, summary.render(lang), data, clock.meta(AGENT))

    return attempt(AGENT, lang, answer)


def attempt(agent: str, lang: Lang, work: Callable[[Clock], Result]) -> Result:
    """The runtime tells its own failures; what it leaves are ours: a full disk, a worker that nobody allowed."""
    clock = Clock()
    try:
        return work(clock)
    except EXPECTED as error:
        return error_result(as_skill_error(error), agent, lang, clock.meta(agent))


#: The tools that only read, and those that run something.
READING = {"skill_search": _search, "skill_show": _show, "runs": _runs}
RUNNING = {"skill_run": _skill_run, "Task": _task, "agent_dispatch": _dispatch, "job_run": _job_run}


#: What the person must have allowed for a tool.
_NEEDS = {"Task": listing.WORKER, "agent_dispatch": "dispatch", "job_run": "jobs"}
_DECLARED = tomllib.loads(Path(__file__).with_name("tools.toml").read_text("utf-8"))


def _own_tool(name: str, declared: Fields) -> Fields:
    hints = {"readOnlyHint": name in READING, "openWorldHint": name not in READING}
    return {"name": name, "outputSchema": _DECLARED["envelope"], "annotations": hints, **declared}


_OWN = {name: _own_tool(name, declared) for name, declared in _DECLARED["tools"].items()}


def own_tools(allowed: Container[str]) -> tuple[Fields, ...]:
    """Return those that everybody has, and those that the person allowed."""
    return tuple(tool for name, tool in _OWN.items() if name not in _NEEDS or _NEEDS[name] in allowed)
