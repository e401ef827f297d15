"""The roles of a project: found, told and made."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.agentfile import AGENT_FILE, SCHEMA_FILE, Role, list_roles, read_role
from skillyard.catalog.roots import ROLES_FOLDER
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from skillyard.core.messages import Lang
    from skillyard.install.role_template import RoleDraft


_LISTED = Message("`skillyard role` lists them")
_MAKE_ONE = Message("`skillyard role new NAME` makes one")


class Made(NamedTuple):
    draft: "RoleDraft"
    #: Relative to the project.
    folder: str
    files: tuple[str, ...]


def roles_of(root: Path) -> tuple[Role, ...]:
    return list_roles(root / ROLES_FOLDER)


def find_role(root: Path, name: str) -> Role:
    """A role by its name, or by the path of its folder or file; InvalidArgs with the nearest names."""
    file = root / ROLES_FOLDER / name / AGENT_FILE
    if "/" not in name and name not in {"", ".", ".."} and file.is_file():
        return read_role(file)
    path = Path(name)
    if ("/" in name or name.startswith(".")) and (path.is_file() or (path / AGENT_FILE).is_file()):
        return read_role(path.absolute())
    from difflib import get_close_matches

    known = [role.name for role in roles_of(root)]
    near = get_close_matches(name, known, n=3)
    told = (
        f"nearest: {', '.join(near)}"
        if near
        else Message("there are {known}", known=", ".join(known[:20]) or Message("none"))
    )
    advice = _LISTED if known else _MAKE_ONE
    raise InvalidArgs(
        Message("no role {name!r} in {roles_folder}/; {told}", name=name, roles_folder=ROLES_FOLDER, told=told),
        details={"nearest": list(near)},
        advice=advice,
    )


def make_role(root: Path, name: str, *, description: str, skill: str, lang: "Lang") -> Made:
    """Write a new role, whole or not at all, and the schema for editors where it is not there yet."""
    from uuid import uuid4

    from skillyard.catalog.dirfd import write_below
    from skillyard.install.create import create
    from skillyard.install.role_template import as_role_files, make_role_draft

    draft = make_role_draft(name, str(uuid4()), description=description, skill=skill, lang=lang)
    files = as_role_files(draft)
    agents = root / ROLES_FOLDER
    create(root, agents / draft.slug, files)
    schema = agents / SCHEMA_FILE.name
    if not schema.exists() and not schema.is_symlink():
        write_below(root, f"{ROLES_FOLDER}/{SCHEMA_FILE.name}", SCHEMA_FILE.read_bytes())
    return Made(draft, f"{ROLES_FOLDER}/{draft.slug}", tuple(files))
