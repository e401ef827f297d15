"""Messages: English for programs, the reader's language for people, and a catalogue that fits the code."""

import copy
import json
import pickle
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import messages as catalogue

from skillyard.core.errors import BackendFailed, SecretMissing, error_classes, retryable_codes
from skillyard.core.messages import Lang, Message, as_json, join_messages, of_json, render, translate

HELLO = Message("no script {name} in bin/", name="x")


def test_a_message_is_its_english_text() -> None:
    assert HELLO == "no script x in bin/"
    assert (HELLO.template, HELLO.values) == ("no script {name} in bin/", {"name": "x"})
    assert json.dumps({"msg": HELLO}) == '{"msg": "no script x in bin/"}'
    with sqlite3.connect(":memory:") as database:
        assert database.execute("SELECT ? || '!'", (HELLO,)).fetchone() == ("no script x in bin/!",)


def test_a_template_is_filled_when_it_is_rendered() -> None:
    template = Message("failed: {reason}")

    assert template == "failed: {reason}"
    assert template.render(Lang.EN, reason="x") == "failed: x"
    assert template.render(Lang.ZH, reason="x") == "执行失败: x"


def test_values_that_are_messages_are_rendered_and_others_stay() -> None:
    inner = Message("the task is empty")
    outer = Message("{place}: {reason}", place="the task is empty", reason=inner)

    assert outer == "the task is empty: the task is empty"
    assert outer.render(Lang.ZH) == "the task is empty：任务为空"
    assert render("the task is empty", Lang.ZH) == "the task is empty"


def test_a_message_without_a_translation_is_shown_in_english() -> None:
    assert Message("nobody {says} this", says="ever").render(Lang.ZH) == "nobody ever this"
    assert translate("nobody says this", Lang.ZH, "help") == "nobody says this"


@given(st.text())
def test_a_value_is_never_taken_for_a_template(value: str) -> None:
    message = Message("failed: {reason}", reason=value)

    assert message == f"failed: {value}"
    assert message.render(Lang.ZH) == f"执行失败: {value}"
    assert Message.plain(value) == value


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), str])
def test_a_copy_is_still_a_message(again: object) -> None:
    assert callable(again)
    other = again(HELLO)

    assert isinstance(other, Message)
    assert (other, other.template, other.values) == (HELLO, HELLO.template, HELLO.values)


def test_a_message_survives_json() -> None:
    message = Message("{place}: {reason}", place=3, reason=Message("the task is empty"))
    other = of_json(json.loads(json.dumps(as_json(message))))

    assert other == message
    assert other.render(Lang.ZH) == message.render(Lang.ZH)
    assert of_json(as_json("plain")) == "plain"


def test_an_error_in_a_message_is_what_it_says() -> None:
    ours, others = ValueError(Message("the task is empty")), ValueError("the task is empty")

    assert Message("failed: {reason}", reason=ours).render(Lang.ZH) == "执行失败: 任务为空"
    assert Message("failed: {reason}", reason=others).render(Lang.ZH) == "执行失败: the task is empty"


def test_joined_messages_stay_messages() -> None:
    joined = join_messages("; ", [Message("the task is empty"), "{x}"])

    assert joined == "the task is empty; {x}"
    assert joined.render(Lang.ZH) == "任务为空; {x}"


def test_an_english_reader_needs_no_gettext() -> None:
    code = (
        "import sys; from skillyard.core.errors import InvalidArgs; from skillyard.core.messages import Lang; "
        "print(InvalidArgs('x').summary(Lang.EN), 'gettext' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "InvalidArgs: invalid arguments: x False\n"


# The catalogue


def test_the_catalogue_is_current_compiled_and_fits_the_code() -> None:
    assert list(catalogue.problems(catalogue.read_catalogue())) == []


@pytest.mark.parametrize(
    ("text", "translation", "fits"),
    [
        ("{a} of {b:g}", "{b:g} 之 {a}", True),
        ("{a} of {b:g}", "{b} 之 {a}", False),
        ("{a} of {b}", "{a}", False),
        ("{a}", "{a} {c}", False),
        ("{a}", "{a", False),
        ("{count} {noun}", "{count} 个", True),
        ("unrecognized arguments: %s", "无法识别的参数: %s", True),
    ],
)
def test_a_translation_has_the_slots_of_its_message(text: str, translation: str, fits: bool) -> None:
    assert catalogue._fits(text, translation) is fits


# Errors


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = list(error_classes())
    codes = [kind.code for kind in kinds]

    assert all("code" in vars(kind) for kind in kinds)
    assert len(set(codes)) == len(codes)
    assert all(code.isidentifier() and code.islower() for code in codes)


def test_only_what_may_pass_by_itself_is_retryable() -> None:
    assert {"runtime_failed", "timeout", "backend_failed", "database_failed"} <= retryable_codes()
    assert retryable_codes().isdisjoint(
        {"secret_missing", "extra_missing", "python_missing", "cancelled", "not_granted"}
    )


def test_an_error_says_its_own_words_in_the_readers_language() -> None:
    missing = SecretMissing(Message("the task is empty"), Message("use a longer value"), details={})
    failed = BackendFailed("codex", "the key is missing")

    assert missing.summary(Lang.ZH) == "RuntimeFailed: 缺少密钥: 任务为空"
    assert "换一个更长的值" in missing.hint(Lang.ZH)
    assert (missing.msg, str(missing)) == ("the task is empty", "the task is empty")
    assert failed.summary(Lang.ZH).endswith("codex: the key is missing")


def test_an_empty_message_is_empty_in_every_language() -> None:
    """gettext keeps the header of its catalogue under the empty text."""
    assert [Message.plain("").render(lang) for lang in Lang] == ["", ""]
