"""What `skillyard init` does: lay out a project, and configure agents to start our MCP server there."""

import os
from collections.abc import Iterable
from pathlib import Path

from skillyard.app.paths import find_paths
from skillyard.catalog.roots import can_be_project
from skillyard.core.child_process import own_command
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.mcp_config import AgentConfig, make_config
from skillyard.install.mcp_config import write as write_config
from skillyard.trust.own_files import lay_out, look


def resolve_root(folder: str) -> Path:
    """Raise InvalidArgs if the folder can be no project."""
    root = Path(folder).resolve()
    if not can_be_project(root, find_paths().user_home.resolve()):
        raise InvalidArgs(
            Message("{root} cannot be a project: it is the home folder, above it, or inside a role's folder", root=root)
        )
    return root


def make_configs(root: Path, agents: Iterable[str]) -> list[AgentConfig]:
    """Return what each agent must read. Raise InvalidArgs for an unknown one. Nothing is written."""
    home = os.environ.get("SKILLYARD_HOME")
    env = {"SKILLYARD_HOME": str(Path(home).absolute())} if home else {}
    return [make_config(root, agent, own_command(), env) for agent in agents]
