"""Guesses whether a run failed because it was allowed too little, so that its hint can say so."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from skillyard.catalog.bounds import bounds_of
from skillyard.catalog.files import exists, is_folder
from skillyard.core.capability import NETWORK, READ_PROJECT, WRITE
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message
from skillyard.runners.kind import Prepared
from skillyard.sandbox.launch import Policy
from skillyard.trust.grant_rules import grant_command
from skillyard.trust.run_policy import wider

HINT = Message("it may need {capability}; the person can run: {grant_command}")
TRUST_HINT = Message("it may need {capability}, which agent.yaml asks for; the person can run: skillyard trust")

_NO_NETWORK = re.compile(
    r"\b(?:[Nn]ame resolution|Name or service not known|[Nn]etwork is unreachable|getaddrinfo|ENOTFOUND|EAI_AGAIN"
    r"|ENETUNREACH|[Cc]ould not resolve host|[Ff]ailed to resolve|Address family not supported|[Uu]nable to connect)\b"
)
_NO_WRITE = re.compile(r"Read-only file system|\bEROFS\b|[Pp]ermission denied|\bEACCES\b|PermissionError")
_NO_FILE = re.compile(
    r"No such file|\bENOENT\b|FileNotFoundError|[Pp]ermission denied|\bEACCES\b|PermissionError|[Cc]an(?:no|')t open"
)
#: What an advice of ours may repeat: letters, digits and what file names usually have.
_PLAIN = re.compile(r"[\w./ +@=-]{1,200}")
#: Things in a message that may be paths: in quotes, or words with a slash or a dot.
_PATHS = re.compile(r"'([^'\n]{1,400})'|\"([^\"\n]{1,400})\"|`([^`\n]{1,400})`|(?<![\w/])([\w.~-]*[/.][\w./-]+)")


def advise(error: RuntimeFailed, prepared: Prepared, stderr: str, refused: tuple[str, ...]) -> None:
    """Add to a failure what the run seems to need, if its policy was narrower than that."""
    call, policy = prepared.call, prepared.permit.policy
    # What the proxy refused is known; only for the rest its last words must do.
    guessed = None if refused else _guess(stderr, policy, call.root.resolve(), call.skill.folder.resolve())
    if needed := refused or ((guessed,) if guessed else ()):
        asked = wider(bounds_of(call.skill), call.root, call.skill.folder) if call.skill.role else ()
        error.details = {**error.details, "may_need": " ".join(needed)}
        error.extra_hint = TRUST_HINT if asked and {*needed} <= {*asked} else HINT
        error.values = {**error.values, "capability": " ".join(needed), "grant_command": grant_command(call, needed)}


def _guess(stderr: str, policy: Policy, root: Path, folder: Path) -> str | None:
    """Guess from the end of stderr which capability would have helped."""
    if not policy.network and not policy.hosts and _NO_NETWORK.search(stderr):
        return NETWORK
    if not _NO_FILE.search(stderr) and not _NO_WRITE.search(stderr):
        return None
    for path in _named(stderr, root):
        if exists(path) and not _is_below(path, (*policy.read, *policy.tools, *policy.write, folder)):
            return READ_PROJECT
        if _NO_WRITE.search(stderr) and not exists(path) and is_folder(path.parent):
            return f"{WRITE}:{path.relative_to(root).as_posix()}"
    return None


def _named(stderr: str, root: Path) -> Iterator[Path]:
    """Paths in the project that it names. Of anything outside nothing is said: these are the program's own words, and
    an advice of ours must not be what it wants a person to grant."""
    for found in _PATHS.finditer(stderr[-4000:]):
        text = next(filter(None, found.groups()))
        path = Path(os.path.normpath(root / text))
        if _PLAIN.fullmatch(text) and path != root and path.is_relative_to(root):
            yield path


def _is_below(path: Path, allowed: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in allowed) or path.is_relative_to("/usr")
