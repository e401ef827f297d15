"""The files of a project that a run does not see although it sees the project: keys, credentials and our own state.

Found by their names, in every folder. In folders of packages, whose certificates programs need, a `.pem` or `.key`
is hidden only if it holds a private key. docs/reference/hidden-files.md lists them. A path that a person names or
grants is seen.

A large project is not listed anew for each run. What a folder holds is remembered in SKILLYARD_HOME with the folder's
inode and change time, which the kernel sets when a name in it is added, removed or renamed and nobody else can set; so
a run looks at each folder once, and lists those that changed.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from skillyard.catalog.files import is_utf8
from skillyard.core.values import lazy_pattern

#: Names of files and folders, as people write patterns, without regard to case.
FILES = (
    *(".env*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *(".npmrc", ".yarnrc.yml", ".netrc", "_netrc", ".pypirc", ".pgpass", ".my.cnf", ".dockercfg", ".htpasswd"),
    *(".git-credentials", ".s3cfg", ".boto", "credentials.json", "client_secret*.json", "service-account*.json"),
)
#: The same by their form: whole names, `NAME*`, `*NAME`, and `NAME*NAME`.
_NAMES = frozenset(name for name in FILES if "*" not in name)
_STARTS = tuple(name[:-1] for name in FILES if name.endswith("*"))
_ENDS = tuple(name[1:] for name in FILES if name.startswith("*"))
_AROUND = tuple(name.split("*") for name in FILES if "*" in name[1:-1])
#: A private key as ssh names them: `id_rsa`, `id_ed25519_work`; with an ending (`id_map.py`) it is something else.
KEY_FILES = r"id_[\w-]+"
FOLDERS = (".aws", ".ssh", ".gnupg", ".kube", ".docker", ".azure", ".gcloud", ".skillyard", ".terraform.d", ".secrets")
#: Folders of other people's code, where certificates are seen.
PACKAGES = frozenset({"node_modules", ".venv", "venv", "site-packages", "__pycache__", ".tox", ".nox", "vendor"})
CERTIFICATES = (".pem", ".key")
#: The folder in SKILLYARD_HOME with what is remembered.
_MEMORY = "cache/hidden"
#: From so many folders on it is worth remembering them, and remembering them again if so many changed.
_MANY, _MANY_CHANGED = 50, 25
#: A folder that changed this short a time ago may change again within the same tick of the file system's clock.
_SETTLED_NS = 2_000_000_000
_HEAD_BYTES = 65_536
#: Where interpreters, shells and libraries look in a home by themselves: that a run looked there says nothing.
_USUAL_IN_HOME = frozenset(
    (
        ".local",
        ".config",
        *(f".config/{name}" for name in ["git", "matplotlib", "fontconfig", "pip", "uv", "npm", "nodejs"]),
    )
)
_USUAL_STARTS = (
    *(".bash", ".zsh", ".profile", ".inputrc", ".terminfo", ".python", ".pyenv", ".nvm", ".rustup", ".npm", ".node_"),
    *(".cache", ".gitconfig", ".font", ".java", ".gem", ".rbenv", ".lesshst", ".wget", ".viminfo", ".Xauthority"),
)
#: Folders of a home in which many programs have one of their own.
_SHARED_IN_HOME = (".config", ".local/share")
_MOST_NAMES = 1000
#: Identity (device, inode, change time) and, by name, what a folder holds: other folders, hidden things, keys or
#: certificates in a package.
_Listing: TypeAlias = list[list[int] | list[str]]
_CREDENTIALS = lazy_pattern(
    rb"(?im)^\s*(?:url|pushurl)\s*=\s*https?://[^/\s]*@|extraheader|^\s*\[credential|oauth|token"
)
_KEY_FILE = lazy_pattern(KEY_FILES)
_PRIVATE_KEY = lazy_pattern(rb"PRIVATE KEY-----")


def find_hidden(root: Path, own_home: Path | None = None) -> tuple[Path, ...]:
    """Return what is hidden in a project, as literal paths. `own_home` is where its folders are remembered."""
    memory = None
    if own_home:
        with suppress(OSError):
            status = root.stat()  # not a digest of the path: hashlib takes longer to import than this to run
            memory = own_home / _MEMORY / f"{status.st_dev:x}-{status.st_ino:x}.json"
    known: dict[str, _Listing] = {}
    fresh: dict[str, _Listing] = {}
    # What a listing depends on besides the folder.
    rules = [*FILES, KEY_FILES, *FOLDERS, *sorted(PACKAGES), *CERTIFICATES]
    if memory:
        with suppress(OSError, ValueError, KeyError, TypeError):
            written = json.loads(memory.read_bytes())
            known = written["folders"] if written["rules"] == rules else {}
    found = tuple(map(Path, _walk(str(root), known, fresh)))
    changed = sum(known.get(path) is not listing for path, listing in fresh.items())
    if memory and len(fresh) >= _MANY and changed >= _MANY_CHANGED:
        with suppress(OSError):
            memory.parent.mkdir(parents=True, exist_ok=True)
            draft = memory.with_name(f"{memory.name}.{os.getpid()}")
            draft.write_text(json.dumps({"rules": rules, "folders": fresh}))
            draft.replace(memory)
    return found


def list_home(home: Path) -> tuple[str, ...]:
    """Return the names in a person's home whose lookups by a run are worth a note."""
    found: list[str] = []
    for folder in ("", *_SHARED_IN_HOME):
        with suppress(OSError):
            found += (str(path.relative_to(home)) for path in (home / folder).iterdir())
    unusual = (name for name in sorted(found) if name not in _USUAL_IN_HOME and not name.startswith(_USUAL_STARTS))
    return tuple(filter(is_utf8, unusual))[:_MOST_NAMES]


def is_hidden(path: str) -> bool:
    """Whether a relative path with `/` is one of those, or inside one."""
    *above, name = path.split("/")
    return _is_secret(name) or any(part.lower() in FOLDERS for part in (*above, name))


def _walk(root: str, known: dict[str, _Listing], fresh: dict[str, _Listing]) -> Iterator[str]:
    """Yield what is hidden below a folder; `fresh` gets the listings that hold until the folders change."""
    waiting, settled = [(root, False)], time.time_ns() - _SETTLED_NS
    while waiting:
        folder, is_package = waiting.pop()
        try:
            status = os.lstat(folder)
            identity = [status.st_dev, status.st_ino, status.st_ctime_ns]
            listing = known.get(folder)
            if listing is None or listing[0] != identity:
                listing = [identity, *_list(folder, is_package)]
        except OSError:
            continue  # what we cannot list, the run cannot either
        if 0 < status.st_ctime_ns < settled:  # some file systems have no such time
            fresh[folder] = listing
        _, folders, hidden, keys = listing
        for name in folders:
            if name == ".git":
                yield from (path for path in _git_configs(f"{folder}/.git") if _holds(path, _CREDENTIALS))
            else:
                waiting.append((f"{folder}/{name}", is_package or name in PACKAGES))
        yield from (f"{folder}/{name}" for name in hidden)
        yield from (path for name in keys if _holds(path := f"{folder}/{name}", _PRIVATE_KEY))


def _list(folder: str, is_package: bool) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the folders, the hidden things and the undecided keys in a folder."""
    found: tuple[list[str], list[str], list[str]] = ([], [], [])
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                found[1 if name.lower() in FOLDERS else 0].append(name)
            elif _is_secret(name):
                found[2 if is_package and name.lower().endswith(CERTIFICATES) else 1].append(name)
    return found


def _git_configs(folder: str) -> Iterator[str]:
    """Yield the configuration of a repository and of its submodules."""
    yield f"{folder}/config"
    for place, folders, names in os.walk(f"{folder}/modules"):
        if "HEAD" in names:
            yield f"{place}/config"
            folders[:] = [name for name in folders if name == "modules"]


def _is_secret(name: str) -> bool:
    """Whether a file of this name is hidden. Without regular expressions, which take longer to compile than to list."""
    name = name.lower()
    if name in _NAMES or name.startswith(_STARTS) or name.endswith(_ENDS):
        return True
    if name.startswith("id_") and _KEY_FILE.fullmatch(name):
        return True
    return any(name.startswith(start) and name.endswith(end) for start, end in _AROUND)


def _holds(path: str, words: re.Pattern[bytes]) -> bool:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            return words.search(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False
