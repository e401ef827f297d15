"""The worker of a project as a service of the user: a systemd unit, or a launchd agent on macOS.

Nothing here needs root, and nothing is written but the one file; systemd or launchd do the rest.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from skillyard.app.paths import ProjectPaths
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
_PLIST = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{label}</string>
  <key>ProgramArguments</key>
  <array>
{words}
  </array>
  <key>WorkingDirectory</key><string>{root}</string>
  <key>EnvironmentVariables</key>
  <dict><key>SKILLYARD_HOME</key><string>{home}</string></dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><true/>
  <key>StandardErrorPath</key><string>{log}</string>
</dict>
</plist>
"""


#: Who has a file here has services that start with the machine.
_LINGERS = Path("/var/lib/systemd/linger")
_WITHOUT = Message(
    "nothing was left behind; without a systemd of yours a line in `crontab -e` does it: "
    "@reboot cd PROJECT && skillyard worker --reconnect"
)


class Service(NamedTuple):
    """One file, and the commands that make it count."""

    name: str
    file: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    ask: tuple[str, ...]


def service_of(
    places: ProjectPaths, words: Sequence[str], env: Mapping[str, str] = os.environ, system: str = sys.platform
) -> Service:
    """`words` are those of `skillyard worker`."""
    root = places.project
    if root is None:
        raise InvalidArgs(Message("this is not a project folder: change into one, or make one"))
    if any(ord(letter) < 32 for letter in f"{root}{places.own_home}"):
        raise InvalidArgs(Message("a folder with control characters in its name cannot be a service"))
    mark = hashlib.blake2b(str(root.resolve()).encode(), digest_size=4).hexdigest()
    argv = own_command("worker", *words, "--reconnect")
    if system == "darwin":
        return _launchd(places, root, argv, mark)
    return _systemd(places, root, argv, mark, env)


def _systemd(places: ProjectPaths, root: Path, argv: Sequence[str], mark: str, env: Mapping[str, str]) -> Service:
    name = f"skillyard-{mark}.service"
    folder = Path(env.get("XDG_CONFIG_HOME") or places.user_home / ".config") / "systemd" / "user"
    text = _UNIT.format(
        root=_unit_path(root),
        words=" ".join(_unit_word(word) for word in argv),
        home=_unit_word(f"SKILLYARD_HOME={places.own_home}"),
    )
    control = ("systemctl", "--user")
    return Service(
        name,
        folder / name,
        text,
        start=((*control, "daemon-reload"), (*control, "enable", "--now", name)),
        stop=((*control, "disable", "--now", name),),
        ask=(*control, "is-active", name),
    )


def _launchd(places: ProjectPaths, root: Path, argv: Sequence[str], mark: str) -> Service:
    name = f"dev.skillyard.worker.{mark}"
    file = places.user_home / "Library" / "LaunchAgents" / f"{name}.plist"
    text = _PLIST.format(
        label=name,
        words="\n".join(f"    <string>{escape(word)}</string>" for word in argv),
        root=escape(str(root)),
        home=escape(str(places.own_home)),
        log=escape(str(places.own_home / "worker.log")),
    )
    domain = f"gui/{os.getuid()}"
    return Service(
        name,
        file,
        text,
        start=(("launchctl", "bootstrap", domain, str(file)),),
        stop=(("launchctl", "bootout", f"{domain}/{name}"),),
        ask=("launchctl", "print", f"{domain}/{name}"),
    )


def install(service: Service) -> None:
    """Whole or not at all: a file that nothing starts is taken away again."""
    service.file.parent.mkdir(parents=True, exist_ok=True)
    service.file.write_text(service.text, "utf-8")
    try:
        for command in service.start:
            _run(command)
    except RuntimeFailed as error:
        if not is_active(service):
            service.file.unlink()
        error.extra_hint = _WITHOUT
        raise


def may_linger(system: str = sys.platform) -> bool:
    """Whether systemd starts it when this user logs in, and could be told to start it with the machine."""
    if system == "darwin":
        return False
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without an account has no services either
        return False
    return not (_LINGERS / name).is_file()


def remove(service: Service) -> bool:
    """False where there was none."""
    if not service.file.exists():
        return False
    try:
        for command in service.stop:
            _run(command)
    except RuntimeFailed:
        if is_active(service):
            raise
    service.file.unlink()
    return True


def is_active(service: Service) -> bool:
    try:
        done = subprocess.run(service.ask, env=_safe_environment(), capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _safe_environment() -> dict[str, str]:
    """systemctl and launchctl are never taken from the current folder."""
    return {**os.environ, "PATH": absolute_entries(os.environ)}


def _run(command: Sequence[str]) -> None:
    shown = " ".join(command)
    try:
        done = subprocess.run(command, env=_safe_environment(), capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFailed(f"{shown}: {error}") from None
    if done.returncode != 0:
        raise RuntimeFailed(f"{shown}: {done.stderr.strip() or done.returncode}")


def _unit_path(path: Path) -> str:
    """A path that systemd takes unquoted, to the end of the line; `%` starts a specifier there."""
    return str(path).replace("%", "%%")


def _unit_word(word: str) -> str:
    """One word as systemd splits them: quoted, with its own escapes."""
    inside = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{inside}"'
