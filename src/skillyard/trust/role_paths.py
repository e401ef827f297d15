"""The paths in `workspace` of agent.yaml, and the files and folders that patterns among them match now.

A pattern is one as in .gitignore, from the project's root, or below an absolute folder or `~`. What a run makes later
is not matched: the sandbox opens and hides what is there when the run begins. Nothing inside `.git` is matched.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.catalog.bounds import resolve_role_path
from skillyard.core.errors import RoleInvalid
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

#: More are no list that a sandbox could open or hide one by one.
_MOST = 5000
_SPECIAL = ("*", "?", "[")
_EVERYTHING = re.compile(r"(?:/\*\*?)+/?$")


def is_pattern(path: str) -> bool:
    return path.startswith("!") or any(character in path for character in _SPECIAL)


def as_folder(path: str) -> str:
    """Return `data` for `data/**`, `data/*` and `./data/**/*`: everything in a folder is the folder."""
    path = path.removeprefix("./") or "."
    folder = _EVERYTHING.sub("", path) or "/"
    return "." if folder in {"*", "**"} else path if is_pattern(folder) else folder


def split_pattern(path: str) -> tuple[str, str]:
    """Split a pattern before its first special part: `data/*.csv` into `data` and `*.csv`, `*.csv` into `.` and it."""
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if is_pattern(part)), len(parts))
    folder = "/".join(parts[:first]) or ("/" if path.startswith("/") else ".")
    return folder, "/".join(parts[first:])


def find_denied(paths: Sequence[str], root: Path) -> tuple[Path, ...]:
    """Return what is denied. A name without a slash is denied at every depth, as .gitignore would."""
    named = [path for path in paths if not is_pattern(path)]
    deep = any(is_pattern(path) or "/" not in path.strip("/") for path in paths)
    literal = (resolve_role_path(path, root) for path in named)
    return tuple(dict.fromkeys((*literal, *(_matching(paths, root) if deep else ()))))


def find_allowed(path: str, root: Path) -> tuple[Path, ...]:
    """Return the one path, or what its pattern matches. What is reached through a link is left out of a pattern."""
    path = as_folder(path)
    if not is_pattern(path):
        return (resolve_role_path(path, root),)
    return tuple(found for found in _matching((path,), root) if found.resolve() == found)


def _matching(paths: Sequence[str], root: Path) -> list[Path]:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (few roles have patterns)

    inside: list[str] = []
    found: dict[Path, None] = {}
    for path in paths:
        if not path.removeprefix("!").startswith(("/", "~/")):
            inside.append(path.removeprefix("./"))
        elif is_pattern(path):
            base, rest = split_pattern(path)
            folder = resolve_role_path(base, root)
            if folder == Path("/"):
                raise RoleInvalid(Message("workspace: {path} is no pattern below a folder", path=path))
            found |= dict.fromkeys(_walk(folder, (folder,), GitIgnoreSpec.from_lines([f"/{rest}"])))
    try:
        spec = GitIgnoreSpec.from_lines(inside)
    except ValueError as error:
        raise RoleInvalid(Message("workspace: a pattern cannot be read: {error}", error=error)) from None
    return [*found, *_walk(root, _starts(inside, root), spec)]


def _starts(patterns: Sequence[str], root: Path) -> tuple[Path, ...]:
    """Return the folders in which anything can match, so that `data/*.csv` does not walk the whole project."""
    found: list[Path] = []
    for pattern in patterns:
        if pattern.startswith("!") or not pattern.strip():
            continue
        base, rest = split_pattern(pattern)
        if base == "." or not rest or ".." in base.split("/"):
            return (root,)
        found.append(root / base)
    return tuple(found)


def _walk(base: Path, starts: Sequence[Path], spec: "GitIgnoreSpec") -> Iterator[Path]:
    """Yield what matches, relative to the base; of a folder that does, nothing inside it. No link is followed."""
    waiting, count = [str(start) for start in dict.fromkeys(starts)], 0
    skipped = len(str(base).rstrip("/")) + 1
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue  # what we cannot list, the run cannot either
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if spec.match_file(entry.path[skipped:] + "/" * is_folder):
                count += 1
                if count > _MOST:
                    told = Message("workspace: patterns match more than {most} files: name folders", most=_MOST)
                    raise RoleInvalid(told)
                yield Path(entry.path)
            elif is_folder and entry.name != ".git":
                waiting.append(entry.path)
