"""The command `skillyard`."""

import gc
import os
import sys

if not __package__:
    # Started by its path, isolated, as `core/child_process.py` does: the package may be in no folder that Python knows.
    if not sys.flags.safe_path:
        del sys.path[0]
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> None:
    drop_unsafe_paths()
    if sys.argv[1:] == ["--version"]:
        # Asked by scripts and by agents all the time: answered before anything is imported.
        from skillyard import __version__  # noqa: PLC0415

        sys.stdout.write(f"skillyard {__version__}\n")
        return
    # A command makes many small values and ends: looking for cycles among them every 700 would take a tenth of it.
    gc.set_threshold(100_000, 20, 20)
    from skillyard.faces.cli.main import main as command_line  # noqa: PLC0415

    code: object = 0
    try:
        command_line()
    except SystemExit as ended:
        code = ended.code
    leave(code)


def drop_unsafe_paths() -> None:
    """Take the current folder, and the project that it belongs to, off the path that modules are imported from.

    `python -m skillyard` puts the current folder there, and so does an empty or relative entry of PYTHONPATH. Kept are
    the Python itself with its packages, which may be an environment inside the project, and our own package. What
    Python imports before any program starts (sitecustomize) cannot be helped here.
    """
    package = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    user_site = getattr(sys.modules.get("site"), "USER_SITE", None)
    places = {sys.prefix, sys.base_prefix, sys.exec_prefix, user_site}
    kept = [os.path.realpath(each) for each in places if each]
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        here = ""
    root = _project_of(here) if here else ""

    def is_safe(entry: str) -> bool:
        if not os.path.isabs(entry):
            return False
        real = os.path.realpath(entry)
        if real == package:
            return True
        if here and real == here:
            return False
        return not (root and _is_inside(real, root)) or any(_is_inside(real, each) for each in kept)

    sys.path[:] = [entry for entry in sys.path if is_safe(entry)]
    if sys.pycache_prefix and not is_safe(sys.pycache_prefix):
        sys.pycache_prefix = None


def _project_of(here: str) -> str:
    """The nearest folder that is marked as a project, else `here`; nothing in the home folder and above."""
    home = os.path.realpath(os.path.expanduser("~"))
    folder, candidates = here, []
    while folder != os.path.dirname(folder):
        if not _is_inside(home, folder):
            candidates.append(folder)
        folder = os.path.dirname(folder)
    for each in candidates:
        if os.path.lexists(f"{each}/.git") or os.path.lexists(f"{each}/skillyard.toml"):
            return each
    return candidates[0] if candidates else ""


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def leave(code: object) -> None:
    """End at once. Taking the interpreter apart, and our databases with it, would take as long as the work did;
    they are made to survive worse than this."""
    status = code if isinstance(code, int) else 0 if code is None else 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        status = status or 1  # whoever read our output has left
    os._exit(status)


if __name__ == "__main__":
    main()
