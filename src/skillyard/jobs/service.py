"""The worker of a project as a service of the user: a systemd unit, or a launchd agent on macOS.

Nothing here needs root, and only one file is written; systemd or launchd do the rest.
"""

import hashlib
import os
import plistlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.core.child_process import absolute_entries, own_command
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message

_UNIT = """\
[Unit]
Description=Skillyard worker for {root}
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory={root}
ExecStart={words}
Environment={home}
Restart=always
RestartSec=5
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""
#: Holds a file for each user whose services start with the machine.
_LINGERS = Path("/var/lib/systemd/linger")
_WITHOUT = Message(
    "nothing was left behind; without a systemd of yours a line in `crontab -e` does it: "
    "@reboot cd PROJECT && skillyard worker --reconnect"
)


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
        try:
            for command in self.start_commands:
                _run(command)
        except RuntimeFailed as error:
            if not self.is_active():
                self.file.unlink()
            error.extra_hint = _WITHOUT
            raise

    def remove(self) -> bool:
        """Stop the service and remove its file. Return False if there was none."""
        if not self.file.exists():
            return False
        try:
            _run(self.stop_command)
        except RuntimeFailed:
            if self.is_active():
                raise
        self.file.unlink()
        return True

    def is_active(self) -> bool:
        try:
            _run(self.query_command)
        except RuntimeFailed:
            return False
        return True

    def may_linger(self, system: str = sys.platform) -> bool:
        """Return whether it starts when this user logs in, and could be made to start with the machine."""
        if system == "darwin":
            return False
        import pwd  # noqa: PLC0415  (not on Windows)

        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # a user without an account has no services either
            return False
        return not (_LINGERS / name).is_file()


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
    if system == "darwin":
        return _launchd(root, own_home, user_home, argv, mark)
    config_home = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config")
    return _systemd(root, own_home, config_home, argv, mark)


def _systemd(root: Path, own_home: Path, config_home: Path, argv: Sequence[str], mark: str) -> WorkerService:
    name = f"skillyard-{mark}.service"
    text = _UNIT.format(
        root=str(root).replace("%", "%%"),  # unquoted to the end of the line; `%` starts a specifier
        words=" ".join(map(_unit_word, argv)),
        home=_unit_word(f"SKILLYARD_HOME={own_home}"),
    )
    control = ("systemctl", "--user")
    return WorkerService(
        name,
        config_home / "systemd" / "user" / name,
        text,
        start_commands=((*control, "daemon-reload"), (*control, "enable", "--now", name)),
        stop_command=(*control, "disable", "--now", name),
        query_command=(*control, "is-active", name),
    )


def _launchd(root: Path, own_home: Path, user_home: Path, argv: Sequence[str], mark: str) -> WorkerService:
    name = f"dev.skillyard.worker.{mark}"
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
    domain = f"gui/{os.getuid()}"
    return WorkerService(
        name,
        file,
        plistlib.dumps(described).decode(),
        start_commands=(("launchctl", "bootstrap", domain, str(file)),),
        stop_command=("launchctl", "bootout", f"{domain}/{name}"),
        query_command=("launchctl", "print", f"{domain}/{name}"),
    )


def _run(command: Sequence[str]) -> None:
    shown = " ".join(command)
    env = {**os.environ, "PATH": absolute_entries(os.environ)}  # never systemctl or launchctl of the current folder
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFailed(f"{shown}: {error}") from None
    if done.returncode != 0:
        raise RuntimeFailed(f"{shown}: {done.stderr.strip() or done.returncode}")


def _unit_word(word: str) -> str:
    """Quote a word with the escapes of systemd."""
    inside = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{inside}"'
