"""1,520 real files: the worst word is rare and right."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from skillyard.install.threats.files import File
from skillyard.install.threats.scan import scan_files
from skillyard.install.threats.verdict import HELD, Severity, Verdict
from tests.catalog.conftest import corpus, manifest

__all__ = ["corpus", "manifest"]  # the fixtures of the corpus

LISTED = tomllib.loads((Path(__file__).parent / "data" / "critical-but-fine.toml").read_text("utf-8"))
WELL_KNOWN = ("anthropics/", "openai/", "microsoft/", "MicrosoftDocs/", "trailofbits/")
#: Made to be found, by the authors of scanners, or found in the wild.
MALICIOUS = {
    "cisco-ai-defense+skill-scanner/evals/skills/prompt-injection/jailbreak-override": Severity.HIGH,
    "cisco-ai-defense+skill-scanner/evals/test_skills/malicious/ascii-smuggling": Severity.CRITICAL,
    "cisco-ai-defense+skill-scanner/evals/test_skills/malicious/prompt-injection": Severity.HIGH,
    "openclaw+skills/skills/c-goro/skillguard/test-fixtures/evasive-06-unicode-injection": Severity.HIGH,
    "openclaw+skills/skills/danman60/proxy-scrap": Severity.CRITICAL,
    "openclaw+skills/skills/zaycv/polymarket-assistant": Severity.CRITICAL,
}


@pytest.fixture(scope="module")
def verdicts(manifest: list[dict[str, Any]]) -> dict[str, Verdict]:
    """Each file alone: the corpus has nothing beside them."""
    return {
        file["file"]: scan_files(file["on_disk"].parent, iter([File("SKILL.md", file["on_disk"].read_bytes())]))
        for file in manifest
    }


def test_no_file_of_a_well_known_author_is_critical_unless_listed(
    manifest: list[dict[str, Any]], verdicts: dict[str, Verdict]
) -> None:
    theirs = [file["file"] for file in manifest if file["repo"].startswith(WELL_KNOWN)]
    critical = {name for name in theirs if verdicts[name].severity is Severity.CRITICAL}

    assert len(theirs) > 90
    assert critical == set(LISTED)


def test_most_files_are_fine_and_the_worst_word_is_rare(verdicts: dict[str, Verdict]) -> None:
    counts = Counter(verdict.severity for verdict in verdicts.values())
    print({severity.name: counts[severity] for severity in Severity})

    assert counts[Severity.CRITICAL] <= 5
    assert counts[Severity.HIGH] <= 10
    assert sum(verdict.held for verdict in verdicts.values()) < len(verdicts) * 0.05
    assert counts[Severity.UNKNOWN] == 0
    assert HELD is Severity.MEDIUM


def test_what_was_made_to_be_found_is_found(verdicts: dict[str, Verdict]) -> None:
    found = {name: verdicts[f"dev/{name}/SKILL.md"].severity for name in MALICIOUS}

    assert found == MALICIOUS
