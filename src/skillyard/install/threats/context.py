"""Where in a text a match stands: an instruction weighs more than a quotation, and what is forbidden is no threat.

One step milder for what is quoted (a fence of no shell, a table, quotation marks or backticks around it), and one for
what is warned of (on its line, in the sentence that leads to it, in its heading). Two for a fence whose first line
says that it is an attacker's or bad code. At most LOW for what the sentence forbids, for what is quoted where the
text speaks of attacks or blocked commands, for a quoted phrase, and for data: JSON that a script's test gets, the
record of an event in a program that starts no others. A word in an address, the word "example" and a warning sign
make nothing else milder: lures are full of them.
"""

import re
from bisect import bisect
from functools import cached_property

from skillyard.install.threats.files import SkillFile
from skillyard.install.threats.rule import read_patterns

_PATTERNS = read_patterns("context")
#: Fences that an agent takes for something to run.
_RUN = frozenset({"bash", "sh", "shell", "zsh", "console", "powershell", "ps1", "shell-session", "terminal"})
_OPENING, _CLOSING = "`\"“‘「『'", "`\"”’」』'"
#: How far the end of a quotation may be from the match.
_NEAR = 80
#: How much before a match is read for a warning.
_LOOK_BACK = 400


class MatchContext:
    """One file's layout, computed at its first match."""

    def __init__(self, file: SkillFile) -> None:
        self._file, self._text = file, file.joined

    def milder(self, start: int, end: int, *, phrase: bool = False) -> int:
        """By how many levels a match is milder, 0 to 2; 3 if it is LOW at most. A quoted `phrase` orders nothing."""
        begin, stop = self._text.rfind("\n", 0, start) + 1, self._text.find("\n", end)
        line = self._text[begin : stop if stop >= 0 else len(self._text)]
        if self._is_data(line[: start - begin], line[end - begin :]):
            return 3
        if self._file.is_script:
            unused = self._unused(line, start - begin, end - begin)
            return 3 if unused and phrase else unused
        if self._file.language != "text":
            return 0 if phrase else 2 * bool(_PATTERNS["comment"].match(line) or _PATTERNS["text_value"].match(line))
        before, lead_in = self._words_before(line, begin, start), self._lead_in(begin, start)
        around = f"{lead_in}\n{self._heading(start)}"
        attack = bool(_PATTERNS["attack"].search(before) or _PATTERNS["attack"].search(around))
        listed = bool(_PATTERNS["item"].match(line) and _PATTERNS["attack"].search(lead_in))
        quoted = self._quoted(line, begin, start, end)
        if _PATTERNS["forbids"].search(before) or (attack and (quoted or listed)) or (quoted and phrase):
            return 3
        return quoted + int(attack or bool(_PATTERNS["warning"].search(before) or _PATTERNS["warning"].search(around)))

    def _unused(self, line: str, column: int, end: int) -> int:
        """A comment, a pattern, or a text that is only printed."""
        before, after = line[max(column - _LOOK_BACK, 0) : column], line[end : end + _LOOK_BACK]
        if self._file.language == "shell":
            is_printed = _PATTERNS["echo"].match(before) and _PATTERNS["echo_end"].match(after)
            if is_printed and "`" not in before and "$(" not in before:
                return 2
            return int(bool(_PATTERNS["comment"].match(line)))
        comment = _PATTERNS["slashes"] if self._file.language == "javascript" else _PATTERNS["comment"]
        if _PATTERNS["print"].search(before):
            return 2
        return int(bool(comment.match(line) or _PATTERNS["raw"].search(before)))

    def _is_data(self, before: str, after: str) -> bool:
        if self._file.language in {"text", "shell"}:
            return bool(_PATTERNS["json"].match(before) and _PATTERNS["json_end"].match(after))
        value = _PATTERNS["record"].match(before)
        return bool(value and value[1] in after) and not self._starts_programs

    @cached_property
    def _starts_programs(self) -> bool:
        return self._file.language not in {"python", "javascript"} or bool(_PATTERNS["starts"].search(self._text))

    def _quoted(self, line: str, begin: int, start: int, end: int) -> int:
        if self._text.startswith("---") and start < self._text.find("\n---", 3):
            return 0  # quotes are how values are written in the frontmatter
        fence = self._fence_at(start)
        if fence is not None:
            if _PATTERNS["label"].match(self._text, fence.end()):
                return 2
            return int(fence[2].lower() not in _RUN) + bool(_PATTERNS["comment"].match(line))
        if line.lstrip(" \t>").startswith("|"):
            return 1
        before, after = line[: start - begin][-_NEAR:], line[end - begin :][:_NEAR]
        pairs = zip(_OPENING, _CLOSING, strict=True)
        return int(any(before.count(opening) % 2 and closing in after for opening, closing in pairs))

    def _words_before(self, line: str, begin: int, start: int) -> str:
        """What the line says before the match, without what a command itself may say."""
        fence = self._fence_at(start)
        if fence and not _PATTERNS["comment"].match(line):
            return ""
        before = _PATTERNS["address"].sub("", self._text[max(begin, start - _LOOK_BACK) : start])
        return before.rpartition("`")[0] if before.count("`") % 2 else before

    def _lead_in(self, begin: int, start: int) -> str:
        """The line above the match, above its fence, or above the list that it is an item of."""
        fence = self._fence_at(start)
        above = self._text[max((fence.start() if fence else begin) - _LOOK_BACK, 0) : fence.start() if fence else begin]
        lines = [line for line in above.split("\n") if line.strip()]
        while len(lines) > 1 and _PATTERNS["item"].match(lines[-1]) and not fence:
            lines.pop()
        return _PATTERNS["address"].sub("", lines[-1]) if lines else ""

    def _heading(self, index: int) -> str:
        position = bisect(self._headings, index, key=re.Match.start) - 1
        return self._headings[position][0][:_LOOK_BACK] if position >= 0 else ""

    @cached_property
    def _headings(self) -> list[re.Match[str]]:
        return [found for found in _PATTERNS["heading"].finditer(self._text) if self._fence_at(found.start()) is None]

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
        for mark in _PATTERNS["fence"].finditer(self._text):
            if opening is None:
                opening = mark
            elif mark[1][0] == opening[1][0] and len(mark[1]) >= len(opening[1]) and not mark[2]:
                found.append((opening, mark.end()))
                opening = None
        if opening:
            found.append((opening, len(self._text)))
        return found
