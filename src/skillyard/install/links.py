"""What `link` made: links.json, the only truth for it, so that `unlink` takes away exactly that.

A thing is written down here before it is made, and struck out after it is gone: what a crash leaves behind is known.
In a project the file may come with a clone, so everything in it is checked: no name in it can be a path, and no folder
in it is another than those that agents read.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from skillyard.catalog.plainfile import read_whole
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.target import Place, write_whole
from skillyard.install.tree import Marks

VERSION = 1
_MOST_BYTES = 64 * 1024 * 1024
_STAGED = re.compile(r"\.skillyard-[0-9a-f]{32}")


class Ledger(NamedTuple):
    """One scope of links: a project's, or the user's."""

    #: Where the skills of this scope are installed; its lock is ours too.
    place: Place
    file: Path
    #: What relative paths in the record are relative to: the project, or the home folder.
    base: Path
    #: Each agent's own folder, relative to the base; absolute where the user moved it.
    folders: Mapping[str, str]
    #: A project comes from strangers: nothing is written through a link out of it.
    is_project: bool


class Link(NamedTuple):
    """One symlink or copy in an agent's folder."""

    folder: str
    name: str
    #: The agents that it was made for.
    agents: tuple[str, ...]
    #: The skill's own folder, relative to the base where it lies in it.
    source: str
    #: What the symlink says; nothing for a copy.
    to: str = ""
    #: What a copy holds.
    files: Marks = MappingProxyType({})
    #: What it held before, while it is being refreshed.
    before: Marks = MappingProxyType({})
    #: The name beside it of a copy that is on its way in or out.
    staged: str = ""

    @property
    def is_copy(self) -> bool:
        return not self.to

    @property
    def key(self) -> str:
        return f"{self.folder}/{self.name}"


class Record(NamedTuple):
    #: By their path.
    links: Mapping[str, Link] = MappingProxyType({})
    #: Folders that were not there before us.
    made: tuple[str, ...] = ()

    def with_link(self, link: Link) -> "Record":
        return self._replace(links={**self.links, link.key: link})

    def without(self, key: str) -> "Record":
        return self._replace(links={other: link for other, link in self.links.items() if other != key})


def read_record(ledger: Ledger) -> Record:
    """InvalidArgs where it is not what we write."""
    try:
        fields = json.loads(read_whole(ledger.file, _MOST_BYTES))
    except FileNotFoundError:
        return Record()
    except (ValueError, RecursionError):
        raise _broken(ledger) from None
    try:
        if fields["version"] != VERSION:
            raise InvalidArgs(Message("{file}: another skillyard wrote it", file=ledger.file))
        links = [_link(entry) for entry in fields["links"]]
        made = tuple(map(str, fields["made"]))
    except (KeyError, TypeError, AttributeError):
        raise _broken(ledger) from None
    if not all(map(_is_plain, links)) or (ledger.is_project and not _is_within(ledger, links, made)):
        raise _broken(ledger)
    return Record({link.key: link for link in links}, made)


def write_record(ledger: Ledger, record: Record) -> None:
    if not record.links and not record.made:
        ledger.file.unlink(missing_ok=True)
        return
    links = [
        {key: value for key, value in record.links[path]._asdict().items() if value} for path in sorted(record.links)
    ]
    fields = {"version": VERSION, "links": links, "made": list(record.made)}
    write_whole(ledger.file, json.dumps(fields, indent=1) + "\n")


def _broken(ledger: Ledger) -> InvalidArgs:
    return InvalidArgs(Message("{file} was not written by us: look at it, and delete it", file=ledger.file))


def _link(entry: Mapping[str, Any]) -> Link:
    return Link(
        folder=str(entry["folder"]),
        name=str(entry["name"]),
        agents=tuple(map(str, entry["agents"])),
        source=str(entry["source"]),
        to=str(entry.get("to", "")),
        files=_marks(entry.get("files", {})),
        before=_marks(entry.get("before", {})),
        staged=str(entry.get("staged", "")),
    )


def _marks(fields: Mapping[str, Any]) -> Marks:
    return {str(path): str(mark) for path, mark in fields.items()}


def _is_plain(link: Link) -> bool:
    name = link.name
    is_name = "/" not in name and "\0" not in name and name not in {"", ".", ".."}
    return is_name and (not link.staged or bool(_STAGED.fullmatch(link.staged)))


def _is_within(ledger: Ledger, links: list[Link], made: tuple[str, ...]) -> bool:
    known = set(ledger.folders.values())
    above = known | {str(parent) for folder in known for parent in Path(folder).parents} - {"."}
    return all(link.folder in known for link in links) and all(folder in above for folder in made)
