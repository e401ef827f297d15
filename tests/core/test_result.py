"""Results: what they know of themselves, and the schema that every one of them fulfils."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.envelope_schema import envelope_schema

from skillyard.core.errors import NotGranted, ParamMissing, SkillNotFound, Timeout
from skillyard.core.messages import PAUSED, RAN, Lang
from skillyard.core.result import Outcome, Result, as_size, error_result, make_meta, meaningful, pending_result
from skillyard.core.states import State
from skillyard.core.values import Json

MOMENT = datetime(2025, 1, 29, 10, 30, tzinfo=UTC)
META = make_meta("skills", 0.2, MOMENT)
SCHEMA = jsonschema_rs.validator_for(envelope_schema())


def told(state: State, data: Mapping[str, Json]) -> Result:
    return Result(agent="worker_agent", state=state, summary="x", data=data, meta=META)


REAL = {
    "success": Outcome(data={"skill": "a"}, says=RAN, words={"label": "a"}, normalised=("flat params",)).as_result(
        "skills", Lang.ZH, 0.2, MOMENT, run="r1"
    ),
    "cached": told(State.SUCCESS, {"cached": True, "original_result": {"total": 5}}),
    "partial": told(State.PARTIAL, {"succeeded": ["a.py"], "failed": ["b.py"]}),
    "pending": pending_result(ParamMissing(("a",), ("b",), {"a": "?"}), "skills", Lang.EN, META),
    "interrupted": told(State.INTERRUPTED, {"interrupted_skills": ["a"], "resume_command": "skillyard review resume"}),
    "error": error_result(SkillNotFound("a"), "skills", Lang.ZH, META),
    "error with null": told(State.ERROR, {"type": "RuntimeFailed", "msg": "", "recoverable": None}),
    "timeout": error_result(Timeout("a", 90.1, 90), "skills", Lang.EN, META),
    "timeout of a script": error_result(Timeout("bin/a.py", 300.2, 300, "script"), "worker_agent", Lang.EN, META),
}
FALSE = {
    "success with a cached nothing": told(State.SUCCESS, {"cached": True, "original_result": None}),
    "partial without failed": told(State.PARTIAL, {"succeeded": []}),
    "pending for nothing": told(State.PENDING, {"required": [], "optional": []}),
    "interrupted without a way back": told(State.INTERRUPTED, {"interrupted_skills": []}),
    "error without recoverable": told(State.ERROR, {"type": "RuntimeFailed", "msg": "x"}),
    "timeout of nobody": told(State.TIMEOUT, {"elapsed": 1, "limit": 1}),
    "meta without ts": Result(agent="a", state=State.SUCCESS, summary="", meta={"agent": "a", "time": 1}),
    "ts in local time": Result(
        agent="a", state=State.SUCCESS, summary="", meta={**META, "ts": "2025-01-29T10:30:00+08:00"}
    ),
    "an agent of two words": Result(agent="a b", state=State.SUCCESS, summary="", meta=META),
}


@pytest.mark.parametrize("result", REAL.values(), ids=REAL)
def test_real_results_fulfil_the_schema(result: Result) -> None:
    SCHEMA.validate(result.as_dict())


@pytest.mark.parametrize("result", FALSE.values(), ids=FALSE)
def test_the_schema_refuses_what_is_no_result(result: Result) -> None:
    assert not SCHEMA.is_valid(result.as_dict())


@pytest.mark.parametrize("key", ["agent", "state", "summary", "data", "meta"])
def test_the_schema_wants_all_five_parts_and_no_sixth(key: str) -> None:
    whole = REAL["success"].as_dict()

    assert not SCHEMA.is_valid({name: value for name, value in whole.items() if name != key})
    assert not SCHEMA.is_valid({**whole, "more": 1})
    assert not SCHEMA.is_valid({**whole, "state": "done"})


def test_the_schema_is_a_schema() -> None:
    jsonschema_rs.meta.validate(envelope_schema())


@pytest.mark.parametrize(
    ("name", "code", "ok"),
    [
        ("success", 0, True),
        ("cached", 0, True),
        ("partial", 3, True),
        ("pending", 4, False),
        ("interrupted", 5, False),
        ("error", 1, False),
        ("timeout", 124, False),
    ],
)
def test_each_state_has_its_exit_code(name: str, code: int, ok: bool) -> None:
    assert (REAL[name].exit_code, REAL[name].ok) == (code, ok)


def test_only_a_success_that_carries_the_first_result_is_cached() -> None:
    assert REAL["cached"].cached
    assert not told(State.SUCCESS, {"cached": True}).cached
    assert not told(State.SUCCESS, {"cached": "yes", "original_result": {}}).cached
    assert not told(State.PARTIAL, {"cached": True, "original_result": {}}).cached


def test_meta_starts_with_agent_time_and_ts_in_utc_and_leaves_out_what_is_unknown() -> None:
    moment = datetime(2025, 1, 29, 18, 30, 0, 999_999, timezone(timedelta(hours=8)))

    meta = make_meta("skills", 1.23456, moment, run="r1", model=None)

    assert list(meta.items()) == [("agent", "skills"), ("time", 1.235), ("ts", "2025-01-29T10:30:00Z"), ("run", "r1")]


def test_the_advice_of_an_error_travels_in_the_hint() -> None:
    error = NotGranted("network", "skillyard grant @a network")

    result = error_result(error, "skills", Lang.EN, META)

    assert result.meta["hint"] == "the person must run: skillyard grant @a network"
    assert result.data["grant"] == "skillyard grant @a network"


def test_a_missing_param_is_a_question_where_someone_can_answer() -> None:
    error = ParamMissing(("input_file",), ("format", "quality"))

    asked = pending_result(error, "skills", Lang.ZH, META)
    refused = error_result(error, "skills", Lang.ZH, META)

    assert (asked.state, asked.summary) == (State.PENDING, "等待参数: 需要 input_file")
    assert asked.data == {"required": ["input_file"], "optional": ["format", "quality"]}
    assert (refused.state, refused.data["type"]) == (State.ERROR, "ParamMissing")


def test_an_outcome_says_what_its_program_said_else_what_we_say() -> None:
    def summary(outcome: Outcome, lang: Lang) -> str:
        return outcome.as_result("skills", lang, 0.1, MOMENT).summary

    assert summary(Outcome(data={}, summary=""), Lang.EN) == ""
    assert summary(Outcome(data={}, says=PAUSED, words={"count": 2}), Lang.ZH) == "工作流已暂停: 2 个技能需 LLM 分析"
    assert summary(Outcome(data={}, words={"label": "a"}), Lang.EN) == "ran: a"


@pytest.mark.parametrize(
    ("count", "size"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KB"),
        (12_800, "12.5KB"),
        (1_048_575, "1.0MB"),
        (1_048_576, "1.0MB"),
        (10_485_760, "10.0MB"),
        (1_073_741_823, "1.0GB"),
        (5 * 2**40, "5120.0GB"),
    ],
)
def test_sizes_are_1024_based_with_one_decimal(count: int, size: str) -> None:
    assert as_size(count) == size


@given(st.floats(min_value=0, max_value=1e6))
def test_the_digits_of_a_time_never_lie_by_more_than_they_show(seconds: float) -> None:
    assert abs(meaningful(seconds) - seconds) <= (0.0005001 if seconds < 10 else 0.05001)


@pytest.mark.parametrize(
    ("locale", "lang"), [("zh_CN.UTF-8", Lang.ZH), ("ZH", Lang.ZH), ("en_US", Lang.EN), ("", Lang.EN)]
)
def test_the_locale_chooses_the_language(locale: str, lang: Lang) -> None:
    assert Lang.choose(locale, {}) is lang
