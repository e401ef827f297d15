"""How many real lures the scanner holds back, and how many honest skills, over skills that were labelled by reading.

`scan_labels.tsv` has the SHA-256 of each labelled SKILL.md, where it came from, and the verdict; none of its content.
`./dev bench scan FOLDER…` finds those files below the folders by their hash and scans the skill around each. Half of
them, by the hash, are for work on the rules; the other half is looked at when it is done. Nothing that is found is run.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure
from skillyard.install.threats.rule import ScanVerdict, ThreatLevel
from skillyard.install.threats.scan import scan_skill

LABELS = Path(__file__).with_name("scan_labels.tsv")
PARTS = ("worked on", "looked at once")
LURE, BENIGN = "lure", "benign"


class Label(NamedTuple):
    sha256: str
    repository: str
    path: str
    verdict: str

    @property
    def part(self) -> str:
        return PARTS[int(self.sha256[:2], 16) % 2 == 0]


def read_labels() -> dict[str, Label]:
    rows = (Label(*line.split("\t")) for line in LABELS.read_text("utf-8").splitlines())
    return {label.sha256: label for label in rows}


def measure(_: Path, folders: Sequence[Path] = ()) -> Iterator[Figure]:
    labels = read_labels()
    found = {label.sha256: scan_skill(folder) for label, folder in _find(labels, folders)}
    if not found:
        print("no labelled skill found: name folders with clones of the repositories in bench/scan_labels.tsv")
        return
    for part in PARTS:
        yield from _figures(
            part, [(label, found[sha]) for sha, label in labels.items() if sha in found and label.part == part]
        )
    yield Figure(f"labelled and not found below these folders, of {len(labels)}", len(labels) - len(found), "")


def _find(labels: dict[str, Label], folders: Sequence[Path]) -> Iterator[tuple[Label, Path]]:
    """Each labelled file once, with its folder; links are not followed."""
    seen: set[str] = set()
    for folder in folders:
        for inside, _, names in os.walk(folder):
            for name in (name for name in names if name.lower() == "skill.md"):
                path = Path(inside, name)
                sha = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                if sha in labels and sha not in seen:
                    seen.add(sha)
                    yield labels[sha], path.parent


def _figures(part: str, scanned: list[tuple[Label, ScanVerdict]]) -> Iterator[Figure]:
    lures = [verdict for label, verdict in scanned if label.verdict == LURE]
    honest = [verdict for label, verdict in scanned if label.verdict == BENIGN]
    for name, held in (("held back (MEDIUM)", ThreatLevel.MEDIUM), ("HIGH or worse", ThreatLevel.HIGH)):
        right, wrong = (sum(verdict.severity >= held for verdict in some) for some in (lures, honest))
        yield Figure(f"{part}: recall over {len(lures)} lures, {name}", _percent(right, len(lures)), "%", at_least=95)
        yield Figure(f"{part}: {len(honest)} honest skills, wrongly {name}", _percent(wrong, len(honest)), "%")
        yield Figure(f"{part}: precision, {name}", _percent(right, right + wrong), "%")
    by_lures, by_honest = (Counter(rule for verdict in some for rule in _rules(verdict)) for some in (lures, honest))
    for rule in sorted({*by_lures, *by_honest}, key=lambda rule: -by_lures[rule]):
        told = f"{part}, {rule}: precision; {by_lures[rule]} lures ({_percent(by_lures[rule], len(lures)):.0f}%), "
        yield Figure(f"{told}{by_honest[rule]} honest", _percent(by_lures[rule], by_lures[rule] + by_honest[rule]), "%")


def _rules(verdict: ScanVerdict) -> set[str]:
    return {hit.rule for hit in verdict.hits if hit.severity >= ThreatLevel.MEDIUM}


def _percent(some: int, of: int) -> float:
    return 100 * some / of if of else 0.0
