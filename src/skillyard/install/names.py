"""Names that come from outside: relative paths that are one file on every system, slugs, literals. Pure."""

import re
import unicodedata
from collections.abc import Iterable
from itertools import dropwhile
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
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if not name or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        why = Message("{name} is no relative path", name=shown(name))
    elif not _is_text(name):
        why = Message("{name} holds characters that no file name should", name=shown(name))
    elif not parts:
        why = Message("{name} names no file", name=shown(name))
    elif ".." in parts:
        why = Message("{name} leads out of its folder", name=shown(name))
    elif any(_WINDOWS.search(part) or part.endswith((".", " ")) or _DEVICES.fullmatch(part) for part in parts):
        why = Message("{name} is another file, or none, on Windows", name=shown(name))
    elif any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        why = Message("{name} has a part longer than {most} bytes", name=shown(name), most=MAX_PART_BYTES)
    elif len("/".join(parts).encode()) > MAX_PATH_BYTES:
        why = Message("{name} is longer than {most} bytes", name=shown(name), most=MAX_PATH_BYTES)
    else:
        return PurePosixPath(*parts)
    raise SourceRefused(why)


def _is_text(name: str) -> bool:
    """No control characters and no surrogates; joiners of emoji are allowed."""
    return not any(unicodedata.category(letter) in {"Cc", "Cs"} or letter in "\u2028\u2029" for letter in name)


def check_apart(files: Iterable[PurePosixPath], folders: Iterable[PurePosixPath] = ()) -> None:
    """SourceRefused if two are one file on some system, or a file is where a folder must be."""
    seen: dict[str, PurePosixPath] = {}
    inner: dict[str, PurePosixPath] = {}
    above = list(folders)
    for path in files:
        if (other := seen.setdefault(_folded(path), path)) is not path:
            one, two = shown(str(path)), shown(str(other))
            raise SourceRefused(Message("{one} and {two} are one file on some systems", one=one, two=two))
        above.append(path.parent)
    for folder in dict.fromkeys(each for lowest in above for each in (lowest, *lowest.parents)):
        if (other := inner.setdefault(_folded(folder), folder)) != folder:
            one, two = shown(str(folder)), shown(str(other))
            raise SourceRefused(Message("{one} and {two} are one folder on some systems", one=one, two=two))
    if clash := seen.keys() & inner.keys():
        raise SourceRefused(Message("{path} is a file and a folder at once", path=shown(str(seen[min(clash)]))))


def check_link(link: PurePosixPath, target: str) -> None:
    """SourceRefused if a symbolic link at this path leads out of the folder."""
    if not link_stays_inside(link, target):
        path = shown(str(link))
        raise SourceRefused(Message("{path} is a link that leads out, to {link}", path=path, link=shown(target)))


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


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """A literal of Python, YAML and TOML, which know the same escapes."""
    return f'"{escaped(text)}"'


def escaped(text: str, wide: str = "\\U{:08x}") -> str:
    """Unprintable characters are written as escapes, so that nothing in the file looks other than it is."""
    return "".join(
        _ESCAPES.get(c) or (c if c.isprintable() else ("\\u{:04x}" if c <= "\uffff" else wide).format(ord(c)))
        for c in text
    )


MAX_CHARACTERS = 64
#: A file name has at most 255 bytes, and the files inside are named after the folder.
MAX_BYTES = 200
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0000-\U000e01ef]")


def as_slug(name: str) -> str:
    """A folder name: small letters, digits and single hyphens. Other scripts stay if ASCII has no letters for them."""
    folded = unicodedata.normalize("NFKD", name).lower()
    plain = "".join(c for c in folded if not unicodedata.combining(c))
    is_latin = all(c.isascii() for c in plain if c.isalnum())
    whole = plain if is_latin else unicodedata.normalize("NFKC", _VARIATIONS.sub("", name)).lower()
    text = unicodedata.normalize("NFC", whole)
    # Letters, digits, and the marks that some scripts spell with; a word starts with no mark.
    kept = "".join(c if c.isalnum() or unicodedata.category(c) in {"Mn", "Mc"} else " " for c in text)
    words = ("".join(dropwhile(lambda c: not c.isalnum(), word)) for word in kept.split())
    slug = "-".join(filter(None, words))[:MAX_CHARACTERS]
    slug = slug.encode()[:MAX_BYTES].decode(errors="ignore").rstrip("-")
    if not slug:
        raise InvalidArgs(Message("{name!r} holds no letter and no digit to name a folder with", name=name))
    return f"{slug}-skill" if _DEVICES.fullmatch(slug) else slug
