"""Tells what a run missed because of us, and what it would need.

What the sandbox noted is known: names that it looked for, hosts that it was refused. Only where it noted nothing is the
reason of a failure guessed from its last words, and only about paths of the project."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from skillyard.catalog.bounds import bounds_of
from skillyard.catalog.files import exists, is_folder
from skillyard.core.capability import NETWORK, READ, READ_PROJECT, WRITE
from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.runners.kind import Prepared, name_limit
from skillyard.runners.requirements import package_of
from skillyard.sandbox.launch import Exit, Policy
from skillyard.trust.run_policy import env_command, grant_command, wider

HINT = Message("it may need {capability}; the person can run: {grant_command}")
TRUST_HINT = Message("it may need {capability}, which agent.yaml asks for; the person can run: skillyard trust")

_NO_NETWORK = re.compile(
    r"\b(?:[Nn]ame resolution|Name or service not known|[Nn]etwork is unreachable|getaddrinfo|ENOTFOUND|EAI_AGAIN"
    r"|ENETUNREACH|[Cc]ould not resolve host|[Ff]ailed to resolve|Address family not supported|[Uu]nable to connect)\b"
)
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)
_NO_WRITE = re.compile(r"Read-only file system|\bEROFS\b|[Pp]ermission denied|\bEACCES\b|PermissionError")
_NO_FILE = re.compile(
    r"No such file|\bENOENT\b|FileNotFoundError|[Pp]ermission denied|\bEACCES\b|PermissionError|[Cc]an(?:no|')t open"
)
#: What an advice of ours may repeat: letters, digits and what file names usually have.
_PLAIN = re.compile(r"[\w./ +@=-]{1,200}")
#: Things in a message that may be paths: in quotes, or words with a slash or a dot.
_PATHS = re.compile(r"'([^'\n]{1,400})'|\"([^\"\n]{1,400})\"|`([^`\n]{1,400})`|(?<![\w/])([\w.~-]*[/.][\w./-]+)")
_MOST_NAMED = 10


def note(ended: Exit, call: Call) -> Iterator[Message]:
    """Yield a sentence for each thing that a run missed, with the command that a person would type."""

    def advised(told: Message, *needed: str) -> Message:
        if call.skill.role:
            return told
        return Message("{told}; the person can run: {command}", told=told, command=grant_command(call, needed))

    if names := ended.looked_for[:_MOST_NAMED]:
        told = Message("it looked for {names}, which a run does not see", names=", ".join(names))
        yield advised(told, *(f"{READ}:{name}" for name in names))
    if ended.tried_network:
        yield advised(Message("it tried to reach the network, which is closed to it"), NETWORK)
    if names := ended.home_files[:_MOST_NAMED]:
        count, listed = len(ended.home_files), ", ".join(names)
        yield Message("it left files in its private home, which is gone ({count}): {names}", count=count, names=listed)
    if ended.read_only:
        yield Message("the project was read-only here ({reason}): write below mybox/", reason=ended.read_only)


def advise(error: RuntimeFailed, prepared: Prepared, ended: Exit) -> None:
    """Add to a failure what the run seems to need, if its policy was narrower than that."""
    call, stderr = prepared.call, ended.stderr.decode("utf-8", "replace")
    name_limit(error, ended, prepared.permit.policy if prepared.launch and prepared.launch.policy else None)
    missing = _NO_MODULE.search(stderr)
    if missing and missing[1] in prepared.optional_modules:  # the program's own text imports it, too
        command = f"{env_command(call.known_as or call.asked_as, call.script)} --with {package_of(missing[1])}"
        error.details = {**error.details, "grant": command}
        error.extra_hint = Message("the person can add the package: {command}", command=command)
        return
    network = ended.refused or ((NETWORK,) if ended.tried_network else ())  # hosts say it better
    needed = (*network, *(f"{READ}:{name}" for name in ended.looked_for[:_MOST_NAMED]))
    if not needed and (guessed := _guess(stderr, prepared.permit.policy, call, ended)):
        needed = (guessed,)
    if needed:
        asked = wider(bounds_of(call.skill), call.root, call.skill.folder) if call.skill.role else ()
        error.details = {**error.details, "may_need": " ".join(needed)}
        error.extra_hint = TRUST_HINT if asked and {*needed} <= {*asked} else HINT
        error.values = {**error.values, "capability": " ".join(needed), "grant_command": grant_command(call, needed)}


def _guess(stderr: str, policy: Policy, call: Call, ended: Exit) -> str | None:
    """Guess from the end of stderr which capability would have helped, where nobody noted it: network without a
    namespace that counts, files of a project that is not seen as a whole."""
    root, folder = call.root.resolve(), call.skill.folder.resolve()
    if ended.tried_network is None and not policy.network and not policy.hosts and _NO_NETWORK.search(stderr):
        return NETWORK
    if root in policy.read:
        return None
    if not _NO_FILE.search(stderr) and not _NO_WRITE.search(stderr):
        return None
    for path in _named(stderr, root):
        allowed = (*policy.read, *policy.tools, *policy.write, folder, Path("/usr"))
        if exists(path) and not any(path.is_relative_to(each) for each in allowed):
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
