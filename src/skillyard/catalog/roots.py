"""The folders and files of a project: where skills are looked for, in the order that decides between equal names."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SKILL_FILE = "SKILL.md"
AGENT_FILE = "agent.yaml"
PROJECT_FOLDERS = (".claude/skills", ".agents/skills", "skills")
USER_FOLDERS = (".claude/skills", ".agents/skills")
ROLES_FOLDER = "agents"


class SkillRoot(NamedTuple):
    """A folder of skills. The root with the lowest rank wins a name."""

    path: Path
    #: Part of the project, not of the user's home.
    in_project: bool
    rank: int
    #: The path for people: relative to the project or to the home folder.
    label: str
    #: The skills are declared in agents/<role>/agent.yaml, not in SKILL.md files.
    roles: bool = False


def list_roots(
    project: Path | None, user_home: Path, own_home: Path, more: Iterable[Path] = ()
) -> tuple[SkillRoot, ...]:
    """Return the project's roots, then the user's, then our own: the nearest to the work wins."""
    own = [(project / name, name) for name in (*PROJECT_FOLDERS, ROLES_FOLDER)] if project else []
    others = [(path, str(path)) for path in more]
    others += [(user_home / name, f"~/{name}") for name in USER_FOLDERS]
    others.append((own_home / "skills", "skillyard home"))
    return tuple(
        SkillRoot(path, rank < len(own), rank, label, roles=rank < len(own) and label == ROLES_FOLDER)
        for rank, (path, label) in enumerate((*own, *others))
    )


def find_project(start: Path, user_home: Path) -> Path | None:
    """Return the project that `start` belongs to, or None in the home folder and above it."""
    candidates = [folder for folder in _upwards(start) if not _is_out_of_bounds(folder, user_home)]
    for folder in candidates:
        if (folder / "skillyard.toml").is_file() or (folder / ".git").exists():
            return folder
    for folder in candidates:
        if (folder / ".claude" / "skills").is_dir() or any(folder.glob(f"{ROLES_FOLDER}/*/{AGENT_FILE}")):
            return folder
    return candidates[0] if candidates else None


def can_be_project(folder: Path, user_home: Path) -> bool:
    """Whether `find_project` would find a project here: not in the home folder, above it, or inside a role."""
    return not _is_out_of_bounds(folder, user_home) and folder in _upwards(folder)


def _upwards(start: Path) -> list[Path]:
    """Return `start` and its parents, without the folders inside agents/<role>: a role is part of its project."""
    folders = [start, *start.parents]
    for number, folder in reversed(list(enumerate(folders))):
        if folder.parent.name == ROLES_FOLDER and (folder / AGENT_FILE).is_file():
            return folders[number + 1 :]
    return folders


def _is_out_of_bounds(folder: Path, user_home: Path) -> bool:
    return folder == folder.parent or folder == user_home or folder in user_home.parents
