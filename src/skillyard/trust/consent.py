"""What a person allows: grants for a skill's exact bytes, and trust in what a project's files ask for.

Only a person grants, by a command of its own or by answering a question on a terminal. Inside an agent (where the depth
counter is set) nothing is granted at all.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.fingerprint import fingerprint, read_digests
from skillyard.core.capability import ALLOWED_TOOLS, NETWORK, ON_FAILURE, PLAIN, SCHEDULE, WITH_ARGUMENT, is_capability
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, PermissionDenied, RoleInvalid
from skillyard.core.messages import Message
from skillyard.core.secrets import MASK
from skillyard.core.skill import Skill
from skillyard.store.grants import Grant, Grants
from skillyard.trust.permit import as_capability, resolve_capability

if TYPE_CHECKING:
    from skillyard.catalog.agentfile import Role


class Want(NamedTuple):
    """Something wide that a project's file asks for."""

    what: str
    where: str
    #: Files that a person has not seen yet in this state, each as (what happened to it, its path).
    files: tuple[tuple[str, str], ...] = ()


NO_FILES: Mapping[str, str] = {}


class Trusted(NamedTuple):
    """What a person trusted: the settings that they were shown, and each file of bin/."""

    settings: str = ""
    bin: str = ""
    files: Mapping[str, str] = NO_FILES

    @classmethod
    def from_text(cls, text: str) -> "Trusted":
        """Nothing is trusted where the text is of another version."""
        import json

        try:
            fields = json.loads(text)
            settings, scripts, files = fields["settings"], fields["bin"], fields["files"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls()
        if not isinstance(files, dict):
            return cls()
        is_text = all(isinstance(each, str) for each in (settings, scripts, *files.values()))
        return cls(settings, scripts, files) if is_text else cls()

    def as_text(self) -> str:
        import json

        return json.dumps({"settings": self.settings, "bin": self.bin, "files": dict(self.files)})


class RoleWant(NamedTuple):
    """The same of a role: a capability that its folder would be granted."""

    folder: Path
    capability: str
    what: str
    section: str

    def as_want(self, root: Path) -> Want:
        file = (self.folder / "agent.yaml").relative_to(root).as_posix()
        return Want(
            Message("{what} for the role {name}", what=self.what, name=self.folder.name), f"{file} {self.section}"
        )


def refuse_inside_agents(env: Mapping[str, str] = os.environ) -> None:
    if env.get(DEPTH):
        raise PermissionDenied(Message("an agent cannot grant anything: a person must do it, outside"))


def as_capabilities(words: tuple[str, ...]) -> tuple[str, ...]:
    """Capabilities as they are asked for, kept and shown. InvalidArgs for what is none."""
    return tuple(dict.fromkeys(map(_as_capability, words)))


def _as_capability(word: str) -> str:
    if not is_capability(word):
        known = ", ".join((*PLAIN, *(f"{name}:…" for name in (NETWORK, *WITH_ARGUMENT))))
        raise InvalidArgs(Message("{word!r} is no capability; there are {known}", word=word, known=known))
    try:
        return as_capability(word)
    except ValueError as error:
        raise InvalidArgs(Message("{word!r} names no host: {error}", word=word, error=error)) from None


def grant(grants: Grants, skill: Skill, capabilities: tuple[str, ...], mark: str = "") -> None:
    """`mark`: the fingerprint that the folder had when the person was asked."""
    refuse_inside_agents()
    capabilities = as_capabilities(capabilities)
    mark = mark or mark_of_skill(skill)
    for capability in capabilities:
        grants.add(Grant(str(skill.folder), mark, capability, time.time()))


def mark_of_skill(skill: Skill) -> str:
    return fingerprint(skill.folder, in_role=bool(skill.role))


def resolve_paths(capabilities: Sequence[str], root: Path, user_home: Path) -> tuple[str, ...]:
    """The capabilities as they are asked, stored and opened: every path in them resolved, from the project root."""
    return tuple(resolve_capability(text, root, user_home) for text in capabilities)


def wants(root: Path, before: Trusted | None = None) -> tuple[Want, ...]:
    """Everything in the project's files that is wider than the rules; it takes effect only after `trust`.

    The files of bin/ are told by what changed since `before`.
    """
    scripts = _scripts(root, before or Trusted())
    return (*scripts, *_settings(root), *(want.as_want(root) for want in role_wants(root)))


def mark_of(found: tuple[Want, ...]) -> str:
    import hashlib

    return hashlib.blake2b(repr(found).encode(), digest_size=20).hexdigest()


def trusted_before(grants: Grants) -> Trusted:
    return Trusted.from_text(grants.trusted())


def is_trusted(grants: Grants, root: Path) -> bool:
    """Whether all that the project asks for now, beside its roles, was shown to a person who said yes."""
    before = trusted_before(grants)
    return before.settings == mark_of(tuple(_settings(root))) and not any(_unseen_scripts(root, before))


def are_settings_trusted(grants: Grants, root: Path) -> bool:
    """The same for skillyard.toml alone: an edited script of bin/ does not switch the project's settings off."""
    return trusted_before(grants).settings == mark_of(tuple(_settings(root)))


def is_bin_trusted(grants: Grants, mark: str) -> bool:
    """Whether a person trusted bin/ with exactly these bytes in it."""
    return trusted_before(grants).bin == mark


def is_role_trusted(grants: Grants, folder: Path, capability: str) -> bool:
    """Whether a person allowed this to the role, as it is now: `schedule`, `on-failure`, `allowed-tools` and so on."""
    key = str(folder)
    return grants.has_any(key) and capability in grants.of(key, fingerprint(folder, in_role=True))


def untrusted_roles(grants: Grants, root: Path) -> tuple[str, ...]:
    """The roles that ask for more than they have."""
    missing = (want for want in role_wants(root) if not is_role_trusted(grants, want.folder, want.capability))
    return tuple(dict.fromkeys(want.folder.name for want in missing))


class Shown(NamedTuple):
    """All that a person is asked about, taken before the question: trust is for these bytes and no later ones."""

    wants: tuple[Want, ...]
    trusted: Trusted
    grants: tuple[Grant, ...]


def show_wants(grants: Grants, root: Path) -> Shown:
    moment = time.time()
    roles = role_wants(root)
    marks = {folder: fingerprint(folder, in_role=True) for folder in {want.folder for want in roles}}
    mark, files = _read_bin(root)
    return Shown(
        wants(root, trusted_before(grants)),
        Trusted(mark_of(tuple(_settings(root))), mark, files),
        tuple(Grant(str(want.folder), marks[want.folder], want.capability, moment) for want in roles),
    )


def trust(grants: Grants, root: Path, shown: Shown | None = None) -> None:
    """What the roles ask for becomes grants, for exactly the bytes of each one's folder."""
    refuse_inside_agents()
    shown = shown or show_wants(grants, root)
    grants.trust(shown.trusted.as_text(), time.time())
    for each in shown.grants:
        grants.add(each)


def distrust(grants: Grants, root: Path) -> None:
    """Take back the trust, and with it everything that was granted to the roles."""
    grants.distrust()
    agents = root / "agents"
    for folder in {grant.skill for grant in grants.list() if Path(grant.skill).parent == agents}:
        grants.revoke(folder)


def role_wants(root: Path) -> tuple[RoleWant, ...]:
    """What the agent.yaml files ask for beyond the rules; a file that cannot be read asks for nothing."""
    from skillyard.catalog.agentfile import list_roles

    return tuple(want for role in list_roles(root / "agents") for want in _of_role(role, root))


def _of_role(role: "Role", root: Path) -> Iterator[RoleWant]:
    from skillyard.catalog.bounds import read_bounds
    from skillyard.runtime.role_policy import wider

    try:
        bounds = read_bounds(role.bounds)
        asked = wider(bounds, root, role.folder)
    except RoleInvalid:
        return
    secrets = {secret.name: secret for secret in bounds.secrets}
    for capability in asked:
        name, _, argument = capability.partition(":")
        if name == "secret":
            secret = secrets[argument]
            what: str = Message(
                "give {name}, from {sources} {key}, to the skills",
                name=secret.name,
                sources=_SOURCES[secret.source],
                key=secret.key,
            )
        else:
            template = _REACH if name == NETWORK and argument else _WHAT[name]
            what = Message(template.template, what=argument)
        yield RoleWant(role.folder, capability, what, _SECTION[name])
    if role.schedule:
        count = len(role.schedule)
        yield RoleWant(
            role.folder,
            SCHEDULE,
            Message("start {count} scheduled {noun}", count=count, noun="job" if count == 1 else "jobs"),
            "schedule",
        )
    for told in dict.fromkeys(_tells(role)):
        yield RoleWant(role.folder, ON_FAILURE, Message("after a failure {told}", told=told), "schedule[].on_failure")
    if role.allowed_tools:
        tools = ", ".join(role.allowed_tools)
        yield RoleWant(
            role.folder, ALLOWED_TOOLS, Message("let a backend agent use {tools} unasked", tools=tools), "allowed_tools"
        )


def _tells(role: "Role") -> Iterator[str]:
    for job in role.schedule:
        told = job.get("on_failure")
        if isinstance(told, Mapping):
            command = told.get("command")
            yield (
                Message("run `{command}`", command=command)
                if command
                else Message("post to {told}", told=told.get("webhook"))
            )


_SOURCES = {"env": Message("your environment variable"), "file": Message("your file")}
_LOOK, _EDIT = Message("look for skills in {folder}"), Message("edit files in {folder}")
_REACH = Message("reach {what}")
_WHAT = {
    "network": Message("reach the network"),
    "read": Message("read {what}"),
    "write": Message("read and write {what}"),
    "memory": Message("use {what} MB of memory"),
    "processes": Message("start {what} processes"),
}
_SECTION = {
    "network": "security.network",
    "read": "workspace.allowed_paths",
    "write": "workspace.allowed_paths",
    "memory": "security.memory_mb",
    "processes": "security.processes",
    "secret": "secrets",
}


ADDED, CHANGED, REMOVED = "added", "changed", "removed"


def _scripts(root: Path, before: Trusted) -> Iterator[Want]:
    from skillyard.trust.own_files import is_ours

    # Any file there can be named to the worker, or imported by what is, whatever its ending and however deep it lies.
    entries = (path for path in (root / "bin").rglob("*") if path.is_symlink() or not path.is_dir())
    if not all(map(is_ours, entries)):
        unseen = tuple(_unseen_scripts(root, before))
        yield Want(Message("run the scripts in bin/ with read access to the whole project"), "bin/", unseen)


def bin_changes(root: Path, grants: Grants) -> dict[str, list[str]]:
    """What changed in bin/ since it was trusted: paths under `added`, `changed` and `removed`."""
    found: dict[str, list[str]] = {}
    for change, path in _unseen_scripts(root, trusted_before(grants)):
        found.setdefault(change, []).append(path)
    return found


def _unseen_scripts(root: Path, before: Trusted) -> Iterator[tuple[str, str]]:
    """The files of bin/ that are not as they were when a person trusted them; those that `init` wrote are fine."""
    from skillyard.trust.own_files import is_ours

    mark, files = _read_bin(root)
    if mark == before.bin:
        return
    for path in sorted({*files, *before.files}):
        if path not in files:
            yield REMOVED, f"bin/{path}"
        elif files[path] != before.files.get(path) and not is_ours(root / "bin" / path):
            yield CHANGED if path in before.files else ADDED, f"bin/{path}"


def _read_bin(root: Path) -> tuple[str, Mapping[str, str]]:
    folder = root / "bin"
    return read_digests(folder) if folder.is_dir() else ("", {})


def _settings(root: Path) -> Iterator[Want]:
    file = root / "skillyard.toml"
    if not file.is_file():
        return
    from skillyard.app.settings import read_toml

    fields = read_toml(file)
    engine = fields.get("engine")
    if isinstance(engine, Mapping) and engine.get("database"):
        yield Want(
            Message("keep jobs in {database}", database=_without_password(str(engine["database"]))),
            "skillyard.toml [engine] database",
        )
    for table, what in (("catalog", _LOOK), ("editor", _EDIT)):
        asked = fields.get(table)
        roots = asked.get("roots") if isinstance(asked, Mapping) else None
        for folder in roots if isinstance(roots, list) else ():
            yield Want(Message(what.template, folder=folder), f"skillyard.toml [{table}] roots")
    yield from _agents(fields)


def _agents(fields: Mapping[str, object]) -> Iterator[Want]:
    """What the project says of backend agents: whatever it is, a person must have seen it."""
    import shlex

    dispatch, backends, worker = fields.get("dispatch"), fields.get("backends"), fields.get("worker")
    for key, value in dispatch.items() if isinstance(dispatch, Mapping) else ():
        yield Want(
            Message("hand tasks to agents with {key} = {value}", key=key, value=value), "skillyard.toml [dispatch]"
        )
    for name, agent in backends.items() if isinstance(backends, Mapping) else ():
        if not isinstance(agent, Mapping):
            continue
        command, tools = agent.get("command"), agent.get("allowed_tools")
        if command:
            words = shlex.join(map(str, command)) if isinstance(command, list) else command
            yield Want(
                Message("start `{words}` as the backend {name}", words=words, name=name),
                f"skillyard.toml [backends.{name}] command",
            )
        if tools:
            listed = ", ".join(map(str, tools)) if isinstance(tools, list) else tools
            yield Want(
                Message("let {name} use {listed} unasked", name=name, listed=listed),
                f"skillyard.toml [backends.{name}] allowed_tools",
            )
    if isinstance(worker, Mapping) and worker.get("decider"):
        yield Want(
            Message("let {decider} decide on skills up to MEDIUM", decider=worker["decider"]),
            "skillyard.toml [worker] decider",
        )


#: What libpq and SQLAlchemy both take for a password, and nothing else: whatever could name another host is shown.
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):[^@/?#]*(?=@)|(?<=[?&]password=)[^&#]*")


def _without_password(url: str) -> str:
    """As a person sees it, and as it is trusted."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:{MASK}" if found[1] is not None else MASK, url)
