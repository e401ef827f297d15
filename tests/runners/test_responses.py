"""S3 responses: the exact ones, the usual variants, and everything that is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.runners.json_skill import JsonResponse, read_response
from skillyard.sandbox.launch import Exit


def ended(stdout: str | bytes, code: int = 0, **more: Any) -> Exit:
    raw = stdout.encode() if isinstance(stdout, str) else stdout
    base = Exit(code=code, stdout=raw, stderr=b"", seconds=1.234, stdout_bytes=len(raw))
    fields = {name: getattr(base, name) for name in ("code", "stdout", "stderr", "seconds", "stdout_bytes")} | more
    return Exit(**fields)


def read(stdout: str | bytes, code: int = 0, strict: bool = False, **more: Any) -> JsonResponse:
    return read_response(ended(stdout, code, **more), "analyze", 300, strict=strict)


def error_of(response: JsonResponse) -> dict[str, object]:
    error = response.fields["error"]
    assert isinstance(error, dict)
    return error


def test_a_success_comes_back_as_it_was_with_its_time() -> None:
    given_ = {"success": True, "action": "analyze", "data": {"n": 1}, "message": "好", "metadata": {"items_count": 1}}

    response = read(json.dumps(given_))

    assert response.normalised == ()
    assert response.fields == {**given_, "metadata": {"execution_time_ms": 1234, "items_count": 1}}


def test_the_skills_own_time_wins() -> None:
    response = read('{"success": true, "data": {}, "metadata": {"execution_time_ms": 5}}')

    assert response.fields["metadata"] == {"execution_time_ms": 5}


def test_a_missing_action_is_filled_in_and_is_no_variant() -> None:
    response = read('{"success": true, "data": {}}', strict=True)

    assert response.success
    assert response.fields["action"] == "analyze"


@pytest.mark.parametrize(
    ("stdout", "says"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("not json", "not JSON"),
        ('{"success": true} {"success": true}', "more than one"),
        ('Loading…\n{"success": true}', "not JSON"),
        ("[1]", "not an object"),
        ('"text"', "not an object"),
        ("NaN", "not JSON"),
        ('{"success": true, "data": NaN}', "not JSON"),
        ("[" * 5000, "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
    ],
)
def test_what_is_no_response_is_an_internal_error_that_says_why(stdout: str | bytes, says: str) -> None:
    response = read(stdout)

    assert not response.success
    assert error_of(response)["code"] == "INTERNAL_ERROR"
    assert says in str(error_of(response)["message"])


def test_a_crash_is_an_internal_error_with_the_end_of_what_it_said() -> None:
    response = read("", code=1, stderr=b"Traceback\nKeyError: 'days'\n")

    assert error_of(response)["details"] == {"exit_code": 1, "stderr": "KeyError: 'days'"}


def test_an_error_response_wins_over_the_exit_code() -> None:
    response = read('{"success": false, "error": {"code": "DATA_NOT_FOUND", "message": "none"}}', code=1)

    assert error_of(response) == {"code": "DATA_NOT_FOUND", "message": "none"}


def test_success_with_a_failing_exit_code_is_an_internal_error() -> None:
    response = read('{"success": true, "data": {}}', code=3)

    assert not response.success
    assert error_of(response)["details"] == {"exit_code": 3}


def test_a_timeout_is_the_code_timeout() -> None:
    assert error_of(read("", timed_out=True))["code"] == "TIMEOUT"


def test_too_much_output_is_an_internal_error() -> None:
    response = read('{"success": true}', stdout_bytes=20_000_000)

    assert response.overflowed
    assert error_of(response)["code"] == "INTERNAL_ERROR"


@pytest.mark.parametrize(
    ("printed", "data"),
    [
        ({"items": [1], "count": 1}, {"items": [1], "count": 1}),
        ({"status": "ok", "value": 2}, {"value": 2}),
        ({"ok": True, "data": {"a": 1}}, {"a": 1}),
        ({"success": True, "total": 3}, {"total": 3}),
    ],
)
def test_the_usual_variants_are_read_and_said(printed: dict[str, object], data: dict[str, object]) -> None:
    response = read(json.dumps(printed))

    assert response.success
    assert response.fields["data"] == data
    assert response.normalised
    assert not read(json.dumps(printed), strict=True).success


@pytest.mark.parametrize("printed", [{"success": "yes", "data": {}}, {"success": False}, {"success": False, "data": 1}])
def test_a_failure_without_a_message_says_what_is_wrong_with_the_response(printed: dict[str, object]) -> None:
    assert "` is not " in str(error_of(read(json.dumps(printed)))["message"])


@pytest.mark.parametrize("printed", [{"error": "no such file"}, {"success": False, "error": "no such file"}])
def test_an_error_that_is_only_a_text_is_read_and_said(printed: dict[str, object]) -> None:
    response = read(json.dumps(printed), code=1)

    assert error_of(response) == {"code": "INTERNAL_ERROR", "message": "no such file"}
    assert response.normalised


@given(st.binary(), st.integers(-15, 255))
def test_whatever_is_printed_there_is_a_response_that_json_can_carry(stdout: bytes, code: int) -> None:
    response = read(stdout, code)

    assert isinstance(response.fields["success"], bool)
    json.dumps(response.fields)
