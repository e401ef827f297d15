"""Names that every client and every model API takes, for skills and params of any name."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

#: Clients put `mcp__skillyard__` before a name, and the model APIs take 64 characters of the two together.
LONGEST = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
#: What we append ourselves; a name that ends so by nature gets one as well, so that nobody can take another's.
_MARKED = re.compile(r"_[0-9a-f]{8,}\Z")
_DIGITS = 8


def safe_names(names: Iterable[str], reserved: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """Each name with its safe one: `[A-Za-z0-9_-]{1,48}`, all different in any case of letters, none of them reserved.

    A name that is safe by itself stays as it is, whoever else is there; every other carries a mark of its own.
    """
    wanted = sorted(set(names))
    twice = {name for name, count in Counter(name.lower() for name in wanted).items() if count > 1}
    taken = {name.lower() for name in reserved}
    found: dict[str, str] = {}
    for name in wanted:
        safe = name if _is_plain(name) and name.lower() not in twice | taken else _marked(name, _DIGITS)
        digits = _DIGITS
        while safe.lower() in taken:
            digits += 1
            safe = _marked(name, digits)
        taken.add(safe.lower())
        found[name] = safe
    return found


def _is_plain(name: str) -> bool:
    return 0 < len(name) <= LONGEST and not _UNSAFE.search(name) and not _MARKED.search(name)


def _marked(name: str, digits: int) -> str:
    mark = hashlib.blake2b(name.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    stem = _UNSAFE.sub("_", name).strip("_")[: LONGEST - digits - 1] or "skill"
    return f"{stem}_{mark}"
