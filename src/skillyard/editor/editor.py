"""Edits of files: read, change, and write all of them or none."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.editor.allowed_roots import Root, Spot, locate
from skillyard.editor.dirfd import Folder, Found, open_folders
from skillyard.editor.document import Document, decode, encode
from skillyard.editor.journal import Change, Journal, Recovered
from skillyard.editor.operations import Operation, count_of, make_operation
from skillyard.editor.text_edits import splice, with_lf

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Edit(NamedTuple):
    """One operation on one file, as the caller named both."""

    name: str
    file: str
    operation: Operation


class Edited(NamedTuple):
    """What came of one edit."""

    edit: Edit
    changed: bool
    created: bool
    number: int
    encoding: str

    def as_dict(self) -> dict[str, Json]:
        data: dict[str, Json] = {"file": self.edit.file, "operation": self.edit.name, "changed": self.changed}
        if self.edit.operation.counts:
            data[self.edit.operation.counts] = self.number
        return {**data, "created": self.created, "encoding": self.encoding}


class Report(NamedTuple):
    """What came of all of them, with the difference they make."""

    edited: tuple[Edited, ...]
    diff: str
    recovered: Recovered


class _Target(NamedTuple):
    """A file in the middle of its edits; no folder where a dry run would make one."""

    shown: str
    spot: Spot
    folder: Folder | None
    found: Found | None
    before: Document
    after: Document

    @property
    def changed(self) -> bool:
        return self.found is None or self.before.text != self.after.text


class Editor:
    """Edits text files below its roots. Relative names start in the working directory."""

    def __init__(self, roots: Sequence[Root], asked: Sequence[Root], own_home: Path) -> None:
        self._roots = roots
        self._asked = asked
        self._own_home = own_home
        self._journal = Journal(own_home / "edits")

    def edit(self, edits: Sequence[Edit], *, dry_run: bool = False) -> Report:
        """Make all the edits in their order, or none of them. A dry run only tells the difference."""
        spots = [locate(edit.file, self._roots, self._asked, self._own_home) for edit in edits]
        with ExitStack() as stack:
            if dry_run:
                recovered = Recovered()
                folders = open_folders(spots, stack, create=(), lock=False)
            else:
                create = [spot for spot, edit in zip(spots, edits, strict=True) if edit.operation.creates]
                recovered, folders = self._hold(spots, stack, create)
            targets: dict[object, _Target] = {}
            edited = tuple(
                _step(targets, place, spot, folder)
                for place, spot, folder in zip(_numbered(edits), spots, folders, strict=True)
            )
            changed = [target for target in targets.values() if target.changed]
            if not dry_run:
                self._write(changed)
            return Report(edited, "".join(_diff(target) for target in changed) if dry_run else "", recovered)

    def _hold(
        self, spots: Sequence[Spot], stack: ExitStack, create: Sequence[Spot]
    ) -> tuple[Recovered, list[Folder | None]]:
        """The locked folders, with nothing unfinished in them: whoever died while we waited is settled first."""
        recovered = Recovered()
        while True:
            more = self._journal.recover()
            recovered = Recovered(recovered.settled + more.settled, recovered.kept + more.kept)
            with ExitStack() as attempt:
                folders = open_folders(spots, attempt, create=create, lock=True)
                if self._journal.has_dead():
                    continue
                for folder in {folder.identity: folder for folder in folders if folder}.values():
                    self._journal.sweep(folder)
                stack.push(attempt.pop_all())
                return recovered, folders

    def _write(self, targets: Sequence[_Target]) -> None:
        changes: list[Change] = []
        for target in targets:
            if target.folder is None:
                raise FileNotFoundError(2, "No such folder", str(target.spot.path.parent))
            if target.found:
                target.folder.check_writable(target.spot.name, target.found)
            content = encode(target.after, target.shown)
            changes.append(Change(target.folder, target.spot, target.found, content))
        if not changes:
            return
        try:
            self._journal.commit(changes)
        except OSError as error:
            shown = ", ".join(target.shown for target in targets)
            raise OSError(error.errno, f"{error.strerror}; nothing was changed", shown) from None


class _Place(NamedTuple):
    """An edit with its number among several; 0 where it is the only one."""

    number: int
    edit: Edit


def _numbered(edits: Sequence[Edit]) -> list[_Place]:
    return [_Place(number if len(edits) > 1 else 0, edit) for number, edit in enumerate(edits, 1)]


def _step(targets: dict[object, _Target], place: _Place, spot: Spot, folder: Folder | None) -> Edited:
    """One edit on top of those before it."""
    edit = place.edit
    key = (folder.identity, spot.name) if folder else spot
    target = targets.get(key) or _open(edit, spot, folder)
    text = with_lf(target.after.text)
    try:
        splices = edit.operation.splices(text)
    except SkillError as error:
        raise _told_where(error, place) from None
    after = target.after._replace(text=splice(target.after.text, splices))
    targets[key] = target._replace(after=after)
    return Edited(
        edit=edit,
        changed=after.text != target.after.text or target.found is None,
        created=target.found is None,
        number=count_of(edit.operation, text, splices),
        encoding=after.encoding_name,
    )


def _open(edit: Edit, spot: Spot, folder: Folder | None) -> _Target:
    found = folder.find(spot.name) if folder else None
    if found is None and not edit.operation.creates:
        raise FileNotFoundError(2, "No such file", edit.file)
    before = decode(found.content, edit.file) if found else Document()
    return _Target(edit.file, spot, folder, found, before, before)


def _told_where(error: SkillError, place: _Place) -> SkillError:
    """Which of several edits it was."""
    if not place.number:
        return error
    error.msg = Message(
        "edit {number} ({name} {file}): {reason}",
        number=place.number,
        name=place.edit.name,
        file=place.edit.file,
        reason=error.msg,
    )
    error.details = {**error.details, "edit": place.number}
    if "reason" in error.values:
        error.values = {**error.values, "reason": error.msg}
    return error


def _diff(target: _Target) -> str:
    """A unified diff; line ends are shown as `\\n` whatever the file has."""
    lines = difflib.unified_diff(
        _LINE.findall(with_lf(target.before.text)),
        _LINE.findall(with_lf(target.after.text)),
        f"a/{target.shown}" if target.found else "/dev/null",
        f"b/{target.shown}",
    )
    return "".join(_ended(line) for line in lines)


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def read_batch(content: str) -> tuple[Edit, ...]:
    """The edits of a batch file: a JSON list of `{"operation": …, "file": …}` with the operation's own fields."""
    try:
        listed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("a batch is a JSON list of edits: {error}", error=error)) from None
    if not isinstance(listed, list) or not listed:
        raise InvalidArgs(Message("a batch is a JSON list of edits, at least one"))
    return tuple(_batch_edit(number, fields) for number, fields in enumerate(listed, 1))


def _batch_edit(number: int, fields: object) -> Edit:
    if not isinstance(fields, Mapping):
        raise InvalidArgs(Message("edit {number} must be an object", number=number))
    name, file = fields.get("operation"), fields.get("file")
    if not isinstance(name, str) or not isinstance(file, str):
        raise InvalidArgs(Message("edit {number} needs 'operation' and 'file'", number=number))
    given = {key: value for key, value in fields.items() if key not in {"operation", "file"}}
    try:
        return Edit(name, file, make_operation(name, given))
    except InvalidArgs as error:
        raise InvalidArgs(Message("edit {number}: {msg}", number=number, msg=error.msg)) from None
