"""What `skillyard init` does: lay out a project, and configure agents to start our MCP server there."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from skillyard.app.paths import find_paths
from skillyard.catalog.files import refuse_links, write_below
from skillyard.catalog.roots import can_be_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.mcp_config import AgentConfig, make_config
from skillyard.install.mcp_config import write as write_config
from skillyard.trust.own_files import FileState, FoundPiece, lay_out, look

_PACKAGE = Path(__file__).parent.parent
#: Of a wheel inside the package, of a clone beside src/.
EXAMPLES = next(filter(Path.is_dir, (_PACKAGE / "examples", _PACKAGE.parent.parent / "examples")), None)


def resolve_root(folder: str) -> Path:
    """Raise InvalidArgs if the folder can be no project."""
    root = Path(folder).resolve()
    if not can_be_project(root, find_paths().user_home.resolve()):
        raise InvalidArgs(
            Message("{root} cannot be a project: it is the home folder, above it, or inside a role's folder", root=root)
        )
    return root


def lay_out_examples(root: Path) -> list[FoundPiece]:
    """Put the example skills and the files they are tried on into the project; what is there stays as it is."""
    if EXAMPLES is None:
        raise InvalidArgs(Message("this installation has no examples"))
    places = {Path(".claude/skills"): EXAMPLES / "skills", Path(): EXAMPLES / "data"}
    made = []
    for place, source in places.items():
        for file in sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            path = (place / file.relative_to(source)).as_posix()
            refuse_links(root, (root / path).parent)
            mode = 0o755 if os.access(file, os.X_OK) else 0o644
            is_new = write_below(root, path, file.read_bytes(), mode=mode, replace=False)
            made.append(FoundPiece(path, FileState.MADE if is_new else FileState.KEPT))
    return made


def make_configs(root: Path, agents: Iterable[str]) -> list[AgentConfig]:
    """Return what each agent must read. Raise InvalidArgs for an unknown one. Nothing is written.

    The files are shared with others: they name our command and no path of this machine."""
    passed = [name for name in ("SKILLYARD_HOME",) if name in os.environ]
    return [make_config(root, agent, _server_command(), passed=passed) for agent in agents]


def is_command_found() -> bool:
    """Whether an agent that has our PATH would find the server."""
    return shutil.which(_server_command()[0]) is not None


def _server_command() -> tuple[str, ...]:
    return ("uvx", "skillyard") if shutil.which("uvx") and not shutil.which("skillyard") else ("skillyard",)
