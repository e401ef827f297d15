"""Writes new roles: the files of agents/<role>, with a skill that works at once. Finds existing ones."""

from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import NamedTuple
from uuid import uuid4

from skillyard.catalog.agentfile import SCHEMA_FILE, Role, list_roles, read_role
from skillyard.catalog.files import write_below
from skillyard.catalog.roots import AGENT_FILE, ROLES_FOLDER
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.install.names import as_slug, quoted
from skillyard.install.new_skill import as_yaml, check_typed, create, heading, in_docstring, rendered

_SKILLS = ".claude/skills"
_ABOUT = Message("{label}: says in one sentence what it is responsible for")


class RoleDraft(NamedTuple):
    """Everything that a new role is made from, checked."""

    slug: str
    title: str
    description: str
    skill: str
    uuid: str
    lang: Lang

    @property
    def entry(self) -> str:
        return f"{_SKILLS}/{self.skill}.py"

    @property
    def call(self) -> str:
        """A command that works."""
        return f"skillyard role run {quote(self.slug)} {quote(self.skill)} report --param type=daily"


def make_role_draft(name: str, uuid: str, *, description: str = "", skill: str = "", lang: Lang = Lang.EN) -> RoleDraft:
    """Check what was typed. InvalidArgs if no role can be made of it."""
    slug, title = folder_of(name), name.strip()
    about = description.strip() or _ABOUT.render(lang, label=heading(title, slug))
    check_typed(name=name, description=about, skill=skill)
    return RoleDraft(slug, title, about, folder_of(skill) if skill else "daily_report", uuid, lang)


def folder_of(name: str) -> str:
    """Roles are written with underscores: a plain name stays as it is, any other becomes a slug."""
    slug = as_slug(name).replace("-", "_")
    return name if name.isascii() and name.lower().replace("-", "_") == slug else slug


def as_role_files(draft: RoleDraft) -> dict[str, str]:
    words = {
        "name": as_yaml(draft.slug),
        "title": quoted(draft.title),
        "description": quoted(draft.description),
        "uuid": draft.uuid,
        "skill": as_yaml(draft.skill),
        "entry": as_yaml(draft.entry),
        "entry_sh": quote(draft.entry),
        "heading": heading(draft.title, draft.slug),
        "skill_heading": draft.skill,
        "skill_doc": in_docstring(draft.skill),
        "call": draft.call,
    }
    names = {
        "agent.yaml": "role.agent.yaml.txt",
        "CLAUDE.md": "role.claude.md.txt",
        draft.entry: "role.skill.py.txt",
        f"{_SKILLS}/README.md": "role.readme.md.txt",
    }
    return {name: rendered(template, draft.lang, words) for name, template in names.items()}


class NewRole(NamedTuple):
    draft: RoleDraft
    #: Relative to the project.
    folder: str
    files: tuple[str, ...]


def resolve_role(root: Path, name: str) -> Role:
    """A role by its name, or by the path of its folder or file. InvalidArgs with the nearest names if there is none."""
    file = root / ROLES_FOLDER / name / AGENT_FILE
    if "/" not in name and name not in {"", ".", ".."} and file.is_file():
        return read_role(file)
    path = Path(name)
    if ("/" in name or name.startswith(".")) and (path.is_file() or (path / AGENT_FILE).is_file()):
        return read_role(path.absolute())
    known = [role.name for role in list_roles(root / ROLES_FOLDER)]
    near = get_close_matches(name, known, n=3)
    listed = ", ".join(near or known[:20]) or Message("none")
    said = Message("nearest: {listed}", listed=listed) if near else Message("there are {known}", known=listed)
    raise InvalidArgs(
        Message("no role {name!r} in {folder}/; {said}", name=name, folder=ROLES_FOLDER, said=said),
        details={"nearest": list(near)},
        advice=Message("`skillyard role` lists them") if known else Message("`skillyard role new NAME` makes one"),
    )


def create_role(root: Path, name: str, *, description: str, skill: str, lang: Lang) -> NewRole:
    """Write a new role, whole or not at all, and the schema for editors if it is missing."""
    draft = make_role_draft(name, str(uuid4()), description=description, skill=skill, lang=lang)
    files = as_role_files(draft)
    agents = root / ROLES_FOLDER
    create(root, agents / draft.slug, files)
    schema = agents / SCHEMA_FILE.name
    if not schema.exists() and not schema.is_symlink():
        write_below(root, f"{ROLES_FOLDER}/{SCHEMA_FILE.name}", SCHEMA_FILE.read_bytes())
    return NewRole(draft, f"{ROLES_FOLDER}/{draft.slug}", tuple(files))
