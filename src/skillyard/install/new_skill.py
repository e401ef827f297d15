"""Writes new skills from templates: SKILL.md, the program, and a test.

What a person typed goes into the files as literals only, and is never code in them.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import make_below, refuse_links
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.skill_fields import MAX_DESCRIPTION
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


class ActionTemplate(NamedTuple):
    """One of the conventional actions: what it is for, what it takes, and a request that works."""

    says: Message
    params: tuple[str, ...]
    example: Mapping[str, object]
    #: Of its params, the one that it cannot do without.
    needs: str = ""


CONVENTIONAL: Mapping[str, ActionTemplate] = {
    "analyze": ActionTemplate(
        Message("analyzes data"), ("target", "days"), {"target": "ci_builds", "days": 7}, "target"
    ),
    "report": ActionTemplate(Message("writes a report"), ("type", "format"), {"type": "daily", "format": "markdown"}),
    "fetch": ActionTemplate(Message("fetches data"), ("source", "query"), {"source": "sample", "query": "first"}),
    "push": ActionTemplate(
        Message("pushes data"), ("destination",), {"destination": "archive", "data": {"id": 1}}, "destination"
    ),
    "full": ActionTemplate(Message("does everything in one go"), (), {}),
}
_OTHER = ActionTemplate(Message("something of its own"), ("text",), {"text": "example"})
DEFAULT_ACTIONS = ("analyze", "report")
_PARAMS = {
    "target": Message("{{type: string, {needed}description: What to analyze}}"),
    "days": Message("{{type: int, description: 'How many days back, by default 7'}}"),
    "type": Message("{{type: enum, choices: [daily, weekly], description: Which report}}"),
    "format": Message("{{type: enum, choices: [markdown, text], description: How it is written}}"),
    "source": Message("{{type: enum, choices: [sample], description: Where to fetch from}}"),
    "query": Message("{{type: string, description: What the name contains}}"),
    "destination": Message("{{type: string, {needed}description: Where to push to}}"),
    "text": Message("{{type: string, description: Any text}}"),
}
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
        if self.kind is Kind.PROMPT:
            return ""
        return f"{'skill' if self.kind is Kind.JSON else 'main'}.{_ENDINGS[self.program]}"

    @property
    def test_file(self) -> str:
        return f"test_{self.slug.replace('-', '_')}.py"

    @property
    def example(self) -> tuple[str, ...]:
        """What follows the name in a call that works."""
        if self.kind is Kind.PROMPT:
            return ()
        if self.kind is Kind.COMMAND:
            return (f".claude/skills/{self.slug}/{SKILL_FILE}", "--limit", "3")
        first = self.actions[0]
        words = _requests(self.actions)[first]
        return (first, *(f"{name}={value}" for name, value in words.items() if isinstance(value, str | int)))


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
            said = Message("the {what} cannot be written to a file: {error}", what=what, error=error)
            raise InvalidArgs(said) from None
        if "\0" in text:
            raise InvalidArgs(Message("the {what} holds a NUL character", what=what))
    if (count := len(description.strip())) > MAX_DESCRIPTION:
        said = Message("a description has at most {most} characters, not {count}", most=MAX_DESCRIPTION, count=count)
        raise InvalidArgs(said)


def as_files(draft: SkillDraft) -> dict[str, str]:
    """The files by name."""
    call = " ".join((f"skillyard run @{draft.slug}", *draft.example))
    takes = {action: CONVENTIONAL.get(action, _OTHER) for action in draft.actions}
    words = {
        "name": as_yaml(draft.slug),
        "title": quoted(draft.title),
        "description": quoted(draft.description),
        "title_doc": in_docstring(draft.title),
        "description_doc": in_docstring(draft.description),
        "title_js": script_quoted(draft.title),
        "description_js": script_quoted(draft.description),
        "about_sh": shell_quoted(f"{draft.title}\n{draft.description}"),
        "heading": heading(draft.title, draft.slug),
        "program": draft.program_file,
        "command": f"{draft.program} {draft.program_file} {{input}} --limit {{limit}}",
        "runner": _RUNNERS[draft.program],
        "calls": f"    {call}",
        "test": f"python3 .claude/skills/{draft.slug}/{draft.test_file}",
        "actions": ", ".join(map(as_yaml, draft.actions)),
        "action_choice": " | ".join(f'"{action}"' for action in draft.actions),
        "handlers": "\n".join(f'    "{action}": handle_{action},' for action in draft.actions),
        "requests": json.dumps(_requests(draft.actions), indent=4),
        "params": _params(tuple(takes.values()), draft.lang),
        "table": "\n".join(f"| `{action}` | {about.says.render(draft.lang)} |" for action, about in takes.items()),
    }
    files = {SKILL_FILE: rendered(f"{draft.kind}.md.txt", draft.lang, words, draft.actions)}
    if draft.program_file:
        template = f"{draft.kind}.{_ENDINGS[draft.program]}.txt"
        files[draft.program_file] = rendered(template, draft.lang, words, draft.actions)
    words["program"] = quoted(draft.program_file)
    files[draft.test_file] = rendered(f"test_{draft.kind}.py.txt", draft.lang, words, draft.actions)
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
    return _SLOT.sub(lambda slot: words[slot[1]] if slot[1] else slot[2] if lang is Lang.ZH else slot[3], text)


def as_yaml(word: str) -> str:
    """Without quotes if it can only be read as a text."""
    return word if _PLAIN_YAML.fullmatch(word) else quoted(word)


def heading(title: str, slug: str) -> str:
    """The title if it is plain words, else the slug: Markdown gives signs a meaning, and agents run `!` commands."""
    return title if _PLAIN_HEADING.fullmatch(title) else slug


def _params(takes: tuple[ActionTemplate, ...], lang: Lang) -> str:
    """All params of all actions. One is required only if every action needs it."""
    needed = takes[0].needs if len(takes) == 1 else ""
    lines = [
        f"  {name}: {_PARAMS[name].render(lang, needed='required: true, ' if name == needed else '')}\n"
        for name in dict.fromkeys(name for action in takes for name in action.params)
    ]
    return "".join(["params:\n", *lines]) if lines else ""


def _requests(actions: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """For each action a request that works; `full` takes what the others take."""
    requests = {action: dict(CONVENTIONAL.get(action, _OTHER).example) for action in actions}
    if "full" in requests:
        requests["full"] = {name: value for params in requests.values() for name, value in params.items()}
    return requests


def script_quoted(text: str) -> str:
    """A literal of JavaScript."""
    return '"' + escaped(text, wide="\\u{{{:x}}}") + '"'


def shell_quoted(text: str) -> str:
    """A literal of a shell, which knows no NUL: `check_typed` refused it."""
    return "'" + text.replace("'", "'\\''") + "'"


def in_docstring(text: str) -> str:
    """Inside Python's triple double quotes, where line ends may stay."""
    return "\n".join(map(escaped, text.split("\n")))


class NewSkill(NamedTuple):
    #: Relative to the project.
    folder: str
    files: tuple[str, ...]


def create_skill(root: Path, draft: SkillDraft) -> NewSkill:
    """Write a new skill into the project, whole or not at all."""
    files, folder = as_files(draft), f".claude/skills/{draft.slug}"
    create(root, root / folder, files)
    return NewSkill(folder, tuple(files))


def create(root: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Write the files below a folder of the project that is not there yet.

    InvalidArgs if something of that name is there: nothing is ever overwritten. PermissionDenied if a folder on the
    way, below the project root, is a link.
    """
    refuse_links(root, folder.parent)
    if folder.exists() or folder.is_symlink():
        raise _taken(folder)
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
            raise _taken(folder) from None
        raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _taken(folder: Path) -> InvalidArgs:
    return InvalidArgs(Message("{folder} exists already: choose another name, or remove it first", folder=folder))
