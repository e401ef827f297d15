"""The text of a skill file: decodes its bytes, and finds the frontmatter.

The standard wants `---` on the first line and below the block. Other forms that occur are found too, with a finding
each. If the extent had to be guessed, the fence is not `sure`, and fields that decide what may run are not used.
"""

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from skillyard.catalog.findings import make_finding, position_in
from skillyard.core.skill import Finding

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_HIGH = re.compile(rb"[\x80-\xff]+")
#: Two bytes that GB 2312, the common part of GBK, uses for Chinese characters and punctuation.
_CHINESE = re.compile(rb"(?:[\xa1-\xf7][\xa1-\xfe])+")

_OPEN = re.compile(r"---[ \t]*\n")
_CLOSE = re.compile(r"---[ \t]*$", re.MULTILINE)
_ODD_CLOSE = re.compile(r"^(?:[^\S\n]*---[^\S\n]*|\.\.\.[ \t]*|-{4,}[^\S\n]*|---(?P<glued>[^\s-].*))$", re.MULTILINE)
_ODD_OPEN = re.compile(r"[^\S\n]*-{3,}[^\S\n]*\n")
_ONE_LINE = re.compile(r"---[ \t]+(?P<fields>\w[\w-]*:[ \t].{0,4000}?)[ \t]---[ \t]*(?:\n|\Z)")
_ONE_LINE_KEY = re.compile(r"(?:^|[ \t]+)(?=[a-z][a-z-]{2,}:[ \t])")
_INNER_OPEN = re.compile(r"^[^\S\n]*---[^\S\n]*\n(?:[^\S\n]*\n)*(?=[^\S\n]*(?:name|description)[ \t]*:)", re.MULTILINE)
_KEY_LINE = re.compile(r"(?:[^\W\d]|[\"'])[\w.\"'-]*[ \t]*:(?:\s|$)")
_FIRST_KEY = re.compile(r"(?:name|description|title|version)[ \t]*:[ \t]*\S")
_BLANK_CLOSE = re.compile(r"\n*---[ \t]*(?:\n|\Z)")
_HTML_COMMENT = re.compile(r"(?:<!--.*?-->\s*)+", re.DOTALL)


class DecodedText(NamedTuple):
    text: str
    findings: tuple[Finding, ...] = ()


def decode(content: bytes) -> DecodedText:
    """Return the text with LF line ends and without BOM. Never raises: a finding says where the encoding was guessed.

    Bytes are searched faster than text, so they are searched first.
    """
    try:
        text = content.decode()
        findings: list[Finding] = []
    except UnicodeDecodeError as error:
        text, findings = _decode_other(content, error.start)
    if text.startswith("\ufeff"):
        text = text[1:]
        findings.append(make_finding("encoding-bom"))
    if b"\r" in content and "\r" in text:
        pairs, returns, feeds = text.count("\r\n"), text.count("\r"), text.count("\n")
        findings.append(make_finding("newlines-crlf" if pairs == returns == feeds else "newlines-mixed"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if b"\0" in content and "\0" in text:
        findings.append(make_finding("encoding-nul", *position_in(text, text.index("\0"))))
    return DecodedText(text, tuple(findings))


def _decode_other(content: bytes, start: int) -> tuple[str, list[Finding]]:
    """Decode what is not UTF-8 at the byte `start`."""
    if encoding := _UTF16.get(content[:2]):
        return content[2:].decode(encoding, "replace"), [make_finding("encoding-utf16", encoding=encoding.upper())]
    position = (content.count(b"\n", 0, start) + 1, start - content.rfind(b"\n", 0, start))
    # In Chinese, high bytes come in pairs from two ranges; accented letters of European texts are single.
    runs = _HIGH.findall(content)
    paired = sum(len(run) for run in runs if _CHINESE.fullmatch(run))
    if paired * 10 >= sum(map(len, runs)) * 8:
        with suppress(UnicodeDecodeError):
            return content.decode("gb18030"), [make_finding("encoding-gbk", *position, encoding="GB18030")]
    # UTF-8 but for a few bad bytes, such as a text that was cut?
    text = content.decode(errors="replace")
    bad = text.count("\ufffd")
    if sum(not letter.isascii() for letter in text) - bad > bad * 4:
        return text, [make_finding("encoding-guessed", *position, encoding="UTF-8")]
    return content.decode("cp1252", "replace"), [make_finding("encoding-guessed", *position, encoding="Windows-1252")]


def as_text(source: str | bytes) -> str:
    """Return a text as it is, or a part of the bytes of a file as text."""
    if isinstance(source, str):
        return source
    try:
        return source.decode()
    except UnicodeDecodeError:
        return decode(source).text


class Fence(NamedTuple):
    """The extent of the frontmatter. Lines are the file's, counted from 1.

    `source` is the file's text, or its bytes if the body was not decoded; `body_start` is an index of it.
    """

    source: str | bytes
    block: str
    block_line: int
    body_start: int
    body_line: int
    found: bool = True
    sure: bool = True
    findings: tuple[Finding, ...] = ()

    @property
    def body(self) -> str:
        return as_text(self.source[self.body_start :])


def plain_fence(content: bytes) -> Fence | None:
    """Return the frontmatter of a file that follows the standard, found in its bytes, or None for any other.

    Decoding the body costs as much as half the parse, and a scan does not need it.
    """
    end = content.find(b"\n---", 3)
    if end < 0 or not content.startswith(b"---\n") or b"\r" in content or content[end + 4 : end + 5] != b"\n":
        return None
    try:
        block = content[4 : end + 1].decode()
    except UnicodeDecodeError:
        return None
    return Fence(content, block, 2, end + 5, block.count("\n") + 3)


def find_fence(text: str) -> Fence:
    """Return the block and the body of a text with LF line ends."""
    opening = _OPEN.match(text)
    return _from_open(text, opening.end()) if opening else _from_odd_open(text)


def earlier_close(fence: Fence) -> Fence | None:
    """Return the same frontmatter, closed by a line inside the block that looks like a fence.

    For a block that no parser takes: its real fence has text glued to it, and a later line of the body was taken.
    """
    text, start = as_text(fence.source), fence.body_start
    for _ in range(fence.body_line - fence.block_line):
        start = text.rfind("\n", 0, start - 1) + 1
    closing = _ODD_CLOSE.search(text, start, start + len(fence.block))
    if not closing or not text.startswith(fence.block, start):
        return None
    return _between(text, start, closing, fence.findings, sure=fence.sure)


def _between(text: str, start: int, closing: re.Match[str], findings: tuple[Finding, ...], *, sure: bool) -> Fence:
    """Return the block from `start` to the closing fence; text that is glued to the fence starts the body."""
    line, body_start = _line(text, start), min(closing.end() + 1, len(text))
    if closing.re is _ODD_CLOSE:
        odd = make_finding("fence-odd-close", _line(text, closing.start()), shown=repr(closing[0]))
        if closing["glued"]:
            odd = make_finding("fence-glued-close", odd.line, 4, shown=closing["glued"])
            body_start = closing.start("glued")
        findings = (*findings, odd)
    block, body_line = text[start : closing.start()], line + text.count("\n", start, body_start)
    return Fence(text, block, line, body_start, body_line, sure=sure, findings=findings)


def _from_open(text: str, start: int, *findings: Finding, sure: bool = True) -> Fence:
    """Return the frontmatter whose opening fence ends at `start`."""
    index = text.find("\n---", start - 1)  # many times faster than a pattern that tries each line
    while index >= 0:
        if closing := _CLOSE.match(text, index + 1):
            return _between(text, start, closing, findings, sure=sure)
        index = text.find("\n---", index + 1)
    odd = _ODD_CLOSE.search(text, start)
    if odd and _has_key(text[start : odd.start()]):
        return _between(text, start, odd, findings, sure=sure)
    return _unclosed(text, start, *findings)


def _unclosed(text: str, start: int, *findings: Finding) -> Fence:
    """Return a block without a closing fence: it ends where a blank line is followed by something that is no field."""
    end, blank = start, False
    for line in text[start:].splitlines(keepends=True):
        if line.startswith("---") or (blank and line[0] not in " \t\n" and not _KEY_LINE.match(line)):
            break
        blank = not line.strip()
        end += len(line)
    if not _has_key(text[start:end]):
        return _missing(text)
    findings = (*findings, make_finding("fence-no-close", _line(text, max(start, end - 1))))
    return Fence(text, text[start:end], _line(text, start), end, _line(text, end), sure=False, findings=findings)


def _missing(text: str) -> Fence:
    return Fence(text, "", 1, 0, 1, found=False, sure=False, findings=(make_finding("frontmatter-missing"),))


def _from_odd_open(text: str) -> Fence:
    """Find what people write instead of a fence on the first line."""
    start = len(text) - len(text.lstrip())
    if start == len(text):
        return Fence(text, "", 1, start, _line(text, start), found=False, findings=(make_finding("file-empty"),))
    start = text.rfind("\n", 0, start) + 1
    line = _line(text, start)
    if opening := _OPEN.match(text, start):
        return _from_open(text, opening.end(), make_finding("fence-leading-blank"))
    if found := _ONE_LINE.match(text, start):
        block = "\n".join(part for part in _ONE_LINE_KEY.split(found["fields"]) if part) + "\n"
        return Fence(
            text, block, line, found.end(), line + 1, sure=False, findings=(make_finding("fence-one-line", line),)
        )
    comment = _HTML_COMMENT.match(text, start)
    if comment and (opening := _OPEN.match(text, comment.end())):
        return _from_open(text, opening.end(), make_finding("fence-comment-before", line))
    if opening := _ODD_OPEN.match(text, start):
        odd = make_finding("fence-odd-open", line, shown=repr(opening[0].rstrip("\n")))
        fence = _from_open(text, opening.end(), odd)
        if _has_key(fence.block):
            return fence
    # Further down, in a code block or below a heading, if name or description follows.
    if opening := _INNER_OPEN.search(text, start):
        code = "fence-in-code" if text.startswith("```", start) else "fence-text-before"
        return _from_open(text, opening.end(), make_finding(code, line), sure=False)
    if not _FIRST_KEY.match(text, start):
        return _missing(text)
    fence = _unclosed(text, start, make_finding("fence-no-open", line))
    if closing := _BLANK_CLOSE.match(text, fence.body_start):
        end = closing.end()
        fence = fence._replace(body_start=end, body_line=_line(text, end), findings=fence.findings[:1])
    return fence


def _has_key(block: str) -> bool:
    return any(_KEY_LINE.match(line.lstrip()) for line in block.splitlines())


def _line(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1
