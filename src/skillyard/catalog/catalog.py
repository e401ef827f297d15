"""The skills of all roots: listed, resolved by name, and searched."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from skillyard.catalog.files import is_folder
from skillyard.catalog.index import CatalogEntry, Index, Match
from skillyard.catalog.roots import AGENT_FILE, SkillRoot
from skillyard.catalog.scan import Changes, Progress, scan
from skillyard.catalog.search import snippet
from skillyard.core.errors import AmbiguousName, MetadataMissing, RoleInvalid, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.skill import fold

if TYPE_CHECKING:
    from skillyard.core.skill import Skill

_SNIPPET = 120
#: How many copies of each hit are looked at, at most.
_COPIES = 3
#: What scores less than this share of the best only shares a common word with the query.
_LEAST = 0.25
#: Scores that differ by less are equal: the more used skill comes first.
_EQUAL = 1e-6
#: More rows than the limit are read by this number: stronger roots may hide some.
_MANY = 200
_Named = TypeVar("_Named", CatalogEntry, Match)


class SearchHit(NamedTuple):
    entry: CatalogEntry
    snippet: str


class Catalog:
    """Answers from the index. Call `sync` first: it brings the index up to date, for one `stat` per skill."""

    def __init__(self, roots: Sequence[SkillRoot], index: Index, uses: Callable[[], Mapping[str, int]] = dict) -> None:
        """`uses` returns how often each skill was used, by name; only a search asks for it."""
        self.roots = roots
        self.index = index
        self.uses = uses
        #: The label of each root, by its path.
        self.labels = {str(root.path): root.label for root in roots}
        self._ranks = {str(root.path): root.rank for root in roots}

    def sync(self, progress: Progress | None = None) -> Changes:
        """Scan the roots and return what changed in all of them."""
        scanned = zip(*(scan(self.index, root, progress) for root in self.roots), strict=True)
        return Changes(*(tuple(path for paths in lists for path in paths) for lists in scanned))

    def list(self) -> tuple[CatalogEntry, ...]:
        """Return every skill that a name reaches; those that a stronger root hides are left out."""
        entries = self.index.entries(list(self._ranks))
        return tuple(sorted(self._reachable(entries, entries), key=lambda entry: (fold(entry.name), entry.file)))

    def candidates(self, name: str) -> tuple[CatalogEntry, ...]:
        """Return everything that has this name, strongest first."""
        role, _, plain = name.rpartition("/")
        if not plain.strip():
            return ()  # else every skill without a title would have the empty name
        found = self.index.named(list(self._ranks), plain)
        if role:
            ending = f"/{role}/{plain}"
            found = [entry for entry in found if entry.role == role or f"/{entry.qualified}".endswith(ending)]
        return tuple(sorted(found, key=lambda entry: (self._ranks[entry.root], entry.file, entry.name)))

    def choose(self, name: str) -> CatalogEntry:
        """Return the entry by folder name, else skill name, else title, in the strongest root that has it.

        A link to another skill of the roots gives that skill: a link adds no second one.
        """
        found = self.candidates(name)
        last = name.rpartition("/")[2]
        for matches in (
            [entry for entry in found if entry.folder_name == last],
            [entry for entry in found if entry.name == last],
            found,
        ):
            strongest = [entry for entry in matches if entry.root == matches[0].root]
            if len(strongest) == 1 and strongest[0].folder.is_symlink():
                plain = (entry for entry in found if not entry.folder.is_symlink())
                real = strongest[0].folder.resolve()
                return next((entry for entry in plain if entry.folder.resolve() == real), strongest[0])
            if len(strongest) == 1:
                return strongest[0]
            if strongest:
                raise AmbiguousName(name, tuple(entry.qualified for entry in strongest))
        self._refuse_broken_role(name.rpartition("/")[0])
        if folder := self._empty_folder(name):
            raise MetadataMissing(Message("{folder} holds no SKILL.md", folder=folder))
        raise SkillNotFound(name, self.nearest(name))

    def _empty_folder(self, name: str) -> str:
        """Return the folder of this name in a root that holds neither a SKILL.md nor skills below it, or ""."""
        if not name or "/" in name or name in {".", ".."} or "\0" in name:
            return ""
        for root in self.roots:
            folder = root.path / name
            if not root.roles and is_folder(folder):
                below = f"{folder}/"
                is_collection = any(file.startswith(below) for file in self.index.known_files(str(root.path)))
                return "" if is_collection else str(folder)
        return ""

    def resolve_in(self, role: str, name: str) -> "Skill":
        """Return a skill of exactly this role, whatever else has its name."""
        for entry in self.index.named(list(self._ranks), name):
            if entry.role == role and entry.name == name:
                return self._read(entry)
        self._refuse_broken_role(role)
        same = tuple(entry.qualified for entry in self.list() if entry.role and entry.name == name)
        raise SkillNotFound(f"{role}/{name}", same or self.nearest(f"{role}/{name}"))

    def _refuse_broken_role(self, role: str) -> None:
        """Raise RoleInvalid if skills of the role cannot be read, so that nobody looks for them elsewhere."""
        files = (root.path / role / AGENT_FILE for root in self.roots if root.roles and role and "/" not in role)
        for file in files:
            if file.is_file():
                from skillyard.catalog.agentfile import read_role  # noqa: PLC0415  (only for a name that is not there)

                if unread := read_role(file).unread:
                    raise RoleInvalid(unread)

    def resolve(self, name: str) -> "Skill":
        return self._read(self.choose(name))

    def _read(self, entry: CatalogEntry) -> "Skill":
        skill = self.index.find_skill(entry)
        if skill is None:
            raise LookupError(f"{entry.file} is no longer in the index")
        if not entry.usable:
            reason = skill.findings[0].message if skill.findings else "unreadable"
            raise MetadataMissing(Message("{place}: {reason}", place=entry.file, reason=reason))
        return skill

    def knows(self, name: str) -> bool:
        return bool(self.candidates(name))

    def nearest(self, name: str) -> tuple[str, ...]:
        """Return up to three names like this one; for a role that exists, names of its skills."""
        from difflib import get_close_matches  # noqa: PLC0415  (only an unknown name needs it)

        entries = self.list()
        role = name.partition("/")[0] if "/" in name else ""
        if own := [f"{role}/{entry.name}" for entry in entries if role and entry.role == role]:
            return tuple(get_close_matches(name, own, n=3, cutoff=0.0))
        names = {fold(known): known for entry in entries for known in (entry.folder_name, entry.name)}
        close = get_close_matches(fold(name), names, n=3, cutoff=0.6)
        return tuple(dict.fromkeys(names[match] for match in close))

    def search(self, query: str, limit: int = 20) -> tuple[SearchHit, ...]:
        """Return the best first: whoever has exactly this name, then by the words; of equals the more used."""
        scores = self.index.score(query)
        if not scores:
            return ()
        ranked_scores = sorted(scores.values(), reverse=True)
        least = max(_LEAST * ranked_scores[0], ranked_scores[: _MANY + limit][-1] - _EQUAL)
        roots = self.index.populated(list(self._ranks))
        wanted = fold(query).strip()
        names = {wanted, wanted.replace(" ", "-")}
        found = self.index.matches(roots, [number for number, points in scores.items() if points >= least], names)
        if len(roots) > 1:  # else no root can hide another's skills
            found = list(self._reachable(found, self.index.matches(roots, (), {match.folder_name for match in found})))
        uses = self.uses()

        def rank(match: Match) -> tuple[bool, int, int, Match]:
            points = round(scores.get(match.id, 0.0) / _EQUAL)
            return names.isdisjoint(match.folded.split("\n")), -points, -uses.get(match.name, 0), match

        best = self.index.numbered([match.id for match in sorted(found, key=rank)[: _COPIES * limit]])
        # Collections hold copies of each other's skills; one of them is enough to choose from.
        single = {(entry.name, entry.description): entry for entry in reversed(best)}
        shown = [entry for entry in best if single[entry.name, entry.description] is entry][:limit]
        return tuple(SearchHit(entry, snippet(entry.description, query, _SNIPPET)) for entry in shown)

    def _reachable(self, entries: Sequence[_Named], rivals: Sequence[CatalogEntry | Match]) -> Iterator[_Named]:
        """Return the entries that no rival of the same folder name in a stronger root hides."""
        strongest: dict[tuple[str, str], int] = {}
        for rival in rivals:
            name, rank = (rival.role, rival.folder_name), self._ranks[rival.root]
            if rank < strongest.get(name, rank + 1):
                strongest[name] = rank
        return (entry for entry in entries if strongest[entry.role, entry.folder_name] == self._ranks[entry.root])
