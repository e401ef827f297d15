"""Names that come from outside: relative paths that are one file on every system, and slugs for folders. Pure."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from skillyard.core.errors import InvalidArgs, SourceRefused
from skillyard.core.messages import Message

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 1024
#: Windows takes these for devices, whatever their ending; the small digits too.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[\d¹²³]|lpt[\d¹²³])(?:\..*)?", re.IGNORECASE)
_WINDOWS = re.compile(r'[<>:"|?*\\]')
_SHOWN = 80


def as_safe_path(name: str) -> PurePosixPath:
    """Return the path. SourceRefused if it is absolute, leads upwards, or means something else on Windows."""
    if not name or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise SourceRefused(Message("{name} is no relative path", name=shown(name)))
    if not _is_text(name):
        raise SourceRefused(Message("{name} holds characters that no file name should", name=shown(name)))
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if not parts:
        raise SourceRefused(Message("{name} names no file", name=shown(name)))
    for part in parts:
        _check_part(part, name)
    if len("/".join(parts).encode()) > MAX_PATH_BYTES:
        raise SourceRefused(
            Message("{name} is longer than {max_path_bytes} bytes", name=shown(name), max_path_bytes=MAX_PATH_BYTES)
        )
    return PurePosixPath(*parts)


def _is_text(name: str) -> bool:
    """No control characters and no surrogates; joiners of emoji are allowed."""
    return not any(unicodedata.category(letter) in {"Cc", "Cs"} or letter in "\u2028\u2029" for letter in name)


def _check_part(part: str, name: str) -> None:
    if part == "..":
        raise SourceRefused(Message("{name} leads out of its folder", name=shown(name)))
    if _WINDOWS.search(part) or part.endswith((".", " ")) or _DEVICES.fullmatch(part):
        raise SourceRefused(Message("{name} is another file, or none, on Windows", name=shown(name)))
    if len(part.encode()) > MAX_PART_BYTES:
        raise SourceRefused(
            Message(
                "{name} has a part longer than {max_part_bytes} bytes", name=shown(name), max_part_bytes=MAX_PART_BYTES
            )
        )


def check_apart(files: Iterable[PurePosixPath], folders: Iterable[PurePosixPath] = ()) -> None:
    """SourceRefused if two are one file on some system, or a file is where a folder must be."""
    seen: dict[str, PurePosixPath] = {}
    inner: dict[str, PurePosixPath] = {}
    for path in files:
        if (other := seen.setdefault(_folded(path), path)) is not path:
            raise SourceRefused(
                Message(
                    "{path} and {other} are one file on some systems", path=shown(str(path)), other=shown(str(other))
                )
            )
        _note_parents(path.parents, inner)
    for folder in folders:
        _note_parents((folder, *folder.parents), inner)
    if clash := seen.keys() & inner.keys():
        raise SourceRefused(Message("{seen} is a file and a folder at once", seen=shown(str(seen[min(clash)]))))


def _note_parents(folders: Iterable[PurePosixPath], inner: dict[str, PurePosixPath]) -> None:
    for folder in folders:
        if str(folder) == ".":
            continue
        other = inner.setdefault(_folded(folder), folder)
        if other != folder:
            raise SourceRefused(
                Message(
                    "{folder} and {other} are one folder on some systems",
                    folder=shown(str(folder)),
                    other=shown(str(other)),
                )
            )


def link_stays_inside(link: PurePosixPath, target: str) -> bool:
    """Whether a symbolic link at this path leads to another path of the same folder.

    Upward steps stand first or not at all: after a name they could start from wherever another link leads.
    """
    if not target or target.startswith(("/", "\\")) or not _is_text(target) or _WINDOWS.search(target):
        return False
    parts = [part for part in target.split("/") if part not in {"", "."}]
    ups = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= len(link.parts) - 1 and ".." not in parts[ups:]


def _folded(path: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", str(path)).casefold())


def shown(name: str) -> str:
    """Quote a name on one line, shortened to a line."""
    text = ascii(name)[1:-1] if not name.isprintable() else name
    return f"'{text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}'"


MAX_CHARACTERS = 64
#: A file name has at most 255 bytes, and the files inside are named after the folder.
MAX_BYTES = 200
#: Windows takes these for devices, whatever their ending.
_DEVICE_SLUGS = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0000-\U000e01ef]")


def as_slug(name: str) -> str:
    """A folder name: small letters, digits and single hyphens. Other scripts stay if ASCII has no letters for them."""
    folded = unicodedata.normalize("NFKD", name).lower()
    plain = "".join(c for c in folded if not unicodedata.combining(c))
    is_latin = all(c.isascii() for c in plain if c.isalnum())
    whole = plain if is_latin else unicodedata.normalize("NFKC", _VARIATIONS.sub("", name)).lower()
    slug = _cut("-".join(_slug_words(unicodedata.normalize("NFC", whole))))
    if not slug:
        raise InvalidArgs(Message("{name!r} holds no letter and no digit to name a folder with", name=name))
    return f"{slug}-skill" if _DEVICE_SLUGS.fullmatch(slug) else slug


def _slug_words(text: str) -> list[str]:
    """Letters, digits, and the marks that some scripts spell with; a word starts with no mark."""
    kept = "".join(c if c.isalnum() or unicodedata.category(c) in {"Mn", "Mc"} else " " for c in text)
    return [word for word in (_without_marks(word) for word in kept.split()) if word]


def _without_marks(word: str) -> str:
    return word if not word or word[0].isalnum() else _without_marks(word[1:])


def _cut(slug: str) -> str:
    cut = slug[:MAX_CHARACTERS]
    while len(cut.encode()) > MAX_BYTES:
        cut = cut[:-1]
    return cut.rstrip("-")
