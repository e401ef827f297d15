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
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.core.capability import is_capability, is_path
from skillyard.core.errors import InvalidArgs, SkillError, StateDamaged, StateNewer, StateUnsafe, StoreFailed
from skillyard.core.messages import Message
from skillyard.core.values import lazy_pattern
from skillyard.store import locks
from skillyard.store.atomic import damaged_name, sync, write_atomically
from skillyard.store.locks import LOCK_SECONDS

FILE = "grants.json"
COPY = "grants.json.copy"
LOCK = "grants.lock"
VERSION = 1
#: Over a hundred thousand grants. A larger file is not one of ours.
_MOST_BYTES = 64_000_000
_FRAME = lazy_pattern(rb'\{"version": ([0-9]{1,9}), "checksum": "([0-9a-f]{64})", "content": ')
_END = b"}\n"
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


Row = GrantRow | TrustRow
#: Everything that a person allowed, in all projects.
Rows = tuple[Row, ...]


class _Damaged(Exception):
    """The file cannot be read as grants; the message is the reason."""


class GrantFile:
    """Reads and changes the grants of one SKILLYARD_HOME. A damaged or unsafe file grants nothing."""

    def __init__(self, home: Path, tell: Tell = lambda _: None, lock_seconds: float = LOCK_SECONDS) -> None:
        self.path, self.copy, self._lock = home / FILE, home / COPY, home / LOCK
        self._tell, self._lock_seconds = tell, lock_seconds
        self._seen: tuple[int, ...] | None = None
        self._rows: Rows = ()
        self._told: set[str] = set()

    def read(self) -> Rows:
        """Return the content. The file is read again only if it changed.

        An untrustworthy file grants nothing, and is reported; a damaged one is set aside and replaced by its copy."""
        signature = _signature(self.path)
        if signature == self._seen:
            return self._rows
        try:
            rows = self._read_or_repair()
        except StateDamaged as error:
            self._tell_once(error)
            rows = ()
        except (StoreFailed, OSError) as error:
            self._tell_once(error if isinstance(error, StoreFailed) else _unreadable(self.path, error))
            return ()  # asked again next time: the reason may be gone
        # A file that changed while it was read is read again next time.
        self._seen, self._rows = signature if _signature(self.path) == signature else None, rows
        return rows

    def change(self, drop: Callable[[Row], bool], *added: Row) -> int:
        """Drop the rows that `drop` is true for, and add others. Return how many were dropped.

        Raise SkillError or OSError if nothing could be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locks.holding(self._lock, self._lock_seconds):
            try:
                rows = self._load_or_restore()
            except StateDamaged as error:  # reported, and set aside: this is the first grant of a new file
                self._tell_once(error)
                rows = ()
            try:
                for row in added:  # one that could not be read again would make the whole file a damaged one
                    _check_row(row)
            except ValueError as error:
                raise InvalidArgs(Message("this cannot be kept as a grant: {error}", error=error)) from None
            kept = [row for row in rows if not drop(row)]
            self._write((*kept, *added))
        return len(rows) - len(kept)

    def _read_or_repair(self) -> Rows:
        """Takes the lock only if something is wrong."""
        with suppress(_Damaged):
            return self._load()
        try:
            with locks.holding(self._lock, self._lock_seconds):
                return self._load_or_restore()
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            raise StateDamaged(
                Message("{path} is damaged and cannot be replaced: {strerror}", path=self.path, strerror=error.strerror)
            ) from None

    def _load(self) -> Rows:
        """Return nothing if there is no file; raise _Damaged if only its copy is there."""
        try:
            return _load(self.path)
        except FileNotFoundError:
            if os.path.lexists(self.copy):
                raise _Damaged(Message("is missing")) from None
            return ()

    def _load_or_restore(self) -> Rows:
        """Call under the lock. Raise StateDamaged if neither the file nor its copy is intact."""
        try:
            return self._load()
        except _Damaged as error:
            path, reason = self.path, error.args[0]
        rows = None
        try:
            rows = _load(self.copy)
        except FileNotFoundError:
            pass
        except _Damaged:
            self.copy.rename(damaged_name(self.copy))
        aside = damaged_name(path) if os.path.lexists(path) else None
        if aside:
            path.rename(aside)
        if rows is None:
            sync(path.parent)
            told = Message("{path} {reason}, and no copy is intact: nothing is granted now", path=path, reason=reason)
            kept = Message("grant again what you need")
            if aside:
                kept = Message("grant again what you need; the damaged file is kept as {aside}", aside=aside)
            raise StateDamaged(told, kept)
        self._write(rows)
        told = Message("{path} {reason}; its copy was restored, no grant is lost", path=path, reason=reason)
        kept = Message("to drop every grant, remove {copy} too", copy=COPY)
        if aside:
            kept = Message("the damaged file is kept as {aside}", aside=aside)
        self._tell_once(StateDamaged(told, kept))
        return rows

    def _write(self, rows: Rows) -> None:
        """The copy first: it must never be older than the file."""
        written = render(rows)
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
        self._file, self._project = file, project

    def add(self, grant: Grant) -> None:
        """Add a grant. Given again, it counts from the later time."""
        new = GrantRow(self._project, *grant)
        self._file.change(lambda row: row[:-1] == new[:-1], new)

    def has_any(self, skill: str) -> bool:
        """Whether the skill has grants, for whatever bytes. Cheap: called before the skill's folder is hashed."""
        return any(grant.skill == skill for grant in self.list())

    def of(self, skill: str, fingerprint: str) -> frozenset[str]:
        return frozenset(grant.capability for grant in self.list() if grant[:2] == (skill, fingerprint))

    def list(self) -> tuple[Grant, ...]:
        rows = (row for row in self._file.read() if isinstance(row, GrantRow))
        mine = (Grant(*row[1:]) for row in rows if row.project == self._project)
        return tuple(sorted(mine, key=lambda grant: (grant.skill, grant.capability)))

    def revoke(self, skill: str, capability: str | None = None) -> int:
        """Return how many were revoked."""

        def is_meant(row: Row) -> bool:
            if not isinstance(row, GrantRow) or (row.project, row.skill) != (self._project, skill):
                return False
            return capability in {None, row.capability}

        return self._file.change(is_meant)

    def trust(self, fingerprint: str, moment: float) -> None:
        self._set_trust(TrustRow(self._project, fingerprint, moment))

    def trusted(self) -> str:
        """The fingerprint of what was trusted, or an empty text."""
        trusts = (row for row in self._file.read() if isinstance(row, TrustRow))
        return next((row.fingerprint for row in trusts if row.project == self._project), "")

    def distrust(self) -> None:
        self._set_trust()

    def _set_trust(self, *mine: TrustRow) -> None:
        self._file.change(lambda row: isinstance(row, TrustRow) and row.project == self._project, *mine)


class GrantReport(NamedTuple):
    """What `doctor` reports of the file. `problem` is empty if it is intact."""

    grants: int
    trusts: int
    problem: str
    copy_intact: bool


def inspect_grants(home: Path) -> GrantReport:
    """Inspect the file and its copy, without changing anything."""
    path, copy = home / FILE, home / COPY
    if not os.path.lexists(path) and not os.path.lexists(copy):
        return GrantReport(0, 0, "", copy_intact=True)
    rows, problem = _inspect(path)
    grants = sum(isinstance(row, GrantRow) for row in rows)
    return GrantReport(grants, len(rows) - grants, problem, copy_intact=not _inspect(copy)[1])


def _inspect(path: Path) -> tuple[Rows, str]:
    """Return the content of one file, and what is wrong with it."""
    try:
        return _load(path), ""
    except FileNotFoundError:
        problem: str = Message("{library} is missing", library=path)
    except _Damaged as error:
        problem = f"{path} {error}"
    except StoreFailed as error:
        problem = error.msg
    except OSError as error:
        problem = _unreadable(path, error).msg
    return (), problem


def render(rows: Sequence[Row]) -> bytes:
    """The file's bytes."""
    kinds = [{row for row in rows if isinstance(row, kind)} for kind in (GrantRow, TrustRow)]
    grants, trusts = (",\n".join(json.dumps(row, allow_nan=False) for row in sorted(kind)) for kind in kinds)
    body = f'{{"grants": [\n{grants}\n], "trusts": [\n{trusts}\n]}}'.encode("ascii")
    return b'{"version": %d, "checksum": "%s", "content": %s%s' % (VERSION, _checksum(VERSION, body), body, _END)


def parse(raw: bytes, path: Path) -> Rows:
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
        rows: Rows = (*(GrantRow(*row) for row in grants), *(TrustRow(*row) for row in trusts))
        for row in rows:
            _check_row(row)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _Damaged(Message("does not have the fields of a file of grants: {error}", error=error)) from None
    return rows


def _check_row(row: Row) -> None:
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
    if not is_capability(row.capability):
        raise ValueError("a row with a capability that is none")
    if row.capability.startswith("network:"):
        from skillyard.sandbox.hosts import parse_rule  # noqa: PLC0415  (few skills name hosts)

        try:
            parse_rule(row.capability.removeprefix("network:"))
        except ValueError:
            raise ValueError("a row with a host that is none") from None


def _checksum(version: int, body: bytes) -> bytes:
    import hashlib  # noqa: PLC0415  (most runs have no grants to check)

    return hashlib.sha256(b"%d\n%s" % (version, body)).hexdigest().encode()


def _load(path: Path) -> Rows:
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
        about = {"path": path, "st_uid": found.st_uid}
        raise StateUnsafe(Message("{path} belongs to another user (uid {st_uid}): nothing in it counts", **about))
    if stat.S_IMODE(found.st_mode) & 0o022:
        told = Message("{path} can be written by others: nothing in it counts until `chmod 600 {path}`", path=path)
        raise StateUnsafe(told)


def _unreadable(path: Path, error: OSError) -> StoreFailed:
    return StoreFailed(
        Message("{path} cannot be read: {strerror}; nothing is granted", path=path, strerror=error.strerror)
    )


def _signature(path: Path) -> tuple[int, ...]:
    """What identifies the state of a file without reading it."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, *times, found.st_size, found.st_mode, found.st_uid)
