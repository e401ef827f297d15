"""links.json: what `link` made, for a project or for the user, so that `unlink` removes exactly that.

In a project the file may come with a clone, so everything in it is checked: no name in it can be a path, and every
folder in it must be one that agents read.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from skillyard.catalog.explain import list_agent_paths
from skillyard.catalog.files import read_whole
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.target import Target, write_whole
from skillyard.install.tree import FileDigests

VERSION = 1
_MOST_BYTES = 64 * 1024 * 1024
_STAGED = re.compile(r"\.skillyard-[0-9a-f]{32}")


class LinkScope(NamedTuple):
    """One scope of links: a project's, or the user's."""

    #: Where the skills of this scope are installed; its lock guards the links too.
    target: Target
    file: Path
    #: What relative paths in the record are relative to: the project, or the home folder.
    base: Path
    #: Each agent's own folder, relative to the base; absolute where the user moved it.
    folders: Mapping[str, str]
    #: A project comes from strangers: nothing is written through a link out of it.
    is_project: bool


def link_scope(target: Target, user_home: Path, env: Mapping[str, str] = os.environ) -> LinkScope:
    """The links that follow what is installed in this target."""
    lookers, root = list_agent_paths(env), target.bounds
    if target.is_project:
        folders = {looker.agent: looker.project[-1] for looker in lookers}
        return LinkScope(target, root / ".skillyard" / "links.json", root, folders, is_project=True)
    folders = {looker.agent: looker.user[-1] for looker in lookers}
    return LinkScope(target, root / "links.json", user_home, folders, is_project=False)


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
    files: FileDigests = MappingProxyType({})
    #: What it held before, while it is being refreshed.
    before: FileDigests = MappingProxyType({})
    #: The name beside it of a copy that is on its way in or out.
    staged: str = ""

    @property
    def is_copy(self) -> bool:
        return not self.to

    @property
    def key(self) -> str:
        return f"{self.folder}/{self.name}"


class LinkRecord(NamedTuple):
    #: By their path.
    links: Mapping[str, Link] = MappingProxyType({})
    #: Folders that were not there before us.
    made: tuple[str, ...] = ()

    def with_link(self, link: Link) -> "LinkRecord":
        return self._replace(links={**self.links, link.key: link})

    def without(self, key: str) -> "LinkRecord":
        return self._replace(links={other: link for other, link in self.links.items() if other != key})


def path_of(scope: LinkScope, link: Link) -> Path:
    return scope.base / link.folder / link.name


def read_record(scope: LinkScope) -> LinkRecord:
    """Read links.json. InvalidArgs if it is not what we write."""
    try:
        fields = json.loads(read_whole(scope.file, _MOST_BYTES))
    except FileNotFoundError:
        return LinkRecord()
    except (ValueError, RecursionError):
        raise _broken(scope) from None
    try:
        if fields["version"] != VERSION:
            raise InvalidArgs(Message("{file}: another skillyard wrote it", file=scope.file))
        links = [_link(entry) for entry in fields["links"]]
        made = tuple(map(str, fields["made"]))
    except (KeyError, TypeError, AttributeError):
        raise _broken(scope) from None
    if not all(map(_is_plain, links)) or (scope.is_project and not _is_within(scope, links, made)):
        raise _broken(scope)
    return LinkRecord({link.key: link for link in links}, made)


def write_record(scope: LinkScope, record: LinkRecord) -> None:
    if not record.links and not record.made:
        scope.file.unlink(missing_ok=True)
        return
    links = [
        {key: value for key, value in record.links[path]._asdict().items() if value} for path in sorted(record.links)
    ]
    fields = {"version": VERSION, "links": links, "made": list(record.made)}
    write_whole(scope.file, json.dumps(fields, indent=1) + "\n")


def _broken(scope: LinkScope) -> InvalidArgs:
    return InvalidArgs(Message("{file} was not written by us: look at it, and delete it", file=scope.file))


def _link(entry: Mapping[str, Any]) -> Link:
    return Link(
        folder=str(entry["folder"]),
        name=str(entry["name"]),
        agents=tuple(map(str, entry["agents"])),
        source=str(entry["source"]),
        to=str(entry.get("to", "")),
        files=_digests(entry.get("files", {})),
        before=_digests(entry.get("before", {})),
        staged=str(entry.get("staged", "")),
    )


def _digests(fields: Mapping[str, Any]) -> FileDigests:
    return {str(path): str(digest) for path, digest in fields.items()}


def _is_plain(link: Link) -> bool:
    name = link.name
    is_name = "/" not in name and "\0" not in name and name not in {"", ".", ".."}
    return is_name and (not link.staged or bool(_STAGED.fullmatch(link.staged)))


def _is_within(scope: LinkScope, links: list[Link], made: tuple[str, ...]) -> bool:
    known = set(scope.folders.values())
    above = known | {str(parent) for folder in known for parent in Path(folder).parents} - {"."}
    return all(link.folder in known for link in links) and all(folder in above for folder in made)
