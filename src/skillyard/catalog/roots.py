"""Where skills are looked for, in the order that decides between two of one name."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Scope(StrEnum):
    PROJECT = "project"
    USER = "user"


class Root(NamedTuple):
    """A folder of skills. The lower the rank, the stronger its claim to a name."""

    path: Path
    scope: Scope
    rank: int
    #: How people call it: relative to the project or to the home folder.
    label: str
    #: agents/<role>/agent.yaml declares the skills, not SKILL.md files.
    roles: bool = False


PROJECT_FOLDERS = (".claude/skills", ".agents/skills", "skills")
USER_FOLDERS = (".claude/skills", ".agents/skills")
ROLES_FOLDER = "agents"


def list_roots(project: Path | None, user_home: Path, own_home: Path, more: Iterable[Path] = ()) -> tuple[Root, ...]:
    """The project's before the user's, and ours last: what is nearest to the work wins."""
    found: list[tuple[Path, Scope, str, bool]] = []
    if project is not None:
        found += [(project / name, Scope.PROJECT, name, False) for name in PROJECT_FOLDERS]
        found.append((project / ROLES_FOLDER, Scope.PROJECT, ROLES_FOLDER, True))
    found += [(path, Scope.USER, str(path), False) for path in more]
    found += [(user_home / name, Scope.USER, f"~/{name}", False) for name in USER_FOLDERS]
    found.append((own_home / "skills", Scope.USER, "skillyard home", False))
    return tuple(
        Root(path=path, scope=scope, rank=rank, label=label, roles=roles)
        for rank, (path, scope, label, roles) in enumerate(found)
    )


def find_project(start: Path, user_home: Path) -> Path | None:
    """The project that `start` belongs to; None in the home folder and above, which are nobody's project."""
    candidates = [folder for folder in _upwards(start) if not _is_out_of_bounds(folder, user_home)]
    for marked in (_is_declared, _has_skills):
        for folder in candidates:
            if marked(folder):
                return folder
    return candidates[0] if candidates else None


def can_be_project(folder: Path, user_home: Path) -> bool:
    """Whether a project laid out here would be found: not in the home folder, above it, or inside a role."""
    return not _is_out_of_bounds(folder, user_home) and folder in _upwards(folder)


def _upwards(start: Path) -> Iterator[Path]:
    """`start` and its parents, without the insides of agents/<role>: a role is part of its project."""
    folders = [start, *start.parents]
    role = next((folder for folder in reversed(folders) if _is_role(folder)), None)
    if role is not None:
        folders = folders[folders.index(role) + 1 :]
    yield from folders


def _is_role(folder: Path) -> bool:
    return folder.parent.name == ROLES_FOLDER and (folder / "agent.yaml").is_file()


def _is_out_of_bounds(folder: Path, user_home: Path) -> bool:
    return folder == folder.parent or folder == user_home or folder in user_home.parents


def _is_declared(folder: Path) -> bool:
    return (folder / "skillyard.toml").is_file() or (folder / ".git").exists()


def _has_skills(folder: Path) -> bool:
    return (folder / ".claude" / "skills").is_dir() or any(folder.glob(f"{ROLES_FOLDER}/*/agent.yaml"))
