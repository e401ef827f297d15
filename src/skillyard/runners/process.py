"""What the kinds that start a program have in common: the environment, and what its end means."""

import os
import stat
from pathlib import Path

from skillyard.catalog.fingerprint import is_repository
from skillyard.core.errors import InvalidArgs, OutputTooLarge, RuntimeFailed, SkillError, Timeout
from skillyard.core.messages import Message
from skillyard.core.request import Call
from skillyard.core.result import as_size, meaningful
from skillyard.core.skill import Kind
from skillyard.core.values import Json
from skillyard.runners.leftovers import Snapshot, snapshot_of, stamp_of
from skillyard.runners.printed import names_our_command
from skillyard.sandbox.launch import Exit

#: What every program may see of our environment; the rest is ours alone.
_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SKILL_DEBUG", "SKILLYARD_DEPTH")
QUOTED_CHARACTERS = 200
#: What a program ends with to say that it was called wrongly.
USAGE_CODES = frozenset({2, 64})
#: How a usage text begins, in the languages that programs here speak.
USAGE_WORDS = ("usage", "用法")
BOX = "mybox"
#: Our own code, which JSON skills may read; of it only `skillyard.skill` stands on their path.
PACKAGE = Path(__file__).parent.parent
_FOR_SKILLS = PACKAGE / "for_skills"


def base_environment() -> dict[str, str]:
    """Only what every program needs."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    ours = {"PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **passed, **ours}


def environment(call: Call) -> dict[str, str]:
    """The same, and where the program's skill is; JSON skills find our helper."""
    helper = {"PYTHONPATH": str(_FOR_SKILLS)} if call.skill.kind is Kind.JSON else {}
    own = {"CLAUDE_SKILL_DIR": str(call.run_folder), "SKILLYARD_RUN": call.run_id}
    return {**base_environment(), **own, **helper}


def in_repository(path: Path) -> bool:
    """Whether it names something of git's own in a skill, which is not part of the skill."""
    return any(map(is_repository, path.parts))


def check_exit(call: Call, ended: Exit) -> None:
    """Raise what went wrong, if anything did."""
    if ended.timed_out:
        raise Timeout(call.asked_as, meaningful(ended.seconds), call.limit_seconds)
    if ended.overflowed:
        limit = as_size(len(ended.stdout))
        log = f"skillyard runs show {call.run_id}"
        raise OutputTooLarge(Message("more than {count} on stdout", count=limit), limit=limit, log=log)
    if ended.code != 0:
        raise failure(call, ended)


def failure(call: Call, ended: Exit) -> SkillError:
    """It ran and failed; or it was called wrongly and says how it wants to be called."""
    if usage := usage_of(ended):
        return InvalidArgs(usage.splitlines()[-1], details={"usage": usage, "exit_code": ended.code})
    words = quoted(ended.stderr) or quoted(ended.stdout)
    reason = (
        Message("the program says: {message}", message=words)
        if names_our_command(words)
        else words or _without_words(ended.code)
    )
    details: dict[str, Json] = {"exit_code": ended.code}
    return RuntimeFailed(reason, details=details, log=f"skillyard runs show {call.run_id}")


def usage_of(ended: Exit) -> str:
    """The usage text of a program that says it was called wrongly."""
    stderr = ended.stderr.decode("utf-8", "replace").strip()
    return stderr[:4000] if ended.code in USAGE_CODES and any(word in stderr.lower() for word in USAGE_WORDS) else ""


def _without_words(code: int) -> str:
    return Message("exit code {code}", code=code) if code >= 0 else Message("ended by signal {value}", value=-code)


def quoted(stderr: bytes) -> str:
    """The end of what it said, where the reason usually stands."""
    text = " ".join(stderr.decode("utf-8", "replace").split())
    return text if len(text) <= QUOTED_CHARACTERS else "…" + text[1 - QUOTED_CHARACTERS :]


def snapshot(call: Call) -> Snapshot:
    """The output as it is before the run: the files below mybox/, or the one that was named."""
    return snapshot_of(_box(call)) if call.output.endswith("/") else _stamped(call.root.resolve() / call.output)


def written(call: Call, before: Snapshot, ended: Exit) -> dict[str, Json]:
    """The file that `{output}` named, else the one new file below mybox/."""
    if not call.output.endswith("/"):
        target = call.root.resolve() / call.output
        after = _stamped(target)
        return _told(target, call) if after and after != before else {}
    after = snapshot_of(_box(call)) if ended.files is None else dict(ended.files)
    fresh = [path for path, stamp in after.items() if before.get(path) != stamp]
    return _told(Path(fresh[0]), call) if len(fresh) == 1 else {}


def _box(call: Call) -> Path:
    return call.root.resolve() / BOX


def _stamped(path: Path) -> Snapshot:
    """One file with its stamp; nothing where there is none. A link is none."""
    try:
        status = path.lstat()
    except OSError:
        return {}
    return {str(path): stamp_of(status)} if stat.S_ISREG(status.st_mode) else {}


def _told(path: Path, call: Call) -> dict[str, Json]:
    """Nothing for a name that no result can hold, or a file that another run took away in the meantime."""
    root = call.root.resolve()
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    try:
        shown.encode()
        size = path.lstat().st_size
    except (OSError, UnicodeEncodeError):
        return {}
    return {"output_path": shown, "output_size": as_size(size)}
