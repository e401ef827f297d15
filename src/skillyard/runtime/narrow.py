"""Guesses whether a run failed because it was allowed too little, so that its hint can say so."""

import re
from collections.abc import Iterator
from pathlib import Path

from skillyard.core.phrases import Text
from skillyard.runtime.permit import NETWORK, READ, READ_PROJECT, WRITE
from skillyard.sandbox.policy import Policy

HINT = Text(
    "它可能需要 {capability}, 由用户本人执行: skillyard grant @{name} {capability}",
    "it may need {capability}; the person can run: skillyard grant @{name} {capability}",
)
TRUST_HINT = Text(
    "它可能需要 {capability}, agent.yaml 已声明; 由用户本人执行: skillyard trust",
    "it may need {capability}, which agent.yaml asks for; the person can run: skillyard trust",
)

_NO_NETWORK = re.compile(
    r"\b(?:[Nn]ame resolution|Name or service not known|[Nn]etwork is unreachable|getaddrinfo|ENOTFOUND|EAI_AGAIN"
    r"|ENETUNREACH|[Cc]ould not resolve host|[Ff]ailed to resolve|Address family not supported|[Uu]nable to connect)\b"
)
_NO_WRITE = re.compile(r"Read-only file system|\bEROFS\b|[Pp]ermission denied|\bEACCES\b|PermissionError")
_NO_FILE = re.compile(
    r"No such file|\bENOENT\b|FileNotFoundError|[Pp]ermission denied|\bEACCES\b|PermissionError|[Cc]an(?:no|')t open"
)
#: Things in a message that may be paths: in quotes, or words with a slash or a dot.
_PATHS = re.compile(r"'([^'\n]{1,400})'|\"([^\"\n]{1,400})\"|`([^`\n]{1,400})`|(?<![\w/])([\w.~-]*[/.][\w./-]+)")


def seems_to_need(stderr: str, policy: Policy, root: Path, folder: Path) -> str | None:
    """The capability that would have helped, as far as its last words tell."""
    if not policy.network and not policy.hosts and _NO_NETWORK.search(stderr):
        return NETWORK
    if not _NO_FILE.search(stderr) and not _NO_WRITE.search(stderr):
        return None
    for path in _named(stderr, root):
        if path.exists() and not _is_below(path, (*policy.read, *policy.tools, *policy.write, folder)):
            return READ_PROJECT if path.is_relative_to(root) else f"{READ}:{path}"
        if _NO_WRITE.search(stderr) and not path.exists() and path.parent.is_dir() and path.is_relative_to(root):
            return f"{WRITE}:{path.relative_to(root).as_posix()}"
    return None


def _named(stderr: str, root: Path) -> Iterator[Path]:
    for found in _PATHS.finditer(stderr[-4000:]):
        text = next(filter(None, found.groups()))
        if "\0" not in text and text not in {"/", ".", ".."}:
            yield (root / text).resolve()


def _is_below(path: Path, allowed: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in allowed) or path.is_relative_to("/usr")
