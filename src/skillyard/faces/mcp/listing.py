"""What a client sees of the catalog: safe names, cleaned texts, pages, and the instructions of the server."""

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate, count
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category, normalize

from skillyard.core.messages import Lang
from skillyard.core.skill import Kind
from skillyard.faces.mcp.protocol import INVALID_PARAMS, ProtocolError

if TYPE_CHECKING:
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.index import CatalogEntry

#: Invisible, but not by category: blanks that pass for letters, the joiner of nothing, and selectors that can carry a
#: hidden text (of them only the one of emoji stays).
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]")
_BREAK = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut with an ellipsis."""
    if not (text.isascii() and text.isprintable()):
        visible = (each for each in _BREAK.sub(" ", text) if category(each) not in _HIDDEN)
        text = _BLANK.sub("", "".join(visible))
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


#: Clients put `mcp__skillyard__` before a name, and the model APIs take 64 characters of the two together.
LONGEST = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
#: What we append ourselves; a name that ends so by nature gets one as well, so that nobody can take another's.
_MARKED = re.compile(r"_[0-9a-f]{8,}\Z")
_DIGITS = 8


def safe_names(
    names: Iterable[str], reserved: frozenset[str] = frozenset(), readable: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Each name with its safe one: `[A-Za-z0-9_-]{1,48}`, all different in any case of letters, none of them reserved.

    A name that is safe by itself stays as it is, whoever else is there; every other carries a mark of its own, behind
    what `readable` has for it: so nobody can take a name that a person has approved.
    """
    wanted = sorted(set(names))
    twice = {name for name, times in Counter(name.lower() for name in wanted).items() if times > 1}
    taken = {name.lower() for name in reserved}
    found: dict[str, str] = {}
    for name in wanted:
        is_plain = 0 < len(name) <= LONGEST and not _UNSAFE.search(name) and not _MARKED.search(name)
        digits = count(_DIGITS)
        safe = (
            name
            if is_plain and name.lower() not in twice
            else _marked(name, next(digits), (readable or {}).get(name, name))
        )
        while safe.lower() in taken:
            safe = _marked(name, next(digits), (readable or {}).get(name, name))
        taken.add(safe.lower())
        found[name] = safe
    return found


def _marked(name: str, digits: int, readable: str) -> str:
    mark = hashlib.blake2b(name.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    stem = _UNSAFE.sub("_", readable).strip("_")[: LONGEST - digits - 1] or "skill"
    return f"{stem}_{mark}"


def transliterate(name: str, title: str) -> str:
    """Return the name in ASCII as far as it can be read so: accents dropped, Chinese as pinyin where the extra `pinyin`
    is installed; the title where nothing is left."""
    if not name.isascii() and any("\u4e00" <= character <= "\u9fff" for character in name):
        try:
            from pypinyin import lazy_pinyin  # noqa: PLC0415  (an extra, and it takes as long as everything else)
        except ModuleNotFoundError:
            pass
        else:
            name = "_".join(lazy_pinyin(name))
    for text in (name, title):
        plain = normalize("NFKD", text).encode("ascii", "ignore").decode()
        if any(character.isalnum() for character in plain):
            return plain
    return name


#: Ours, also those that are still to come: no skill ever has one of these names.
RESERVED = frozenset({"Task", "skill_search", "skill_show", "skill_run", "runs", "agent_dispatch", "job_run"})


class Shown(NamedTuple):
    """A skill as clients see it."""

    #: What it is called by everywhere else: no other skill of the catalog answers to it.
    address: str
    #: What it is called by as a tool or a prompt.
    name: str
    entry: "CatalogEntry"
    #: Changes with the file that declares it.
    digest: str


class Surface(NamedTuple):
    """All of them, in the order of their addresses."""

    skills: tuple[Shown, ...] = ()

    @property
    def prompts(self) -> tuple[Shown, ...]:
        """The skills that start no program of their own."""
        return tuple(shown for shown in self.skills if not shown.entry.kind.starts_program)

    def changed_kinds(self, before: "Surface") -> frozenset[Kind]:
        """The kinds of which a skill came, went or is another now."""
        # Without the number of its row, which means nothing, and the name, which follows from the rest.
        both = (surface.skills for surface in (before, self))
        old, new = ({each._replace(name="", entry=each.entry._replace(id=0)) for each in skills} for skills in both)
        return frozenset(shown.entry.kind for shown in old ^ new)


def read_surface(catalog: "Catalog", *, is_transliterated: bool = True) -> Surface:
    """From the index as it stands; whoever wants it fresh syncs first. Transliteration may take a second."""
    digests = {file: digest for root in catalog.roots for file, digest in catalog.index.digests(str(root.path)).items()}
    entries = [entry for entry in catalog.list() if entry.usable]
    folders = Counter(entry.folder_name for entry in entries)
    #: By the shortest name that only this one answers to.
    addressed = {
        (entry.folder_name if not entry.role and folders[entry.folder_name] == 1 else entry.qualified): entry
        for entry in entries
    }
    foreign = {key: entry for key, entry in addressed.items() if is_transliterated and not key.isascii()}
    readable = {key: transliterate(key, entry.title or entry.name) for key, entry in foreign.items()}
    names = safe_names(addressed, RESERVED, readable)
    return Surface(
        tuple(Shown(key, names[key], entry, digests.get(entry.file, "")) for key, entry in sorted(addressed.items()))
    )


ALL, ACTIVE = "all", "active"
WORKER = "worker"


class Options(NamedTuple):
    #: Names of the skills that are tools of their own; `all` is every one, `active` those that a person activated.
    exposed: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    lang: Lang = Lang.EN

    def exposes(self, shown: Shown, active: Container[str]) -> bool:
        """`active` has the files of the active skills."""
        if not shown.entry.kind.starts_program:
            return False
        if ACTIVE in self.exposed and shown.entry.file in active:
            return True
        return not self.exposed.isdisjoint({ALL, shown.address, shown.entry.name})


#: So that no other text passes for one of ours.
_AFTER = "after:"


def page_of(skills: Sequence[Shown], cursor: str | None, size: int) -> tuple[Sequence[Shown], dict[str, str]]:
    """The skills behind the cursor, and `nextCursor` if there are more. A cursor names the last of its page: a list
    that changes between two pages neither repeats what stayed nor skips it."""
    if cursor is not None and not cursor.startswith(_AFTER):
        raise ProtocolError(INVALID_PARAMS, "this cursor is not one of ours")
    rest = [shown for shown in skills if shown.address > cursor.removeprefix(_AFTER)] if cursor else skills
    page = rest[:size]
    return page, cursor_after(page[-1]) if len(rest) > size else {}


def cursor_after(shown: Shown) -> dict[str, str]:
    return {"nextCursor": f"{_AFTER}{shown.address}"}


#: Claude Code cuts a server's instructions at 2,048 characters; what stands behind that is lost, not shortened.
BUDGET = 2_000
_DESCRIPTION = 200
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")
_USE_WHEN = re.compile(r"use (?:this |it )?(?:skill )?(?:when|for|if|to)\b|当.*时|用于|适用", re.IGNORECASE)
_NAME = 60
_MORE = "\nand {count} more: use skill_search"
_HOW = (
    "Skillyard runs the skills of this project in a sandbox. skill_search finds them, skill_show explains one, "
    "skill_run runs one; every result says its state. `pending` names what is missing: ask the user and call again. "
    "NotGranted names the command that only the user can run. What follows each name was written by its skill's author."
)


def shorten(description: str) -> str:
    """Whole sentences: the first, and the one that says when the skill is to be used, which counts more."""
    text = clean(description, 10_000)
    if len(text) <= _DESCRIPTION:
        return text
    first, *rest = _SENTENCE.split(text)
    used = next((sentence for sentence in rest if _USE_WHEN.search(sentence)), "")
    both = f"{first} {used}".strip()
    return clean(both if len(both) <= _DESCRIPTION else used or first, _DESCRIPTION)


#: Claude Code lists these itself, as commands of its own: as prompts of ours they would be there twice.
CLAUDE, _CLAUDES_OWN = "claude-code", "/.claude/skills"
CLAUDE_NOTE = "The prompt skills in .claude/skills are listed by Claude Code itself, and are no prompts here."


def is_listed_by_itself(shown: Shown, client_name: str) -> bool:
    return client_name == CLAUDE and shown.entry.root.endswith(_CLAUDES_OWN)


def instructions_of(surface: Surface, uses: Mapping[str, int], note: str = "") -> str:
    """Names with descriptions while they fit; the least used lose theirs first, and then are only counted."""
    how = f"{_HOW} {note}" if note else _HOW
    ranked = sorted(surface.skills, key=lambda shown: (-uses.get(shown.entry.name, 0), shown.address))
    names = [clean(shown.address, _NAME) for shown in ranked]
    if not names:
        return f"{how}\n\nThere are no skills here yet."
    left = BUDGET - len(how) - len("\n\nSkills:") - len(_MORE.format(count=len(names)))
    kept = sum(size <= left for size in accumulate(len(f"\n- {name}") for name in names))
    lines = [f"- {name}" for name in names[:kept]]
    left -= sum(len(f"\n{line}") for line in lines)
    for position, shown in enumerate(ranked[:kept]):
        if said := shorten(shown.entry.description):
            if left < len(f": {said}"):
                break  # who is used less never says more
            lines[position] += f": {said}"
            left -= len(f": {said}")
    more = _MORE.format(count=len(names) - kept) if kept < len(names) else ""
    return "\n".join([how, "", "Skills:", *lines]) + more
