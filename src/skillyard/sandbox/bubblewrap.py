"""Uses bubblewrap where the system lets it make namespaces and not us.

Covered: the same as our own namespaces, with our seccomp filter.
Not covered: Landlock on top; a symlink swapped between our look at a path and bubblewrap's.
"""

import errno
import os

from skillyard.sandbox.launch import PRIVATE, Policy, refuse_special
from skillyard.sandbox.namespaces import named, pinned_inside, system_layout

_PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
_TRIAL_SECONDS = 5


def find() -> tuple[str, str]:
    """Return the program's path, or why it cannot be used."""
    program = next((place for place in _PLACES if os.access(place, os.X_OK)), "")
    if not program:
        return "", "not installed"
    trial = (program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "/bin/true")
    import subprocess  # noqa: PLC0415  (only the probe tries it out; every run brings this module)

    try:
        tried = subprocess.run(trial, capture_output=True, timeout=_TRIAL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return (program, "") if tried.returncode == 0 else ("", tried.stderr.decode(errors="replace").strip())


def arguments(policy: Policy, cwd: str, seccomp_file: int) -> tuple[str, ...]:
    """Return the options for `--args`: the program could read them on bubblewrap's command line."""
    words = ["--unshare-all", "--die-with-parent", "--new-session", "--hostname", "localhost", "--cap-drop", "ALL"]
    words += ["--share-net"] if policy.network else []
    words += ["--unshare-user", "--uid", "65534", "--gid", "65534"] if os.getuid() == 0 else []
    words += ["--seccomp", str(seccomp_file), "--proc", "/proc", "--dev", "/dev"]
    for place in (PRIVATE, "/tmp"):
        words += ["--size", str(policy.temp_bytes), "--tmpfs", place]
    for name in ("home", "tmp"):
        words += ["--perms", "0700", "--dir", f"{PRIVATE}/{name}"]
    for part in system_layout(network=policy.network):
        words += ["--symlink" if part.is_link else "--ro-bind-try", part.source, part.path]
    binds = named(policy)
    pinned: list[str] = []
    for bind in binds:
        source = bind.source or bind.path
        if os.path.lexists(source) and os.path.realpath(source) != source:
            raise OSError(errno.ELOOP, "there is a symlink on the way", source)
        if os.path.exists(source):
            refuse_special(source, os.stat(source).st_mode)
        if (inner := pinned_inside(bind, binds)) and os.path.isdir(source):
            words += ["--tmpfs", bind.path, *_children(source, bind.path, inner)]
            pinned.append(bind.path)
        else:
            words += ["--bind" if bind.writable else "--ro-bind" if bind.source else "--ro-bind-try", source, bind.path]
    for path in policy.hide:
        if os.path.lexists(path) and any(path.is_relative_to(bind.path) for bind in binds):
            words += ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind-try", "/dev/null", str(path))
    words += ["--dir", cwd, *(word for path in pinned for word in ("--remount-ro", path))]
    # As root outside, the files under /proc/sys are ours to write: read-only is what stops that.
    words += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", cwd]
    return tuple(words)


def _children(source: str, target: str, pinned: tuple[str, ...]) -> list[str]:
    """The arguments for everything in a folder but the pinned paths; see `namespaces.pinned_inside`."""
    words: list[str] = []
    for entry in os.scandir(source):
        child = f"{target}/{entry.name}"
        if child in pinned:
            continue
        if any(inner.startswith(f"{child}/") for inner in pinned):
            is_folder = entry.is_dir(follow_symlinks=False)
            words += ["--dir", child, *(_children(entry.path, child, pinned) if is_folder else ())]
        elif entry.is_symlink():
            words += ["--symlink", os.readlink(entry.path), child]
        elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
            words += ["--ro-bind-try", entry.path, child]
    return words
