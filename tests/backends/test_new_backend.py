"""A backend is added by one module in the room `backends`: nothing else knows its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

from skillyard.app.paths import ProjectPaths

AGENT = Path(__file__).with_name("acp_agent.py")

MODULE = f"""\
from skillyard.backends.acp import AcpDriver

class Toy(AcpDriver):
    name = "toy"
    command = {sys.executable!r}
    arguments = ({str(AGENT)!r},)

BACKEND = Toy
"""

#: The package as it would be with one more file in its folder.
RUN = """\
import sys
import skillyard.backends
skillyard.backends.__path__.append(sys.argv.pop(1))
from skillyard.faces.cli.main import main
sys.exit(main())
"""


def skillyard_with(folder: Path, places: ProjectPaths, *args: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    command = [sys.executable, "-c", RUN, str(folder), *args]
    return subprocess.run(command, cwd=places.project, env=env, capture_output=True, text=True, timeout=120)


def test_a_module_in_the_room_is_a_backend_that_gets_tasks(places: ProjectPaths, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "toy.py").write_text(MODULE, "utf-8")

    listed = json.loads(skillyard_with(room, places, "backend", "list", "--json").stdout)["data"]["backends"]
    done = json.loads(skillyard_with(room, places, "dispatch", "hello", "--to", "toy", "--json").stdout)
    started = skillyard_with(room, places, "backend", "check", "toy")

    assert [backend["name"] for backend in listed] == ["claude-code", "codex", "opencode", "toy"]
    assert (done["state"], done["data"]["backend"], done["data"]["content"]) == ("success", "toy", "hello")
    assert started.returncode == 0, started.stdout + started.stderr
