"""How fast SKILL.md is read, against the bare YAML loader and the strict one."""

from collections.abc import Iterator
from pathlib import Path

import strictyaml
import yaml

from bench.figures import Figure, interleaved
from bench.ground import make_project
from skillyard.catalog.manifest import parse_skill


def measure(folder: Path) -> Iterator[Figure]:
    project = make_project(folder, 300)
    files = [(path.read_bytes(), path) for path in sorted(project.glob(".claude/skills/*/SKILL.md"))]
    blocks = [content.decode().split("---\n", 2)[1] for content, _ in files]

    def ours() -> None:
        for content, path in files:
            parse_skill(content, path)

    def bare() -> None:
        for block in blocks:
            yaml.load(block, Loader=yaml.CSafeLoader)

    def strict() -> None:
        for block in blocks[:60]:
            strictyaml.load(block)

    taken = interleaved({"ours": ours, "bare": bare, "strict": strict}, rounds=9)
    yield Figure(
        "reading a SKILL.md against a bare CSafeLoader on its block", taken["ours"] / taken["bare"], at_most=1.5
    )
    what = "strictyaml on its block against reading a SKILL.md"
    yield Figure(what, taken["strict"] * len(blocks) / 60 / taken["ours"], at_least=15)
