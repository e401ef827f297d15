"""A person's home folder, project and state for one attack on the whole product, and the commands that they type."""

import contextlib
import http.server
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from skillyard.sandbox.syscalls import MACHINE, numbers
from tools.attack.ground import kill_marked, marked
from tools.attack.who import HERE, PATH, SOURCE

CEILING_SECONDS = 90.0


class Broken(Exception):
    """The attack could not be carried out, so it shows nothing."""


class NotPromised(Exception):
    """It got out, where the result of that run says that it can."""


class Done(NamedTuple):
    stdout: str
    stderr: str
    code: int

    @property
    def said(self) -> str:
        return self.stdout + self.stderr

    @property
    def result(self) -> dict[str, Any]:
        """The envelope of `--json`; empty where there is none."""
        with contextlib.suppress(ValueError):
            found = json.loads(self.stdout)
            if isinstance(found, dict):
                return found
        return {}


class Install(NamedTuple):
    """Skillyard as a person installs it: an environment of its own with a console script, usable by every user."""

    python: str
    skillyard: str

    @classmethod
    def make(cls, base: Path, python: str) -> Self:
        import yaml

        folder = base / "installed"
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        beside = Path(str(yaml.__file__)).parents[1]
        (packages / "skillyard.pth").write_text(f"{SOURCE}\n{beside}\n")
        script = folder / "bin/skillyard"
        start = "import sys\nfrom skillyard.__main__ import main\nsys.exit(main())\n"
        script.write_text(f"#!{folder}/bin/python -P\n{start}")
        script.chmod(0o755)
        return cls(str(folder / "bin/python"), str(script))


class Stage:
    """home/ with secrets, home/project as the project, and a state folder. Leave it with `close`."""

    def __init__(self, base: Path, install: Install, uid: int, level: str) -> None:
        self.uid, self.level, self.install = uid, level, install
        self.secret = f"secret-{secrets.token_hex(12)}"
        self.mark = f"mark-{secrets.token_hex(12)}"
        self.root = Path(tempfile.mkdtemp(prefix="stage-", dir=base)).resolve()
        self.root.chmod(0o755)
        self.home, self.own, self.project = self.root / "home", self.root / "state", self.root / "home/project"
        #: Comes into being only if an attack runs code or writes where it must not.
        self.canary = self.root / "home/canary"
        for folder in (self.project / ".git", self.own, self.home / ".ssh", self.home / "private"):
            folder.mkdir(parents=True)
        (self.home / ".ssh/id").write_text(self.secret)
        (self.home / "private/secret").write_text(self.secret)
        (self.home / "victim").write_text("untouched")
        (self.project / "README.md").write_text("hello\n")
        self._own_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        kill_marked(self.mark)
        shutil.rmtree(self.root, ignore_errors=True)

    def _own_all(self) -> None:
        if os.getuid() == 0:
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def write(self, path: str | Path, text: str | bytes, mode: int = 0o644) -> Path:
        """Relative to the project."""
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(mode)
        return file

    def link(self, path: str | Path, target: str | Path) -> Path:
        link = self.project / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return link

    def skill(self, name: str, command: str, files: Mapping[str, str] | None = None, more: str = "") -> Path:
        """A skill of the project. Its shell and Python files can be started."""
        head = f"name: {name}\ndescription: Does something useful when it is asked to.\ncommand: {command}\n{more}"
        self.write(f".claude/skills/{name}/SKILL.md", f"---\n{head}---\n# {name}\n")
        for path, text in (files or {}).items():
            self.write(f".claude/skills/{name}/{path}", text, 0o755)
        return self.project / ".claude/skills" / name

    def words(self, *words: str) -> list[str]:
        enter = [self.install.python, "-P", str(HERE / "enter.py"), str(self.uid), self.level, str(SOURCE)]
        return [*enter, str(self.own), *words]

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        variables = {"PATH": PATH, "HOME": str(self.home), "SKILLYARD_HOME": str(self.own), "LANG": "C.UTF-8"}
        return {**variables, "SKILLYARD_LANG": "en", "TMPDIR": "/tmp", **(env or {})}

    def start(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, group: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        self._own_all()
        join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group)] if group else []
        return subprocess.Popen(
            [*join, *self.words(*words)],
            cwd=cwd or self.project,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = CEILING_SECONDS,
    ) -> Done:
        """`skillyard WORDS…`, off a terminal."""
        return self.run_program(self.install.skillyard, *self.insisting(*words), cwd=cwd, env=env, seconds=seconds)

    def insisting(self, *words: str) -> tuple[str, ...]:
        """The same command, with what root must say at a level where it is refused otherwise."""
        is_refused = self.uid == 0 and self.level == "landlock+seccomp" and words[:1] == ("run",)
        return ("run", "--weak-sandbox", *words[1:]) if is_refused else words

    def run_program(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = CEILING_SECONDS,
    ) -> Done:
        process = self.start(*words, cwd=cwd, env=env)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return Done(out.decode("utf-8", "replace"), "the harness stopped it", -1)
        return Done(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), process.returncode)

    def sound(self, done: Done) -> Done:
        """The same, unless the sandbox of another level ran it."""
        sandbox = (done.result.get("meta") or {}).get("sandbox")
        if sandbox is not None and sandbox != self.level:
            raise Broken(f"ran at {sandbox}, not at {self.level}")
        return done

    def promised(self, done: Done, word: str, evidence: str) -> str:
        """The evidence, unless the result of this run says that `word` is not covered."""
        if evidence and word in ((done.result.get("meta") or {}).get("not_covered") or ()):
            raise NotPromised(f"{evidence}: the run says that `{word}` is not covered")
        return evidence

    def on_terminal(self, *words: str, answers: str = "y\n", seconds: float = 30.0) -> Done:
        """`skillyard WORDS…` as a person sees it, who answers every question with the same."""
        import pty

        self._own_all()
        here, there = pty.openpty()
        process = subprocess.Popen(
            self.words(self.install.skillyard, *words),
            cwd=self.project,
            env=self.environment({"TERM": "dumb"}),
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
        )
        os.close(there)
        said, end = b"", time.monotonic() + seconds
        os.set_blocking(here, False)
        asked = 0
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                said += os.read(here, 65536)
            if said.count(b"?") > asked:
                asked = said.count(b"?")
                with contextlib.suppress(OSError):
                    os.write(here, answers.encode())
            time.sleep(0.02)
        with contextlib.suppress(OSError):
            said += os.read(here, 65536)
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(here)
        return Done(said.decode("utf-8", "replace"), "", process.returncode)

    # -- evidence

    def leaked(self, done: Done, what: str = "the secret") -> str:
        return f"read {what}" if self.secret in done.said + self.box_text() else ""

    def box_text(self) -> str:
        texts = []
        for path in (self.project / "mybox").rglob("*"):
            if path.is_file() and not path.is_symlink():
                with contextlib.suppress(OSError):
                    texts.append(path.read_bytes()[:100_000].decode("utf-8", "replace"))
        return "".join(texts)

    def ran(self) -> str:
        return "ran code outside the sandbox" if self.canary.exists() else ""

    def harmed(self) -> str:
        return "changed a file in the home folder" if (self.home / "victim").read_text() != "untouched" else ""

    def crashed(self, done: Done) -> str:
        if "Traceback (most recent call last)" in done.said:
            return "a traceback: " + done.said.strip().splitlines()[-1][:100]
        return ""

    # -- programs that an attack brings along

    def payload(self, name: str) -> dict[str, str]:
        """The files of a skill that runs one of the payloads, with the mark of this stage in its arguments."""
        given = {"ground": ".", "token": self.mark, "runtime": 0, "numbers": numbers(MACHINE)}
        given["init"] = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
        code = (HERE / "payloads.py").read_text().replace('GROUND / "out"', 'pathlib.Path("mybox")')
        return {"payloads.py": code, f"{self.mark}.json": json.dumps(given), "name": name}

    def left_running(self, seconds: float) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not marked(self.mark):
                return ""
            time.sleep(0.05)
        count = len(marked(self.mark))
        return f"{count} processes outlived it" if count else ""

    def wait_for(self, path: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not (self.project / path).exists():
            if time.monotonic() > end:
                raise Broken(f"{path} never came")
            time.sleep(0.02)


@contextmanager
def listening(path: Path) -> Iterator[Callable[[str], str]]:
    """A service behind a unix socket, such as docker's; gives what tells whether it heard a word."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()
        server.setblocking(False)

        def heard(token: str) -> str:
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client:
                    client.settimeout(1)
                    if token.encode() in client.recv(1000):
                        return "talked to a service through its socket"
            return ""

        yield heard


@contextmanager
def serving(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server on loopback: its address, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            with contextlib.suppress(OSError):
                answer(self)

        do_POST = do_GET  # noqa: N815  (the name that http.server looks for)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refuse_login(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(401)
    handler.send_header("WWW-Authenticate", 'Basic realm="x"')
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def interrupt(process: "subprocess.Popen[bytes]", which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(which)
