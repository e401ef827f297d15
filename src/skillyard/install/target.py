"""Where skills are installed: a folder and skillyard.lock, which change together, whole or not at all.

The lock says what was installed from where, file by file. It is TOML that people read, in an order that never changes,
and comes with a clone: everything in it is checked when it is read, and no name in it can be a path. A folder is copied
only if all of its files may come from outside.

A change is written to a journal first, then done: who finds a journal finishes it. So a kill at any point leaves the
old state or the new one.

Covered: kill -9, two processes at once, links in the project that lead elsewhere.
Not covered: a power cut before the disk has written its cache; `verify` tells.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from skillyard.catalog.files import is_repository, is_utf8, read_whole, refuse_links, write_below
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.names import as_safe_path, as_slug, check_apart, check_link, quoted, shown
from skillyard.install.source import LIMITS
from skillyard.install.threats.rule import ScanVerdict
from skillyard.store.atomic import sync

#: Never installed: they come and go without the skill being another.
IGNORED = frozenset({"__pycache__", ".git", ".DS_Store"})
#: What each file holds, by its path: "sha256:…", "program:sha256:…" or "link:target".
FileDigests: TypeAlias = Mapping[str, str]


def find_skill_file(folder: Path) -> Path | None:
    """SKILL.md, in the standard's spelling if it is there, else in any case; never a link."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    found = [name for name in names if name.lower() == SKILL_FILE.lower()]
    return folder / (SKILL_FILE if SKILL_FILE in found else found[0]) if found else None


def _files(folder: Path) -> dict[str, os.stat_result]:
    """Files and links by their paths, sorted; folders count only by what is in them."""
    found: dict[str, os.stat_result] = {}
    queue = [""]
    while queue:
        inner = queue.pop()
        with os.scandir(folder / inner) as entries:
            for entry in entries:
                if entry.name in IGNORED or is_repository(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    queue.append(f"{inner}{entry.name}/")
                else:
                    found[f"{inner}{entry.name}"] = entry.stat(follow_symlinks=False)
    return dict(sorted(found.items()))


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of every file below the folder, in the order of their paths."""
    digests: dict[str, str] = {}
    for path, status in _files(folder).items():
        if stat.S_ISLNK(status.st_mode):
            digests[path] = f"link:{(folder / path).readlink()}"
        elif not stat.S_ISREG(status.st_mode):
            digests[path] = "other:"
        else:
            with (folder / path).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            digests[path] = f"{'program:' if status.st_mode & 0o111 else ''}sha256:{digest}"
    return digests


def tree_hash(digests: FileDigests) -> str:
    """One hash over all paths and digests."""
    whole = hashlib.sha256()
    for pair in sorted(digests.items()):
        for part in pair:
            content = part.encode("utf-8", "surrogateescape")
            whole.update(len(content).to_bytes(8, "big") + content)
    return f"sha256:{whole.hexdigest()}"


def check_tree(source: Path) -> None:
    """SourceRefused if a folder holds links that leave it, devices, odd names, or too much."""
    files = _files(source)
    LIMITS.check(len(files), sum(status.st_size for status in files.values()))
    for path in files:
        if not is_utf8(path):
            raise SourceRefused(Message("{path} is not UTF-8", path=shown(path)))
    check_apart([as_safe_path(path) for path in files])
    for path, status in files.items():
        if stat.S_ISLNK(status.st_mode):
            check_link(PurePosixPath(path), str((source / path).readlink()))
        elif not stat.S_ISREG(status.st_mode):
            raise SourceRefused(Message("{path} is a device or a pipe", path=shown(path)))


def copy_checked(source: Path, target: Path) -> None:
    """Check a folder, then copy it. Modes become 644 and 755: no setuid, no folder that cannot be deleted."""
    check_tree(source)
    target.mkdir(parents=True)
    for path in _files(source):
        copy_file(source / path, target / path)


def copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(source, flags), "rb") as content, target.open("xb") as file:
        shutil.copyfileobj(content, file)
        mode = os.fstat(content.fileno()).st_mode
    target.chmod(0o755 if mode & 0o111 else 0o644)


class Drift(NamedTuple):
    """How a folder differs from its digests."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return not any(self)


def drift_between(wanted: FileDigests, found: FileDigests) -> Drift:
    changed = (path for path in wanted.keys() & found.keys() if wanted[path] != found[path])
    missing, added = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    return Drift(tuple(sorted(changed)), tuple(sorted(missing)), tuple(sorted(added)))


_VERSION = 1
#: Every file of every skill has a line.
_MOST_BYTES = 64 * 1024 * 1024
_HEAD = """\
# Written by skillyard; commit it. `skillyard restore` installs exactly this, `skillyard verify` compares.
version = 1
"""
_TEXTS = ("name", "source", "ref", "commit", "path", "uri", "reviewed", "hash")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NEEDED = frozenset({"name", "source", "hash"})


class InstalledSkill(NamedTuple):
    """One installed skill."""

    #: Its folder below the place.
    folder: str
    #: What its SKILL.md says, and `--skill` takes.
    name: str
    #: As it can be fetched again; without what stands in `ref` and `path`.
    source: str
    #: What was asked for (a branch, a tag); nothing is the source's own default.
    ref: str
    #: What that was when it was fetched, where the source knows such a thing.
    commit: str
    #: Its folder inside the source.
    path: str
    #: The severity that a person kept it in spite of; for people to read, it decides nothing.
    reviewed: str
    hash: str
    files: FileDigests
    #: What an MCP server calls it: with `source` its identity.
    uri: str = ""


class ScannedSkill(NamedTuple):
    """A skill that was checked and scanned: what would be installed, exactly."""

    skill: InstalledSkill
    at: Path
    verdict: ScanVerdict
    is_ours: bool = False
    #: The path inside the source under which an update finds it installed.
    moved_from: str | None = None

    @property
    def reviewed_skill(self) -> InstalledSkill:
        """As the lock records it: with the severity that it is installed in spite of."""
        return self.skill._replace(reviewed=str(self.verdict.severity) if self.verdict.held else "")


def read_lock(file: Path) -> dict[str, InstalledSkill]:
    """The installed skills by their folders."""
    try:
        return parse_lock(read_whole(file, _MOST_BYTES), str(file))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise InvalidArgs(Message("{place}: {reason}", place=file, reason=error)) from None


def parse_lock(text: str, shown: str = "skillyard.lock") -> dict[str, InstalledSkill]:
    """Parse a lock. InvalidArgs, with the place, if it is not what we write."""
    place, found = shown, dict[str, InstalledSkill]()
    try:
        fields = tomllib.loads(text)
        version, skills = fields.get("version"), fields.get("skills", {})
        if version != _VERSION:
            why = Message("version {version!r} is not {known}: another skillyard wrote it", version=version, known=1)
            raise InvalidArgs(why)
        if not isinstance(skills, dict):
            raise InvalidArgs(Message("[skills] must be a table"))
        for folder, table in skills.items():
            place = f"{shown}: [skills.{quoted(folder)}]"
            found[folder] = _installed(folder, table)
    except (tomllib.TOMLDecodeError, RecursionError, SkillError) as error:
        raise InvalidArgs(Message("{place}: {reason}", place=place, reason=error)) from None
    return found


def _installed(folder: str, table: Any) -> InstalledSkill:
    if as_slug(folder) != folder:
        raise InvalidArgs(Message("it is no name of a skill's folder"))
    if not isinstance(table, dict):
        raise InvalidArgs(Message("it must be a table"))
    texts = {key: table.get(key, None if key in _NEEDED else "") for key in _TEXTS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise InvalidArgs(Message("it needs {needed}, as texts", needed=", ".join(sorted(_NEEDED))))
    if texts["path"]:
        as_safe_path(str(texts["path"]))
    files = table.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise InvalidArgs(Message("files must be texts by path"))
    for path in files:
        if str(as_safe_path(path)) != path:
            raise InvalidArgs(Message("{path!r} is no plain path", path=path))
    if tree_hash(files) != texts["hash"]:
        raise InvalidArgs(Message("the hash is not that of its files: a merge may have gone wrong"))
    files = dict(sorted(files.items()))
    return InstalledSkill(folder=folder, files=files, **{key: str(text) for key, text in texts.items()})


def as_text(skills: Mapping[str, InstalledSkill]) -> str:
    """Sorted, one fact on each line, so that branches merge line by line."""
    parts = [_HEAD]
    for folder, skill in sorted(skills.items()):
        fields = skill._asdict()
        lines = [f"{key} = {quoted(fields[key])}" for key in _TEXTS if fields[key] or key in _NEEDED]
        files = [f"{quoted(path)} = {quoted(digest)}" for path, digest in sorted(skill.files.items())]
        header = folder if _BARE.fullmatch(folder) else quoted(folder)
        parts.append("\n".join(["", f"[skills.{header}]", *lines, "", f"[skills.{header}.files]", *files, ""]))
    return "".join(parts)


_JOURNAL = "journal.json"
_HEX = re.compile(r"[0-9a-f]{32}")
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})

#: Swaps two folders in one step; False if it cannot, and then nothing has happened.
FolderSwap: TypeAlias = Callable[[Path, Path], bool]


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step. Return False, with nothing changed, if the system cannot."""
    library, (first, second) = ctypes.CDLL(None, use_errno=True), (os.fsencode(one), os.fsencode(other))
    current_folder, swap = -100, 2  # AT_FDCWD; RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
    try:
        if sys.platform == "linux":
            failed = library.renameat2(current_folder, first, current_folder, second, swap)
        elif sys.platform == "darwin":
            failed = library.renamex_np(first, second, swap)
        else:
            return False
    except AttributeError:  # an older C library
        return False
    code = ctypes.get_errno() if failed else 0
    if code and code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), str(other))
    return not failed


class Target(NamedTuple):
    """One folder of installed skills, its lock file and our state. They change only while it is `open`."""

    skills: Path
    lock_file: Path
    #: Ours: staging, trash, journal. On the same file system as `skills`.
    state: Path
    #: Nothing is written outside of it, whatever links say.
    bounds: Path

    @property
    def is_project(self) -> bool:
        """Whether it belongs to a project, not to the user."""
        return self.state.parent != self.bounds

    @property
    def is_unfinished(self) -> bool:
        return (self.state / _JOURNAL).exists()

    def read_lock(self) -> dict[str, InstalledSkill]:
        return read_lock(self.lock_file)

    def drift_of(self, skill: InstalledSkill) -> Drift:
        path = self.skills / skill.folder
        return drift_between(skill.files, digests_of(path) if path.is_dir() else {})

    @contextmanager
    def open(self, swap: FolderSwap = exchange) -> Iterator[None]:
        """Lock the target; finish and clean up what an earlier process left behind first."""
        ignore, leftovers = self.state.parent / ".gitignore", (self.state / "staging", self.state / "trash")
        # A link in a cloned project must not make us write or clean up elsewhere.
        for path in (self.skills, self.state):
            refuse_links(self.bounds, path)
        for path in (*leftovers, self.state / "lock", ignore):
            if path.is_symlink():
                raise PermissionDenied(Message("{path} is a link, and we never made it: delete it", path=path))
        self.state.mkdir(parents=True, exist_ok=True)
        if self.is_project and not ignore.exists():
            ignore.write_text("*\n", "utf-8")
        with (self.state / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self.is_unfinished:
                self._finish(swap)
            for path in leftovers:
                delete_tree(path)
            for path in (self.state / _JOURNAL, self.lock_file):
                for temporary in path.parent.glob(f".{path.name}.{'[0-9a-f]' * 16}"):  # of `write_below`
                    temporary.unlink(missing_ok=True)
            yield

    def new_staging(self) -> Path:
        folder = self.state / "staging" / uuid4().hex
        folder.parent.mkdir(parents=True, exist_ok=True)
        return folder

    def apply(self, moves: Sequence[tuple[str, Path | None]], lock_text: str, swap: FolderSwap = exchange) -> None:
        """Replace each named folder by the staged one, or remove it; then write the lock file. Call while `open`."""
        self.skills.mkdir(parents=True, exist_ok=True)
        # Do not begin what cannot be finished.
        if self.skills.stat().st_dev != self.state.stat().st_dev:
            why = Message("{skills} and {state} must be on one file system", skills=self.skills, state=self.state)
            raise PermissionDenied(why)
        changed = [folder for name, _ in moves if (folder := self.skills / name).is_dir()]
        for folder in (self.skills, self.lock_file.parent, *changed):
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionDenied(Message("{existing} cannot be written to", existing=folder))
        planned = [[name, staged.name, staged.stat().st_ino] if staged else [name, "", 0] for name, staged in moves]
        journal = {"moves": planned, "lock": lock_text, "id": uuid4().hex}
        write_whole(self.state / _JOURNAL, json.dumps(journal, ensure_ascii=False))
        self._finish(swap)

    def _finish(self, swap: FolderSwap) -> None:
        change, moves, lock_text = _read_journal(self.state / _JOURNAL)
        trash = self.state / "trash"
        trash.mkdir(parents=True, exist_ok=True)
        self.skills.mkdir(parents=True, exist_ok=True)
        for name, staged, inode in moves:
            source = self.state / "staging" / staged if staged else None
            _move(self.skills / name, source, inode, trash / f"{change}-{name}", swap)
        sync(self.skills)
        write_whole(self.lock_file, lock_text)
        (self.state / _JOURNAL).unlink()
        sync(self.state)
        delete_tree(trash)

    def install(self, found: Sequence[ScannedSkill], *, keep: bool = False, theirs: bool = False) -> None:
        """Install all of them, or none. Local edits are never overwritten: InvalidArgs, unless `keep` or `theirs`.

        Files that the user added stay in any case. `keep` leaves edited files as they are, `theirs` replaces them.
        """
        with self.open():
            lock, moves = self.read_lock(), list[tuple[str, Path | None]]()
            for each in found:
                folder, staged = each.skill.folder, self.new_staging()
                if clash := self.find_clash(lock, each.skill, each.moved_from):
                    raise InvalidArgs(clash)
                if each.is_ours and each.at.stat().st_dev == staged.parent.stat().st_dev:
                    each.at.rename(staged)
                else:
                    copy_checked(each.at, staged)
                    if digests_of(staged) != each.skill.files:
                        name = each.skill.name
                        raise SourceRefused(Message("{name} changed while it was being installed", name=name))
                if folder in lock and (self.skills / folder).is_dir():
                    _take_over(each.skill, lock[folder], self.skills / folder, staged, keep=keep, theirs=theirs)
                moves.append((folder, staged))
            self.apply(moves, as_text({**lock, **{each.skill.folder: each.reviewed_skill for each in found}}))

    def find_clash(
        self, lock: Mapping[str, InstalledSkill], skill: InstalledSkill, moved_from: str | None = None
    ) -> Message | None:
        """Why a skill cannot have its folder: another one has it. None if it can."""
        known, path = lock.get(skill.folder), self.skills / skill.folder
        if known is None and os.path.lexists(path):
            return Message("{path} exists, and we did not install it: use --as NAME, or remove it", path=path)
        if known is None or (known.source == skill.source and known.path in {skill.path, moved_from}):
            return None
        source = f"{known.source}/{known.path}" if known.path else known.source
        return Message("{name} comes from {source}: use --as NAME, or remove it", name=skill.folder, source=source)


def project_target(root: Path) -> Target:
    return Target(root / ".claude" / "skills", root / "skillyard.lock", root / ".skillyard" / "install", root)


def global_target(own_home: Path) -> Target:
    return Target(own_home / "skills", own_home / "skillyard.lock", own_home / "install", own_home)


def _read_journal(file: Path) -> tuple[str, list[tuple[str, str, int]], str]:
    """The change's id, for each folder its name, staged folder and inode, and the lock's text.

    A project can come with a journal that we never wrote: no name in it may be a path.
    """
    try:
        fields = json.loads(read_whole(file, _MOST_BYTES))
        moves = [(str(name), str(staged), int(inode)) for name, staged, inode in fields["moves"]]
        change, lock_text = str(fields["id"]), str(fields["lock"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgs(Message("{file} is broken, and not by us: delete it", file=file)) from None
    known = all(as_slug(name) == name and _HEX.fullmatch(staged or change) for name, staged, _ in moves)
    if not known or not _HEX.fullmatch(change):
        raise InvalidArgs(Message("{file} was not written by us: delete it", file=file))
    return change, moves, lock_text


def _move(path: Path, staged: Path | None, inode: int, trash: Path, swap: FolderSwap) -> None:
    """Put the staged folder, if any, in its place and what was there into the trash. Can be repeated after any stop.

    A plain rename cannot replace a folder that holds something, so without `swap` there is a moment with neither.
    """
    if staged is None:
        if os.path.lexists(path) and not os.path.lexists(trash):
            path.rename(trash)
        return
    if os.path.lexists(path):
        if path.lstat().st_ino == inode:
            return  # done before a crash
        if swap(staged, path):
            staged.rename(trash)
            return
        path.rename(trash)
    staged.rename(path)


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Write a file so that there is the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_below(path.parent, path.name, text.encode(), mode=0o600 if mode is not None else 0o666, exact_mode=mode)
    sync(path.parent)


def delete_tree(folder: Path) -> None:
    """Delete a folder, also if modes in it forbid that."""
    if not folder.exists():
        return
    for parent, folders, _ in os.walk(folder):
        for inner in (Path(parent, name) for name in folders):
            if not inner.is_symlink():
                with suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(folder)


def _take_over(
    skill: InstalledSkill, known: InstalledSkill, here: Path, staged: Path, *, keep: bool, theirs: bool
) -> None:
    """Copy the files of the user that stay to the staged folder."""
    found = digests_of(here)
    drift = drift_between(known.files, found)
    edited = [path for path in drift.changed if found[path] != skill.files.get(path)]
    if edited and not keep and not theirs:
        raise InvalidArgs(
            Message(
                "{folder} was changed here: {edited}; `skillyard update {folder}` shows the difference, "
                "--keep keeps yours, --theirs takes the source's",
                folder=skill.folder,
                edited=", ".join(edited[:5]),
            ),
            details={"edited": list(edited)},
        )
    for path in [path for path in drift.added if path not in skill.files] + (edited if keep else []):
        (staged / path).unlink(missing_ok=True)
        copy_file(here / path, staged / path)
