"""Files that nobody can read before they run: machine code, bytecode without source, archives, and odd permissions."""

import stat
from collections.abc import Iterator
from pathlib import PurePosixPath

from skillyard.core.messages import Message
from skillyard.install.threats.files import File

_MACHINE = (
    (b"\x7fELF", "a Linux program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xce\xfa\xed\xfe", "a macOS program"),
    (b"\xfe\xed\xfa\xce", "a macOS program"),
    (b"\xfe\xed\xfa\xcf", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or Java bytecode"),
    (b"\0asm", "a WebAssembly program"),
)
_ARCHIVES = frozenset({".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".whl", ".jar", ".egg", ".skill"})


def find_binary(file: File, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The rule and what to say; `names` are all the files of the skill."""
    path = PurePosixPath(file.name)
    if file.mode & (stat.S_ISUID | stat.S_ISGID):
        yield "setuid", f"its mode is {stat.S_IMODE(file.mode):o}"
    if said := _machine(file.content):
        yield "machine-code", said
    elif path.suffix in {".pyc", ".pyo"} and _source(path) not in names:
        yield "orphan-bytecode", Message("there is no {path}", path=_source(path))
    elif path.suffix.lower() in _ARCHIVES:
        yield "archive", "what is inside was not looked at"
    if file.size > len(file.content):
        yield "partly-read", f"{len(file.content)} of {file.size} bytes were looked at"


def _machine(content: bytes) -> str:
    if content.startswith(b"MZ") and (b"PE\0\0" in content[:4096] or b"This program" in content[:512]):
        return "a Windows program"
    return next((said for magic, said in _MACHINE if content.startswith(magic)), "")


def _source(path: PurePosixPath) -> str:
    """`__pycache__/x.cpython-312.pyc` comes from `x.py` beside the folder."""
    folder = path.parent.parent if path.parent.name == "__pycache__" else path.parent
    return str(folder / f"{path.name.partition('.')[0]}.py")
