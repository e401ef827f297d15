"""The change sets of runs: each in a folder of its own in SKILLYARD_HOME, until it is applied, discarded or too old.

`upper/` and `work/` are the layers that the sandbox writes, `about.json` says whose it is and how it stands. `lock` is
held by a live run; it was changed last at the moment when the run started.

A flow has a layer for each run of its steps, and one change set at its end:

    steps/3.17/   what item 17 of step 3 changed; made anew whenever that run starts
    states/3      what all steps up to the third changed together; made when that step is over
    upper         the last state: what the flow changes in the project

A run sees the state before its step. Nothing is ever changed in place: a layer has one run that writes it, and a state
is made beside the others and renamed. So a step that is repeated after a crash starts from what it started from.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.errors import ChangesConflict, EarlierChangesMissing, InvalidArgs
from skillyard.core.messages import Message
from skillyard.editor.change_set import Change, ChangeSet, LayerConflict, is_too_large, merge_layers, read_changes
from skillyard.store.locks import LockedFile

if TYPE_CHECKING:
    from skillyard.editor.apply import Applier

_ABOUT = "about.json"
#: In the folder of a step: a person allowed its skill to change these paths unasked.
_GRANTED = "granted"
#: Beside the folder of a set while it is applied: whoever comes next finds at once what was left half done.
_APPLYING = ".applying"
#: In the folder of a flow that was taken over from an earlier attempt.
_RESUMES = "resumes"
#: Layers of a run that changed nothing, for the next run: to make and remove folders costs a disk more than a rename.
_SPARE = ".spare"


class ChangeState(StrEnum):
    RUNNING = "running"
    #: The run succeeded, and a person decides.
    PENDING = "pending"
    #: The run failed: to look at, never applied by itself.
    FAILED = "failed"
    APPLIED = "applied"


class KeptChanges(NamedTuple):
    """A change set that is kept."""

    run: str
    project: Path
    skill: str
    state: ChangeState
    ended: float
    folder: Path

    @property
    def upper(self) -> Path:
        return self.folder / "upper"


class ChangeFolder:
    """The layers of one run while it runs. Of a step of a flow (`is_step`) the flow decides what becomes of them."""

    #: What the steps before it changed, for a step of a flow.
    below: Path | None = None
    kept_for_flow = False
    #: The run had them, changed nothing, and is over.
    can_be_used_again = False

    def __init__(self, folder: Path, project: Path, skill: str, *, is_step: bool = False) -> None:
        self.folder, self._project, self._skill, self.is_step = folder, project, skill, is_step
        self.upper, self.work = folder / "upper", folder / "work"

    def read(self, closed: Callable[[str], bool]) -> ChangeSet:
        """Return what the run changed. Raise TooManyChangesError if that is more than a set may hold."""
        return read_changes(self.upper, self._project, closed)

    def is_too_large(self) -> bool:
        """Whether the run has changed more than a set may hold, so far."""
        return is_too_large(self.upper)

    def is_empty(self) -> bool:
        """Whether the run changed nothing at all."""
        with os.scandir(self.upper) as entries:
            return next(entries, None) is None

    def keep(self, state: ChangeState) -> KeptChanges:
        return _write_about(self.folder, self._project, self._skill, state)

    def keep_for_flow(self, *, granted: bool) -> None:
        """Let the later steps see it. `granted`: a person allowed the skill to change these paths unasked."""
        self.kept_for_flow = True
        if granted:
            (self.folder / _GRANTED).touch()


class ChangeSets:
    #: What the steps before it changed, for a step of a flow.
    below: Path | None = None

    def __init__(self, own_home: Path) -> None:
        self.folder = own_home / "changes"

    @contextmanager
    def open(self, run: str, project: Path, skill: str) -> Iterator[ChangeFolder]:
        """Make the layers of a run. Unless `keep` was called, they are removed at the end."""
        made = ChangeFolder(self.folder / run, project, skill)
        self.finish_applying()
        self.forget(run)  # a job's attempt that is made again after a crash has the id of the first
        # Under another name until it is locked: `recover` removes what nobody holds.
        draft, spare = self.folder / f".{run}", self.folder / _SPARE
        with suppress(OSError):  # there is none, or another run was faster
            if spare.lstat().st_uid == os.geteuid():
                spare.rename(draft)
        with LockedFile.wait(draft / "lock"):
            draft.rename(made.folder)
            for layer in (made.upper, made.work):
                layer.mkdir(exist_ok=True)
            _mark_moment(made.folder)
            try:
                yield made
            finally:
                if not (made.folder / _ABOUT).exists() and not (made.can_be_used_again and _put_by(made, spare)):
                    _remove_layers(made.folder)

    def list(self, project: Path) -> tuple[KeptChanges, ...]:
        """Return the kept change sets of a project, the newest first."""
        found = (_read_about(path) for path in self.folder.glob(f"*/{_ABOUT}"))
        decided = {ChangeState.PENDING, ChangeState.FAILED}
        mine = [kept for kept in found if kept and kept.project == project and kept.state in decided]
        return tuple(sorted(mine, key=lambda kept: kept.ended, reverse=True))

    def find(self, run: str, project: Path) -> KeptChanges | None:
        """Return the change set of a run; the beginning of its id is enough if only one has it."""
        found = [kept for kept in self.list(project) if kept.run.startswith(run)]
        return found[0] if len(found) == 1 else next((kept for kept in found if kept.run == run), None)

    def apply(self, kept: KeptChanges, changes: tuple[Change, ...]) -> None:
        """Make the changes in the project: all of them, or none. Raise ChangesConflict if others changed it too."""
        with self.applying(kept.run):
            try:
                _applier(kept.folder, kept.project).apply(kept.upper, changes, _moment_ns(kept.folder))
            except FileNotFoundError as error:
                if error.filename != str(kept.folder) and kept.upper.is_dir():
                    raise
                gone = Message("the changes of {run} were applied or discarded meanwhile", run=kept.run)
                raise InvalidArgs(gone, advice=Message("`skillyard changes` lists them")) from None
            self.discard(kept)

    def discard(self, kept: KeptChanges) -> None:
        _remove_layers(kept.folder)

    def recover(self) -> None:
        """Take back what a process that died while it applied left half done, and drop the layers of dead runs."""
        self.finish_applying()
        for folder in self.folder.glob("[!.]*/"):
            with suppress(OSError), (folder / "lock").open("ab") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _read_about(folder / _ABOUT) is None:
                    _remove_layers(folder)

    @contextmanager
    def applying(self, run: str) -> Iterator[None]:
        """Mark a set while it is applied. The mark stays if the process dies."""
        mark = self.folder / f"{run}{_APPLYING}"
        mark.touch()
        try:
            yield
        except (ChangesConflict, InvalidArgs):  # nothing was begun
            mark.unlink(missing_ok=True)
            raise
        mark.unlink(missing_ok=True)

    def finish_applying(self) -> None:
        """Wait for whoever applies at the moment; take back what a dead one left half done."""
        for mark in self.folder.glob(f"*{_APPLYING}"):
            folder = mark.with_suffix("")
            if kept := _read_about(folder / _ABOUT):
                with suppress(FileNotFoundError):  # applied and removed since we looked
                    _applier(folder, kept.project).recover()
                if _is_applied(folder) and kept.state is not ChangeState.RUNNING:  # a flow looks for it itself
                    _remove_layers(folder)
            mark.unlink(missing_ok=True)

    def forget(self, run: str) -> None:
        """Drop the change set of a run that is no longer kept."""
        _remove_layers(self.folder / run)


class StepChanges(ChangeSets):
    """The change sets as one run of a step sees them: its layer is the flow's."""

    def __init__(self, flow: "FlowChanges", key: str, after: int) -> None:
        """`after` is the last step before this one that changed something, 0 if none did."""
        super().__init__(flow.folder.parent.parent)
        self._layer = flow.layer(key)
        self.below = flow.state(after) if after else None

    @contextmanager
    def open(self, run: str, project: Path, skill: str) -> Iterator[ChangeFolder]:  # noqa: ARG002  (the flow has its id)
        made = ChangeFolder(self._layer, project, skill, is_step=True)
        made.below = self.below
        _remove_layers(made.folder)
        for place in (made.upper, made.work):
            place.mkdir(mode=0o700, parents=True)
        try:
            yield made
        finally:
            _remove_layers(made.work if made.kept_for_flow else made.folder)


class FlowChanges:
    """The layers of one flow. `name` is what the list of change sets calls it."""

    def __init__(self, sets: ChangeSets, flow: str, project: Path, name: str) -> None:
        self._sets, self.folder, self._project, self._name = sets, sets.folder / flow, project, name
        self._upper = self.folder / "upper"

    @contextmanager
    def open(self, resumes: str = "") -> Iterator[None]:
        """Hold the layers while the flow runs; another process that still holds them is waited for.

        `resumes` is an earlier attempt that this one goes on with: its layers become ours."""
        self._sets.finish_applying()
        if resumes and not self.folder.exists():
            self._take_over(self.folder.parent / resumes)
        with LockedFile.wait(self.folder / "lock"):
            self.folder.mkdir(mode=0o700, exist_ok=True)  # who held it may have removed it
            if not (self.folder / _ABOUT).exists():
                _mark_moment(self.folder)
            _write_about(self.folder, self._project, self._name, ChangeState.RUNNING)
            yield

    def _take_over(self, old: Path) -> None:
        """Rename the folder of an earlier attempt, unless it is gone or somebody applies it."""
        if not (old / "lock").exists():
            return
        with LockedFile.wait(old / "lock"), LockedFile.wait(old / "apply.lock"):
            about = _read_about(old / _ABOUT)
            if about and about.state is not ChangeState.APPLIED and not (old / "journal.json").exists():
                _remove_layers(old / "upper")
                _remove_layers(old / "states")
                (old / _RESUMES).touch()
                old.rename(self.folder)

    @property
    def has_earlier(self) -> bool:
        """Whether the layers of the earlier attempt were taken over."""
        return (self.folder / _RESUMES).exists()

    def layer(self, key: str) -> Path:
        return self.folder / "steps" / key

    def state(self, number: int) -> Path:
        """Return what the steps up to this one changed. Raise EarlierChangesMissing if it is not here."""
        return _existing(self.folder / "states" / str(number))

    def collect(self, number: int, keys: Sequence[str], after: int) -> list[LayerConflict]:
        """Make the state after a step from the layers of its runs. Return what two of them changed both."""
        state = self.folder / "states" / str(number)
        before = self.state(after) if after else None
        return self._make(state, [_existing(self.layer(key) / "upper") for key in keys], before)

    def finish(self, after: int, keys: Sequence[str], closed: Callable[[str], bool]) -> tuple[ChangeSet, bool]:
        """Return what the flow changed, and whether a person allowed all of it beforehand."""
        self._make(self._upper, (), self.state(after))
        granted = all((self.layer(key) / _GRANTED).exists() for key in keys)
        return read_changes(self._upper, self._project, closed), granted

    def _make(self, target: Path, uppers: Sequence[Path], before: Path | None) -> list[LayerConflict]:
        fresh = target.with_name(f"{target.name}.new")
        _remove_layers(fresh)
        _remove_layers(target)
        fresh.mkdir(mode=0o700, parents=True)
        if not (conflicts := merge_layers(uppers, before, self._project, fresh)):
            fresh.rename(target)
        return conflicts

    def apply(self, closed: Callable[[str], bool]) -> None:
        """Make the changes in the project, once: also if whoever did it died before it could say so."""
        if not _is_applied(self.folder):
            found = read_changes(_existing(self._upper), self._project, closed)
            with self._sets.applying(self.folder.name):
                _applier(self.folder, self._project).apply(self._upper, found.changes, _moment_ns(self.folder))

    def keep(self, state: ChangeState, *, resumable: bool) -> None:
        """Keep the set as it is in the end, with the layers if the flow may be resumed, or drop everything."""
        if state is ChangeState.APPLIED or not self._upper.is_dir():
            _remove_layers(self.folder)
            return
        if not resumable:
            _remove_layers(self.folder / "steps")
            _remove_layers(self.folder / "states")
        _write_about(self.folder, self._project, self._name, state)


def _existing(layer: Path) -> Path:
    if not layer.is_dir():
        raise EarlierChangesMissing(Message("it is not on this machine, or not any more"))
    return layer


def _applier(folder: Path, project: Path) -> "Applier":
    from skillyard.editor.apply import Applier  # noqa: PLC0415  (most runs change nothing)

    return Applier(folder, project)


def _is_applied(folder: Path) -> bool:
    from skillyard.editor.apply import DONE  # noqa: PLC0415  (most runs change nothing)

    return (folder / DONE).exists()


#: The folders in the layers of a run that changed nothing, inner ones first; overlayfs makes the first.
_EMPTY_LAYERS = ("work/work", "work", "upper", "")


def _put_by(made: ChangeFolder, spare: Path) -> bool:
    """Leave the layers of a run that changed nothing to the next run. Return False, with some of them, if that fails.

    The upper one is made anew, because a run may have given it another mode or attributes.
    """
    with suppress(OSError):
        _end_mount(made.folder)
        if (made.work / "work/incompat").exists():
            return False
        made.upper.rmdir()
        made.upper.mkdir()
        made.folder.rename(spare)
        return True
    return False


def _end_mount(folder: Path) -> None:
    """Remove the mark of overlayfs that these layers were mounted; they cannot be mounted again before."""
    with suppress(FileNotFoundError):
        (folder / "work/work").chmod(0o700)
        (folder / "work/work/incompat/volatile/dirty").unlink()
        (folder / "work/work/incompat/volatile").rmdir()
        (folder / "work/work/incompat").rmdir()


def _remove_empty(folder: Path) -> bool:
    """Remove the layers of a run that changed nothing. Return False, with some of it left, if they hold more."""
    with suppress(OSError):
        _end_mount(folder)
        for name in _EMPTY_LAYERS:
            if not name:
                (folder / "lock").unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                (folder / name).rmdir()
        return True
    return False


def _remove_layers(folder: Path) -> None:
    """Remove a folder of layers: overlayfs leaves folders in it that nobody may open, and a run may leave more."""
    if _remove_empty(folder):
        return
    import shutil  # noqa: PLC0415  (most runs change nothing)

    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for place, names, _ in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    if not (inner := Path(place, name)).is_symlink():
                        inner.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _mark_moment(folder: Path) -> None:
    """Note this moment: later than every change before it, not later than every change after it.

    Where a kernel has fine timestamps, it gives one to a file whose time was asked since it last changed."""
    lock = folder / "lock"
    lock.touch()
    lock.stat()
    os.utime(lock)


def _moment_ns(folder: Path) -> int:
    """When the run, or the flow, started."""
    return (folder / "lock").stat().st_ctime_ns


def _write_about(folder: Path, project: Path, skill: str, state: ChangeState) -> KeptChanges:
    kept = KeptChanges(folder.name, project, skill, state, time.time(), folder)
    draft = folder / f"{_ABOUT}.new"
    draft.write_text(json.dumps(kept._asdict(), default=str), "utf-8")
    draft.replace(folder / _ABOUT)
    return kept


def _read_about(file: Path) -> KeptChanges | None:
    try:
        about = json.loads(file.read_bytes())
        project, state = Path(about["project"]), ChangeState(about["state"])
        return KeptChanges(about["run"], project, about["skill"], state, float(about["ended"]), file.parent)
    except (OSError, ValueError, KeyError, TypeError):
        return None
