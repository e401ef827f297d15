"""Every rule is proved both ways by the examples beside it, and none can be made slow."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from skillyard.core.messages import Lang
from skillyard.install.threats.files import SkillFile
from skillyard.install.threats.rule import ThreatLevel, ThreatRule, all_rules
from skillyard.install.threats.scan import scan_skill

RULES = list(all_rules().values())
#: What the file system of a test must be made to show; their own tests stand in test_threat_scan.
MADE_BY_FOLDERS = {"partly-read", "link-outside", "unreadable", "too-much"}
FRONT = b"---\nname: quiet\ndescription: Sorts lines.\n---\n\n# Quiet\n\n"


#: Where an example stands that names no file: the first of these that the rule applies to.
FILES = {"shell": "run.sh", "script": "run.sh", "python": "run.py", "javascript": "run.js", "skill": "SKILL.md"}


def rules_hit(folder: Path, example: str | Mapping[str, Any], rule: ThreatRule) -> set[str]:
    """The example as the only file beside a SKILL.md that says nothing, or as that file."""
    fields: Mapping[str, Any] = {"text": example} if isinstance(example, str) else example
    file = fields.get("file") or next((file for word, file in FILES.items() if word in rule.applies), "notes.txt")
    content = bytes.fromhex(fields["hex"]) if "hex" in fields else fields["text"].encode()
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_bytes(FRONT)
    is_body = file == "SKILL.md" and not content.startswith(b"---")
    path.write_bytes(FRONT + content if is_body else content)
    path.chmod(fields.get("mode", 0o644))
    return {hit.rule for hit in scan_skill(folder).hits}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_hits_what_it_must(rule: ThreatRule, tmp_path: Path) -> None:
    for position, example in enumerate(rule.must_hit):
        assert rule.id in rules_hit(tmp_path / str(position), example, rule), example

    assert rule.must_hit or rule.id in MADE_BY_FOLDERS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_leaves_alone_what_it_must(rule: ThreatRule, tmp_path: Path) -> None:
    for position, example in enumerate(rule.must_not_hit):
        assert rule.id not in rules_hit(tmp_path / str(position), example, rule), example

    assert rule.must_not_hit


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_says_what_it_is_in_both_languages(rule: ThreatRule) -> None:
    assert all((rule.title, rule.why, rule.advice, rule.applies))
    assert not rule.title.render(Lang.ZH).isascii()
    assert rule.prose <= rule.severity
    assert rule.severity is not ThreatLevel.SAFE
    assert all(need == need.lower() for need in rule.needs)


#: Times every rule on texts that are nearly matches, over and over; run in a process that can be stopped.
ATTACK = """
import json, re, sys, time
from skillyard.install.threats.rule import all_rules
slowest = {}
for rule in all_rules().values():
    if not rule.patterns:
        continue
    texts = [example if isinstance(example, str) else example["text"] for example in rule.must_hit]
    words = [*rule.needs[:8], *texts]
    pieces = {*words, *(w[:-1] for w in words), *(w + " " for w in words), *(w[: len(w) // 2] for w in words)}
    pieces |= {"a", " ", "\\\\t", "a ", "-", "/", "'", '"', "$(", "`", "<!--", "AAAA1", "\\u200b", "the all "}
    for piece in filter(None, pieces):
        for separator in ("", " "):
            text = (piece.replace("\\n", " ") + separator) * (SIZE // (len(piece) + 1))
            started = time.process_time()
            for _ in rule.regex.finditer(text):
                pass
            if rule.softer:
                re.fullmatch(rule.softer, text, re.IGNORECASE)
            slowest[rule.id] = max(slowest.get(rule.id, 0), time.process_time() - started)
print(json.dumps(slowest))
"""


def slowest(size: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", ATTACK.replace("SIZE", str(size))],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.ci("crash and escape rounds")
def test_no_pattern_can_be_made_slow() -> None:
    """Sixteen kilobytes on one line that nearly match everywhere: what is not linear takes minutes."""
    found = slowest(16_000)

    assert {rule: seconds for rule, seconds in found.items() if seconds > 5} == {}


def test_a_file_knows_its_language_by_ending_or_first_line() -> None:
    assert SkillFile("a.py", b"").language == "python"
    assert SkillFile("run", b"#!/usr/bin/env -S uv run --script\n").language == "python"
    assert SkillFile("run", b"#!/bin/bash\n").language == "shell"
    assert SkillFile("SKILL.md", b"\0").language == "text"
    assert SkillFile("x.bin", b"a\0b").language == "binary"
    assert SkillFile("notes", b"\xff\xfea\0").language == "other"
