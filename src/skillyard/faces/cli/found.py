"""Findings of a file for people: where, how bad, what, and what to do."""

from collections.abc import Iterable, Iterator

from skillyard.core.skill import Finding


def finding_lines(path: str, findings: Iterable[Finding], *, ok: bool) -> Iterator[str]:
    yield f"{'ok  ' if ok else 'FAIL'} {path}"
    for finding in findings:
        place = f"{finding.line}:{finding.column}"
        yield f"     {place:<8}{finding.severity:<8} {finding.code}: {finding.message}"
        if finding.advice:
            yield f"             → {finding.advice}"
