"""What a run changes in the project it sees copy-on-write: the layers before it, the change set after it.

A run that succeeded leaves its changes pending until a person applies them; where every change is covered by a
`write:GLOB` grant of the skill's exact bytes, or the person said so beforehand, they are applied at once. The changes
of a run that failed are kept to be looked at and never applied by themselves.
"""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from skillyard.core.capability import WRITE
from skillyard.core.errors import ChangesTooMany, EarlierChangesMissing
from skillyard.core.messages import Message
from skillyard.core.result import Result, as_size
from skillyard.core.values import Json
from skillyard.editor.change_set import Change, ChangeKind, EntryType, TooManyChangesError, shown
from skillyard.runners.kind import Prepared
from skillyard.sandbox.launch import CopyOnWrite, Exit
from skillyard.store.changes import ChangeFolder, ChangeSets, ChangeState
from skillyard.trust.run_policy import is_closed

#: Changes that an answer lists; the command `changes` shows all.
_MOST_LISTED = 100
_WRITTEN = (ChangeKind.ADDED, ChangeKind.MODIFIED)


@contextmanager
def open_layers(
    sets: ChangeSets, prepared: Prepared, root: Path, granted: frozenset[str]
) -> Iterator[tuple[Prepared, ChangeFolder | None]]:
    """Give the run its layers, where it sees the whole project."""
    launch = prepared.launch
    policy = launch.policy if launch else None
    covers_root = policy and any(root.is_relative_to(mount.target) for mount in policy.mounts)
    if launch is None or policy is None or root not in policy.read or covers_root:
        for path in policy.read if policy and sets.below else ():
            if path.is_relative_to(root) and os.path.lexists(f"{sets.below}/{path.relative_to(root)}"):
                raise EarlierChangesMissing(Message("this run reads only {path}, as it was before", path=path))
        yield prepared, None
        return
    with sets.open(prepared.call.run_id, root, prepared.call.skill.name) as folder:
        over = CopyOnWrite(root, folder.upper, folder.work, folder.below, tuple(_writable(granted, root)))
        policy = policy._replace(copy_on_write=over)
        launch = launch._replace(policy=policy, is_too_much=folder.is_too_large)
        yield prepared._replace(launch=launch, permit=prepared.permit._replace(policy=policy)), folder


def settle(
    result: Result, folder: ChangeFolder, sets: ChangeSets, granted: frozenset[str], ended: Exit | None, *, apply: bool
) -> Result:
    """Return the result with what became of the run's changes. Raise ChangesTooMany or ChangesConflict.

    Raise EarlierChangesMissing if the run saw the project without what the steps before it changed.
    """
    copied = ended is not None and ended.copied_on_write
    if folder.below and result.ok and not copied:
        raise EarlierChangesMissing(ended.read_only if ended else "")
    if not copied or folder.is_empty():
        folder.can_be_used_again = copied
        return result
    try:
        found = folder.read(is_closed)
    except TooManyChangesError:
        raise ChangesTooMany from None
    if found.skipped:
        result = result._replace(meta={**result.meta, "not_applied": list(map(shown, found.skipped[:_MOST_LISTED]))})
    result = _with_outputs(result, found.changes)
    if folder.is_step:
        # Also what is no change of the project may be one of what the earlier steps left.
        if result.ok:
            folder.keep_for_flow(granted=not found.changes or covers(granted, found.changes))
        state = "flow" if result.ok else "discarded"
    elif not found.changes:
        return result
    elif not result.ok:
        state = str(folder.keep(ChangeState.FAILED).state)
    else:
        kept = folder.keep(ChangeState.PENDING)
        state = str(kept.state)
        if apply or covers(granted, found.changes):
            sets.apply(kept, found.changes)
            state = str(ChangeState.APPLIED)
    return result._replace(data={**result.data, **as_listed(found.changes)}, meta={**result.meta, "changes": state})


def as_listed(changes: Sequence[Change]) -> dict[str, Json]:
    """Return the changes for `data`; how many there are if not all are listed."""
    listed: dict[str, Json] = {"changes": [change.as_dict() for change in changes[:_MOST_LISTED]]}
    return {**listed, "changes_total": len(changes)} if len(changes) > _MOST_LISTED else listed


def _with_outputs(result: Result, changes: Sequence[Change]) -> Result:
    """Name the files that the run wrote in the project, after those in mybox/."""
    fresh = [change for change in changes if change.entry is EntryType.FILE and change.kind in _WRITTEN]
    if not result.ok or not fresh:
        return result
    several, one = result.data.get("outputs"), result.data.get("output_path")
    before = list(map(str, several)) if isinstance(several, list) else [str(one)] if one else []
    paths = [*before, *(shown(change.path) for change in fresh[:_MOST_LISTED])]
    first: dict[str, Json] = {"output_path": shown(fresh[0].path), "output_size": as_size(fresh[0].size)}
    outputs: dict[str, Json] = {"outputs": list(paths)} if len(paths) > 1 else {}
    return result._replace(data={**first, **result.data, **outputs})


def _writable(granted: frozenset[str], root: Path) -> Iterator[Path]:
    """Yield what exists of the granted paths: written directly where the project cannot be copy-on-write.

    Of `**` only `FOLDER/**` counts here, as the folder: to look for all others would walk the project in each run.
    """
    for glob in _globs(granted):
        plain = glob.removeprefix("./").removesuffix("/**").rstrip("/")
        if "**" in plain:
            continue
        for path in root.glob(plain) if set(plain) & set("*?[") else (root / plain,):
            is_plain = path != root and path.is_relative_to(root) and os.path.realpath(path) == str(path)
            if is_plain and path.exists() and not is_closed(path.relative_to(root).as_posix()):
                yield path


def _globs(granted: frozenset[str]) -> list[str]:
    return [capability.partition(":")[2] for capability in granted if capability.startswith(f"{WRITE}:")]


def covers(granted: frozenset[str], changes: Sequence[Change]) -> bool:
    """Whether `write:GLOB` grants cover every path that the changes touch."""
    globs = _globs(granted)
    paths = {path for change in changes for path in (change.path, change.old_path) if path}
    return bool(globs) and all(any(_matches(path, glob) for glob in globs) for path in paths)


def _matches(path: str, glob: str) -> bool:
    """Whether a grant covers a path: a folder covers what lies in it, `*` stays in one folder, `**` does not."""
    plain = glob.removeprefix("./").rstrip("/")
    if path == plain or path.startswith(f"{plain}/"):
        return True
    parts, wanted = path.split("/"), plain.split("/")
    if "**" in wanted:
        return fnmatch.fnmatchcase(path, plain)
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
