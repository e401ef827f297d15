"""1,520 real files: the worst word is rare and right."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from skillyard.install.threats.files import SkillFile
from skillyard.install.threats.rule import HELD, ScanVerdict, ThreatLevel
from skillyard.install.threats.scan import scan_files
from tests.catalog.conftest import corpus, manifest

__all__ = ["corpus", "manifest"]  # the fixtures of the corpus

LISTED = tomllib.loads((Path(__file__).parent / "data" / "critical-but-fine.toml").read_text("utf-8"))
WELL_KNOWN = ("anthropics/", "openai/", "microsoft/", "MicrosoftDocs/", "trailofbits/")
#: Made to be found, by the authors of scanners, or found in the wild.
MALICIOUS = {
    "cisco-ai-defense+skill-scanner/evals/skills/prompt-injection/jailbreak-override": ThreatLevel.HIGH,
    "cisco-ai-defense+skill-scanner/evals/test_skills/malicious/ascii-smuggling": ThreatLevel.CRITICAL,
    "cisco-ai-defense+skill-scanner/evals/test_skills/malicious/prompt-injection": ThreatLevel.HIGH,
    "openclaw+skills/skills/c-goro/skillguard/test-fixtures/evasive-06-unicode-injection": ThreatLevel.HIGH,
    "openclaw+skills/skills/danman60/proxy-scrap": ThreatLevel.CRITICAL,
    "openclaw+skills/skills/zaycv/polymarket-assistant": ThreatLevel.CRITICAL,
}


@pytest.fixture(scope="module")
def verdicts(manifest: list[dict[str, Any]]) -> dict[str, ScanVerdict]:
    """Each file alone: the corpus has nothing beside them."""
    return {
        file["file"]: scan_files(file["on_disk"].parent, iter([SkillFile("SKILL.md", file["on_disk"].read_bytes())]))
        for file in manifest
    }


def test_no_file_of_a_well_known_author_is_critical_unless_listed(
    manifest: list[dict[str, Any]], verdicts: dict[str, ScanVerdict]
) -> None:
    theirs = [file["file"] for file in manifest if file["repo"].startswith(WELL_KNOWN)]
    critical = {name for name in theirs if verdicts[name].severity is ThreatLevel.CRITICAL}

    assert len(theirs) > 90
    assert critical == set(LISTED)


def test_most_files_are_fine_and_the_worst_word_is_rare(verdicts: dict[str, ScanVerdict]) -> None:
    counts = Counter(verdict.severity for verdict in verdicts.values())
    print({severity.name: counts[severity] for severity in ThreatLevel})

    assert counts[ThreatLevel.CRITICAL] <= 5
    assert counts[ThreatLevel.HIGH] <= 10
    assert sum(verdict.held for verdict in verdicts.values()) < len(verdicts) * 0.05
    assert counts[ThreatLevel.UNKNOWN] == 0
    assert HELD is ThreatLevel.MEDIUM


def test_what_was_made_to_be_found_is_found(verdicts: dict[str, ScanVerdict]) -> None:
    found = {name: verdicts[f"dev/{name}/SKILL.md"].severity for name in MALICIOUS}

    assert found == MALICIOUS
