"""What a client sees of the catalog: every skill once, with the names that it has here."""

from collections.abc import Mapping
from typing import NamedTuple

from skillyard.catalog.catalog import Catalog, qualified
from skillyard.catalog.index import CatalogEntry
from skillyard.core.kinds import Kind
from skillyard.faces.mcp.names import safe_names

#: Ours, also those that are still to come: no skill ever has one of these names.
RESERVED = frozenset({"Task", "skill_search", "skill_show", "skill_run", "runs", "agent_dispatch", "job_run"})
#: The kinds that start a program of their own: those that can be a tool.
RUNNABLE = frozenset({Kind.COMMAND, Kind.JSON})


class Shown(NamedTuple):
    """A skill as clients see it."""

    #: What it is called by everywhere else: no other skill of the catalog answers to it.
    address: str
    #: What it is called by as a tool or a prompt.
    name: str
    entry: CatalogEntry
    #: Changes with the file that declares it.
    digest: str


class Surface(NamedTuple):
    """All of them, in the order of their addresses."""

    skills: tuple[Shown, ...] = ()

    def find(self, address: str) -> Shown | None:
        return next((shown for shown in self.skills if shown.address == address), None)

    def of_kind(self, *kinds: Kind) -> tuple[Shown, ...]:
        return tuple(shown for shown in self.skills if shown.entry.kind in kinds)

    def changed_kinds(self, before: "Surface") -> frozenset[Kind]:
        """The kinds of which a skill came, went or is another now."""
        old, new = (_by_file(surface) for surface in (before, self))
        differing = old.items() ^ new.items()
        return frozenset(shown.entry.kind for _, shown in differing)


def read_surface(catalog: Catalog) -> Surface:
    """From the index as it stands; whoever wants it fresh syncs first."""
    digests = {file: digest for root in catalog.roots for file, digest in catalog.index.digests(str(root.path)).items()}
    addressed = _addressed([entry for entry in catalog.list() if entry.usable])
    names = safe_names(addressed, RESERVED)
    return Surface(
        tuple(Shown(key, names[key], entry, digests.get(entry.file, "")) for key, entry in sorted(addressed.items()))
    )


def _addressed(entries: list[CatalogEntry]) -> Mapping[str, CatalogEntry]:
    """The shortest name that only this one answers to."""
    folders: dict[str, int] = {}
    for entry in entries:
        folders[entry.folder_name] = folders.get(entry.folder_name, 0) + 1
    return {
        (entry.folder_name if not entry.role and folders[entry.folder_name] == 1 else qualified(entry)): entry
        for entry in entries
    }


def _by_file(surface: Surface) -> dict[tuple[str, str], Shown]:
    """Without the number of its row, which means nothing."""
    return {
        (shown.entry.file, shown.address): shown._replace(entry=shown.entry._replace(id=0)) for shown in surface.skills
    }
