"""A new role before it is written: the files of agents/<role> as S3 lays them out, with a skill that works at once.

Pure. What a person typed goes in as literals only.
"""

from shlex import quote
from typing import NamedTuple

from skillyard.catalog.naming import MAX_DESCRIPTION
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.install.literals import in_docstring, quoted
from skillyard.install.skill_template import TEMPLATES, as_yaml, check_words, filled, heading
from skillyard.install.slug import as_slug

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
        """A call that works."""
        return f"skillyard role run {quote(self.slug)} {quote(self.skill)} report --param type=daily"


def make_role_draft(name: str, uuid: str, *, description: str = "", skill: str = "", lang: Lang = Lang.EN) -> RoleDraft:
    """InvalidArgs where no role can be made of it."""
    for what, text in (("name", name), ("description", description), ("skill", skill)):
        check_words(what, text)
    slug = folder_of(name)
    about = description.strip() or _ABOUT.render(lang, label=heading(name.strip(), slug))
    if len(about) > MAX_DESCRIPTION:
        raise InvalidArgs(
            Message(
                "a description has at most {max_description} characters, not {count}",
                max_description=MAX_DESCRIPTION,
                count=len(about),
            )
        )
    return RoleDraft(slug, name.strip(), about, folder_of(skill) if skill else "daily_report", uuid, lang)


def folder_of(name: str) -> str:
    """S3 writes roles with underscores: a plain name stays as it is, of any other a safe one is made."""
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
    return {
        name: filled((TEMPLATES / template).read_text("utf-8"), draft.lang, words) for name, template in names.items()
    }
