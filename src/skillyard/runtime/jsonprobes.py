"""Probes for JSON skills: what S3 asks of a program, asked of this one."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.core.result import meaningful
from skillyard.core.skill import Skill
from skillyard.core.values import Json
from skillyard.runners import jsonskill
from skillyard.runners.process import quoted
from skillyard.runners.responses import parse, what_is_wrong
from skillyard.runtime.probe_sandbox import SAMPLE, Bench, Probe, failed, passed, skipped
from skillyard.runtime.samples import WRONG, Wanted, declared, described, least, most
from skillyard.sandbox.launch import Exit

CODES = (
    "INVALID_JSON",
    "UNKNOWN_ACTION",
    "MISSING_PARAM",
    "INVALID_PARAM",
    "TIMEOUT",
    "PERMISSION_DENIED",
    "DATA_NOT_FOUND",
    "EXTERNAL_SERVICE_ERROR",
    "INTERNAL_ERROR",
)
#: What a skill may rightly say to values that were made up.
_REFUSALS = frozenset(
    {"MISSING_PARAM", "INVALID_PARAM", "DATA_NOT_FOUND", "PERMISSION_DENIED", "EXTERNAL_SERVICE_ERROR", "TIMEOUT"}
)
_UNKNOWN = "no_such_action_of_any_skill"
#: S3 lets crawlers answer differently each time.
_MAY_DIFFER = frozenset({"fetch"})
_GRACE_SECONDS = 2.0
_LEAST_SECONDS = 0.02


class Exchange(NamedTuple):
    """One request and what came back."""

    asked: str
    action: str | None
    ended: Exit
    #: The response, where it is one.
    fields: Mapping[str, Json]
    #: Why it is none.
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


class Talk:
    """Asks one skill, and remembers everything that was said."""

    def __init__(self, skill: Skill, bench: Bench) -> None:
        # Without its own declarations nothing is refused before it reaches the program.
        self._bare = skill._replace(actions=(), params=())
        self._bench = bench
        self.said: list[Exchange] = []
        self.sample_path = str(bench.root / SAMPLE) if skill.role else SAMPLE

    def send(self, asked: str, stdin: bytes) -> Exchange:
        """Any bytes at all."""
        return self._exchange(asked, None, {}, stdin=stdin)

    def ask(self, asked: str, action: str, params: Mapping[str, Json], limit_seconds: float | None = None) -> Exchange:
        return self._exchange(asked, action, params, limit_seconds=limit_seconds)

    def described(self) -> dict[str, tuple[Wanted, ...]]:
        call = self._bench.check(self._bare, {}, _UNKNOWN)
        launch = jsonskill.plan(call)
        return described(self._bench.start(call, launch._replace(argv=(*launch.argv, "--actions"), stdin=b"")).stdout)

    def _exchange(
        self,
        asked: str,
        action: str | None,
        params: Mapping[str, Json],
        *,
        stdin: bytes | None = None,
        limit_seconds: float | None = None,
    ) -> Exchange:
        call = self._bench.check(self._bare, params, action or _UNKNOWN)
        launch = jsonskill.plan(call)
        limit = limit_seconds or launch.limit_seconds
        ended = self._bench.start(
            call, launch._replace(stdin=launch.stdin if stdin is None else stdin, limit_seconds=limit)
        )
        exchange = Exchange(asked, action, ended, *_read(ended, limit))
        if limit_seconds is None:
            self.said.append(exchange)
        return exchange


def _read(ended: Exit, limit: float) -> tuple[Mapping[str, Json], str]:
    if ended.timed_out:
        return {}, Message("no answer within {limit_seconds:g} s", limit_seconds=limit)
    if ended.overflowed:
        return {}, Message("more output than S3's 10 MB")
    found = parse(ended.stdout)
    if isinstance(found, str):
        said = quoted(ended.stderr)
        if not said:
            return {}, Message("{found} (exit code {code})", found=found, code=ended.code)
        return {}, Message("{found} (exit code {code}; stderr: {said})", found=found, code=ended.code, said=said)
    return found, what_is_wrong(found)


def json_probes(skill: Skill, bench: Bench) -> Iterator[Probe]:
    talk = Talk(skill, bench)
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
    answered: list[tuple[Exchange, Mapping[str, Json]]] = []
    for action in actions:
        wanted = own[action] if action in own else declared(skill.params)
        yield from _action(talk, action, wanted, answered, sure=action in own or len(actions) == 1)
    yield _interrupted(talk, answered)
    yield from _overall(talk.said, bench.limit_seconds)


def _bad_requests(talk: Talk) -> Iterator[Probe]:
    bad = {
        Message("empty stdin"): b"",
        Message("not JSON"): b"{nope",
        Message("not an object"): b"[]",
        Message("no action"): b"{}",
        Message("params not an object"): json.dumps({"action": _UNKNOWN, "params": "text"}).encode(),
    }
    for name, stdin in bad.items():
        heard = talk.send(name, stdin)
        if heard.wrong:
            yield failed(name, heard.wrong, Message("answer with an error response, whatever comes on stdin"))
        elif heard.success:
            yield failed(name, Message("it reported success"), Message("answer with success: false and a code"))
        else:
            better = "INVALID_JSON" if name in {"empty stdin", "not JSON"} else ""
            advice = Message("{better} is the code for this", better=better) if better and heard.code != better else ""
            yield passed(name, Message("answered {told}", told=heard.told), advice)


def _unknown_action(heard: Exchange) -> Probe:
    name = Message("unknown action")
    if heard.wrong or heard.code != "UNKNOWN_ACTION":
        advice: str = Message('answer with {{"success": false, "error": {{"code": "UNKNOWN_ACTION", …}}}}')
        return failed(name, heard.told, advice)
    advice = "" if _supported(heard) else Message("list what is supported in error.supported_actions")
    return passed(name, Message("answered {told}", told="UNKNOWN_ACTION"), advice)


def _supported(heard: Exchange) -> tuple[str, ...]:
    names = heard.error.get("supported_actions")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _action(
    talk: Talk,
    action: str,
    wanted: tuple[Wanted, ...],
    answered: list[tuple[Exchange, Mapping[str, Json]]],
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


def _without_params(talk: Talk, action: str, wanted: tuple[Wanted, ...]) -> Probe:
    name = Message("{action}: no params", action=action)
    needed = [param.name for param in wanted if param.required]
    heard = talk.ask(name, action, {})
    if heard.wrong:
        return failed(name, heard.wrong, Message("answer with MISSING_PARAM, or do without params"))
    if heard.success and needed:
        return failed(
            name,
            Message("it ran without {needed}", needed=", ".join(needed)),
            Message("answer with MISSING_PARAM, or do not require it"),
        )
    if heard.success:
        return passed(name, Message("it needs none"))
    advice = "MISSING_PARAM is the code for this" if needed and heard.code != "MISSING_PARAM" else ""
    return passed(name, Message("answered {told}", told=heard.told), advice)


def _valid(talk: Talk, action: str, wanted: tuple[Wanted, ...]) -> tuple[Mapping[str, Json], Exchange]:
    """The first of our tries that succeeds, else the first."""
    tries = [least(wanted, talk.sample_path), most(wanted, talk.sample_path)]
    heard = [
        (params, talk.ask(Message("{action}, a valid request", action=action), action, params)) for params in tries[:1]
    ]
    if not heard[0][1].success and tries[1] != tries[0]:
        heard.append((tries[1], talk.ask(Message("{action}, a valid request", action=action), action, tries[1])))
    return next((pair for pair in heard if pair[1].success), heard[0])


def _judge_valid(action: str, heard: Exchange) -> Probe:
    name = Message("{action}: valid request", action=action)
    if heard.success and not heard.wrong:
        return passed(name, Message("answered in {seconds:g} s", seconds=meaningful(heard.ended.seconds)))
    if heard.wrong:
        return failed(name, heard.wrong, Message("print exactly one JSON object with success, action and data"))
    message = f"{heard.code}: {heard.error.get('message')}"
    if heard.code in _REFUSALS:
        return skipped(
            name,
            Message("it refused values that we made up ({message})", message=message),
            Message("give params defaults that work as examples"),
        )
    return failed(name, Message("answered {told}", told=message), Message("a declared action must be able to succeed"))


def _wrong_params(
    talk: Talk, action: str, wanted: tuple[Wanted, ...], *, sure: bool, valid: Mapping[str, Json]
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


def _same(action: str, first: Exchange, again: Exchange) -> Probe:
    name = Message("{action}: same request twice", action=action)
    if first.lasting == again.lasting:
        return passed(name, Message("the same answer"))
    if action in _MAY_DIFFER:
        return skipped(name, Message("what is fetched may change"))
    keys = sorted(key for key in {*first.lasting, *again.lasting} if first.fields.get(key) != again.fields.get(key))
    return failed(
        name,
        Message("different: {keys}", keys=", ".join(keys)),
        Message("leave times and random values out, or put them into metadata"),
    )


def _interrupted(talk: Talk, answered: list[tuple[Exchange, Mapping[str, Json]]]) -> Probe:
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
        return failed(
            name,
            Message("it took {seconds:.1f} s to stop at {limit:.2g} s", seconds=stopped.ended.seconds, limit=limit),
            Message("end on SIGTERM"),
        )
    again = talk.ask(Message("{action}, after it was stopped", action=heard.action), str(heard.action), params)
    if again.lasting != heard.lasting:
        advice = Message("write to a temporary file and rename it; take no lock that outlives you")
        return failed(name, Message("the next answer was {told}, or another one", told=again.told), advice)
    return passed(name, Message("stopped at {limit:.2g} s, and the next answer was the same", limit=limit))


def _overall(said: list[Exchange], limit_seconds: float) -> Iterator[Probe]:
    """What must hold for every answer."""
    heard = [exchange for exchange in said if not exchange.wrong]
    yield _all(
        "stdout",
        Message("one JSON document each time, nothing else"),
        {exchange.asked: exchange.wrong for exchange in said if exchange.wrong},
        Message("print nothing else on stdout: logs and progress belong on stderr"),
    )
    yield _all(
        Message("exit code"),
        Message("0 for success, 0 or 1 for an error"),
        {
            each.asked: Message("exit code {code} with {told}", code=each.ended.code, told=each.told)
            for each in heard
            if not _is_fine(each)
        },
        Message("end with 0 after a success, with 1 after an error"),
    )
    others = {
        each.asked: each.code or Message("no code") for each in heard if not each.success and each.code not in CODES
    }
    yield _advise(
        Message("error codes"),
        Message("all among S3's nine"),
        others,
        Message("use one of: {known}", known=", ".join(CODES)),
    )
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


def _echoed(heard: list[Exchange]) -> Probe:
    """A missing one is filled in by the runtime; a wrong one misleads whoever reads the log."""
    told = {each.asked: each.fields.get("action") for each in heard if each.fields.get("action") != each.action}
    if any(action is not None for action in told.values()):
        wrong = {asked: str(action) for asked, action in told.items() if action is not None}
        return failed(Message("action"), _first(wrong), Message("echo the action of the request"))
    missing = dict.fromkeys(told, Message("no action in the answer"))
    return _advise(
        Message("action"), Message("told in every answer"), missing, Message("echo the action of the request")
    )


def _is_fine(exchange: Exchange) -> bool:
    return exchange.ended.code == 0 or (exchange.ended.code == 1 and not exchange.success)


def _all(name: str, says: str, wrong: Mapping[str, str], advice: str) -> Probe:
    return failed(name, _first(wrong), advice) if wrong else passed(name, says)


def _advise(name: str, says: str, wrong: Mapping[str, str], advice: str) -> Probe:
    return passed(name, _first(wrong), advice) if wrong else passed(name, says)


def _first(wrong: Mapping[str, str]) -> str:
    asked, told = next(iter(wrong.items()))
    first = Message("{place}: {reason}", place=asked, reason=told)
    return first if len(wrong) == 1 else Message("{first} (and {count} more)", first=first, count=len(wrong) - 1)
