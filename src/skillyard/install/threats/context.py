"""Where in a text a match stands: an instruction weighs more than a quotation, and a warning is no threat.

One step milder for what is quoted (a fence of no shell, a table, a block quote, quotation marks or backticks around
it), and one for what is warned of (on its line, on the line before, in its heading). Never more than two: whoever
writes an attack into a fence below the word "example" still gets it held back if it is bad enough.
"""

import re
from bisect import bisect
from functools import cached_property

from skillyard.install.threats.files import SkillFile

_WARNING = re.compile(
    r"\b(?:never|don['’]?t|do not|avoid|must not|should(?: not|n['’]t)|cannot|can['’]?t|forbid\w*|prohibit\w*|"
    r"block(?:s|ed|ing)?|reject\w*|refuse\w*|detect\w*|flag(?:s|ged|ging)?|warn\w*|prevent\w*|protect\w*|mitigat\w*|"
    r"defen[ds]\w*|danger\w*|malicious\w*|attack\w*|vulnerab\w*|unsafe|insecure|suspicious|anti-?patterns?|bad|wrong|"
    r"examples?|e\.g|such as|patterns?|signatures?|payloads?|threats?|exploit\w*|injections?|jailbreak\w*|phishing|"
    r"scan\w*|risk\w*|destructive|look for|check for|without confirmation)\b"
    r"|[❌🚫⛔⚠]|禁止|不要|切勿|避免|危险|恶意|攻击|检测|拦截|警告|防止|不得|严禁|例如|示例|风险|注入|漏洞|扫描|禁用|拒绝",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^[ \t>]{0,20}(`{3,}|~{3,})[ \t]*([\w+-]*)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t].*$", re.MULTILINE)
#: Fences that an agent takes for something to run.
_RUN = frozenset({"bash", "sh", "shell", "zsh", "console", "powershell", "ps1", "shell-session", "terminal"})
_COMMENT = re.compile(r"\s*#")
_SLASHES = re.compile(r"\s*(?://|\*)")
#: A pattern to look for something is no call of it.
_RAW = re.compile(r"\br[\"']|re\.compile\(|RegExp\(")
_OPENING, _CLOSING = "`\"“‘「『'", "`\"”’」』'"
#: How far the end of a quotation may be from the match.
_NEAR = 80
#: How much before a match is read for a warning.
_LOOK_BACK = 400


class MatchContext:
    """One file's layout, computed at its first match."""

    def __init__(self, file: SkillFile) -> None:
        self._file = file
        self._text = file.joined

    def milder(self, start: int, end: int) -> int:
        """By how many levels a match is milder, 0 to 2."""
        begin = self._text.rfind("\n", 0, start) + 1
        line = self._text[begin : self._line_end(end)]
        if self._file.is_script:
            return int(self._unused(line, start - begin))
        if self._file.language != "text":
            return 0
        return self._quoted(line, begin, start, end) + self._warned(begin, start)

    def _unused(self, line: str, column: int) -> bool:
        """A comment, or a pattern; a shell has neither slashes for comments nor patterns of its own."""
        if self._file.language == "shell":
            return bool(_COMMENT.match(line))
        comment = _SLASHES if self._file.language == "javascript" else _COMMENT
        return bool(comment.match(line) or _RAW.search(line[:column]))

    def _line_end(self, index: int) -> int:
        found = self._text.find("\n", index)
        return found if found >= 0 else len(self._text)

    def _quoted(self, line: str, begin: int, start: int, end: int) -> int:
        if start < self._frontmatter:
            return 0  # quotes are how values are written there
        fence = self._fence_at(start)
        if fence is not None:
            return int(fence[2].lower() not in _RUN or bool(_COMMENT.match(line)))
        if line.lstrip().startswith(("|", ">")):
            return 1
        before, after = line[: start - begin][-_NEAR:], line[end - begin :][:_NEAR]
        pairs = zip(_OPENING, _CLOSING, strict=True)
        return int(any(before.count(opening) % 2 and closing in after for opening, closing in pairs))

    def _warned(self, begin: int, start: int) -> int:
        """Before the match on its line, on the line above it or above its fence, or in the heading."""
        fence = self._fence_at(start)
        top = fence.start() if fence else begin
        above = self._text[max(top - _LOOK_BACK, 0) : top].rstrip()
        parts = (
            self._text[max(begin, start - _LOOK_BACK) : start],
            above[above.rfind("\n") + 1 :],
            self._heading(start),
        )
        return int(any(_WARNING.search(part) for part in parts))

    def _heading(self, index: int) -> str:
        position = bisect(self._headings, index, key=re.Match.start) - 1
        return self._headings[position][0][:_LOOK_BACK] if position >= 0 else ""

    @cached_property
    def _frontmatter(self) -> int:
        """The index at which it ends."""
        return self._text.find("\n---", 3) if self._text.startswith("---") else 0

    @cached_property
    def _headings(self) -> list[re.Match[str]]:
        return [found for found in _HEADING.finditer(self._text) if self._fence_at(found.start()) is None]

    def _fence_at(self, index: int) -> re.Match[str] | None:
        """The opening of the fence around this index."""
        position = bisect(self._fences, index, key=lambda fence: fence[0].start()) - 1
        if position < 0:
            return None
        opening, close = self._fences[position]
        return opening if index < close else None

    @cached_property
    def _fences(self) -> list[tuple[re.Match[str], int]]:
        found: list[tuple[re.Match[str], int]] = []
        opening: re.Match[str] | None = None
        for mark in _FENCE.finditer(self._text):
            if opening is None:
                opening = mark
            elif mark[1][0] == opening[1][0] and len(mark[1]) >= len(opening[1]) and not mark[2]:
                found.append((opening, mark.end()))
                opening = None
        if opening:
            found.append((opening, len(self._text)))
        return found
