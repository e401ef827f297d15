"""Scans one skill: its files → the rules that apply → hits → a verdict.

Covered: what stands in the files, as text or as Python's syntax tree. Not covered: what a program fetches or works out
when it runs, text inside pictures and archives, and who is behind it. SAFE means that no rule said anything.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, islice
from pathlib import Path

from skillyard.catalog.findings import one_line
from skillyard.core.secrets import mask_keys
from skillyard.install.threats.checks import find_asked, find_binary, find_squats, popular
from skillyard.install.threats.context import MatchContext
from skillyard.install.threats.files import SkillFile, UnreadFile, read_files
from skillyard.install.threats.pycode import PythonCall, PythonProgram
from skillyard.install.threats.rule import ScanVerdict, ThreatHit, ThreatLevel, ThreatRule, all_rules

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
        checked = list(find_binary(file, skill.names))
        if file.is_skill:
            checked += find_asked(file, folder)
        if file.language != "binary":
            checked += islice(find_squats(file), MAX_HITS_OF_RULE)
            hits += _find_patterns(file, skill)
        if file.language == "python":
            hits += _find_python(file, skill)
        hits += [_hit(rule, file.name, said, line, column) for rule, said, line, column in checked]
    return ScanVerdict(tuple(sorted(dict.fromkeys(hits), key=_order)[:MAX_HITS]))


def _order(hit: ThreatHit) -> tuple[int, str, int, int, str]:
    return (-hit.severity, hit.file, hit.line, hit.column, hit.rule)


class _Skill:
    """What rules ask about the skill as a whole."""

    def __init__(self, folder: Path, files: list[SkillFile]) -> None:
        self.names = frozenset(file.name for file in files)
        self._text = next((file.text for file in files if file.is_skill), "")
        self._said: dict[str, bool] = {}
        name = _NAME.search(self._text[:2000])
        self._name = frozenset(re.split(r"[^a-z0-9]+", name[1].lower() if name else folder.name.lower()))

    def says(self, rule: ThreatRule) -> bool:
        said = rule.unless_said
        if said and said not in self._said:
            self._said[said] = bool(compiled(said).search(self._text))
        return bool(said) and self._said[said]

    def trusts(self, source: str) -> int:
        """By how many steps a program from `host/first-folder` is milder: 2 if known, 1 if the skill's own."""
        source = source.lower()
        host, _, owner = source.partition("/")
        labels = host.split(".")
        brand, places = labels[-2:][0], {source, *(".".join(labels[at:]) for at in range(len(labels) - 1))}
        if host in _CODE_HOSTS:
            brand, places = owner, {f"github.com/{owner}"}
        return 2 if places & popular("hosts") else int(len(brand) > 3 and brand in self._name)


_NAME = re.compile(r"^name:[ \t]*[\"']?([^\n\"']+)", re.MULTILINE)
_CODE_HOSTS = frozenset({"github.com", "raw.githubusercontent.com"})


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _hit(rule: str, file: str, said: str, line: int = 1, column: int = 1) -> ThreatHit:
    """A hit of a rule that weighs the same everywhere; without a line, on the whole file."""
    return ThreatHit(rule, all_rules()[rule].severity, clean(file), line, column, clean(said))


def _find_patterns(file: SkillFile, skill: _Skill) -> Iterator[ThreatHit]:
    context = MatchContext(file)
    for rule in _rules_for(file.kinds):
        if (not rule.needs or any(map(file.has, rule.needs))) and not skill.says(rule):
            yield from sorted(_matches(rule, file, skill, context), key=_order)[:MAX_HITS_OF_RULE]


@cache
def _rules_for(kinds: frozenset[str]) -> tuple[ThreatRule, ...]:
    return tuple(rule for rule in all_rules().values() if rule.patterns and not kinds.isdisjoint(rule.applies))


def _matches(rule: ThreatRule, file: SkillFile, skill: _Skill, context: MatchContext) -> Iterator[ThreatHit]:
    """At most one hit for each line. After a thousand quoted matches the next counts in full: it may hide there."""
    base = rule.prose if file.is_prose else rule.severity
    last = 0
    for count, found in enumerate(_found(rule, file)):
        line, column = file.place(found.start())
        if line == last:
            continue
        last, level = line, base
        if count < MAX_MATCHES:
            phrase = rule.category == "injection"
            steps = context.milder(found.start(), found.end(), phrase=phrase) if rule.quotable else 0
            level = base.lowered(steps) if steps < 3 else min(base.lowered(2), ThreatLevel.LOW)
            if rule.softer and (usual := compiled(rule.softer).fullmatch(found[0])):
                source = usual.groupdict().get("source")
                level = level.lowered(2 if source is None else skill.trusts(source))
        yield ThreatHit(rule.id, level, clean(file.name), line, column, line_at(file, found.start()))
        if count >= MAX_MATCHES:
            return


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


@cache
def _python_rules() -> tuple[tuple[ThreatRule, ...], frozenset[str]]:
    """The rules for Python's syntax tree, and everything that they want to know the calls of."""
    rules = tuple(rule for rule in all_rules().values() if rule.calls or rule.imports)
    return rules, frozenset().union(*(rule.calls for rule in rules))


def _find_python(file: SkillFile, skill: _Skill) -> Iterator[ThreatHit]:
    rules, called = _python_rules()
    try:
        program = PythonProgram(file.text, called)
    except ValueError:
        yield _hit("python-unread", file.name, "Python cannot read it")
        return
    # Where each line starts, as Python's parser counts them.
    starts = list(accumulate((len(line) + 1 for line in file.text.split("\n")), initial=0))
    for rule in rules:
        if skill.says(rule):
            continue
        spots = {(line, column) for name, line, column in program.imports if name.split(".")[0] in rule.imports}
        spots |= {(call.line, call.column) for call in program.calls if _is_meant(call, rule)}
        for line, column in sorted(spots)[:MAX_HITS_OF_RULE]:
            yield ThreatHit(rule.id, rule.severity, clean(file.name), line, column, line_at(file, starts[line - 1]))


def _is_meant(call: PythonCall, rule: ThreatRule) -> bool:
    if call.name not in rule.calls:
        return False
    if rule.argument:
        return any(map(compiled(rule.argument).fullmatch, call.arguments))
    if not rule.mentions.isdisjoint(call.mentions) or not (rule.mentions or rule.literal):
        return True
    return bool(rule.literal) and any(compiled(rule.literal).search(text[:10_000]) for text in call.literals)


_WIDTH = 160


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
    """Without keys, and on one line that is safe to print."""
    return one_line(re.sub(r"[\t\n\r]", " ", mask_keys(text.strip())))
