"""`skill_scanner scan` tells what changed since the last scan, whatever ran in between."""

import shutil
from pathlib import Path
from typing import cast

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.result import Result
from tests.conftest import Skillyard, WriteSkill


def scan(yard: Project) -> Result:
    return Kernel(yard, "zh").task("worker", "扫描", "执行 python bin/skill_scanner.py scan")


def test_a_scan_tells_what_changed_since_the_last_scan(
    skillyard: Skillyard, write_skill: WriteSkill, yard: Project, project: Path
) -> None:
    skillyard("init")
    for name in ("天气", "b", "c"):
        write_skill(name, f"---\nname: {name}\ndescription: d\n---\nBody\n")
    skillyard("list")

    first = scan(yard)
    assert {**first.data, "added": sorted(cast("list[str]", first.data["added"]))} == {
        "added": ["b", "c", "天气"],
        "updated": [],
        "total": 3,
    }
    write_skill("d", "---\nname: d\ndescription: d\n---\nBody\n")
    write_skill("b", "---\nname: b\ndescription: other\n---\nBody\n")
    shutil.rmtree(project / ".claude/skills/c")
    skillyard("list")
    skillyard("sync")
    second, third = scan(yard), scan(yard)

    assert second.summary == "扫描完成: 新增 1 个, 更新 1 个"
    assert second.data == {"added": ["d"], "updated": ["b"], "removed": ["c"], "total": 3}
    assert third.data == {"added": [], "updated": [], "total": 3}
