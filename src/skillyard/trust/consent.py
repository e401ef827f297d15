"""What a project's files ask for beyond the rules, and whether a person who saw it said yes."""

import hashlib
import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.bounds import Bounds, read_bounds
from skillyard.catalog.files import read_toml
from skillyard.catalog.fingerprint import fingerprint, hash_folder
from skillyard.core import capability as cap
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.errors import RoleInvalid
from skillyard.core.messages import Message
from skillyard.core.secrets import MASK
from skillyard.store.grants import Grant, Grants
from skillyard.trust.own_files import is_ours

if TYPE_CHECKING:
    from skillyard.catalog.agentfile import Role


class Want(NamedTuple):
    """Something beyond the rules that a project's file asks for."""

    what: str
    where: str
    #: Files that a person has not seen yet in this state, each as (what happened to it, its path).
    files: tuple[tuple[str, str], ...] = ()


class Trusted(NamedTuple):
    """What a person trusted: the settings that they were shown, and each file of bin/."""

    settings: str = ""
    bin: str = ""
    files: Mapping[str, str] = {}


NOTHING_TRUSTED = Trusted()


class RoleWant(NamedTuple):
    """The same of a role: a capability that its folder would be granted."""

    folder: Path
    capability: str
    want: Want


class ShownWants(NamedTuple):
    """All that a person is asked about, taken before the question: trust is for these bytes and no later ones."""

    wants: tuple[Want, ...]
    trusted: Trusted
    grants: tuple[Grant, ...]


def wants(root: Path, before: Trusted = NOTHING_TRUSTED) -> tuple[Want, ...]:
    """Return what the project's files ask for beyond the rules, with the files of bin/ that changed since `before`."""
    # Any file there can be named to the worker, or imported by what is, whatever its ending and however deep it lies.
    entries = (path for path in (root / "bin").rglob("*") if path.is_symlink() or not path.is_dir())
    scripts: tuple[Want, ...] = ()
    if not all(map(is_ours, entries)):
        what = Message("run the scripts in bin/ with read access to the whole project")
        scripts = (Want(what, "bin/", tuple(_unseen_scripts(root, before))),)
    return (*scripts, *_settings(root), *(asked.want for asked in role_wants(root)))


def trusted_before(grants: Grants) -> Trusted:
    """Parse what was stored; nothing is trusted if it is of another version."""
    try:
        trusted = Trusted(**json.loads(grants.trusted()))
    except (ValueError, TypeError, RecursionError):
        return NOTHING_TRUSTED
    return trusted if isinstance(trusted.files, dict) else NOTHING_TRUSTED


def is_trusted(grants: Grants, root: Path) -> bool:
    """Whether a person trusted everything that the project asks for now, apart from its roles."""
    return are_settings_trusted(grants, root) and not any(_unseen_scripts(root, trusted_before(grants)))


def _settings_mark(root: Path) -> str:
    return hashlib.blake2b(repr(tuple(_settings(root))).encode(), digest_size=20).hexdigest()


def are_settings_trusted(grants: Grants, root: Path) -> bool:
    """Whether a person trusted skillyard.toml as it is; an edited script of bin/ does not matter here."""
    return trusted_before(grants).settings == _settings_mark(root)


def is_role_trusted(grants: Grants, folder: Path, capability: str) -> bool:
    """Whether a person allowed this to the role, as it is now: `schedule`, `on-failure`, `allowed-tools` and so on."""
    key = str(folder)
    return grants.has_any(key) and capability in grants.of(key, fingerprint(folder, in_role=True))


def untrusted_roles(grants: Grants, root: Path) -> tuple[str, ...]:
    """Return the roles that ask for more than was granted to them."""
    asked = (each for each in role_wants(root) if not is_role_trusted(grants, each.folder, each.capability))
    return tuple(dict.fromkeys(each.folder.name for each in asked))


def show_wants(grants: Grants, root: Path) -> ShownWants:
    moment = time.time()
    roles = role_wants(root)
    marks = {folder: fingerprint(folder, in_role=True) for folder in {want.folder for want in roles}}
    mark, files = _read_bin(root)
    return ShownWants(
        wants(root, trusted_before(grants)),
        Trusted(_settings_mark(root), mark, files),
        tuple(Grant(str(want.folder), marks[want.folder], want.capability, moment) for want in roles),
    )


class Coverage(NamedTuple):
    """What the trust in a role or in bin/ is for: another byte in one of these files ends it, the others are free."""

    folder: str
    files: tuple[str, ...]
    free: tuple[str, ...]


def list_coverage(root: Path) -> tuple[Coverage, ...]:
    found = []
    folders = sorted(file.parent for file in (root / "agents").glob("*/agent.yaml"))
    for folder in (*folders, *filter(Path.is_dir, (root / "bin",))):
        hashes = hash_folder(folder, in_role=folder.parent.name == "agents")
        every = (path for path, digest in hashes.digests.items() if not digest.startswith("folder:"))
        free = tuple(path for path in every if path not in set(hashes.covered))
        found.append(Coverage(folder.relative_to(root).as_posix(), hashes.covered, free))
    return tuple(found)


def trust(grants: Grants, root: Path, shown: ShownWants | None = None) -> None:
    """Store the trust; what roles ask for becomes grants for exactly the bytes of each one's folder."""
    refuse_inside_agents()
    shown = shown or show_wants(grants, root)
    grants.trust(json.dumps(shown.trusted._asdict()), time.time())
    for each in shown.grants:
        grants.add(each)


def distrust(grants: Grants, root: Path) -> None:
    """Take back the trust, and with it everything that was granted to the roles."""
    grants.distrust()
    agents = root / "agents"
    for folder in {grant.skill for grant in grants.list() if Path(grant.skill).parent == agents}:
        grants.revoke(folder)


def role_wants(root: Path) -> tuple[RoleWant, ...]:
    """Return what the agent.yaml files ask for beyond the rules; an unreadable file asks for nothing."""
    from skillyard.catalog.agentfile import list_roles  # noqa: PLC0415  (`list` asks about settings alone)

    return tuple(want for role in list_roles(root / "agents") for want in _of_role(role, root))


def _of_role(role: "Role", root: Path) -> Iterator[RoleWant]:
    from skillyard.trust.run_policy import wider  # noqa: PLC0415  (brings the sandbox)

    try:
        bounds = read_bounds(role.bounds)
        asked = [(capability, *_meaning(capability, bounds)) for capability in wider(bounds, root, role.folder)]
    except RoleInvalid:
        return
    if count := len(role.schedule):
        noun = "job" if count == 1 else "jobs"
        asked.append((cap.SCHEDULE, Message("start {count} scheduled {noun}", count=count, noun=noun), "schedule"))
    tells: dict[Message, None] = {}
    for job in role.schedule:
        if isinstance(told := job.get("on_failure"), Mapping):
            command, webhook = told.get("command"), told.get("webhook")
            does = Message("run `{command}`", command=command) if command else Message("post to {told}", told=webhook)
            tells[Message("after a failure {told}", told=does)] = None
    asked += [(cap.ON_FAILURE, what, "schedule[].on_failure") for what in tells]
    if role.allowed_tools:
        what = Message("let a backend agent use {tools} unasked", tools=", ".join(role.allowed_tools))
        asked.append((cap.ALLOWED_TOOLS, what, "allowed_tools"))
    file = (role.folder / "agent.yaml").relative_to(root).as_posix()
    for capability, what, section in asked:
        message = Message("{what} for the role {name}", what=what, name=role.folder.name)
        yield RoleWant(role.folder, capability, Want(message, f"{file} {section}"))


#: By capability: what it means, and the field of agent.yaml that asks for it.
_ASKS = {
    cap.NETWORK: (Message("reach the network"), "security.network"),
    cap.READ: (Message("read {what}"), "workspace.allowed_paths"),
    cap.WRITE: (Message("read and write {what}"), "workspace.allowed_paths"),
    cap.MEMORY: (Message("use {what} MB of memory"), "security.memory_mb"),
    cap.PROCESSES: (Message("start {what} processes"), "security.processes"),
}
_REACH = Message("reach {what}")
_SOURCES = {"env": Message("your environment variable"), "file": Message("your file")}
_ROOTS = {"catalog": Message("look for skills in {folder}"), "editor": Message("edit files in {folder}")}


def _meaning(capability: str, bounds: Bounds) -> tuple[Message, str]:
    """Return what a capability means, and the field of agent.yaml that asks for it."""
    name, _, argument = capability.partition(":")
    if name == cap.SECRET:
        secret = next(each for each in bounds.secrets if each.name == argument)
        about = {"name": argument, "sources": _SOURCES[secret.source], "key": secret.key}
        return Message("give {name}, from {sources} {key}, to the skills", **about), "secrets"
    what, section = _ASKS[name]
    what = _REACH if name == cap.NETWORK and argument else what
    return Message(what.template, what=argument), section


#: What libpq and SQLAlchemy both take for a password, and nothing else: whatever could name another host is shown.
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):[^@/?#]*(?=@)|(?<=[?&]password=)[^&#]*")


def bin_changes(root: Path, grants: Grants) -> dict[str, list[str]]:
    """Return what changed in bin/ since it was trusted: paths under `added`, `changed` and `removed`."""
    found: dict[str, list[str]] = {}
    for change, path in _unseen_scripts(root, trusted_before(grants)):
        found.setdefault(change, []).append(path)
    return found


def _unseen_scripts(root: Path, before: Trusted) -> Iterator[tuple[str, str]]:
    """Yield the files of bin/ that changed since a person trusted them, without those that `init` wrote."""
    mark, files = _read_bin(root)
    if mark == before.bin:
        return
    for path in sorted({*files, *before.files}):
        if path not in files:
            yield "removed", f"bin/{path}"
        elif files[path] != before.files.get(path) and not is_ours(root / "bin" / path):
            yield "changed" if path in before.files else "added", f"bin/{path}"


def _read_bin(root: Path) -> tuple[str, Mapping[str, str]]:
    folder = root / "bin"
    if not folder.is_dir():
        return "", {}
    hashes = hash_folder(folder)
    return hashes.approved, hashes.digests


def _settings(root: Path) -> Iterator[Want]:
    file = root / "skillyard.toml"
    asks = _asks_of(read_toml(file)) if file.is_file() else ()
    return (Want(what, f"skillyard.toml [{where}") for what, where in asks)


def _asks_of(fields: Mapping[str, object]) -> Iterator[tuple[Message, str]]:
    """Yield what skillyard.toml asks for. A person must see all that it says about backend agents."""
    if database := _table(fields, "engine").get("database"):
        shown = _PASSWORD.sub(lambda found: f"{found[1]}:{MASK}" if found[1] is not None else MASK, str(database))
        yield Message("keep jobs in {database}", database=shown), "engine] database"
    for table, what in _ROOTS.items():
        roots = _table(fields, table).get("roots")
        for folder in roots if isinstance(roots, list) else ():
            yield Message(what.template, folder=folder), f"{table}] roots"
    for key, value in _table(fields, "dispatch").items():
        if key == "permissions":  # it can only take away
            continue
        yield Message("hand tasks to agents with {key} = {value}", key=key, value=value), "dispatch]"
    backends = _table(fields, "backends")
    for name in backends:
        backend = _table(backends, name)
        if command := backend.get("command"):
            words = shlex.join(map(str, command)) if isinstance(command, list) else command
            yield Message("start `{words}` as the backend {name}", words=words, name=name), f"backends.{name}] command"
        if tools := backend.get("allowed_tools"):
            told = ", ".join(map(str, tools)) if isinstance(tools, list) else tools
            yield Message("let {name} use {listed} unasked", name=name, listed=told), f"backends.{name}] allowed_tools"
    if decider := _table(fields, "worker").get("decider"):
        yield Message("let {decider} decide on skills up to MEDIUM", decider=decider), "worker] decider"


def _table(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = fields.get(name)
    return table if isinstance(table, Mapping) else {}
