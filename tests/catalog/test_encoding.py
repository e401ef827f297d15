import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.skill_text import decode

CHINESE = "---\nname: 翻译\ndescription: 把文章翻译成中文，保留格式。\n---\n正文在这里。\n"


def codes(content: bytes) -> list[str]:
    return [finding.code for finding in decode(content).findings]


def test_plain_utf8_needs_no_words() -> None:
    assert decode(CHINESE.encode()) == (CHINESE, ())


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "gb2312"])
def test_chinese_encodings_are_read_and_said(encoding: str) -> None:
    assert decode(CHINESE.encode(encoding)).text == CHINESE
    assert codes(CHINESE.encode(encoding)) == ["encoding-gbk"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_mark_is_read(encoding: str) -> None:
    content = ("\ufeff" + CHINESE).encode(encoding)

    assert decode(content).text == CHINESE
    assert codes(content) == ["encoding-utf16"]


def test_western_text_is_a_guess() -> None:
    assert decode("Café in Zürich".encode("cp1252")).text == "Café in Zürich"
    assert codes("Café".encode("cp1252")) == ["encoding-guessed"]


def test_one_bad_byte_does_not_make_utf8_something_else() -> None:
    text = decode(CHINESE.encode() + b"\xff").text

    assert text == CHINESE + "\ufffd"


def test_a_mark_is_dropped_and_noted() -> None:
    assert decode(b"\xef\xbb\xbfx").text == "x"
    assert codes(b"\xef\xbb\xbfx") == ["encoding-bom"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"a\r\nb\r\n", "newlines-crlf"), (b"a\r\nb\n", "newlines-mixed"), (b"a\rb\n", "newlines-mixed")],
)
def test_line_ends_become_lf(content: bytes, code: str) -> None:
    assert decode(content).text.splitlines() == ["a", "b"]
    assert codes(content) == [code]


def test_nul_is_kept_and_reported_with_its_place() -> None:
    (finding,) = decode(b"ab\nc\0d").findings

    assert (finding.code, finding.line, finding.column) == ("encoding-nul", 2, 2)


@given(st.binary())
def test_any_bytes_become_text_that_can_be_written_again(content: bytes) -> None:
    assert "\r" not in decode(content).text
    decode(content).text.encode()
