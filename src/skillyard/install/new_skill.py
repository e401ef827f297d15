"""Writes new skills and roles from templates: SKILL.md or agent.yaml, the program, and a test. Finds existing roles.

What a person typed goes into the files as literals only, and is never code in them.
"""

import json
import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from skillyard.catalog.agentfile import SCHEMA_FILE, EntryCheck, Role, list_roles, read_role
from skillyard.catalog.files import make_below, refuse_links, write_below
from skillyard.catalog.manifest import MAX_DESCRIPTION
from skillyard.catalog.roots import AGENT_FILE, ROLES_FOLDER, SKILL_FILE
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Kind
from skillyard.core.values import check_text
from skillyard.install.names import as_slug, escaped, quoted

_TEMPLATES = Path(__file__).parent / "templates"


class ProgramLanguage(StrEnum):
    """What a skill's program is written in."""

    PYTHON = "python"
    BASH = "bash"
    NODE = "node"


_ENDINGS = {ProgramLanguage.PYTHON: "py", ProgramLanguage.BASH: "sh", ProgramLanguage.NODE: "mjs"}
_RUNNERS = {ProgramLanguage.PYTHON: "sys.executable", ProgramLanguage.BASH: '"bash"', ProgramLanguage.NODE: '"node"'}


_DATA = tomllib.loads((_TEMPLATES / "actions.toml").read_text("utf-8"))
CONVENTIONAL: Mapping[str, Mapping[str, Any]] = _DATA["actions"]
DEFAULT_ACTIONS = ("analyze", "report")
_ABOUT = Message(
    "{label}: says in one sentence what it does. Use when someone asks for it (write your own words here)."
)
_ACTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PLAIN_YAML = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+|(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z]+")
_PLAIN_HEADING = re.compile(r"[\w ,.()，。、（）-]+")
_SECTION = re.compile(r"^[^\n]*⟦(\w+)⟧\n(.*?)^[^\n]*⟦end⟧\n", re.MULTILINE | re.DOTALL)
_SLOT = re.compile(r"⟪(\w+)⟫|«([^«»|]*)\|([^«»]*)»")


class SkillDraft(NamedTuple):
    """Everything that a new skill is made from, checked."""

    slug: str
    title: str
    description: str
    kind: Kind
    program: ProgramLanguage
    actions: tuple[str, ...]
    lang: Lang

    @property
    def program_file(self) -> str:
        names = {Kind.JSON: "skill", Kind.COMMAND: "main"}
        return f"{names[self.kind]}.{_ENDINGS[self.program]}" if self.kind in names else ""

    @property
    def test_file(self) -> str:
        return f"test_{self.slug.replace('-', '_')}.py"

    @property
    def abouts(self) -> dict[str, Mapping[str, Any]]:
        """What actions.toml says of each action."""
        return {action: CONVENTIONAL.get(action, _DATA["other"]) for action in self.actions}

    @property
    def requests(self) -> dict[str, dict[str, object]]:
        """For each action a request that works; `full` takes what the others take."""
        requests = {action: dict(about["example"]) for action, about in self.abouts.items()}
        if "full" in requests:
            requests["full"] = {name: value for params in requests.values() for name, value in params.items()}
        return requests

    @property
    def example(self) -> tuple[str, ...]:
        """What follows the name in a call that works."""
        if self.kind is Kind.COMMAND:
            return (f".claude/skills/{self.slug}/{SKILL_FILE}", "--limit", "3")
        for action, params in self.requests.items():
            return (action, *(f"{name}={value}" for name, value in params.items() if isinstance(value, str | int)))
        return ()


def make_draft(
    name: str,
    kind: Kind,
    *,
    program: ProgramLanguage = ProgramLanguage.PYTHON,
    title: str = "",
    description: str = "",
    actions: tuple[str, ...] = (),
    lang: Lang = Lang.EN,
) -> SkillDraft:
    """Check what was typed. InvalidArgs, with what would do, if no skill can be made of it."""
    slug = as_slug(name)
    label = title.strip() or name.strip()
    about = description if description.strip() else _ABOUT.render(lang, label=heading(label, slug))
    check_typed(name=name, title=title, description=about)
    if actions and kind is not Kind.JSON:
        raise InvalidArgs(Message("only JSON skills have actions: add --kind json"))
    if kind is Kind.JSON and program is ProgramLanguage.BASH:
        raise InvalidArgs(Message("bash cannot read JSON by itself: use --lang python or node, or --kind command"))
    chosen = tuple(dict.fromkeys(actions or DEFAULT_ACTIONS)) if kind is Kind.JSON else ()
    for action in chosen:
        if not _ACTION_NAME.fullmatch(action):
            raise InvalidArgs(Message("{action!r} is no action's name: it must match [a-z][a-z0-9_]*", action=action))
    return SkillDraft(slug, label, about, kind, program, chosen, lang)


def check_typed(description: str, **texts: str) -> None:
    """InvalidArgs if one of the texts cannot be written to a file, or the description is too long."""
    for what, text in {**texts, "description": description}.items():
        try:
            check_text(text)
        except ValueError as error:
            why = Message("the {what} cannot be written to a file: {error}", what=what, error=error)
            raise InvalidArgs(why) from None
        if "\0" in text:
            raise InvalidArgs(Message("the {what} holds a NUL character", what=what))
    if (count := len(description.strip())) > MAX_DESCRIPTION:
        values = {"most": MAX_DESCRIPTION, "count": count}
        raise InvalidArgs(Message("a description has at most {most} characters, not {count}", **values))


def as_files(draft: SkillDraft) -> dict[str, str]:
    """The files by name."""
    title, description, actions, lang = draft.title, draft.description, draft.actions, draft.lang
    call = " ".join((f"skillyard run @{draft.slug}", *draft.example))
    words = {
        "name": as_yaml(draft.slug),
        "title": quoted(title),
        "description": quoted(description),
        "title_doc": in_docstring(title),
        "description_doc": in_docstring(description),
        "title_js": script_quoted(title),
        "description_js": script_quoted(description),
        "about_sh": shell_quoted(f"{title}\n{description}"),
        "heading": heading(title, draft.slug),
        "program": draft.program_file,
        "command": f"{draft.program} {draft.program_file} {{input}} --limit {{limit}}",
        "runner": _RUNNERS[draft.program],
        "calls": f"    {call}",
        "test": f"python3 .claude/skills/{draft.slug}/{draft.test_file}",
        "actions": ", ".join(map(as_yaml, actions)),
        "action_choice": " | ".join(f'"{action}"' for action in actions),
        "handlers": "\n".join(f'    "{action}": handle_{action},' for action in actions),
        "requests": json.dumps(draft.requests, indent=4),
        "params": _params(draft),
        "table": _filled("\n".join(f"| `{name}` | {about['about']} |" for name, about in draft.abouts.items()), lang),
    }
    files = {SKILL_FILE: rendered(f"{draft.kind}.md.txt", lang, words, actions)}
    if draft.program_file:
        files[draft.program_file] = rendered(f"{draft.kind}.{_ENDINGS[draft.program]}.txt", lang, words, actions)
    words["program"] = quoted(draft.program_file)
    files[draft.test_file] = rendered(f"test_{draft.kind}.py.txt", lang, words, actions)
    return files


def rendered(template: str, lang: Lang, words: Mapping[str, str], actions: Sequence[str] = ()) -> str:
    """A template with its slots filled, in one pass, so that a value is never taken for a slot."""

    def chosen(section: re.Match[str]) -> str:
        """A conventional action's code if it is wanted; the last section once for each action of the author's own."""
        name, code = section[1], section[2]
        if name in CONVENTIONAL:
            return code if name in actions else ""
        return "".join(code.replace("⟪action⟫", own) for own in actions if own not in CONVENTIONAL)

    text = _SECTION.sub(chosen, (_TEMPLATES / template).read_text("utf-8"))
    return _filled(text, lang, words)


def _filled(text: str, lang: Lang, words: Mapping[str, str] = MappingProxyType({})) -> str:
    return _SLOT.sub(lambda slot: words[slot[1]] if slot[1] else slot[2 if lang is Lang.ZH else 3], text)


def as_yaml(word: str) -> str:
    """Without quotes if it can only be read as a text."""
    return word if _PLAIN_YAML.fullmatch(word) else quoted(word)


def heading(title: str, slug: str) -> str:
    """The title if it is plain words, else the slug: Markdown gives signs a meaning, and agents run `!` commands."""
    return title if _PLAIN_HEADING.fullmatch(title) else slug


def _params(draft: SkillDraft) -> str:
    """All params of all actions. One is required only if every action needs it."""
    abouts = tuple(draft.abouts.values())
    needed = abouts[0].get("needs") if len(abouts) == 1 else None
    lines = []
    for name in dict.fromkeys(name for about in abouts for name in about["params"]):
        words = {"needed": "required: true, " if name == needed else ""}
        lines.append(f"  {name}: {_filled(_DATA['params'][name], draft.lang, words)}\n")
    return "".join(["params:\n", *lines]) if lines else ""


def script_quoted(text: str) -> str:
    """A literal of JavaScript."""
    return '"' + escaped(text, wide="\\u{{{:x}}}") + '"'


def shell_quoted(text: str) -> str:
    """A literal of a shell, which knows no NUL: `check_typed` refused it."""
    return "'" + text.replace("'", "'\\''") + "'"


def in_docstring(text: str) -> str:
    """Inside Python's triple double quotes, where line ends may stay."""
    return "\n".join(map(escaped, text.split("\n")))


def create_skill(root: Path, draft: SkillDraft) -> tuple[str, tuple[str, ...]]:
    """Write a new skill, whole or not at all. Return its folder, relative to the project, and its files."""
    files, folder = as_files(draft), f".claude/skills/{draft.slug}"
    create(root, root / folder, files)
    return folder, tuple(files)


def create(root: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Write the files below a folder of the project that is not there yet.

    InvalidArgs if something of that name is there: nothing is ever overwritten. PermissionDenied if a folder on the
    way, below the project root, is a link.
    """
    taken = InvalidArgs(Message("{folder} exists already: choose another name, or remove it first", folder=folder))
    refuse_links(root, folder.parent)
    if folder.exists() or folder.is_symlink():
        raise taken
    make_below(root, folder.parent)
    staged = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for name, text in files.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="\n")
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        staged.chmod(0o755)
        staged.rename(folder)
    except OSError:
        if folder.exists():  # somebody was faster
            raise taken from None
        raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


_SKILLS = ".claude/skills"
_ABOUT_NEW_ROLE = Message("{label}: says in one sentence what it is responsible for")


class RoleDraft(NamedTuple):
    """Everything that a new role is made from, checked."""

    slug: str
    title: str
    description: str
    skill: str
    uuid: str
    lang: Lang

    @property
    def folder(self) -> str:
        """Relative to the project."""
        return f"{ROLES_FOLDER}/{self.slug}"

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
    about = description.strip() or _ABOUT_NEW_ROLE.render(lang, label=heading(title, slug))
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


def resolve_role(root: Path, name: str, check: EntryCheck | None = None) -> Role:
    """A role by its name, or by the path of its folder or file. InvalidArgs with the nearest names if there is none."""
    file = root / ROLES_FOLDER / name / AGENT_FILE
    if "/" not in name and name not in {"", ".", ".."} and file.is_file():
        return read_role(file, check)
    path = Path(name)
    if ("/" in name or name.startswith(".")) and (path.is_file() or (path / AGENT_FILE).is_file()):
        return read_role(path.absolute(), check)
    known = [role.name for role in list_roles(root / ROLES_FOLDER)]
    near = get_close_matches(name, known, n=3)
    listed = ", ".join(near or known[:20]) or Message("none")
    said = Message("nearest: {listed}", listed=listed) if near else Message("there are {known}", known=listed)
    raise InvalidArgs(
        Message("no role {name!r} in {folder}/; {said}", name=name, folder=ROLES_FOLDER, said=said),
        details={"nearest": list(near)},
        advice=Message("`skillyard role` lists them") if known else Message("`skillyard role new NAME` makes one"),
    )


def create_role(root: Path, name: str, **texts: Any) -> tuple[RoleDraft, str, tuple[str, ...]]:
    """Write a new role, whole or not at all, and the schema for editors if it is missing."""
    draft = make_role_draft(name, str(uuid4()), **texts)
    files = as_role_files(draft)
    create(root, root / draft.folder, files)
    schema = root / ROLES_FOLDER / SCHEMA_FILE.name
    if not schema.exists() and not schema.is_symlink():
        write_below(root, f"{ROLES_FOLDER}/{SCHEMA_FILE.name}", SCHEMA_FILE.read_bytes())
    return draft, draft.folder, tuple(files)
