"""Findings of a file for people: where, how bad, what, and what to do, in their language."""

from collections.abc import Iterable, Iterator

from skillyard.core.phrases import Lang, Text, as_read
from skillyard.core.skill import Finding

_ALL_FINE = Text("检查 {total} 个, 都没有问题", "{total} checked, all fine")
_SOME_BAD = Text("检查 {total} 个, {bad} 个有问题", "{total} checked, {bad} with problems")


def finding_lines(path: str, findings: Iterable[Finding], lang: Lang, *, ok: bool) -> Iterator[str]:
    yield f"{'ok  ' if ok else 'FAIL'} {path}"
    for finding in findings:
        place = f"{finding.line}:{finding.column}"
        yield f"     {place:<8}{finding.severity:<8} {finding.code}: {as_read(finding.message, lang)}"
        if finding.advice:
            yield f"             → {as_read(finding.advice, lang)}"


def verdict_line(total: int, bad: int, lang: Lang) -> str:
    return (_SOME_BAD if bad else _ALL_FINE).fill(lang, total=total, bad=bad)
