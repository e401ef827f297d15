"""Decodes the bytes of a file. Every file gives a text; a finding says where the encoding was guessed."""

import codecs
import re
from typing import NamedTuple

from skillyard.catalog.findings import Rule, position_in
from skillyard.core.skill import Finding

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_HIGH = re.compile(rb"[\x80-\xff]+")
#: Two bytes that GB 2312, the common part of GBK, uses for Chinese characters and punctuation.
_CHINESE = re.compile(rb"(?:[\xa1-\xf7][\xa1-\xfe])+")


class DecodedText(NamedTuple):
    text: str
    findings: tuple[Finding, ...] = ()


def decode(content: bytes) -> DecodedText:
    """Return the text with LF line ends and without BOM. Never raises.

    Bytes are searched faster than text, so they are searched first.
    """
    try:
        text = content.decode()
        findings: list[Finding] = []
    except UnicodeDecodeError as error:
        text, findings = _decode_other(content, error.start)
    if text.startswith("\ufeff"):
        text = text[1:]
        findings.append(Rule.ENCODING_BOM.at())
    if b"\r" in content and "\r" in text:
        pairs, returns, feeds = text.count("\r\n"), text.count("\r"), text.count("\n")
        findings.append((Rule.NEWLINES_CRLF if pairs == returns == feeds else Rule.NEWLINES_MIXED).at())
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if b"\0" in content and "\0" in text:
        findings.append(Rule.ENCODING_NUL.at(*position_in(text, text.index("\0"))))
    return DecodedText(text, tuple(findings))


def as_text(source: str | bytes) -> str:
    """Return a text as it is, or a part of the bytes of a file as text."""
    if isinstance(source, str):
        return source
    try:
        return source.decode()
    except UnicodeDecodeError:
        return decode(source).text


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
    """Whether high bytes come in pairs from two ranges; accented letters of European texts are single."""
    runs = _HIGH.findall(content)
    high = sum(map(len, runs))
    paired = sum(len(run) for run in runs if _CHINESE.fullmatch(run))
    return paired * 10 >= high * 8


def _mostly_utf8(content: bytes) -> bool:
    """Whether it is UTF-8 but for a few bad bytes, such as a text that was cut."""
    text = content.decode(errors="replace")
    bad = text.count("\ufffd")
    good = sum(not letter.isascii() for letter in text) - bad
    return good > bad * 4
