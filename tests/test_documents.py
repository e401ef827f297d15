"""Docs that cannot lie: every console block is run, and every file and every page has its line in a README."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths

REPO = Path(__file__).parent.parent
ROOMS = sorted(
    path.parent for path in (REPO / "src" / "skillyard").rglob("__init__.py") if path.parent.name != "skillyard"
)
PAGES = [
    page
    for page in [*sorted(REPO.glob("README*.md")), *sorted((REPO / "docs").rglob("*.md"))]
    if "```console" in page.read_text("utf-8")
]

_BLOCK = re.compile(r"^```(console|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)\)")


def run(command: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.rstrip("\n")


def matches(expected: str, actual: str) -> bool:
    """`…` stands for anything, also for several lines."""
    pattern = ".*".join(re.escape(part) for part in expected.rstrip("\n").split("…"))
    return re.fullmatch(pattern, actual, re.DOTALL) is not None


def steps(block: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].strip(), ""))
        else:
            command, output = found[-1]
            found[-1] = (command, output + line)
    return found


def shown_pages() -> list[Any]:
    """A how-to in Chinese has the commands of its English one, which run always."""
    return [
        pytest.param(page, marks=pytest.mark.ci("pages in Chinese")) if page.match("how-to/*.zh.md") else page
        for page in PAGES
    ]


@pytest.mark.parametrize("page", shown_pages(), ids=lambda page: page.name)
def test_what_a_page_shows_is_what_happens(page: Path, places: ProjectPaths, project: Path, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "skillyard").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m skillyard "$@"\n')
    (bin_folder / "skillyard").chmod(0o755)
    if "tutorial" not in page.parts:
        shutil.copytree(REPO / "examples" / "skills", project / ".claude" / "skills")
        shutil.copytree(REPO / "examples" / "data", project, dirs_exist_ok=True)
    env = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "LANG": "zh_CN.UTF-8" if page.name.endswith(".zh.md") else "C.UTF-8",
    }
    shown = 0
    for kind, block in _BLOCK.findall(page.read_text("utf-8")):
        if kind == "sh":
            if "./dev" not in block:
                run(block, project, env)
            continue
        for command, expected in steps(block):
            actual = run(command, project, env)
            assert matches(expected, actual), f"$ {command}\n{actual}"
            shown += 1
    assert shown


_PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
PYTHON_PAGES = [page for page in sorted((REPO / "docs").rglob("*.md")) if "```python\n" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", [page for page in PYTHON_PAGES if "how-to" in page.parts], ids=lambda page: page.name)
def test_the_python_of_a_page_prints_what_the_page_shows(page: Path, places: ProjectPaths, project: Path) -> None:
    shutil.copytree(REPO / "examples" / "skills", project / ".claude" / "skills")
    shutil.copytree(REPO / "examples" / "data", project, dirs_exist_ok=True)
    blocks = _PYTHON.findall(page.read_text("utf-8"))
    program = "\nprint('----')\n".join(code for code, _ in blocks)
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=project,
        env={**env, "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("----\n")
    assert [text for text, (_, shown) in zip(printed, blocks, strict=True) if shown] == [s for _, s in blocks if s]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_every_file_has_its_line_in_its_rooms_readme(room: Path) -> None:
    text = (room / "README.md").read_text("utf-8")
    files = [path.name for path in room.glob("*.py") if path.name != "__init__.py"]
    heads = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]

    assert [name for name in files if sum(f"`{name}`" in head for head in heads) != 1] == []
    named = set(re.findall(r"`(\w+\.py)`", text))
    assert {name for name in named if not (room / name).exists() and not (room / "cli" / name).exists()} == set()


@pytest.mark.parametrize("page", [*sorted(REPO.glob("*.md")), *sorted((REPO / "docs").rglob("*.md"))], ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]

    assert broken == []


@pytest.mark.parametrize("folder", ["explanation", "how-to", "reference", "spec"])
def test_every_page_has_its_line_in_the_index_of_its_folder(folder: str) -> None:
    pages = {page.name for page in (REPO / "docs" / folder).iterdir() if page.name != "README.md"}

    assert pages - set(_LINK.findall((REPO / "docs" / folder / "README.md").read_text("utf-8"))) == set()


def test_nothing_lies_around_in_the_root() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, timeout=60, check=False
    )
    if tracked.returncode:
        pytest.skip("not a git repository")

    found = {name for name in tracked.stdout.split("\0") if name and "/" not in name}
    assert found <= {
        ".gitignore",
        ".pre-commit-hooks.yaml",
        "AGENTS.md",
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "README.zh.md",
        "SECURITY.md",
        "action.yml",
        "dev",
        "pyproject.toml",
    }
