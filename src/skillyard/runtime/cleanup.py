"""Cleans up where a run could write: links that lead out are removed, setuid bits cleared, at every sandbox level.

Without a sandbox too: later runs, and the person, work in mybox/ and rely on it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from skillyard.runners.leftovers import Known, Leftovers, clean, clean_file, find_known
from skillyard.trust.path_rules import BOX

#: What was in each folder beside mybox/ before the run.
Looked: TypeAlias = dict[Path, Known]


class Cleanup(NamedTuple):
    """All paths are resolved. mybox/ belongs to the runs; in other places what was there before stays."""

    root: Path
    elsewhere: tuple[Path, ...] = ()

    def before(self) -> Looked:
        return {place: find_known(place) for place in self.elsewhere if place.is_dir()}

    def after(self, looked: Looked) -> Leftovers:
        box = clean(self.root / BOX, BOX)
        links, cleared = [*box.removed_links], [*box.cleared_setuid]
        for place in self.elsewhere:
            shown = place.relative_to(self.root).as_posix() if place.is_relative_to(self.root) else str(place)
            if place in looked:
                more = clean(place, shown, looked[place])
                links += more.removed_links
                cleared += more.cleared_setuid
            else:
                cleared += clean_file(place, shown)
        return Leftovers(box.files, tuple(links), tuple(cleared))


def cleanup_of(root: Path, write: Sequence[Path]) -> Cleanup:
    """For a run in this project that may write these places."""
    real = root.resolve()
    return Cleanup(real, tuple(path for path in write if not path.is_relative_to(real / BOX)))
