"""Probes for `skillyard check`: of a skill's text, of a command, and every rule of docs/spec/json-skills.md."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.core.errors import ParamMissing, SkillError
from skillyard.core.messages import Message
from skillyard.core.result import Call, meaningful
from skillyard.core.skill import SLOT, Param, ParamType, Severity, Skill
from skillyard.core.values import Json
from skillyard.runners import command, json_skill
from skillyard.runners.kind import quoted, usage_of
from skillyard.runners.leftovers import BOX
from skillyard.sandbox.launch import Exit, Launch

#: A file of every trial, for params that take a path.
SAMPLE = "sample.txt"
#: What is handed to a backend agent, over all skills; a longer text is never handed over.
MAX_CHARACTERS = 30_000
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(\s{0,9}+<?([^)<>#:\s]{1,500}+)[^)]{0,500}+\)")
_MENTION = re.compile(r"(?<![\w/.-])(?:scripts|references|assets)/[\w./-]*\w\.\w+")
_PROGRAM = re.compile(r"[\w./-]+\.(?:py|sh|bash|js|mjs|cjs|ts|rb|pl)")
_REFUSED = re.compile(r"read-only file system|permission denied|operation not permitted|EROFS|EACCES", re.IGNORECASE)
_NO_OPTION = "--no-such-option-of-any-program"
#: What a JSON skill may rightly say to values that were made up.
_REFUSALS = (
    *("MISSING_PARAM", "INVALID_PARAM", "TIMEOUT", "PERMISSION_DENIED", "DATA_NOT_FOUND", "EXTERNAL_SERVICE_ERROR"),
)
CODES = ("INVALID_JSON", "UNKNOWN_ACTION", *_REFUSALS, "INTERNAL_ERROR")
#: No scalar type takes this.
WRONG: Json = {"unexpected": ["object"]}
_UNKNOWN = "no_such_action_of_any_skill"
#: Actions that may answer differently each time.
_MAY_DIFFER = frozenset({"fetch"})
_GRACE_SECONDS = 2.0
_LEAST_SECONDS = 0.02


class ProbeVerdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Probe(NamedTuple):
    """The result of one probe, with advice."""

    verdict: ProbeVerdict
    name: str
    says: str
    #: Also where it passed: what would be better still.
    advice: str = ""

    def as_dict(self) -> dict[str, Json]:
        return {"name": self.name, "verdict": str(self.verdict), "says": self.says, "advice": self.advice}


passed = partial(Probe, ProbeVerdict.PASSED)
failed = partial(Probe, ProbeVerdict.FAILED)
skipped = partial(Probe, ProbeVerdict.SKIPPED)


class Trial(NamedTuple):
    """A project of its own that is thrown away, the real sandbox, and no grants."""

    root: Path
    limit_seconds: float
    #: Checks a request for a skill with these params and, if given, an action, as a run does.
    check: Callable[..., Call]
    #: Starts a program under the policy of an ungranted skill.
    start: Callable[[Call, Launch], Exit]


class ExpectedParam(NamedTuple):
    """One param: SKILL.md's, or the one that the program itself describes."""

    name: str
    type: str = "any"
    required: bool = False
    default: Json = None
    choices: tuple[Json, ...] = ()


def declared(params: Iterable[Param]) -> tuple[ExpectedParam, ...]:
    return tuple(ExpectedParam(p.name, str(p.type), p.required, p.default, p.choices) for p in params)


def make_up(params: Iterable[ExpectedParam], path: str, *, every: bool = False) -> dict[str, Json]:
    """Return values for the required params and those with a default, which a run fills in; or for `every` param."""
    samples: dict[str, Json] = {"int": 1, "number": 1.5, "bool": True, "path": path}
    samples |= {"list": ["example"], "dict": {"key": "value"}}
    values: dict[str, Json] = {}
    for param in params:
        if param.default is not None:
            values[param.name] = param.default
        elif param.required or every:
            values[param.name] = param.choices[0] if param.choices else samples.get(param.type, "example")
    return values


# -- the text


def text_probes(skill: Skill) -> Iterator[Probe]:
    reading = lint(read_skill(skill.path))
    worst = [finding for finding in reading.findings if finding.severity is not Severity.NOTE]
    if worst:
        first = max(worst, key=lambda finding: finding.severity.rank)
        says = Message("{line}:{column} {reason}", line=first.line, column=first.column, reason=first.message)
        if len(worst) > 1:
            says = Message("{first} (and {count} more: `skillyard validate`)", first=says, count=len(worst) - 1)
        yield (failed if first.severity is Severity.ERROR else passed)("SKILL.md", says, first.advice)
    else:
        yield passed("SKILL.md", Message("well written"))
    name, count = Message("size"), len(reading.body.strip())
    says = Message("{count} characters", count=count)
    advice = Message("agents are handed at most {most}: move parts to files in references/", most=MAX_CHARACTERS)
    yield failed(name, says, advice) if count > MAX_CHARACTERS else passed(name, says)
    yield _files(reading.body, skill)


def _files(body: str, skill: Skill) -> Probe:
    """A link must lead somewhere; a file that is only mentioned may be an example."""
    name = Message("files it names")
    linked = dict.fromkeys(_LINK.findall(_CODE.sub("", body)))
    mentioned = dict.fromkeys(_MENTION.findall(body))
    broken, absent = ([path for path in paths if not (skill.folder / path).exists()] for paths in (linked, mentioned))
    if broken:
        advice = Message("add the files, or correct the links")
        return failed(name, Message("not there: {broken}", broken=", ".join(broken[:5])), advice)
    if absent:
        advice = Message("add them if they are not examples")
        return passed(name, Message("mentioned, but not there: {absent}", absent=", ".join(absent[:5])), advice)
    return passed(name, Message("{count}, all there", count=len({*linked, *mentioned})))


# -- command skills: can the command be filled in, is the program there, does it keep to its place


def command_probes(skill: Skill, trial: Trial) -> Iterator[Probe]:
    yield _missing_params(skill, trial)
    try:
        words = command.split(skill.command)
        call = trial.check(skill, make_up(declared(skill.params), SAMPLE))
        launch = command.plan(call)
    except SkillError as error:
        advice = Message("write one program with its arguments, and {{slots}} for params")
        yield failed(Message("command"), error.msg, advice)
        return
    named = (word for word in words if _PROGRAM.fullmatch(word) and not SLOT.search(word))
    if absent := next((word for word in named if not (skill.folder / word).is_file()), ""):
        says = Message("{absent} is not in the skill's folder", absent=absent)
        yield failed("program", says, Message("add it, or correct the command"))
        return
    yield passed(Message("command"), shlex.join(launch.argv))
    try:
        yield _runs(trial.start(call, launch), trial)
        yield _usage(trial.start(call, launch._replace(argv=(*launch.argv, _NO_OPTION))))
    except SkillError as error:
        advice = Message("see what the command starts: it must be there, and need no grant")
        yield failed(Message("starts"), error.msg, advice)


def _missing_params(skill: Skill, trial: Trial) -> Probe:
    name = Message("missing params")
    if not any(param.required and param.default is None for param in skill.params):
        return skipped(name, Message("none is required"))
    try:
        trial.check(skill, {})
    except ParamMissing as error:
        asked = {param.name for param in skill.params if param.prompt or param.description}
        silent = ", ".join(param for param in error.required if param not in asked)
        advice = Message("describe {silent}: people are asked with these words", silent=silent) if silent else ""
        return passed(name, Message("the run waits for {required}", required=", ".join(error.required)), advice)
    except SkillError as error:
        return failed(name, error.msg, Message("correct the params in SKILL.md"))
    return failed(name, Message("nothing is asked for"), Message("correct the params in SKILL.md"))


def _runs(ended: Exit, trial: Trial) -> Probe:
    name, limit = "runs", trial.limit_seconds
    said = quoted(ended.stderr) or Message("exit code {code}", code=ended.code)
    advice = Message("write below {{output}} only, and read only what a param names")
    files = (path.relative_to(trial.root) for path in trial.root.rglob("*") if not path.is_dir())
    if strays := sorted(str(path) for path in files if path.parts[0] not in {BOX, SAMPLE}):
        return failed(name, Message("it wrote outside mybox/: {strays}", strays=", ".join(strays[:3])), advice)
    if ended.timed_out:
        advice = Message("end sooner, or allow more with --timeout")
        return failed(name, Message("no end within {limit_seconds:g} s", limit_seconds=limit), advice)
    if ended.code == 0:
        says = Message(
            "with made-up values, in {seconds:.2g} s; it wrote nothing outside mybox/", seconds=ended.seconds
        )
        return passed(name, says)
    if _REFUSED.search(said):
        return failed(name, Message("the sandbox refused something: {said}", said=said), advice)
    advice = Message("give params defaults that work as examples")
    return skipped(name, Message("it refused values that we made up: {said}", said=said), advice)


def _usage(ended: Exit) -> Probe:
    name = Message("wrong option")
    advice = Message("answer with a usage text on stderr and exit code 2")
    if ended.timed_out or b"Traceback (most recent call last)" in ended.stderr:
        return failed(name, quoted(ended.stderr) or Message("no end within the limit"), advice)
    if usage_of(ended):
        return passed(name, Message("usage text and exit code {code}", code=ended.code))
    if ended.code:
        return passed(name, Message("exit code {code} without a usage text", code=ended.code), advice)
    return passed(name, Message("it was ignored"), advice)


# -- JSON skills


class JsonExchange(NamedTuple):
    """One request and what came back."""

    asked: str
    action: str | None
    params: Mapping[str, Json]
    ended: Exit
    #: The response; empty if it is none.
    fields: Mapping[str, Json]
    #: Why it is no valid response.
    wrong: str

    @property
    def success(self) -> bool:
        return self.fields.get("success") is True

    @property
    def error(self) -> Mapping[str, Json]:
        error = self.fields.get("error")
        return error if isinstance(error, Mapping) else {}

    @property
    def code(self) -> str:
        return "" if self.success else str(self.error.get("code") or "")

    @property
    def told(self) -> str:
        return self.wrong or ("success" if self.success else self.code or Message("an error without a code"))

    @property
    def supported(self) -> tuple[str, ...]:
        names = self.error.get("supported_actions")
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()

    @property
    def lasting(self) -> dict[str, Json]:
        """The response without what may change from run to run."""
        return {key: value for key, value in self.fields.items() if key != "metadata"}


class JsonConversation:
    """Sends requests to one skill and remembers every exchange."""

    def __init__(self, skill: Skill, trial: Trial) -> None:
        # Without its own declarations nothing is refused before it reaches the program.
        self._bare = skill._replace(actions=(), params=())
        self._trial = trial
        self.said: list[JsonExchange] = []
        self.sample_path = str(trial.root / SAMPLE) if skill.role else SAMPLE

    def describe(self) -> dict[str, tuple[ExpectedParam, ...]]:
        call = self._trial.check(self._bare, {}, _UNKNOWN)
        launch = json_skill.plan(call)
        launch = launch._replace(argv=(*launch.argv, "--actions"), stdin=b"")
        return described(self._trial.start(call, launch).stdout)

    def ask(self, asked: str, action: str | None, params: Mapping[str, Json], **changes: Any) -> JsonExchange:
        """Send a request. `changes` of its launch replace what is sent, or the limit: then it is not remembered."""
        call = self._trial.check(self._bare, params, action or _UNKNOWN)
        launch = json_skill.plan(call)._replace(**changes)
        ended = self._trial.start(call, launch)
        fields: Mapping[str, Json] = {}
        if ended.timed_out:
            wrong: str = Message("no answer within {limit_seconds:g} s", limit_seconds=launch.limit_seconds)
        elif ended.overflowed:
            wrong = Message("more output than 10 MB")
        elif isinstance(found := json_skill.parse(ended.stdout), str):
            code, said = ended.code, quoted(ended.stderr)
            wrong = Message("{found} (exit code {code})", found=found, code=code)
            if said:
                wrong = Message("{found} (exit code {code}; stderr: {said})", found=found, code=code, said=said)
        else:
            fields, wrong = found, json_skill.what_is_wrong(found)
        exchange = JsonExchange(asked, action, params, ended, fields, wrong)
        if "limit_seconds" not in changes:
            self.said.append(exchange)
        return exchange


def json_probes(skill: Skill, trial: Trial) -> Iterator[Probe]:
    talk = JsonConversation(skill, trial)
    try:
        own = talk.describe()
    except SkillError as error:
        advice = Message("name a program in `entry:` that is there and can be started")
        yield failed(Message("entry"), error.msg, advice)
        return
    yield passed(Message("entry"), Message("{entry} can be started", entry=skill.entry))
    yield from _bad_requests(talk)
    unknown = talk.ask(Message("an unknown action"), _UNKNOWN, {})
    yield _unknown_action(unknown)
    actions = tuple(dict.fromkeys((*skill.actions, *own, *unknown.supported)))
    if not actions:
        advice = Message("list them as `actions:` in SKILL.md, or in `supported_actions`")
        yield skipped("actions", Message("none is known"), advice)
    answered: list[JsonExchange] = []
    for action in actions:
        wanted = own[action] if action in own else declared(skill.params)
        yield _without_params(talk, action, wanted)
        heard = _valid(talk, action, wanted)
        yield _judge_valid(action, heard)
        is_sure = action in own or len(actions) == 1 or any(param.required for param in wanted)
        yield _wrong_params(talk, action, wanted, heard.params, is_sure=is_sure)
        if heard.success:
            again = talk.ask(Message("{action}, again", action=action), action, heard.params)
            yield _same(action, heard, again)
            answered += [heard] if again.lasting == heard.lasting else []
    yield _interrupted(talk, answered)
    yield from _overall(talk.said, trial.limit_seconds)


def _bad_requests(talk: JsonConversation) -> Iterator[Probe]:
    bad = {
        Message("empty stdin"): b"",
        Message("not JSON"): b"{nope",
        Message("not an object"): b"[]",
        Message("no action"): b"{}",
        Message("params not an object"): json.dumps({"action": _UNKNOWN, "params": "text"}).encode(),
    }
    for name, stdin in bad.items():
        heard = talk.ask(name, None, {}, stdin=stdin)
        if heard.wrong:
            yield failed(name, heard.wrong, Message("answer with an error response, whatever comes on stdin"))
        elif heard.success:
            yield failed(name, Message("it reported success"), Message("answer with success: false and a code"))
        else:
            better = "INVALID_JSON" if name in {"empty stdin", "not JSON"} else heard.code
            advice = Message("{better} is the code for this", better=better) if heard.code != better else ""
            yield passed(name, Message("answered {told}", told=heard.told), advice)


def _unknown_action(heard: JsonExchange) -> Probe:
    name = Message("unknown action")
    if heard.wrong or heard.code != "UNKNOWN_ACTION":
        advice = Message('answer with {{"success": false, "error": {{"code": "UNKNOWN_ACTION", …}}}}')
        return failed(name, heard.told, advice)
    advice = Message("list what is supported in error.supported_actions")
    return passed(name, Message("answered {told}", told=heard.code), "" if heard.supported else advice)


def _without_params(talk: JsonConversation, action: str, wanted: tuple[ExpectedParam, ...]) -> Probe:
    name = Message("{action}: no params", action=action)
    needed = ", ".join(param.name for param in wanted if param.required)
    heard = talk.ask(name, action, {})
    if heard.wrong:
        return failed(name, heard.wrong, Message("answer with MISSING_PARAM, or do without params"))
    if heard.success and needed:
        advice = Message("answer with MISSING_PARAM, or do not require it")
        return failed(name, Message("it ran without {needed}", needed=needed), advice)
    if heard.success:
        return passed(name, Message("it needs none"))
    better = "MISSING_PARAM is the code for this" if needed and heard.code != "MISSING_PARAM" else ""
    return passed(name, Message("answered {told}", told=heard.told), better)


def _valid(talk: JsonConversation, action: str, wanted: tuple[ExpectedParam, ...]) -> JsonExchange:
    """Try made-up values: the fewest, then all. Return the first exchange that succeeds, else the first."""
    few, many = (make_up(wanted, talk.sample_path, every=every) for every in (False, True))
    asked = Message("{action}, a valid request", action=action)
    first = talk.ask(asked, action, few)
    last = first if first.success or many == few else talk.ask(asked, action, many)
    return last if last.success else first


def _judge_valid(action: str, heard: JsonExchange) -> Probe:
    name = Message("{action}: valid request", action=action)
    if heard.wrong:
        return failed(name, heard.wrong, Message("print exactly one JSON object with success, action and data"))
    if heard.success:
        return passed(name, Message("answered in {seconds:g} s", seconds=meaningful(heard.ended.seconds)))
    message = f"{heard.code}: {heard.error.get('message')}"
    if heard.code in _REFUSALS:
        advice = Message("give params defaults that work as examples")
        return skipped(name, Message("it refused values that we made up ({message})", message=message), advice)
    return failed(name, Message("answered {told}", told=message), Message("a declared action must be able to succeed"))


def _wrong_params(
    talk: JsonConversation, action: str, wanted: tuple[ExpectedParam, ...], valid: Mapping[str, Json], *, is_sure: bool
) -> Probe:
    """All at once: SKILL.md does not say which action takes which param. `is_sure`: these are this very action's."""
    name = Message("{action}: wrong params", action=action)
    names = [param.name for param in wanted if param.type in set(ParamType)]
    if not names:
        return skipped(name, Message("no param with a type is declared"))
    heard = talk.ask(name, action, {**valid, **dict.fromkeys(names, WRONG)})
    says = Message("objects for {names}: {told}", names=", ".join(names), told=heard.told)
    if heard.wrong or (heard.success and is_sure):
        return failed(name, says, Message("answer with INVALID_PARAM"))
    if heard.success:
        return passed(name, says, Message("answer with INVALID_PARAM, if the action takes any of them"))
    return passed(name, says, "" if heard.code == "INVALID_PARAM" else "INVALID_PARAM is the code for this")


def _same(action: str, first: JsonExchange, again: JsonExchange) -> Probe:
    name = Message("{action}: same request twice", action=action)
    if first.lasting == again.lasting:
        return passed(name, Message("the same answer"))
    if action in _MAY_DIFFER:
        return skipped(name, Message("what is fetched may change"))
    keys = sorted(key for key in {*first.lasting, *again.lasting} if first.fields.get(key) != again.fields.get(key))
    advice = Message("leave times and random values out, or put them into metadata")
    return failed(name, Message("different: {keys}", keys=", ".join(keys)), advice)


def _interrupted(talk: JsonConversation, answered: list[JsonExchange]) -> Probe:
    """Stopped half-way, nothing may be left behind that changes the next answer."""
    name = Message("stopped half-way")
    if not answered:
        return skipped(name, Message("no request gave the same answer twice"))
    heard = max(answered, key=lambda each: each.ended.seconds)
    limit = max(_LEAST_SECONDS, heard.ended.seconds / 2)
    stopped = talk.ask(name, heard.action, heard.params, limit_seconds=limit).ended
    if not stopped.timed_out:
        return skipped(name, Message("it was faster than the limit"))
    if stopped.seconds > limit + _GRACE_SECONDS:
        says = Message("it took {seconds:.1f} s to stop at {limit:.2g} s", seconds=stopped.seconds, limit=limit)
        return failed(name, says, Message("end on SIGTERM"))
    again = talk.ask(Message("{action}, after it was stopped", action=heard.action), heard.action, heard.params)
    if again.lasting != heard.lasting:
        advice = Message("write to a temporary file and rename it; take no lock that outlives you")
        return failed(name, Message("the next answer was {told}, or another one", told=again.told), advice)
    return passed(name, Message("stopped at {limit:.2g} s, and the next answer was the same", limit=limit))


def _overall(said: list[JsonExchange], limit_seconds: float) -> Iterator[Probe]:
    """What must hold for every answer."""
    heard = [each for each in said if not each.wrong]
    wrong = {each.asked: each.wrong for each in said if each.wrong}
    advice = Message("print nothing else on stdout: logs and progress belong on stderr")
    yield _all("stdout", Message("one JSON document each time, nothing else"), wrong, advice)
    ends = [(each, each.ended.code) for each in heard]
    odd = [(each, code) for each, code in ends if code != 0 and (code != 1 or each.success)]
    wrong = {each.asked: Message("exit code {code} with {told}", code=code, told=each.told) for each, code in odd}
    advice = Message("end with 0 after a success, with 1 after an error")
    yield _all(Message("exit code"), Message("0 for success, 0 or 1 for an error"), wrong, advice)
    others = [each for each in heard if not each.success and each.code not in CODES]
    wrong = {each.asked: each.code or Message("no code") for each in others}
    advice = Message("use one of: {known}", known=", ".join(CODES))
    yield _all(Message("error codes"), Message("all among the nine of the protocol"), wrong, advice, passed)
    # A missing action is filled in by the runtime; a wrong one misleads whoever reads the log.
    others = [each for each in heard if each.action and each.fields.get("action") != each.action]
    misled = {each.asked: str(each.fields["action"]) for each in others if each.fields.get("action") is not None}
    wrong = misled or {each.asked: Message("no action in the answer") for each in others}
    says, advice = Message("told in every answer"), Message("echo the action of the request")
    yield _all(Message("action"), says, wrong, advice, failed if misled else passed)
    slowest = max(said, key=lambda each: each.ended.seconds)
    name, seconds = Message("response time"), meaningful(slowest.ended.seconds)
    asked, limit = slowest.asked, limit_seconds
    took = Message("{seconds:g} s ({asked}), of {limit:g} s", seconds=seconds, asked=asked, limit=limit)
    if slowest.ended.timed_out:
        advice = Message("answer sooner, or allow more with --timeout")
        yield failed(name, Message("no answer in {took}", took=took), advice)
    else:
        yield passed(name, Message("at most {took}", took=took))


def _all(name: str, says: str, wrong: Mapping[str, str], advice: str, judge: Callable[..., Probe] = failed) -> Probe:
    """Passed if nothing is wrong, else what `judge` makes of the first thing."""
    if not wrong:
        return passed(name, says)
    asked, told = next(iter(wrong.items()))
    says = Message("{place}: {reason}", place=asked, reason=told)
    if len(wrong) > 1:
        says = Message("{first} (and {count} more)", first=says, count=len(wrong) - 1)
    return judge(name, says, advice)


def described(stdout: bytes) -> dict[str, tuple[ExpectedParam, ...]]:
    """What `--actions` of `skillyard.skill` printed; nothing where the program does not know the option."""
    try:
        found = json.loads(stdout)
        return {str(action["name"]): tuple(map(_as_expected, action["params"])) for action in found["actions"]}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _as_expected(param: Mapping[str, Json]) -> ExpectedParam:
    choices, type_ = param.get("choices"), str(param.get("type")).split(" or ")[0]
    choices = tuple(choices) if isinstance(choices, list) else ()
    return ExpectedParam(str(param["name"]), type_, param.get("required") is True, param.get("default"), choices)
