"""Probes for JSON skills: every rule of docs/spec/json-skills.md, asked of this program."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.core.result import meaningful
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runners.json_skill import parse, plan, what_is_wrong
from skillyard.runners.kind import quoted
from skillyard.runners.probes import SAMPLE, ExpectedParam, Probe, Trial, declared, failed, least, most, passed, skipped
from skillyard.sandbox.launch import Exit

#: What a skill may rightly say to values that were made up.
_REFUSALS = (
    "MISSING_PARAM",
    "INVALID_PARAM",
    "TIMEOUT",
    "PERMISSION_DENIED",
    "DATA_NOT_FOUND",
    "EXTERNAL_SERVICE_ERROR",
)
CODES = ("INVALID_JSON", "UNKNOWN_ACTION", *_REFUSALS, "INTERNAL_ERROR")
#: No scalar type takes this.
WRONG: Json = {"unexpected": ["object"]}
_UNKNOWN = "no_such_action_of_any_skill"
#: Actions that may answer differently each time.
_MAY_DIFFER = frozenset({"fetch"})
_GRACE_SECONDS = 2.0
_LEAST_SECONDS = 0.02


class JsonExchange(NamedTuple):
    """One request and what came back."""

    asked: str
    action: str | None
    ended: Exit
    #: The response; empty if it is none.
    fields: Mapping[str, Json]
    #: Why it is no valid response.
    wrong: str = ""

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

    def described(self) -> dict[str, tuple[ExpectedParam, ...]]:
        call = self._trial.check(self._bare, {}, _UNKNOWN)
        launch = plan(call)
        return described(self._trial.start(call, launch._replace(argv=(*launch.argv, "--actions"), stdin=b"")).stdout)

    def ask(
        self,
        asked: str,
        action: str | None,
        params: Mapping[str, Json],
        *,
        stdin: bytes | None = None,
        limit_seconds: float | None = None,
    ) -> JsonExchange:
        """Send a request, or any bytes at all. One with a limit of its own is not remembered."""
        call = self._trial.check(self._bare, params, action or _UNKNOWN)
        launch = plan(call)
        launch = launch._replace(
            stdin=launch.stdin if stdin is None else stdin, limit_seconds=limit_seconds or launch.limit_seconds
        )
        ended = self._trial.start(call, launch)
        exchange = JsonExchange(asked, action, ended, *_read(ended, launch.limit_seconds))
        if limit_seconds is None:
            self.said.append(exchange)
        return exchange


def _read(ended: Exit, limit: float) -> tuple[Mapping[str, Json], str]:
    if ended.timed_out:
        return {}, Message("no answer within {limit_seconds:g} s", limit_seconds=limit)
    if ended.overflowed:
        return {}, Message("more output than 10 MB")
    found = parse(ended.stdout)
    if isinstance(found, str):
        said = quoted(ended.stderr)
        if not said:
            return {}, Message("{found} (exit code {code})", found=found, code=ended.code)
        return {}, Message("{found} (exit code {code}; stderr: {said})", found=found, code=ended.code, said=said)
    return found, what_is_wrong(found)


def json_probes(skill: Skill, trial: Trial) -> Iterator[Probe]:
    talk = JsonConversation(skill, trial)
    try:
        own = talk.described()
    except SkillError as error:
        yield failed(
            Message("entry"), error.msg, Message("name a program in `entry:` that is there and can be started")
        )
        return
    yield passed(Message("entry"), Message("{entry} can be started", entry=skill.entry))
    yield from _bad_requests(talk)
    unknown = talk.ask(Message("an unknown action"), _UNKNOWN, {})
    yield _unknown_action(unknown)
    actions = tuple(dict.fromkeys((*skill.actions, *own, *_supported(unknown))))
    if not actions:
        yield skipped(
            "actions",
            Message("none is known"),
            Message("list them as `actions:` in SKILL.md, or in `supported_actions`"),
        )
    answered: list[tuple[JsonExchange, Mapping[str, Json]]] = []
    for action in actions:
        wanted = own[action] if action in own else declared(skill.params)
        yield from _action(talk, action, wanted, answered, sure=action in own or len(actions) == 1)
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
            better = "INVALID_JSON" if name in {"empty stdin", "not JSON"} else ""
            advice = Message("{better} is the code for this", better=better) if better and heard.code != better else ""
            yield passed(name, Message("answered {told}", told=heard.told), advice)


def _unknown_action(heard: JsonExchange) -> Probe:
    name = Message("unknown action")
    if heard.wrong or heard.code != "UNKNOWN_ACTION":
        advice: str = Message('answer with {{"success": false, "error": {{"code": "UNKNOWN_ACTION", …}}}}')
        return failed(name, heard.told, advice)
    advice = "" if _supported(heard) else Message("list what is supported in error.supported_actions")
    return passed(name, Message("answered {told}", told="UNKNOWN_ACTION"), advice)


def _supported(heard: JsonExchange) -> tuple[str, ...]:
    names = heard.error.get("supported_actions")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _action(
    talk: JsonConversation,
    action: str,
    wanted: tuple[ExpectedParam, ...],
    answered: list[tuple[JsonExchange, Mapping[str, Json]]],
    *,
    sure: bool,
) -> Iterator[Probe]:
    """`sure`: these are the params of this very action."""
    yield _without_params(talk, action, wanted)
    params, heard = _valid(talk, action, wanted)
    yield _judge_valid(action, heard)
    yield _wrong_params(talk, action, wanted, sure=sure or any(param.required for param in wanted), valid=params)
    if not heard.success:
        return
    again = talk.ask(Message("{action}, again", action=action), action, params)
    yield _same(action, heard, again)
    if again.lasting == heard.lasting:
        answered.append((heard, params))


def _without_params(talk: JsonConversation, action: str, wanted: tuple[ExpectedParam, ...]) -> Probe:
    name = Message("{action}: no params", action=action)
    needed = [param.name for param in wanted if param.required]
    heard = talk.ask(name, action, {})
    if heard.wrong:
        return failed(name, heard.wrong, Message("answer with MISSING_PARAM, or do without params"))
    if heard.success and needed:
        advice: str = Message("answer with MISSING_PARAM, or do not require it")
        return failed(name, Message("it ran without {needed}", needed=", ".join(needed)), advice)
    if heard.success:
        return passed(name, Message("it needs none"))
    advice = "MISSING_PARAM is the code for this" if needed and heard.code != "MISSING_PARAM" else ""
    return passed(name, Message("answered {told}", told=heard.told), advice)


def _valid(
    talk: JsonConversation, action: str, wanted: tuple[ExpectedParam, ...]
) -> tuple[Mapping[str, Json], JsonExchange]:
    """Try made-up values: the fewest, then all. Return the first that succeed, else the first."""
    few, many = least(wanted, talk.sample_path), most(wanted, talk.sample_path)
    first = talk.ask(Message("{action}, a valid request", action=action), action, few)
    if first.success or many == few:
        return few, first
    second = talk.ask(Message("{action}, a valid request", action=action), action, many)
    return (many, second) if second.success else (few, first)


def _judge_valid(action: str, heard: JsonExchange) -> Probe:
    name = Message("{action}: valid request", action=action)
    if heard.success and not heard.wrong:
        return passed(name, Message("answered in {seconds:g} s", seconds=meaningful(heard.ended.seconds)))
    if heard.wrong:
        return failed(name, heard.wrong, Message("print exactly one JSON object with success, action and data"))
    message = f"{heard.code}: {heard.error.get('message')}"
    if heard.code in _REFUSALS:
        advice = Message("give params defaults that work as examples")
        return skipped(name, Message("it refused values that we made up ({message})", message=message), advice)
    return failed(name, Message("answered {told}", told=message), Message("a declared action must be able to succeed"))


def _wrong_params(
    talk: JsonConversation, action: str, wanted: tuple[ExpectedParam, ...], *, sure: bool, valid: Mapping[str, Json]
) -> Probe:
    """All at once: SKILL.md does not say which action takes which param."""
    name = Message("{action}: wrong params", action=action)
    names = [param.name for param in wanted if param.is_scalar]
    if not names:
        return skipped(name, Message("no param with a type is declared"))
    heard = talk.ask(name, action, {**valid, **dict.fromkeys(names, WRONG)})
    says = Message("objects for {names}: {told}", names=", ".join(names), told=heard.told)
    if heard.wrong or (heard.success and sure):
        return failed(name, says, Message("answer with INVALID_PARAM"))
    if heard.success:
        return passed(name, says, Message("answer with INVALID_PARAM, if the action takes any of them"))
    advice = "" if heard.code == "INVALID_PARAM" else "INVALID_PARAM is the code for this"
    return passed(name, says, advice)


def _same(action: str, first: JsonExchange, again: JsonExchange) -> Probe:
    name = Message("{action}: same request twice", action=action)
    if first.lasting == again.lasting:
        return passed(name, Message("the same answer"))
    if action in _MAY_DIFFER:
        return skipped(name, Message("what is fetched may change"))
    keys = sorted(key for key in {*first.lasting, *again.lasting} if first.fields.get(key) != again.fields.get(key))
    advice = Message("leave times and random values out, or put them into metadata")
    return failed(name, Message("different: {keys}", keys=", ".join(keys)), advice)


def _interrupted(talk: JsonConversation, answered: list[tuple[JsonExchange, Mapping[str, Json]]]) -> Probe:
    """Stopped half-way, nothing may be left behind that changes the next answer."""
    name = Message("stopped half-way")
    if not answered:
        return skipped(name, Message("no request gave the same answer twice"))
    heard, params = max(answered, key=lambda pair: pair[0].ended.seconds)
    limit = max(_LEAST_SECONDS, heard.ended.seconds / 2)
    stopped = talk.ask(name, str(heard.action), params, limit_seconds=limit)
    if not stopped.ended.timed_out:
        return skipped(name, Message("it was faster than the limit"))
    if stopped.ended.seconds > limit + _GRACE_SECONDS:
        advice = Message("end on SIGTERM")
        says = Message("it took {seconds:.1f} s to stop at {limit:.2g} s", seconds=stopped.ended.seconds, limit=limit)
        return failed(name, says, advice)
    again = talk.ask(Message("{action}, after it was stopped", action=heard.action), str(heard.action), params)
    if again.lasting != heard.lasting:
        advice = Message("write to a temporary file and rename it; take no lock that outlives you")
        return failed(name, Message("the next answer was {told}, or another one", told=again.told), advice)
    return passed(name, Message("stopped at {limit:.2g} s, and the next answer was the same", limit=limit))


def _overall(said: list[JsonExchange], limit_seconds: float) -> Iterator[Probe]:
    """What must hold for every answer."""
    heard = [exchange for exchange in said if not exchange.wrong]
    wrong = {exchange.asked: exchange.wrong for exchange in said if exchange.wrong}
    advice = Message("print nothing else on stdout: logs and progress belong on stderr")
    yield _all("stdout", Message("one JSON document each time, nothing else"), wrong, advice)
    odd = {
        each.asked: Message("exit code {code} with {told}", code=each.ended.code, told=each.told)
        for each in heard
        if not _is_fine(each)
    }
    advice = Message("end with 0 after a success, with 1 after an error")
    yield _all(Message("exit code"), Message("0 for success, 0 or 1 for an error"), odd, advice)
    others = {
        each.asked: each.code or Message("no code") for each in heard if not each.success and each.code not in CODES
    }
    advice = Message("use one of: {known}", known=", ".join(CODES))
    yield _all(Message("error codes"), Message("all among the nine of the protocol"), others, advice, passed)
    yield _echoed([each for each in heard if each.action])
    slowest = max(said, key=lambda exchange: exchange.ended.seconds)
    took = Message(
        "{seconds:g} s ({asked}), of {limit:g} s",
        seconds=meaningful(slowest.ended.seconds),
        asked=slowest.asked,
        limit=limit_seconds,
    )
    if slowest.ended.timed_out:
        yield failed(
            Message("response time"),
            Message("no answer in {took}", took=took),
            Message("answer sooner, or allow more with --timeout"),
        )
    else:
        yield passed(Message("response time"), Message("at most {took}", took=took))


def _echoed(heard: list[JsonExchange]) -> Probe:
    """A missing one is filled in by the runtime; a wrong one misleads whoever reads the log."""
    told = {each.asked: each.fields.get("action") for each in heard if each.fields.get("action") != each.action}
    advice = Message("echo the action of the request")
    if wrong := {asked: str(action) for asked, action in told.items() if action is not None}:
        return _all(Message("action"), "", wrong, advice)
    missing = dict.fromkeys(told, Message("no action in the answer"))
    return _all(Message("action"), Message("told in every answer"), missing, advice, passed)


def _is_fine(exchange: JsonExchange) -> bool:
    return exchange.ended.code == 0 or (exchange.ended.code == 1 and not exchange.success)


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
    choices = param.get("choices")
    return ExpectedParam(
        name=str(param["name"]),
        type=str(param.get("type")).split(" or ")[0],
        required=param.get("required") is True,
        default=param.get("default"),
        choices=tuple(choices) if isinstance(choices, list) else (),
    )
