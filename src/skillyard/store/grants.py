"""What a person allowed: a file with every grant and every trust, small, checked, and written twice.

The file is one JSON object, `{"version": 1, "checksum": "<sha256>", "content": {…}}`. The checksum covers the version
and the bytes of the content as they stand, so a changed byte anywhere is noticed. A row that could not be shown or used
(a time that is none, a path that is not absolute, an unknown capability) makes the file a damaged one, too. Every
version of the format keeps this frame, so an older Skillyard can tell a newer file from a damaged one.

The copy beside it is written first. It is therefore never older than the file, and restoring it never brings back a
grant that was revoked.

Covered: kill -9 at any point, several processes that write at once, a full disk, a damaged, truncated or missing file.
Not covered: somebody with write access to SKILLYARD_HOME, who can write any grant; the checksum is not a signature.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.core.capability import is_capability, is_path
from skillyard.core.errors import InvalidArgs, SkillError, StateDamaged, StateNewer, StateUnsafe, StoreFailed
from skillyard.core.messages import Message
from skillyard.store import locks
from skillyard.store.atomic import damaged_name, sync, write_atomically

FILE = "grants.json"
COPY = "grants.json.copy"
LOCK = "grants.lock"
VERSION = 1
#: Over a hundred thousand grants. A larger file is not one of ours.
_MOST_BYTES = 64_000_000
_FRAME = re.compile(rb'\{"version": ([0-9]{1,9}), "checksum": "([0-9a-f]{64})", "content": ')
_END = b"}\n"
LOCK_SECONDS = 30.0
#: The end of the year 9999: later times cannot be shown.
_LATEST = 253_402_300_799
_MOST_FINGERPRINT, _MOST_TRUST = 200, 16_000_000

Tell = Callable[[SkillError], None]


class GrantRow(NamedTuple):
    project: str
    skill: str
    fingerprint: str
    capability: str
    granted: float


class TrustRow(NamedTuple):
    project: str
    fingerprint: str
    granted: float


class GrantContent(NamedTuple):
    """Everything that a person allowed, in all projects."""

    grants: tuple[GrantRow, ...] = ()
    trusts: tuple[TrustRow, ...] = ()


#: What identifies the state of a file without reading it.
_Signature = tuple[int, int, int, int, int, int, int]
_MISSING: _Signature = (0, 0, 0, 0, 0, 0, 0)


class _Damaged(Exception):
    """The file cannot be read as grants; the message is the reason."""


class GrantFile:
    """Reads and changes the grants of one SKILLYARD_HOME. A damaged or unsafe file grants nothing."""

    def __init__(self, home: Path, tell: Tell = lambda _: None, lock_seconds: float = LOCK_SECONDS) -> None:
        self.path = home / FILE
        self.copy = home / COPY
        self._lock = home / LOCK
        self._tell = tell
        self._lock_seconds = lock_seconds
        self._seen: _Signature | None = None
        self._content = GrantContent()
        self._told: set[str] = set()

    def read(self) -> GrantContent:
        """Return the content. The file is read again only if it changed.

        An untrustworthy file grants nothing, and is reported; a damaged one is set aside and replaced by its copy.
        """
        signature = _signature(self.path)
        if signature == self._seen:
            return self._content
        try:
            content = self._read_or_repair()
        except StateDamaged as error:
            self._tell_once(error)
            content = GrantContent()
        except (StoreFailed, OSError) as error:
            self._tell_once(error if isinstance(error, StoreFailed) else _unreadable(self.path, error))
            return GrantContent()  # asked again next time: the reason may be gone
        # A file that changed while it was read is read again next time.
        self._seen, self._content = signature if _signature(self.path) == signature else None, content
        return content

    def change(self, how: Callable[[GrantContent], GrantContent]) -> None:
        """Replace the content by what `how` makes of it. Raises SkillError or OSError if nothing could be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._held():
            try:
                content = self._load_or_restore()
            except StateDamaged as error:  # told, and set aside: this is the first grant of a new file
                self._tell_once(error)
                content = GrantContent()
            changed = how(content)
            before: set[GrantRow | TrustRow] = {*content.grants, *content.trusts}
            after: set[GrantRow | TrustRow] = {*changed.grants, *changed.trusts}
            try:
                for row in after - before:  # one that could not be read again would make the whole file a damaged one
                    _check_row(row)
            except ValueError as error:
                raise InvalidArgs(Message("this cannot be kept as a grant: {error}", error=error)) from None
            self._write(changed)

    def import_once(self, grants: Iterable[GrantRow], trusts: Iterable[TrustRow]) -> None:
        """Take over what an older version kept in the database, unless that was done before.

        A second import could bring back what was revoked since the first. Rows that the file cannot hold are left out.
        """
        content = GrantContent(tuple(filter(_is_row, grants)), tuple(filter(_is_row, trusts)))
        if content == GrantContent():
            return
        with self._held():
            if not os.path.lexists(self.path) and not os.path.lexists(self.copy):
                self._write(content)
            elif not os.path.lexists(self.path) and _is_sound(self.copy):
                self._load_or_restore()  # the import died after it wrote the copy

    def _held(self) -> AbstractContextManager[None]:
        return locks.holding(self._lock, self._lock_seconds)

    def _read_or_repair(self) -> GrantContent:
        """Takes the lock only if something is wrong."""
        try:
            return _load(self.path)
        except FileNotFoundError:
            if not os.path.lexists(self.copy):
                return GrantContent()
        except _Damaged:
            pass
        try:
            with self._held():
                return self._load_or_restore()
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            raise StateDamaged(
                Message("{path} is damaged and cannot be replaced: {strerror}", path=self.path, strerror=error.strerror)
            ) from None

    def _load_or_restore(self) -> GrantContent:
        """Call under the lock. Raise StateDamaged if neither the file nor its copy is intact."""
        try:
            return _load(self.path)
        except FileNotFoundError:
            reason: str = Message("is missing")
            aside = None
            if not os.path.lexists(self.copy):
                return GrantContent()
        except _Damaged as error:
            reason, aside = str(error), damaged_name(self.path)
        content = self._load_copy()
        if aside is not None:
            self.path.rename(aside)
        path = self.path
        if content is None:
            sync(path.parent)
            kept = Message("grant again what you need")
            if aside:
                kept = Message("grant again what you need; the damaged file is kept as {aside}", aside=aside)
            told = Message("{path} {reason}, and no copy is intact: nothing is granted now", path=path, reason=reason)
            raise StateDamaged(told, kept)
        self._write(content)
        kept = Message("to drop every grant, remove {copy} too", copy=COPY)
        if aside:
            kept = Message("the damaged file is kept as {aside}", aside=aside)
        restored = Message("{path} {reason}; its copy was restored, no grant is lost", path=path, reason=reason)
        self._tell_once(StateDamaged(restored, kept))
        return content

    def _load_copy(self) -> GrantContent | None:
        """Return None if the copy is damaged too; then it is set aside."""
        try:
            return _load(self.copy)
        except FileNotFoundError:
            return None
        except _Damaged:
            self.copy.rename(damaged_name(self.copy))
            return None

    def _write(self, content: GrantContent) -> None:
        """The copy first: it must never be older than the file."""
        written = render(content)
        for path in (self.copy, self.path):
            if path.is_dir() and not path.is_symlink():
                path.rename(damaged_name(path))
            write_atomically(path, written)

    def _tell_once(self, error: SkillError) -> None:
        if error.msg not in self._told:
            self._told.add(error.msg)
            self._tell(error)


class Grant(NamedTuple):
    """A capability for one skill and exactly its bytes."""

    skill: str
    fingerprint: str
    capability: str
    granted: float


class Grants:
    """The grants of one project. A changed skill has none."""

    def __init__(self, file: GrantFile, project: str) -> None:
        self._file = file
        self._project = project

    def add(self, grant: Grant) -> None:
        """Add a grant. Given again, it counts from the later time."""
        row = GrantRow(self._project, *grant)

        def put(content: GrantContent) -> GrantContent:
            kept = (each for each in content.grants if each[:-1] != row[:-1])
            return content._replace(grants=(*kept, row))

        self._file.change(put)

    def has_any(self, skill: str) -> bool:
        """Whether the skill has grants, for whatever bytes. Cheap: called before the skill's folder is hashed."""
        return any(row.skill == skill for row in self._rows())

    def of(self, skill: str, fingerprint: str) -> frozenset[str]:
        wanted = (skill, fingerprint)
        return frozenset(row.capability for row in self._rows() if (row.skill, row.fingerprint) == wanted)

    def list(self) -> tuple[Grant, ...]:
        rows = sorted(self._rows(), key=lambda row: (row.skill, row.capability))
        return tuple(Grant(*row[1:]) for row in rows)

    def revoke(self, skill: str, capability: str | None = None) -> int:
        """Return how many were revoked."""
        revoked: list[GrantRow] = []

        def is_meant(row: GrantRow) -> bool:
            return (row.project, row.skill) == (self._project, skill) and capability in {None, row.capability}

        def take(content: GrantContent) -> GrantContent:
            revoked[:] = filter(is_meant, content.grants)
            return content._replace(grants=tuple(row for row in content.grants if not is_meant(row)))

        self._file.change(take)
        return len(revoked)

    def trust(self, fingerprint: str, moment: float) -> None:
        row = TrustRow(self._project, fingerprint, moment)
        self._file.change(lambda content: content._replace(trusts=(*self._other_trusts(content), row)))

    def trusted(self) -> str:
        """The fingerprint of what was trusted, or an empty text."""
        trusts = self._file.read().trusts
        return next((row.fingerprint for row in trusts if row.project == self._project), "")

    def distrust(self) -> None:
        self._file.change(lambda content: content._replace(trusts=self._other_trusts(content)))

    def _rows(self) -> tuple[GrantRow, ...]:
        return tuple(row for row in self._file.read().grants if row.project == self._project)

    def _other_trusts(self, content: GrantContent) -> tuple[TrustRow, ...]:
        return tuple(row for row in content.trusts if row.project != self._project)


class GrantReport(NamedTuple):
    """What `doctor` reports of the file. `problem` is empty if it is intact."""

    grants: int
    trusts: int
    problem: str
    copy_intact: bool


def inspect_grants(home: Path) -> GrantReport:
    """Inspect the file and its copy, without changing anything."""
    path, copy_intact = home / FILE, _is_sound(home / COPY)
    try:
        content = _load(path)
    except FileNotFoundError:
        problem = Message("{library} is missing", library=path) if os.path.lexists(home / COPY) else ""
        return GrantReport(0, 0, problem, copy_intact or not problem)
    except (_Damaged, StoreFailed) as error:
        text = error.msg if isinstance(error, StoreFailed) else f"{path} {error}"
        return GrantReport(0, 0, text, copy_intact)
    except OSError as error:
        return GrantReport(0, 0, _unreadable(path, error).msg, copy_intact)
    return GrantReport(len(content.grants), len(content.trusts), "", copy_intact)


def render(content: GrantContent) -> bytes:
    """The file's bytes."""
    grants, trusts = (",\n".join(json.dumps(row, allow_nan=False) for row in sorted(set(rows))) for rows in content)
    body = f'{{"grants": [\n{grants}\n], "trusts": [\n{trusts}\n]}}'.encode("ascii")
    return b'{"version": %d, "checksum": "%s", "content": %s%s' % (VERSION, _checksum(VERSION, body), body, _END)


def parse(raw: bytes, path: Path) -> GrantContent:
    """Raise _Damaged with the reason, and StateNewer."""
    if not raw:
        raise _Damaged(Message("is empty"))
    frame = _FRAME.match(raw)
    if frame is None or not raw.endswith(_END):
        raise _Damaged(Message("is cut off or not a file of grants"))
    version, body = int(frame[1]), raw[frame.end() : -len(_END)]
    if _checksum(version, body) != frame[2]:
        raise _Damaged(Message("does not match its checksum"))
    if version > VERSION:
        told = Message("format {version}, and this Skillyard knows {known}", version=version, known=VERSION)
        raise StateNewer(Message("{place}: {reason}", place=path, reason=told))
    try:
        fields: Any = json.loads(body)
        grants, trusts = fields["grants"], fields["trusts"]
        if not isinstance(grants, list) or not isinstance(trusts, list):
            raise TypeError("no lists of rows")  # noqa: TRY301  (a damaged file like any other)
        rows = GrantContent(tuple(GrantRow(*row) for row in grants), tuple(TrustRow(*row) for row in trusts))
        every: list[GrantRow | TrustRow] = [*rows.grants, *rows.trusts]
        for row in every:
            _check_row(row)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _Damaged(Message("does not have the fields of a file of grants: {error}", error=error)) from None
    return rows


def _check_row(row: GrantRow | TrustRow) -> None:
    """Raise ValueError for a row that could not be shown or used. The reason never quotes the row."""
    fields: tuple[object, ...] = row  # of any type: they come from a file
    *texts, granted = fields
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a row of another type")
    if isinstance(granted, bool) or not isinstance(granted, int | float) or not 0 <= granted <= _LATEST:
        raise ValueError("a row with a time that is none")
    if not is_path(row.project) or not row.project.startswith("/"):
        raise ValueError("a row with a project that is no absolute path")
    most = _MOST_TRUST if isinstance(row, TrustRow) else _MOST_FINGERPRINT
    if not (row.fingerprint.isprintable() and 0 < len(row.fingerprint) <= most):
        raise ValueError("a row with a fingerprint that is none")
    if isinstance(row, TrustRow):
        return
    if not is_path(row.skill) or not row.skill.startswith("/"):
        raise ValueError("a row with a skill that is no absolute path")
    _check_capability(row.capability)


def _check_capability(text: str) -> None:
    if not is_capability(text):
        raise ValueError("a row with a capability that is none")
    name, colon, argument = text.partition(":")
    if name == "network" and colon:
        from skillyard.sandbox.hosts import parse_rule  # noqa: PLC0415  (few skills name hosts)

        try:
            parse_rule(argument)
        except ValueError:
            raise ValueError("a row with a host that is none") from None


def _is_row(row: GrantRow | TrustRow) -> bool:
    try:
        _check_row(row)
    except (ValueError, TypeError):
        return False
    return True


def _checksum(version: int, body: bytes) -> bytes:
    import hashlib  # noqa: PLC0415  (most runs have no grants to check)

    return hashlib.sha256(b"%d\n%s" % (version, body)).hexdigest().encode()


def _load(path: Path) -> GrantContent:
    """Raise FileNotFoundError, _Damaged, StateNewer, and StoreFailed if others could have written it."""
    return parse(_read(path), path)


def _read(path: Path) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if path.is_symlink():
            raise _Damaged(Message("is a link")) from None
        if os.path.lexists(path) and not path.is_file():
            raise _Damaged(Message("is not a plain file")) from None
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise _Damaged(Message("is not a plain file"))
        _check_owner(path, found)
        if found.st_size > _MOST_BYTES:
            raise _Damaged(Message("has {st_size} bytes, which is too many", st_size=found.st_size))
        with os.fdopen(file, "rb", closefd=False) as stream:
            return stream.read(_MOST_BYTES + 1)
    finally:
        os.close(file)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Only the user and root may have written it. For root also the owner of the folder: that is `sudo`."""
    trusted = {0, os.geteuid()} | ({path.parent.stat().st_uid} if os.geteuid() == 0 else set())
    if found.st_uid not in trusted:
        raise StateUnsafe(
            Message(
                "{path} belongs to another user (uid {st_uid}): nothing in it counts", path=path, st_uid=found.st_uid
            )
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        told = Message("{path} can be written by others: nothing in it counts until `chmod 600 {path}`", path=path)
        raise StateUnsafe(told)


def _unreadable(path: Path, error: OSError) -> StoreFailed:
    told = Message("{path} cannot be read: {strerror}; nothing is granted", path=path, strerror=error.strerror)
    return StoreFailed(told)


def _is_sound(path: Path) -> bool:
    try:
        _load(path)
    except (OSError, _Damaged, StoreFailed):
        return False
    return True


def _signature(path: Path) -> _Signature:
    try:
        found = os.lstat(path)
    except OSError:
        return _MISSING
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, *times, found.st_size, found.st_mode, found.st_uid)
