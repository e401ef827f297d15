"""The worker of a project as a service of the user: a systemd unit, or a launchd agent on macOS.

Nothing here needs root, and only one file is written; systemd or launchd do the rest.
"""

import hashlib
import os
import plistlib
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.core.child_process import absolute_entries, own_command
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message

#: Holds a file for each user whose services start with the machine.
_LINGERS = Path("/var/lib/systemd/linger")


class WorkerService(NamedTuple):
    """One file, and the commands that start, stop and query what it describes."""

    name: str
    file: Path
    text: str
    start_commands: tuple[tuple[str, ...], ...]
    stop_command: tuple[str, ...]
    query_command: tuple[str, ...]

    def install(self) -> None:
        """Write the file and start the service. A file that nothing starts is removed again."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.text, "utf-8")
        for command in self.start_commands:
            if reason := _failure(command):
                if not self.is_active():
                    self.file.unlink()
                hint = Message(
                    "nothing was left behind; without a systemd of yours a line in `crontab -e` does it: "
                    "@reboot cd PROJECT && skillyard worker --reconnect"
                )
                raise RuntimeFailed(reason, advice=hint)

    def remove(self) -> bool:
        """Stop the service and remove its file. Return False if there was none."""
        if not self.file.exists():
            return False
        reason = _failure(self.stop_command)
        if reason and self.is_active():
            raise RuntimeFailed(reason)
        self.file.unlink()
        return True

    def is_active(self) -> bool:
        return not _failure(self.query_command)

    def may_linger(self) -> bool:
        """Return whether it starts when this user logs in, and could be made to start with the machine."""
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # a user without an account has no services either
            return False
        return sys.platform != "darwin" and not (_LINGERS / name).is_file()


def make_service(
    root: Path,
    own_home: Path,
    user_home: Path,
    words: Sequence[str],
    env: Mapping[str, str] = os.environ,
    system: str = sys.platform,
) -> WorkerService:
    """Return the service for a project. `words` are those of `skillyard worker`."""
    if any(ord(letter) < 32 for letter in f"{root}{own_home}"):
        raise InvalidArgs(Message("a folder with control characters in its name cannot be a service"))
    mark = hashlib.blake2b(str(root.resolve()).encode(), digest_size=4).hexdigest()
    argv = own_command("worker", *words, "--reconnect")
    if system != "darwin":
        name = f"skillyard-{mark}.service"
        control = ("systemctl", "--user")
        return WorkerService(
            name,
            Path(env.get("XDG_CONFIG_HOME") or user_home / ".config") / "systemd" / "user" / name,
            Path(__file__)
            .with_name("worker.service")
            .read_text("utf-8")
            .format(
                root=str(root).replace("%", "%%"),  # unquoted to the end of the line; `%` starts a specifier
                words=" ".join(map(_unit_word, argv)),
                home=_unit_word(f"SKILLYARD_HOME={own_home}"),
            ),
            start_commands=((*control, "daemon-reload"), (*control, "enable", "--now", name)),
            stop_command=(*control, "disable", "--now", name),
            query_command=(*control, "is-active", name),
        )
    name, domain = f"dev.skillyard.worker.{mark}", f"gui/{os.getuid()}"
    file = user_home / "Library" / "LaunchAgents" / f"{name}.plist"
    described = {
        "Label": name,
        "ProgramArguments": list(argv),
        "WorkingDirectory": str(root),
        "EnvironmentVariables": {"SKILLYARD_HOME": str(own_home)},
        "RunAtLoad": True,
        "KeepAlive": True,
        "StandardErrorPath": str(own_home / "worker.log"),
    }
    return WorkerService(
        name,
        file,
        plistlib.dumps(described).decode(),
        start_commands=(("launchctl", "bootstrap", domain, str(file)),),
        stop_command=("launchctl", "bootout", f"{domain}/{name}"),
        query_command=("launchctl", "print", f"{domain}/{name}"),
    )


def _unit_word(word: str) -> str:
    """Quote a word with the escapes of systemd."""
    inside = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{inside}"'


def _failure(command: Sequence[str]) -> str:
    """Run the command. Return why it failed, or ""."""
    env = {**os.environ, "PATH": absolute_entries(os.environ)}  # never systemctl or launchctl of the current folder
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}"
    return f"{' '.join(command)}: {done.stderr.strip() or done.returncode}" if done.returncode else ""
