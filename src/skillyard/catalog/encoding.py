"""Bytes to text. Every file gets a text; what had to be guessed is said in the findings."""

import codecs
import re
from typing import NamedTuple

from skillyard.catalog.findings import Rule
from skillyard.core.skill import Finding

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_HIGH = re.compile(rb"[\x80-\xff]+")
#: Two bytes that GB 2312, the common part of GBK, uses for Chinese characters and punctuation.
_CHINESE = re.compile(rb"(?:[\xa1-\xf7][\xa1-\xfe])+")


class Text(NamedTuple):
    text: str
    findings: tuple[Finding, ...] = ()


def decode(content: bytes) -> Text:
    """The text with LF line ends and without BOM; never raises.

    Bytes are searched faster than text, so they are asked first.
    """
    try:
        text = content.decode()
        findings: list[Finding] = []
    except UnicodeDecodeError as error:
        text, findings = _decode_other(content, error.start)
    if text.startswith("\ufeff"):
        text = text[1:]
        findings.append(Rule.ENCODING_BOM.at())
    if b"\r" in content:
        text = _with_lf(text, findings)
    if b"\0" in content and "\0" in text:
        findings.append(Rule.ENCODING_NUL.at(*_place(text, text.index("\0"))))
    return Text(text, tuple(findings))


def as_text(source: str | bytes) -> str:
    """A text, or a part of the bytes of one that nobody has looked at yet."""
    if isinstance(source, str):
        return source
    try:
        return source.decode()
    except UnicodeDecodeError:
        return decode(source).text


def _with_lf(text: str, findings: list[Finding]) -> str:
    """Notes how lines end, and ends them all the same way."""
    if "\r" not in text:
        return text
    pairs, returns, feeds = text.count("\r\n"), text.count("\r"), text.count("\n")
    rule = Rule.NEWLINES_CRLF if pairs == returns == feeds else Rule.NEWLINES_MIXED
    findings.append(rule.at())
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_other(content: bytes, start: int) -> tuple[str, list[Finding]]:
    if encoding := _UTF16.get(content[:2]):
        text = content[2:].decode(encoding, "replace")
        return text, [Rule.ENCODING_UTF16.at(encoding=encoding.upper())]
    line = content.count(b"\n", 0, start) + 1
    column = start - content.rfind(b"\n", 0, start)
    if _looks_chinese(content):
        try:
            return content.decode("gb18030"), [Rule.ENCODING_GBK.at(line, column, encoding="GB18030")]
        except UnicodeDecodeError:
            pass
    if _mostly_utf8(content):
        return content.decode(errors="replace"), [Rule.ENCODING_GUESSED.at(line, column, encoding="UTF-8")]
    text = content.decode("cp1252", "replace")
    return text, [Rule.ENCODING_GUESSED.at(line, column, encoding="Windows-1252")]


def _looks_chinese(content: bytes) -> bool:
    """Chinese bytes come in pairs from two high ranges; accented letters of Europe stand alone."""
    runs = _HIGH.findall(content)
    high = sum(map(len, runs))
    paired = sum(len(run) for run in runs if _CHINESE.fullmatch(run))
    return paired * 10 >= high * 8


def _mostly_utf8(content: bytes) -> bool:
    """A few bad bytes in a text that is UTF-8 otherwise, such as one that was cut."""
    text = content.decode(errors="replace")
    bad = text.count("\ufffd")
    good = sum(not letter.isascii() for letter in text) - bad
    return good > bad * 4


def _place(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
