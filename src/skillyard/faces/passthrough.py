"""S0 §2.3: what a face that prints text shows in full, and what goes to a file below mybox/workspace/."""

from pathlib import Path

from skillyard.core.result import Result, as_size
from skillyard.core.values import Json

_TEXTS = frozenset({"content", "text", "article"})
_CODES = frozenset({"code", "script"})
_INLINE_CHARACTERS = 2000
_INLINE_LINES = 100
_FIRST_LINES = 5


def pass_through(result: Result, root: Path) -> Result:
    """Long texts go to a file; its path, size and first lines stand in their place. A prompt stays whole."""
    if result.data.get("type") == "prompt":
        return result
    data = {key: _inline_or_file(key, value, result, root) for key, value in result.data.items()}
    return result._replace(data=data)


def _inline_or_file(key: str, value: Json, result: Result, root: Path) -> Json:
    if not isinstance(value, str):
        return value
    is_text = key in _TEXTS and len(value) > _INLINE_CHARACTERS
    is_code = key in _CODES and len(value.splitlines()) > _INLINE_LINES
    if not (is_text or is_code):
        return value
    run = str(result.meta.get("run") or result.meta.get("ts", "")).replace(":", "")
    path = root / "mybox" / "workspace" / f"{key}-{run}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value, "utf-8")
    return {
        "path": path.relative_to(root).as_posix(),
        "size": as_size(len(value.encode())),
        "first_lines": "\n".join(value[:_INLINE_CHARACTERS].splitlines()[:_FIRST_LINES]),
    }
