"""Skills as resources and as prompts: what each says of itself, its files, and the text of a prompt skill filled in.

Covered: nothing outside the skill's own folder is read, whatever the path says and wherever a link leads; nothing but
plain files; nothing hidden (`.env`, `.git`); nothing larger than the limit.
"""

import base64
import os
import shlex
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from skillyard.app.project import Project
from skillyard.core.envelope import encodes
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Request
from skillyard.core.skill import Skill
from skillyard.faces.mcp.listing import Shown, Surface, clean, safe_names
from skillyard.faces.mcp.model_results import for_model
from skillyard.faces.mcp.protocol import INTERNAL_ERROR, INVALID_PARAMS, Fields, ProtocolError
from skillyard.faces.mcp.skills_extension import SCHEME, split_uri, type_of, uri_of

#: No published skill is larger.
LARGEST_BYTES = 16 * 1024 * 1024
_MOST_FILES = 200
_MOST_FOLDERS = 200
#: What a prompt takes that declares no names: everything that stands for $ARGUMENTS.
EVERYTHING = "arguments"
_MOST_ARGUMENTS = 32
TEMPLATE = {
    "name": "skill-file",
    "title": "A file of a skill",
    "uriTemplate": f"{SCHEME}{{name}}/{{+path}}",
    "description": "Any file that a skill ships; skill_show lists them.",
}


def list_files(skill: Skill, address: str) -> Iterator[str]:
    """The addresses of its files, its own first. The skills of a role share a folder: of them it is the one that
    declares them."""
    yield uri_of(address, skill.path.name)
    if not skill.role:
        for path in islice(_other_files(skill), _MOST_FILES - 1):
            yield uri_of(address, path.relative_to(skill.folder).as_posix())


def _other_files(skill: Skill) -> Iterator[Path]:
    for folder, folders, files in islice(os.walk(skill.folder), _MOST_FOLDERS + 1):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = (Path(folder, name) for name in sorted(files) if not name.startswith(".") and encodes(name, "utf-8"))
        yield from (path for path in paths if path != skill.path and not path.is_symlink())


def read_file(skill: Skill, path: str) -> bytes:
    parts = path.split("/")
    if "\0" in path or any(part in {"", ".", ".."} or part.startswith(".") for part in parts):
        raise PermissionDenied(Message("{path!r} is no path inside the skill", path=path))
    if skill.role and path != skill.path.name:
        raise PermissionDenied(Message("of the skills of a role, only {name} can be read", name=skill.path.name))
    folder = os.path.realpath(skill.folder)
    real = os.path.realpath(f"{folder}/{path}")
    if os.path.commonpath([folder, real]) != folder:
        raise PermissionDenied(Message("{path!r} leads out of the skill's folder", path=path))
    try:
        file = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InvalidArgs(Message("the skill has no file {path!r}", path=path)) from None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionDenied(Message("{path!r} is not a plain file", path=path))
        content = opened.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        sizes = {"path": path, "size": found.st_size, "largest": LARGEST_BYTES}
        raise InvalidArgs(Message("{path!r} has {size:,} bytes; up to {largest:,} can be read here", **sizes))
    return content


def as_resource(shown: Shown) -> Fields:
    path = shown.entry.file.rpartition("/")[2]
    about = {"description": clean(shown.entry.description, 300), "mimeType": type_of(path)}
    named = {"name": clean(shown.entry.name, 100) or shown.name, "uri": uri_of(shown.address, path)}
    return {**named, **{key: value for key, value in about.items() if value}}


def read_resource(project: Project, surface: Surface, uri: str) -> Fields:
    name, _, path = (unquote(part) for part in uri.removeprefix(SCHEME).partition("/"))
    if found := split_uri(surface, uri):
        name, path = found[0].address, found[1]
    try:
        if not uri.startswith(SCHEME) or not name or not path:
            told = Message("no resource has the address {uri!r}; write skill://<name>/SKILL.md", uri=uri[:200])
            raise InvalidArgs(told)
        project.catalog.sync()
        content = read_file(project.catalog.resolve(name), path)
    except SkillError as error:
        raise ProtocolError(INVALID_PARAMS, error.msg, {"uri": uri, "type": error.type}) from None
    except OSError as error:
        raise ProtocolError(INTERNAL_ERROR, f"it cannot be read: {error.strerror}", {"uri": uri}) from None
    kind = type_of(path)
    try:
        shown = {"mimeType": kind or "text/plain", "text": content.decode()}
    except UnicodeDecodeError:
        blob = base64.b64encode(content).decode("ascii")
        shown = {"mimeType": kind or "application/octet-stream", "blob": blob}
    return {"contents": [{"uri": uri, **shown}]}


def as_prompt(shown: Shown, skill: Skill) -> Fields:
    hint, said = clean(str(skill.fields.get("argument-hint") or ""), 200), clean(skill.description, 500)
    about = {"description": hint} if hint else {}
    return {
        "name": shown.name,
        "title": clean(skill.title or shown.address, 80) or shown.name,
        **({"description": said} if said else {}),
        "arguments": [{"name": name, "required": False, **about} for name in _names(skill) or [EVERYTHING]],
    }


def _names(skill: Skill) -> list[str]:
    """The frontmatter's `arguments`, in the order of the words, made safe."""
    declared = skill.fields.get("arguments")
    words = declared.split() if isinstance(declared, str) else declared if isinstance(declared, list) else []
    names = list(dict.fromkeys(str(word) for word in words))[:_MOST_ARGUMENTS]
    safe = safe_names(names)
    return [safe[name] for name in names]


def read_prompt(project: Project, shown: Shown, given: Fields, lang: Lang) -> Fields:
    project.catalog.sync()
    try:
        skill = project.catalog.resolve(shown.address)
    except SkillError as error:
        raise ProtocolError(INVALID_PARAMS, error.msg) from None
    result = project.runtime.run(Request(name=shown.address, args=_words(skill, given), lang=lang))
    if not result.ok:
        raise ProtocolError(INVALID_PARAMS, result.summary, {"hint": result.meta.get("hint")})
    text = for_model(project, result, lang).data["content"]
    said = clean(skill.description, 500)
    message = {"role": "user", "content": {"type": "text", "text": str(text)}}
    return {**({"description": said} if said else {}), "messages": [message]}


def _words(skill: Skill, given: Fields) -> tuple[str, ...]:
    """The words in their places; those after the last that was given are left open."""
    names = _names(skill)
    if unknown := sorted(set(given) - {*(names or [EVERYTHING])}):
        raise ProtocolError(INVALID_PARAMS, f"the prompt takes no {', '.join(unknown)[:200]}")
    if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
        raise ProtocolError(INVALID_PARAMS, f"a text is expected: {', '.join(wrong)[:200]}")
    if not names:
        text = given.get(EVERYTHING, "")
        try:
            return tuple(shlex.split(text))
        except ValueError:  # a quote that nobody closed is an apostrophe
            return tuple(text.split())
    words = [given.get(name, "") for name in names]
    while words and not words[-1]:
        words.pop()
    return tuple(words)
