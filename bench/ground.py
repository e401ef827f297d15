"""Projects to measure on: made by us, the same on every machine."""

import os
import sys
from pathlib import Path

VERBS = ["convert", "analyze", "resize", "summarize", "review", "deploy", "translate", "format", "compare", "clean"]
NOUNS = ["markdown", "photos", "reports", "tables", "logs", "contracts", "releases", "notes", "invoices", "tests"]
CHINESE = ("分析数据", "生成报告", "转换文件", "周报助手", "代码审查", "翻译文本", "整理日志", "图片压缩")

SKILL = """\
---
name: {name}
description: {verb} {noun} quickly and well. {chinese}。Use when the user asks to {verb} {noun} or mentions {chinese}.
license: MIT
metadata:
  version: "1.0"
  author: someone
allowed-tools: Read, Write, Bash
---

# {name}

"""
LINE = "Read the input, check what is missing, ask once, then do the work and say what was done.\n"


def make_skills(root: Path, count: int) -> None:
    for number in range(count):
        name = f"skill-{number:05d}"
        folder = root / name
        folder.mkdir(parents=True)
        words = {"verb": VERBS[number % 10], "noun": NOUNS[number // 10 % 10], "chinese": CHINESE[number % 8]}
        (folder / "SKILL.md").write_text(SKILL.format(name=name, **words) + LINE * 50, "utf-8")


def make_project(folder: Path, count: int) -> Path:
    project = folder / f"project-{count}"
    make_skills(project / ".claude" / "skills", count)
    (project / ".git").mkdir()
    return project


def make_env(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "SKILLYARD_HOME": str(folder / "skillyard"),
        "LANG": "C.UTF-8",
    }


PYTHON = Path(sys.executable)
SKILLYARD = PYTHON.parent / "skillyard"
