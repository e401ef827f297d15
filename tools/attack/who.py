"""Who is attacked: our levels, the peers, and nothing at all. Each runs as root and as an ordinary user."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tools.attack.ground import ORDINARY, Ground

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SRT = "@anthropic-ai/sandbox-runtime"
SRT_VERSION = "0.0.78"
OURS = ("full", "bubblewrap", "landlock+seccomp", "none")
BARE = "nothing"
PEERS = ("bwrap", "firejail", "srt")
PATH = "/usr/local/bin:/usr/bin:/bin"


class Who(NamedTuple):
    """One column of the table."""

    name: str
    uid: int

    @property
    def user(self) -> str:
        return "root" if self.uid == 0 else "user"

    @property
    def is_ours(self) -> bool:
        return self.name in OURS


class Limits(NamedTuple):
    """What a payload is held to. Peers get what their own options can say."""

    seconds: float = 30.0
    processes: int = 512
    memory_bytes: int = 4 << 30
    network: bool = False


def users() -> tuple[int, ...]:
    """Root can be both; anybody else only themselves."""
    return (0, ORDINARY) if os.getuid() == 0 else (os.getuid(),)


def find_python() -> str:
    """One that an ordinary user can run: the one that runs us may live in root's home."""
    code = "import sys; raise SystemExit(sys.version_info < (3, 11))"
    for candidate in ("/usr/bin/python3", sys.executable):
        try:
            tried = subprocess.run((candidate, "-I", "-c", code), user=users()[-1], check=False, capture_output=True)
        except OSError:
            continue
        if tried.returncode == 0:
            return candidate
    raise SystemExit("./dev attack needs a Python 3.11 or newer that every user can run, as /usr/bin/python3")


def cache() -> Path:
    """Where sandbox-runtime is kept: beside the agents of `./dev agents`, outside the repository."""
    if chosen := os.environ.get("SKILLYARD_ATTACK_PEERS"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skillyard" / "peers"


def install_peers() -> str:
    """Install sandbox-runtime from npm by its name; why not, where it cannot be."""
    if not shutil.which("npm"):
        return "npm is missing"
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    words = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run([*words, "--prefix", str(folder), f"{SRT}@{SRT_VERSION}"], check=False, capture_output=True)
    return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()[-200:]


def lay_out_peers(base: Path) -> None:
    """Copy sandbox-runtime to where every user can read it: the cache may lie in root's home."""
    shutil.copytree(cache() / "node_modules", base / "peers/node_modules", symlinks=True)


def absent(name: str) -> str:
    """Why a column cannot be tried here; empty where it can."""
    if name == "srt":
        if not (cache() / "node_modules" / SRT / "package.json").is_file():
            return "not installed (./dev attack --install-peers)"
        missing = [program for program in ("node", "bwrap", "socat", "rg") if not shutil.which(program)]
        return f"{', '.join(missing)} missing (apt)" if missing else ""
    program = "bwrap" if name == "bubblewrap" else name
    if name in (*PEERS, "bubblewrap") and not shutil.which(program):
        return f"not installed (apt install {'bubblewrap' if program == 'bwrap' else name})"
    return ""


def version(name: str) -> str:
    if name == "srt":
        return SRT_VERSION
    said = subprocess.run([name, "--version"], check=False, capture_output=True, text=True).stdout
    return said.split("\n", 1)[0].split()[-1] if said else ""


class Runtime:
    """A `drive.py` of its own for one column; started again when an attack broke it."""

    def __init__(self, who: Who, python: str, base: Path) -> None:
        self.who, self.python, self.base = who, python, base
        self.secret = f"label-{secrets.token_hex(8)}"
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        return self._started().pid

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            words = [self.python, "-S", str(HERE / "drive.py"), str(self.who.uid), self.who.name, str(SOURCE)]
            if self.who.name == "firejail" and self.who.uid == ORDINARY:
                words = [*_with_account(self.base), *words]
            self._process = subprocess.Popen(
                [*words, f"--label={self.secret}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PATH": PATH, "PYTHONDONTWRITEBYTECODE": "1", "SECRET": self.secret},
            )
        return self._process

    def join(self, group: Path | None) -> None:
        """Start anew in a cgroup."""
        self.close()
        if group:
            group.write_text(str(self.pid))

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream:
                    stream.close()
            self._process = None

    def begin(self, ground: Ground, payload: str, given: Path, limits: Limits) -> "Try":
        argv = [self.python, "-I", "-S", str(ground.root / "open/payloads.py"), payload, str(given)]
        env = {"PATH": PATH, "HOME": str(ground.root / "home"), "LANG": "C.UTF-8"}
        asked: dict[str, Any] = {
            "argv": argv,
            "env": env,
            "cwd": str(ground.root / "out"),
            "limit_seconds": limits.seconds,
        }
        if self.who.is_ours:
            asked["policy"] = {
                "read": [str(ground.root / "open")],
                "write": [str(ground.root / "out")],
                "hide": [str(ground.root / "open/hidden"), str(ground.root / "home")],
                "network": limits.network,
                "processes": limits.processes,
                "memory_bytes": limits.memory_bytes,
            }
            env.pop("HOME")
        else:
            asked["argv"] = [*_WRAPPERS[self.who.name](ground, limits, self.secret), *argv]
        return Try(self._started(), asked)


def _with_account(base: Path) -> list[str]:
    """firejail wants an account with a shell: give the ordinary user one, visible in a mount namespace alone."""
    home, accounts = base / "account", base / "passwd"
    home.mkdir(exist_ok=True)
    os.chown(home, ORDINARY, ORDINARY)
    line = f"attack:x:{ORDINARY}:{ORDINARY}::{home}:/bin/sh\n"
    accounts.write_text(Path("/etc/passwd").read_text().rstrip("\n") + "\n" + line)
    return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(accounts)]


class Try:
    """A payload on its way."""

    def __init__(self, process: "subprocess.Popen[str]", asked: dict[str, Any]) -> None:
        self._process = process
        self.answer: dict[str, Any] = {}
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.answer = json.loads(line) if line else {"failed": "the runtime ended"}

    def wait(self, seconds: float) -> bool:
        """Whether it is over."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


# -- the peers, each with a line that somebody who read its manual would write


def _bare(*_: object) -> list[str]:
    return []


def _bwrap(ground: Ground, limits: Limits, label: str) -> list[str]:
    root = ground.root
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", PATH]
    words += ["--share-net"] if limits.network else []
    words += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--hostname", label]
    for name in ("bin", "lib", "lib64", "sbin"):
        words += ["--symlink", f"usr/{name}", f"/{name}"] if Path(f"/{name}").exists() else []
    words += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    words += ["--ro-bind", f"{root}/open", f"{root}/open", "--tmpfs", f"{root}/open/hidden"]
    words += ["--bind", f"{root}/out", f"{root}/out", "--chdir", f"{root}/out", "--"]
    return words


def _firejail(ground: Ground, limits: Limits, label: str) -> list[str]:
    root = ground.root
    words = ["firejail", "--quiet", "--noprofile", "--private", "--private-dev", "--disable-mnt", "--ipc-namespace"]
    words += ["--caps.drop=all", "--nonewprivs", "--seccomp", "--nogroups", "--deterministic-exit-code"]
    words += [] if ground.uid == 0 else ["--noroot"]
    words += [] if limits.network else ["--net=none"]
    words += [f"--whitelist={root}/open", f"--whitelist={root}/out", f"--read-only={root}/open"]
    words += [f"--blacklist={root}/open/hidden", f"--hostname={label}"]
    words += [f"--rlimit-nproc={limits.processes}"] if limits.processes < 512 else []
    words += [f"--rlimit-as={limits.memory_bytes}"] if limits.memory_bytes < 4 << 30 else []
    return [*words, "--"]


def _srt(ground: Ground, limits: Limits, label: str) -> list[str]:
    root = ground.root
    settings = {
        "network": {"allowedDomains": ["127.0.0.1"] if limits.network else [], "deniedDomains": []},
        "filesystem": {
            "denyRead": [str(root), "/root", "/home"],
            "allowRead": [f"{root}/open", f"{root}/out"],
            "allowWrite": [f"{root}/out"],
            "denyWrite": [],
        },
    }
    settings["filesystem"]["denyRead"].append(f"{root}/open/hidden")
    file = ground.root / f"{label}.json"
    file.write_text(json.dumps(settings))
    return ["node", str(root.parent / "peers/node_modules" / SRT / "dist/cli.js"), "--settings", str(file), "--"]


_WRAPPERS: dict[str, Callable[[Ground, Limits, str], list[str]]] = {
    BARE: _bare,
    "bwrap": _bwrap,
    "firejail": _firejail,
    "srt": _srt,
}
