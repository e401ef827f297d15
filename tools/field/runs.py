"""Runs one case twice over: plainly, in a loose bubblewrap, and by `skillyard run`, each in a project of its own.

The plain run is what the skill's author expects: the machine's programs and the whole project, which it may change. It
still is a stranger's program: it gets copies, an empty home and no network, and sees nothing else that can be written.
"""

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.sandbox.launch import PRIVATE_HOME
from tools.field.cases import STARTERS, Case

SECONDS = 40
_MOST_BYTES = 4_000_000
_HINTED = re.compile(r"`(skillyard (?:env|grant|trust) [^`]+)`")
#: Figures that differ between any two runs.
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d\b|0x[0-9a-f]{6,}|"
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b\d+(?:\.\d+)? ?m?s\b|/tmp/tmp\w+"
)


class Ended(NamedTuple):
    """How a run ended: `files` are those of the project that it made, changed or deleted."""

    ok: bool
    said: str
    files: Mapping[str, str | None]
    cause: str = ""
    #: Commands that the answer printed for the person.
    hints: tuple[str, ...] = ()
    #: Whether the answer itself tells that the run may have missed something.
    told: bool = False
    #: The error's type in an answer of ours.
    error: str = ""


class Ground:
    """A throw-away project for one case."""

    def __init__(self, base: Path, case: Case) -> None:
        self.base, self.case = base, case
        self.project = base / "project"
        self.skill = self.project / ".claude" / "skills" / case.skill.name
        (base / "home").mkdir(parents=True)
        shutil.copytree(case.skill, self.skill, symlinks=True, ignore_dangling_symlinks=True)
        for name, content in case.samples.items():
            path = self.project / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        (self.project / "README.md").write_text("# A project\n")
        subprocess.run(["git", "init", "-q", str(self.project)], check=False, capture_output=True)
        self.before = self._files()

    def changed(self) -> dict[str, str | None]:
        after = self._files()
        return {
            name: after.get(name)
            for name in self.before.keys() | after.keys()
            if self.before.get(name) != after.get(name)
        }

    def _files(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for folder, folders, names in os.walk(self.project):
            folders[:] = [name for name in folders if name not in {".git", ".skillyard", "__pycache__", "node_modules"}]
            for name in names:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    found[path.relative_to(self.project).as_posix()] = hashlib.sha256(
                        self._plain(path.read_bytes())
                    ).hexdigest()
        return found

    def _plain(self, content: bytes) -> bytes:
        """Return the content without what no two runs share; of an archive (.xlsx, .docx) that of its members."""
        if content.startswith(b"PK\x03\x04"):
            with suppress(zipfile.BadZipFile, NotImplementedError), zipfile.ZipFile(io.BytesIO(content)) as archive:
                return b"".join(name.encode() + self._plain(archive.read(name)) for name in archive.namelist())
        return self.normalise(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def normalise(self, text: str) -> str:
        """Return the text without what no two runs share: folders, times, ids.

        A program may be called by its whole path or by that below the project, as `$0` then tells; with us its home
        is a private folder.
        """
        for told, plain in (
            (f"{self.project}/", ""),
            (f"{self.base}/home", "<home>"),
            (str(PRIVATE_HOME), "<home>"),
            (str(self.base), "<base>"),
        ):
            text = text.replace(told, plain)
        return _VARIES.sub("<…>", text).strip()


def run_plainly(ground: Ground, python: Path, *, from_skill: bool = False) -> Ended:
    """Run the program as its author would, kept away from this machine.

    With `from_skill` it imports as `python -m` in the skill's folder does.
    """
    case, base = ground.case, str(ground.base)
    program = f".claude/skills/{case.skill.name}/{case.program}"
    starter = STARTERS[Path(case.program).suffix]
    inside = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/root"]
    inside += ["--tmpfs", "/home", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]
    for prefix in dict.fromkeys((sys.base_prefix, str(python.parent.parent))):
        inside += ["--ro-bind", prefix, prefix]
    inside += [
        "--bind",
        base,
        base,
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--chdir",
        str(ground.project),
    ]
    env = {"HOME": f"{base}/home", "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ground.skill) if from_skill else ""}
    try:
        done = subprocess.run(
            [*inside, *starter, program, *case.words],
            env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ended(False, "", {}, "too slow")
    said = done.stdout[:_MOST_BYTES].decode("utf-8", "replace")
    cause = (
        ""
        if done.returncode == 0
        else f"exit {done.returncode}: {_last_line(done.stderr.decode('utf-8', 'replace') or said)}"
    )
    return Ended(done.returncode == 0, ground.normalise(said), ground.changed(), cause)


def run_ours(ground: Ground, home: Path) -> Ended:
    """Run it by the command line, as a person's script would."""
    answer = _skillyard(
        ground, home, ["run", "--json", f"@{ground.case.skill.name}:{ground.case.program}", *ground.case.words]
    )
    if answer is None:
        return Ended(False, "", {}, "no answer")
    data, meta = answer["data"], answer["meta"]
    if meta.get("changes") == "pending":
        _skillyard(ground, home, ["changes", "--json", str(meta["run"]), "apply"])
    printed = _HINTED.findall(json.dumps(answer, ensure_ascii=False).replace('\\"', '"'))
    hints = tuple(dict.fromkeys((*([str(data["grant"])] if "grant" in data else []), *printed)))
    cause = (
        ""
        if answer["state"] == "success"
        else f"{data.get('type', answer['state'])}: {_last_line(str(data.get('msg', '')))}"
    )
    told = bool(meta.get("sandbox_notes") or meta.get("hint"))
    return Ended(
        answer["state"] == "success",
        ground.normalise(said_of(data)),
        ground.changed(),
        cause,
        hints,
        told,
        str(data.get("type", "")),
    )


def obey(ground: Ground, home: Path, hint: str) -> bool:
    """Run a command that an answer printed; a person's consent is given with --accept."""
    words = shlex.split(hint)[1:]
    if words[0] in {"grant", "trust", "env"} and "--accept" not in words:
        words.append("--accept")
    answer = _skillyard(ground, home, [words[0], "--json", *words[1:]], seconds=300)
    return answer is not None and answer["state"] == "success"


def said_of(data: Mapping[str, Any]) -> str:
    """Return what the program printed, however the answer holds it."""
    if isinstance(data.get("content"), str):
        return str(data["content"])
    ours = {"skill", "output_path", "output_size", "outputs", "changes", "stderr"}
    if "recoverable" in data:  # an error of ours, with what the program printed beside it
        ours |= {"type", "msg", "recoverable", "exit_code", "usage", "may_need", "grant"}
    merged = {
        **data.get("reported", {}),
        **{key: value for key, value in data.items() if key not in ours | {"reported"}},
    }
    return json.dumps(merged, sort_keys=True, ensure_ascii=False) if merged else ""


def same_words(plain: str, ours: str) -> bool:
    """Tell whether both printed the same; JSON in any layout."""
    if plain == ours:
        return True
    try:
        return bool(json.loads(plain) == json.loads(ours))
    except ValueError:
        return False


def _skillyard(ground: Ground, home: Path, words: list[str], seconds: float = SECONDS * 2) -> Any:
    env = {
        **os.environ,
        "SKILLYARD_HOME": str(home),
        "HOME": str(ground.base / "home"),
        "LANG": "C.UTF-8",
        "SKILLYARD_LANG": "en",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "skillyard", *words],
            cwd=ground.project, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
