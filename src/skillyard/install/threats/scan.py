"""Scans one skill: its files → the rules that apply → hits → a verdict.

Covered: what stands in the files, as text or as Python's syntax tree. Not covered: what a program fetches or works out
when it runs, text inside pictures and archives, and who is behind it. SAFE means that no rule said anything.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, islice
from pathlib import Path

from skillyard.catalog.manifest import Reading, parse_skill
from skillyard.core.secrets import mask_keys
from skillyard.install.threats.checks import find_asked, find_binary, find_squats
from skillyard.install.threats.context import MatchContext
from skillyard.install.threats.files import SkillFile, UnreadFile, read_files
from skillyard.install.threats.pycode import PythonCall, read_program
from skillyard.install.threats.rule import ThreatRule, all_rules
from skillyard.install.threats.verdict import ScanVerdict, ThreatHit

#: One rule in one file makes its point with so many, and a skill with so many in all.
MAX_HITS_OF_RULE = 5
MAX_HITS = 200
MAX_MATCHES = 1_000


def scan_skill(folder: Path) -> ScanVerdict:
    """Scan a skill's folder. Never raises for what is in the files."""
    return scan_files(folder, read_files(folder))


def scan_files(folder: Path, found: Iterator[SkillFile | UnreadFile]) -> ScanVerdict:
    """Scan these files. Pure, except for what the iterator reads."""
    everything = list(found)
    files = [item for item in everything if isinstance(item, SkillFile)]
    skill = _Skill(folder, files)
    hits = [_hit(item.rule, item.name, item.reason) for item in everything if isinstance(item, UnreadFile)]
    for file in files:
        for find in _FINDERS:
            hits += find(file, skill)
    return ScanVerdict(tuple(sorted(dict.fromkeys(hits), key=_order)[:MAX_HITS]))


def _order(hit: ThreatHit) -> tuple[int, str, int, int, str]:
    return (-hit.severity, hit.file, hit.line, hit.column, hit.rule)


class _Skill:
    """What rules ask about the skill as a whole."""

    def __init__(self, folder: Path, files: list[SkillFile]) -> None:
        self.folder = folder
        self.names = frozenset(file.name for file in files)
        self._text = next((file.text for file in files if file.is_skill), "")
        self._said: dict[str, bool] = {}

    def says(self, rule: ThreatRule) -> bool:
        if not rule.unless_said:
            return False
        if rule.unless_said not in self._said:
            self._said[rule.unless_said] = bool(compiled(rule.unless_said).search(self._text))
        return self._said[rule.unless_said]


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _hit(rule: str, file: str, said: str, line: int = 1, column: int = 1) -> ThreatHit:
    """A hit of a rule that weighs the same everywhere; without a line, on the whole file."""
    return ThreatHit(rule, all_rules()[rule].severity, clean(file), line, column, clean(said))


def _find_binaries(file: SkillFile, skill: _Skill) -> Iterator[ThreatHit]:
    for rule, said in find_binary(file, skill.names):
        yield _hit(rule, file.name, said)


def _find_asked(file: SkillFile, skill: _Skill) -> Iterator[ThreatHit]:
    if not file.is_skill:
        return
    reading: Reading = parse_skill(file.content, skill.folder / file.name)
    for name, field, value in find_asked(reading):
        line, column = reading.positions.get(field, (1, 1))
        yield _hit(name, file.name, f"{field}: {value}"[:200], line, column)


def _find_squats(file: SkillFile, _: _Skill) -> Iterator[ThreatHit]:
    if file.language == "binary":
        return
    for wanted, near in islice(find_squats(file), MAX_HITS_OF_RULE):
        line, column = place(file.text, wanted.at)
        yield _hit("package-squat", file.name, f"{wanted.name} is nearly {near}", line, column)


def _find_patterns(file: SkillFile, skill: _Skill) -> Iterator[ThreatHit]:
    if file.language == "binary":
        return
    context = MatchContext(file)
    for rule in _rules_for(file.kinds):
        if rule.needs and not any(map(file.has, rule.needs)):
            continue
        if not skill.says(rule):
            yield from sorted(_matches(rule, file, context), key=_order)[:MAX_HITS_OF_RULE]


@cache
def _rules_for(kinds: frozenset[str]) -> tuple[ThreatRule, ...]:
    return tuple(rule for rule in all_rules().values() if rule.patterns and not kinds.isdisjoint(rule.applies))


def _matches(rule: ThreatRule, file: SkillFile, context: MatchContext) -> Iterator[ThreatHit]:
    """At most one hit for each line. After a thousand quoted matches the next counts in full: it may hide there."""
    base = rule.prose if file.is_prose else rule.severity
    last = 0
    for count, found in enumerate(_found(rule, file)):
        line, column = place(file.text, found.start())
        if line == last:
            continue
        last = line
        if count >= MAX_MATCHES:
            yield ThreatHit(rule.id, base, clean(file.name), line, column, line_at(file, found.start()))
            return
        steps = context.milder(found.start(), found.end()) if rule.quotable else 0
        if rule.softer and compiled(rule.softer).fullmatch(found[0]):
            steps += 2
        yield ThreatHit(rule.id, base.lowered(steps), clean(file.name), line, column, line_at(file, found.start()))


def _found(rule: ThreatRule, file: SkillFile) -> Iterator[re.Match[str]]:
    """Match only on lines with a needed word: a pattern costs a hundred times what the search for a word costs."""
    text, small = file.joined, file.small
    if rule.spans or not rule.needs or len(small) != len(text):
        yield from rule.regex.finditer(text)
        return
    lines: set[tuple[int, int]] = set()
    for need in rule.needs:
        at = small.find(need) if file.has(need) else -1
        while at >= 0:
            end = text.find("\n", at)
            end = end if end >= 0 else len(text)
            lines.add((text.rfind("\n", 0, at) + 1, end))
            at = small.find(need, end)
    for start, end in sorted(lines):
        yield from rule.regex.finditer(text, start, end)


def _find_python(file: SkillFile, skill: _Skill) -> Iterator[ThreatHit]:
    if file.language != "python":
        return
    program = read_program(file.text, _called())
    if program is None:
        yield _hit("python-unread", file.name, "Python cannot read it")
        return
    # Where each line starts, as Python's parser counts them.
    starts = list(accumulate((len(line) + 1 for line in file.text.split("\n")), initial=0))
    for rule in _python_rules():
        if skill.says(rule):
            continue
        spots = {(found.line, found.column) for found in program.imports if found.name.split(".")[0] in rule.imports}
        spots |= {(call.line, call.column) for call in program.calls if _is_meant(call, rule)}
        for line, column in sorted(spots)[:MAX_HITS_OF_RULE]:
            yield ThreatHit(rule.id, rule.severity, clean(file.name), line, column, line_at(file, starts[line - 1]))


@cache
def _python_rules() -> tuple[ThreatRule, ...]:
    return tuple(rule for rule in all_rules().values() if rule.calls or rule.imports)


@cache
def _called() -> frozenset[str]:
    return frozenset().union(*(rule.calls for rule in _python_rules()))


def _is_meant(call: PythonCall, rule: ThreatRule) -> bool:
    if call.name not in rule.calls:
        return False
    if not rule.mentions and not rule.literal:
        return True
    if not rule.mentions.isdisjoint(call.mentions):
        return True
    return bool(rule.literal) and any(compiled(rule.literal).search(text[:10_000]) for text in call.literals)


_FINDERS: tuple[Callable[[SkillFile, _Skill], Iterator[ThreatHit]], ...] = (
    _find_binaries,
    _find_asked,
    _find_patterns,
    _find_python,
    _find_squats,
)


_WIDTH = 160


def place(text: str, index: int) -> tuple[int, int]:
    """Line and column, both counted from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def line_at(file: SkillFile, index: int) -> str:
    """The line around this index, safe to print; of a long one, the part that is near."""
    text = file.text
    start = text.rfind("\n", 0, index) + 1
    end = text.find("\n", index)
    line = text[start : end if end >= 0 else len(text)]
    if len(line.strip()) > _WIDTH:
        near = max(index - start - _WIDTH // 3, 0)
        line = ("…" if near else "") + line[near : near + _WIDTH] + ("…" if near + _WIDTH < len(line) else "")
    return clean(line)


def clean(text: str) -> str:
    masked = mask_keys(text.strip())
    if masked.isprintable():
        return masked
    letters = (" " if letter in "\t\n\r" else letter for letter in masked)
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in letters)
