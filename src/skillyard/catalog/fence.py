"""Finds the frontmatter in a text.

    ---            the opening fence, the first line
    name: x        the block
    ---            the closing fence, the first line that says so
    # Text         the body

Other forms that occur are found too, with a finding each. If the extent had to be guessed, the fence is not `sure`, and
fields that decide what may run are not taken from it.
"""

import re
from typing import NamedTuple

from skillyard.catalog.encoding import as_text
from skillyard.catalog.findings import Rule
from skillyard.core.skill import Finding

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
    if end < 0 or not content.startswith(b"---\n") or b"\r" in content:
        return None
    if content[end + 4 : end + 5] != b"\n":
        return None
    try:
        block = content[4 : end + 1].decode()
    except UnicodeDecodeError:
        return None
    return Fence(content, block, 2, end + 5, block.count("\n") + 3)


def find_fence(text: str) -> Fence:
    """Return the block and the body of a text with LF line ends."""
    opening = _OPEN.match(text)
    if opening:
        return _from_open(text, opening.end())
    return _odd_open(text)


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
    said = (*fence.findings, _odd_close_finding(text, closing))
    return _between(text, start, closing)._replace(sure=fence.sure, findings=said)


def _between(text: str, start: int, closing: re.Match[str]) -> Fence:
    """Return the block from `start` to the closing fence; text that is glued to the fence starts the body."""
    glued = closing.re is _ODD_CLOSE and closing["glued"]
    body_start = min(closing.start("glued") if glued else closing.end() + 1, len(text))
    line = text.count("\n", 0, start) + 1
    return Fence(
        source=text,
        block=text[start : closing.start()],
        block_line=line,
        body_start=body_start,
        body_line=line + text.count("\n", start, body_start),
    )


def _from_open(text: str, start: int, findings: tuple[Finding, ...] = (), *, sure: bool = True) -> Fence:
    """Return the frontmatter whose opening fence ends at `start`."""
    closing = _close(text, start)
    if closing:
        fence = _between(text, start, closing)
        return fence if sure and not findings else fence._replace(sure=sure, findings=findings)
    closing = _ODD_CLOSE.search(text, start)
    if not closing or not _has_key(text[start : closing.start()]):
        return _unclosed(text, start, findings)
    said = (*findings, _odd_close_finding(text, closing))
    return _between(text, start, closing)._replace(sure=sure, findings=said)


def _close(text: str, start: int) -> re.Match[str] | None:
    """Return the first closing fence. `find` is many times faster than a pattern that tries each line."""
    index = text.find("\n---", start - 1)
    while index >= 0:
        if closing := _CLOSE.match(text, index + 1):
            return closing
        index = text.find("\n---", index + 1)
    return None


def _odd_close_finding(text: str, closing: re.Match[str]) -> Finding:
    line = _line(text, closing.start())
    if closing["glued"]:
        return Rule.FENCE_GLUED_CLOSE.at(line, 4, shown=closing["glued"])
    return Rule.FENCE_ODD_CLOSE.at(line, shown=repr(closing[0]))


def _unclosed(text: str, start: int, findings: tuple[Finding, ...]) -> Fence:
    """Return a block without a closing fence: it ends where a blank line is followed by something that is no field."""
    end, blank = start, False
    for line in text[start:].splitlines(keepends=True):
        if line.startswith("---") or (blank and line[0] not in " \t\n" and not _KEY_LINE.match(line)):
            break
        blank = not line.strip()
        end += len(line)
    if not _has_key(text[start:end]):
        return _missing(text)
    said = Rule.FENCE_NO_CLOSE.at(_line(text, max(start, end - 1)))
    return Fence(
        source=text,
        block=text[start:end],
        block_line=_line(text, start),
        body_start=end,
        body_line=_line(text, end),
        sure=False,
        findings=(*findings, said),
    )


def _odd_open(text: str) -> Fence:
    """Find what people write instead of a fence on the first line."""
    start = len(text) - len(text.lstrip())
    if start == len(text):
        return Fence(text, "", 1, len(text), _line(text, len(text)), found=False, findings=(Rule.FILE_EMPTY.at(),))
    start = text.rfind("\n", 0, start) + 1
    for attempt in (_after_blank, _one_line, _comment_first, _odd_line, _inner, _no_open):
        if fence := attempt(text, start):
            return fence
    return _missing(text)


def _missing(text: str) -> Fence:
    return Fence(text, "", 1, 0, 1, found=False, sure=False, findings=(Rule.FRONTMATTER_MISSING.at(),))


def _after_blank(text: str, start: int) -> Fence | None:
    opening = _OPEN.match(text, start)
    return _from_open(text, opening.end(), (Rule.FENCE_LEADING_BLANK.at(),)) if opening else None


def _one_line(text: str, start: int) -> Fence | None:
    found = _ONE_LINE.match(text, start)
    if not found:
        return None
    line = _line(text, start)
    block = "\n".join(part for part in _ONE_LINE_KEY.split(found["fields"]) if part) + "\n"
    said = (Rule.FENCE_ONE_LINE.at(line),)
    return Fence(text, block, line, found.end(), line + 1, sure=False, findings=said)


def _comment_first(text: str, start: int) -> Fence | None:
    comment = _HTML_COMMENT.match(text, start)
    opening = _OPEN.match(text, comment.end()) if comment else None
    if not opening:
        return None
    return _from_open(text, opening.end(), (Rule.FENCE_COMMENT_BEFORE.at(_line(text, start)),))


def _odd_line(text: str, start: int) -> Fence | None:
    opening = _ODD_OPEN.match(text, start)
    if not opening:
        return None
    said = Rule.FENCE_ODD_OPEN.at(_line(text, start), shown=repr(opening[0].rstrip("\n")))
    fence = _from_open(text, opening.end(), (said,))
    return fence if _has_key(fence.block) else None


def _inner(text: str, start: int) -> Fence | None:
    """Find a fence further down, in a code block or below a heading, if name or description follows."""
    opening = _INNER_OPEN.search(text, start)
    if not opening:
        return None
    rule = Rule.FENCE_IN_CODE if text.startswith("```", start) else Rule.FENCE_TEXT_BEFORE
    return _from_open(text, opening.end(), (rule.at(_line(text, start)),), sure=False)


def _no_open(text: str, start: int) -> Fence | None:
    if not _FIRST_KEY.match(text, start):
        return None
    fence = _unclosed(text, start, (Rule.FENCE_NO_OPEN.at(_line(text, start)),))
    closing = _BLANK_CLOSE.match(text, fence.body_start)
    if not closing:
        return fence
    return fence._replace(body_start=closing.end(), body_line=_line(text, closing.end()), findings=fence.findings[:1])


def _has_key(block: str) -> bool:
    return any(_KEY_LINE.match(line.lstrip()) for line in block.splitlines())


def _line(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1
