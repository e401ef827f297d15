"""Edits of files: read, change, and write all of them or none."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.editor.change_set import unified
from skillyard.editor.dirfd import EditRoot, FileContent, FileLocation, OpenFolder, locate, open_folders
from skillyard.editor.journal import FileChange, Journal, Recovered
from skillyard.editor.json_edit import as_value
from skillyard.editor.operations import Operation, count_of, fields_of, make_operation
from skillyard.editor.text_edits import Document, apply_edits, decode, with_lf

_PROGRAM_ENDINGS = (".py", ".pyw", ".pyx", ".ipynb")
_PYTHON_SHEBANG = re.compile(r"#![^\n]*python", re.IGNORECASE)
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


class EditReport(NamedTuple):
    """What came of all edits, with the difference they make."""

    edited: tuple[Edited, ...]
    diff: str
    recovered: Recovered


class _Target(NamedTuple):
    """A file with the edits so far; no folder if a dry run would make it."""

    shown: str
    location: FileLocation
    folder: OpenFolder | None
    found: FileContent | None
    before: Document
    after: Document


class Editor:
    """Edits text files below its roots. Relative names start in the working directory."""

    def __init__(
        self, roots: Sequence[EditRoot], asked: Sequence[EditRoot], own_home: Path, *, makes_programs: bool = True
    ) -> None:
        """`makes_programs`: whether a new file may be a Python program. In a Task it may not."""
        self._roots, self._asked, self._own_home = roots, asked, own_home
        self._makes_programs = makes_programs
        self._journal = Journal(own_home / "edits")

    @staticmethod
    def parse(name: str, file: str, words: Mapping[str, object]) -> Edit:
        """Return the edit that was typed, with those of `words` that the operation takes. Values are texts."""
        given = {key: words[key] for key in fields_of(name) if words.get(key) is not None}
        if isinstance(value := given.get("value"), str):
            given["value"] = as_value(value)
        return Edit(name, file, make_operation(name, given))

    @staticmethod
    def parse_batch(content: str) -> tuple[Edit, ...]:
        """Read a batch file: a JSON list of `{"operation": …, "file": …}` with the operation's own fields."""
        try:
            listed = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidArgs(Message("a batch is a JSON list of edits: {error}", error=error)) from None
        if not isinstance(listed, list) or not listed:
            raise InvalidArgs(Message("a batch is a JSON list of edits, at least one"))
        edits: list[Edit] = []
        for number, fields in enumerate(listed, 1):
            if not isinstance(fields, Mapping):
                raise InvalidArgs(Message("edit {number} must be an object", number=number))
            name, file = fields.get("operation"), fields.get("file")
            if not isinstance(name, str) or not isinstance(file, str):
                raise InvalidArgs(Message("edit {number} needs 'operation' and 'file'", number=number))
            given = {key: value for key, value in fields.items() if key not in {"operation", "file"}}
            try:
                edits.append(Edit(name, file, make_operation(name, given)))
            except InvalidArgs as error:
                raise InvalidArgs(Message("edit {number}: {msg}", number=number, msg=error.msg)) from None
        return tuple(edits)

    def edit(self, edits: Sequence[Edit], *, dry_run: bool = False) -> EditReport:
        """Make all the edits in their order, or none of them. A dry run only tells the difference."""
        locations = [locate(edit.file, self._roots, self._asked, self._own_home) for edit in edits]
        with ExitStack() as stack:
            if dry_run:
                recovered, folders = Recovered(), open_folders(locations, stack, create=(), lock=False)
            else:
                create = [location for location, edit in zip(locations, edits, strict=True) if edit.operation.creates]
                recovered, folders = self._hold(locations, stack, create)
            targets: dict[object, _Target] = {}
            edited: list[Edited] = []
            for number, (edit, location, folder) in enumerate(zip(edits, locations, folders, strict=True), 1):
                key = (folder.identity, location.name) if folder else location
                target = targets.get(key) or _open(edit, location, folder)
                after, count = _apply(edit, target.after, number if len(edits) > 1 else 0)
                created = target.found is None
                edited.append(Edited(edit, created or after != target.after, created, count, after.encoding_name))
                targets[key] = target._replace(after=after)
            written = [each for each in targets.values() if each.found is None or each.before != each.after]
            if not self._makes_programs:
                for each in written:
                    _refuse_program(each)
            if not dry_run:
                self._write(written)
            return EditReport(tuple(edited), "".join(map(_diff, written)) if dry_run else "", recovered)

    def _hold(
        self, locations: Sequence[FileLocation], stack: ExitStack, create: Sequence[FileLocation]
    ) -> tuple[Recovered, list[OpenFolder | None]]:
        """Lock the folders; whatever a process that died meanwhile left unfinished in them is settled first."""
        recovered = Recovered()
        while True:
            more = self._journal.recover()
            recovered = Recovered(recovered.settled + more.settled, recovered.kept + more.kept)
            with ExitStack() as attempt:
                folders = open_folders(locations, attempt, create=create, lock=True)
                if self._journal.has_dead():
                    continue
                for folder in {folder.identity: folder for folder in folders if folder}.values():
                    self._journal.sweep(folder)
                stack.push(attempt.pop_all())
                return recovered, folders

    def _write(self, targets: Sequence[_Target]) -> None:
        changes: list[FileChange] = []
        for shown, location, folder, found, _, after in targets:
            if folder is None:
                raise FileNotFoundError(2, "No such folder", str(location.path.parent))
            if found:
                folder.check_writable(location.name, found)
            changes.append((folder, location, found, after.encode(shown)))
        try:
            self._journal.commit(changes)
        except OSError as error:
            shown = ", ".join(target.shown for target in targets)
            raise OSError(error.errno, f"{error.strerror}; nothing was changed", shown) from None


def _open(edit: Edit, location: FileLocation, folder: OpenFolder | None) -> _Target:
    found = folder.find(location.name) if folder else None
    if found is None and not edit.operation.creates:
        raise FileNotFoundError(2, "No such file", edit.file)
    before = decode(found.content, edit.file) if found else Document()
    return _Target(edit.file, location, folder, found, before, before)


def _apply(edit: Edit, document: Document, number: int) -> tuple[Document, int]:
    """Return the edited document, and what the operation counted. `number` says which of several edits failed."""
    text = with_lf(document.text)
    try:
        edits = edit.operation.edits(text)
    except SkillError as error:
        if number:
            about = {"number": number, "name": edit.name, "file": edit.file, "reason": error.msg}
            error.msg = Message("edit {number} ({name} {file}): {reason}", **about)
            error.details = {**error.details, "edit": number}
            if "reason" in error.values:
                error.values = {**error.values, "reason": error.msg}
        raise
    return document._replace(text=apply_edits(document.text, edits)), count_of(edit.operation, text, edits)


def _refuse_program(target: _Target) -> None:
    """Raise PermissionDenied if the file would become a Python program that was none before."""
    name = target.location.name
    if _is_program(name, target.after.text) and not (target.found and _is_program(name, target.before.text)):
        raise PermissionDenied(Message("a Task creates no Python programs: {file}", file=target.shown))


def _is_program(name: str, text: str) -> bool:
    return bool(text) and (name.lower().endswith(_PROGRAM_ENDINGS) or _PYTHON_SHEBANG.match(text) is not None)


def _diff(target: _Target) -> str:
    """A unified diff; line ends are shown as `\\n` whatever the file has."""
    old, new = (_LINE.findall(with_lf(document.text)) for document in (target.before, target.after))
    return unified(old, new, target.shown if target.found else "", target.shown)
