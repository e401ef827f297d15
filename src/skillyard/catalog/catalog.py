"""What exists: the skills of all roots, listed, resolved and searched."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from skillyard.catalog.fts_tokens import as_query, fold
from skillyard.catalog.index import Claim, Entry, Index, Match
from skillyard.catalog.roots import Root
from skillyard.catalog.scan import Changes, Progress, scan
from skillyard.core.errors import AmbiguousName, MetadataMissing, SkillNotFound
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from skillyard.core.skill import Skill

_SNIPPET = 120
_Named = TypeVar("_Named", Entry, Match)


class Hit(NamedTuple):
    entry: Entry
    snippet: str


class Catalog:
    """Answers from the index; `sync` first brings it up to date, which costs a stat for each skill."""

    def __init__(self, roots: Sequence[Root], index: Index, uses: Callable[[], Mapping[str, int]] = dict) -> None:
        """`uses` tells how often each skill name was used; a function, because most answers never ask."""
        self.roots = roots
        self.index = index
        self.uses = uses
        #: How people call each root.
        self.labels = {str(root.path): root.label for root in roots}

    def sync(self, progress: Progress | None = None) -> Changes:
        """Read the folders; what changed, over all roots."""
        changes = [scan(self.index, root, progress) for root in self.roots]
        return Changes(
            added=tuple(path for change in changes for path in change.added),
            updated=tuple(path for change in changes for path in change.updated),
            removed=tuple(path for change in changes for path in change.removed),
            left_out=tuple(path for change in changes for path in change.left_out),
        )

    def list(self) -> tuple[Entry, ...]:
        """Every skill that a name would reach; those shadowed by a stronger root are left out."""
        entries = self.index.entries(self._names())
        return tuple(sorted(self._reachable(entries, entries), key=lambda entry: (fold(entry.name), entry.file)))

    def candidates(self, name: str) -> tuple[Entry, ...]:
        """Everything that answers to the name, strongest first."""
        role, _, plain = name.rpartition("/")
        if not plain.strip():
            return ()  # a skill without a title does not answer to nothing
        found = self.index.named(self._names(), plain)
        if role:
            ending = f"/{role}/{plain}"
            found = [entry for entry in found if entry.role == role or f"/{qualified(entry)}".endswith(ending)]
        return self._ordered(found)

    def choose(self, name: str) -> Entry:
        """Folder name, else skill name, else title; in the strongest root that has it.

        Where that is a link to another skill of the roots, it is that one: a link adds no second skill.
        """
        found = self.candidates(name)
        plain = name.rpartition("/")[2]
        for matches in (
            [entry for entry in found if entry.folder_name == plain],
            [entry for entry in found if entry.name == plain],
            list(found),
        ):
            strongest = [entry for entry in matches if entry.root == matches[0].root]
            if len(strongest) == 1:
                return _itself(strongest[0], found) if len(found) > 1 else strongest[0]
            if strongest:
                raise AmbiguousName(name, tuple(qualified(entry) for entry in strongest))
        raise SkillNotFound(name, self.nearest(name))

    def resolve_in(self, role: str, name: str) -> "Skill":
        """A skill of exactly this role, whatever else has its name."""
        for entry in self.index.named(self._names(), name):
            if entry.role == role and entry.name == name:
                return self._read(entry)
        same = tuple(qualified(entry) for entry in self.list() if entry.role and entry.name == name)
        raise SkillNotFound(f"{role}/{name}", same or self.nearest(f"{role}/{name}"))

    def resolve(self, name: str) -> "Skill":
        return self._read(self.choose(name))

    def _read(self, entry: Entry) -> "Skill":
        skill = self.index.skill(entry)
        if not entry.usable:
            reason = skill.findings[0].message if skill.findings else "unreadable"
            raise MetadataMissing(Message("{place}: {reason}", place=entry.file, reason=reason))
        return skill

    def knows(self, name: str) -> bool:
        return bool(self.candidates(name))

    def nearest(self, name: str) -> tuple[str, ...]:
        from difflib import get_close_matches  # noqa: PLC0415  (only a name that nobody has needs it)

        entries = self.list()
        role = name.partition("/")[0] if "/" in name else ""
        if own := [f"{role}/{entry.name}" for entry in entries if role and entry.role == role]:
            return tuple(get_close_matches(name, own, n=3, cutoff=0.0))  # what it has, however far from what was asked
        names = {fold(known): known for entry in entries for known in (entry.folder_name, entry.name)}
        close = get_close_matches(fold(name), names, n=3, cutoff=0.6)
        return tuple(dict.fromkeys(names[match] for match in close))

    def search(self, query: str, limit: int = 20) -> tuple[Hit, ...]:
        """Best first: exact name, prefix, part of the name, description, tags; then by use."""
        wanted = fold(query).strip()
        words = as_query(query)
        if not words:
            return ()
        roots = self.index.populated(self._names())
        found = self.index.matching(roots, words, wanted)
        if len(roots) > 1:  # else nobody can be hidden by a stronger root
            found = list(self._reachable(found, self.index.claims(roots, [match.folder_name for match in found])))
        uses = self.uses()
        ranked = sorted(
            (_tier(match, wanted), -uses.get(match.name, 0), match.rank, match.name, match.id) for match in found
        )
        best = self.index.numbered([item[-1] for item in ranked[:limit]])
        return tuple(Hit(entry=entry, snippet=_snippet(entry, wanted)) for entry in best)

    def _reachable(self, entries: Sequence[_Named], rivals: Sequence[Claim | Entry]) -> Iterator[_Named]:
        """Those that no rival of the same folder name in a stronger root hides."""
        ranks = {str(root.path): root.rank for root in self.roots}
        strongest: dict[tuple[str, str], int] = {}
        for rival in rivals:
            name, rank = (rival.role, rival.folder_name), ranks[rival.root]
            if rank < strongest.get(name, rank + 1):
                strongest[name] = rank
        return (entry for entry in entries if strongest[entry.role, entry.folder_name] == ranks[entry.root])

    def _names(self) -> Sequence[str]:
        return [str(root.path) for root in self.roots]

    def _ordered(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        ranks = {str(root.path): root.rank for root in self.roots}
        return tuple(sorted(entries, key=lambda entry: (ranks[entry.root], entry.file, entry.name)))


def _itself(entry: Entry, found: Sequence[Entry]) -> Entry:
    if not entry.folder.is_symlink():
        return entry
    real = entry.folder.resolve()
    others = (other for other in found if not other.folder.is_symlink() and other.folder.resolve() == real)
    return next(others, entry)


def qualified(entry: Entry) -> str:
    """A name that only this entry of its root answers to."""
    if entry.role:
        return f"{entry.role}/{entry.name}"
    return str(Path(entry.file).parent.relative_to(entry.root))


def _tier(match: Match, wanted: str) -> int:
    names = [name for name in match.folded.split("\n") if name]
    if wanted in names:
        return 0
    if any(name.startswith(wanted) for name in names):
        return 1
    if any(wanted in name for name in names):
        return 2
    return 3 if any(word in fold(match.description) for word in wanted.split()) else 4


def _snippet(entry: Entry, wanted: str) -> str:
    text = " ".join(entry.description.split())
    position = max(0, text.lower().find(wanted.split(maxsplit=1)[0]))
    start = max(0, min(position - 40, len(text) - _SNIPPET))
    return ("…" if start else "") + text[start : start + _SNIPPET] + ("…" if start + _SNIPPET < len(text) else "")
