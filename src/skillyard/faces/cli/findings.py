"""Findings of a file for people: where, how bad, what, and what to do; message and advice in their language."""

from collections.abc import Iterable, Iterator

from skillyard.core.messages import Lang, Message, render
from skillyard.core.skill import Finding

_ALL_FINE = Message("{total} checked, all fine")
_SOME_BAD = Message("{total} checked, {bad} with problems")


def finding_lines(path: str, findings: Iterable[Finding], lang: Lang, *, ok: bool) -> Iterator[str]:
    yield f"{'ok  ' if ok else 'FAIL'} {path}"
    for finding in findings:
        place = f"{finding.line}:{finding.column}"
        yield f"     {place:<8}{finding.severity:<8} {finding.code}: {render(finding.message, lang)}"
        if finding.advice:
            yield f"             → {render(finding.advice, lang)}"


def verdict_line(total: int, bad: int, lang: Lang) -> str:
    return (_SOME_BAD if bad else _ALL_FINE).render(lang, total=total, bad=bad)
