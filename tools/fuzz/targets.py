"""The entry points: what reads input of strangers, with seeds and with what it may raise."""

import io
import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from skillyard.core.errors import SkillError
from skillyard.core.values import Json

ROOT = Path(__file__).parents[2]
Run = Callable[[bytes], None]


class Broken(AssertionError):
    """No foreign exception, but a promise that does not hold."""


class Target(NamedTuple):
    name: str
    #: Gives the function that takes one input, and cleans up behind it.
    open: Callable[[], AbstractContextManager[Run]]
    seeds: Callable[[], list[bytes]]
    allowed: tuple[type[Exception], ...] = (SkillError,)
    most_bytes: int = 1 << 14
    #: Whether it runs in this process, where lines can be counted and a deadline set.
    traced: bool = True


def _texts(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


def _simple(run: Run) -> Callable[[], AbstractContextManager[Run]]:
    @contextmanager
    def opened() -> Iterator[Run]:
        yield run

    return opened


def _files(*patterns: str) -> list[bytes]:
    """Examples of the repository itself."""
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    return [path.read_bytes()[: 1 << 14] for path in found[:40]]


# -- what a skill, a role, a workflow and a lock say


def _reader(content: bytes) -> None:
    from skillyard.catalog.manifest import parse_skill

    reading = parse_skill(content, Path("/nowhere/x/SKILL.md"))
    if reading.skill is None and not reading.findings:
        raise Broken("no skill, and nobody told why")
    json.dumps([str(finding) for finding in reading.findings]).encode()


def _agent(content: bytes) -> None:
    from skillyard.catalog.agentfile import parse_role
    from skillyard.catalog.bounds import read_bounds
    from skillyard.trust.run_policy import wider

    role = parse_role(content, Path("/nowhere/agents/x/agent.yaml"))
    if role.usable:
        wider(read_bounds(role.bounds), Path("/nowhere"), role.folder)


def _workflow(content: bytes) -> None:
    from skillyard.catalog.flowfile import parse_workflow

    flow = parse_workflow(content, Path("/nowhere/x.workflow.yaml"))
    if not flow.usable and not flow.findings:
        raise Broken("not usable, and nobody told why")


def _lock(content: bytes) -> None:
    from skillyard.install.target import parse_lock

    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    for folder, skill in parse_lock(text).items():
        for path in (folder, *skill.files):
            if path.startswith("/") or ".." in Path(path).parts or "\0" in path:
                raise Broken(f"a path in a lock: {path!r}")


def _index(content: bytes) -> None:
    from skillyard.install.web import parse_index

    parse_index(content)


# -- words


def _envelope(content: bytes) -> None:
    from skillyard.core.envelope import as_block, as_text, from_json, parse

    text = content.decode("utf-8", "surrogateescape")
    for read in (parse, from_json):
        try:
            result = read(text)
        except ValueError:
            continue
        for write in (as_text, as_block):
            try:
                written = write(result)
            except ValueError:
                continue  # an agent whose name is no word cannot be written
            if "\n" in written.partition("\n")[2] and write is as_text:
                raise Broken("more than two lines")
            if parse(written) != result:
                raise Broken("what was written does not read back")


def _prompt(content: bytes) -> None:
    from skillyard.scripts.prompt_grammar import addressee, may_name_source, parse_prompt, parse_script_calls

    text = content.decode("utf-8", "surrogateescape")
    addressee(text)
    for run in (
        lambda: parse_prompt(text, lambda name: "a" in name),
        lambda: may_name_source(text, Path("/nowhere")),
        lambda: parse_script_calls(text),
    ):
        try:
            run()
        except SkillError:
            continue


def _printed(content: bytes) -> None:
    from skillyard.core.values import check_value
    from skillyard.runners.kind import RanProgram, as_printed

    data = as_printed(content, RanProgram("fuzz", 0.1, "log")).data
    check_value(data)
    if claimed := {"skill", "outputs", "output_path", "cached", "resume_command"} & data.keys():
        raise Broken(f"a program claims {claimed}")


# -- archives


@contextmanager
def _archive() -> Iterator[Run]:
    from skillyard.install.archive import extract
    from skillyard.install.source import LIMITS

    limits = LIMITS._replace(total_bytes=1 << 20, files=200, free_bytes=1 << 16)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Path(name).resolve()

        def run(content: bytes) -> None:
            file, into = base / "archive", base / "into"
            file.write_bytes(content)
            shutil.rmtree(into, ignore_errors=True)
            try:
                extract(file, into, limits)
            finally:
                _check_tree(base, into)

        yield run


def _check_tree(base: Path, into: Path) -> None:
    if {path.name for path in base.iterdir()} - {"archive", "into"}:
        raise Broken("something was written beside the folder")
    for path in into.rglob("*"):
        mode = path.lstat().st_mode
        if mode & 0o7000:
            raise Broken(f"{path.name} has mode {mode:o}")
        if path.is_symlink() and not path.resolve().is_relative_to(into):
            raise Broken(f"{path.name} leads out")
        if not (path.is_symlink() or path.is_file() or path.is_dir()):
            raise Broken(f"{path.name} is no file")


def _seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((Path(__file__).parent / "seeds" / name).glob("*"))]


def found(name: str) -> list[bytes]:
    """Inputs that once broke something."""
    return [path.read_bytes() for path in sorted((Path(__file__).parent / "found" / name).glob("*"))]


def _archives() -> list[bytes]:
    entries = {"x/SKILL.md": b"---\nname: x\n---\n", "x/a.py": b"print(1)\n", "x/子/文.txt": "字".encode()}
    made: list[bytes] = []
    for mode in ("w", "w:gz"):
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode=mode) as tar:
            for name, content in entries.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            for kind, name, target in ((tarfile.SYMTYPE, "x/link", "a.py"), (tarfile.LNKTYPE, "x/hard", "x/a.py")):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                tar.addfile(info)
        made.append(held.getvalue())
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", method) as packed:
            for name, content in entries.items():
                packed.writestr(name, content)
            link = zipfile.ZipInfo("x/link")
            link.external_attr = 0o120777 << 16
            packed.writestr(link, "a.py")
        made.append(held.getvalue())
    return made


# -- JSON-RPC


def _jsonrpc(content: bytes) -> None:
    from skillyard.backends.json_messages import Peer, RpcError

    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return
    if not isinstance(message, dict):
        return
    messages: tuple[dict[str, Json], ...] = (message, {"id": 1, "result": {}})
    coming = iter(messages)
    peer = Peer(lambda _: None, lambda: next(coming))
    try:
        peer.call("x")
    except RpcError as error:
        str(error)


@contextmanager
def _mcp() -> Iterator[Run]:
    """The real server in a process of its own. After each line it must still answer a question."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        server = _Server(Path(name))
        server.start()
        try:
            yield server
        finally:
            server.close()


class _Server:
    def __init__(self, base: Path) -> None:
        self.base = base
        skill = base / "project/.claude/skills/hello"
        skill.mkdir(parents=True)
        (base / "project/.git").mkdir()
        (skill / "SKILL.md").write_text("---\nname: hello\ndescription: Says hello.\ncommand: echo hello\n---\n")
        self.process: subprocess.Popen[bytes] | None = None
        self.asked = 0

    def __call__(self, content: bytes) -> None:
        stdin, stdout = self.start()
        self.asked += 1
        ping = {"jsonrpc": "2.0", "id": f"ping-{self.asked}", "method": "ping"}
        try:
            stdin.write(content.replace(b"\n", b" ") + b"\n" + json.dumps(ping).encode() + b"\n")
            stdin.flush()
        except OSError:
            self._died()
        self._wait_for(stdout, f'"ping-{self.asked}"'.encode())

    def start(self) -> tuple[IO[bytes], IO[bytes]]:
        if self.process is None:
            env = {"PATH": os.environ["PATH"], "HOME": str(self.base), "SKILLYARD_HOME": str(self.base / "own")}
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "skillyard", "mcp"],
                cwd=self.base / "project",
                env={**env, "LANG": "C.UTF-8"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            os.set_blocking(self.process.stdout.fileno(), False)  # type: ignore[union-attr]
            hello = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "fuzz", "version": "1"},
            }
            first = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}
            assert self.process.stdin
            assert self.process.stdout
            self.process.stdin.write(json.dumps(first).encode() + b"\n")
            self.process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            self.process.stdin.flush()
            self._wait_for(self.process.stdout, b'"hello"', seconds=120)
        assert self.process.stdin
        assert self.process.stdout
        return self.process.stdin, self.process.stdout

    def _wait_for(self, stdout: IO[bytes], word: bytes, seconds: float = 60.0) -> None:
        end, said = time.monotonic() + seconds, b""
        while word not in said:
            ready, _, _ = select.select([stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close()
                raise Broken("the server does not answer any more")
            piece = os.read(stdout.fileno(), 1 << 16)
            if not piece:
                self._died()
            said = said[-200:] + piece

    def _died(self) -> None:
        assert self.process
        assert self.process.stderr
        self.process.wait(10)
        said = self.process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        self.close()
        raise Broken(f"the server ended: {said[-1] if said else ''}")

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.communicate()
        self.process = None


_REQUESTS = _texts(
    '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "0"}}',
    '{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "search", "arguments": {"query": "x"}}}',
    '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "show", "arguments": {"name": "hello"}}}',
    '{"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": "skill://hello"}}',
    '{"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "字"}]}}',
    '{"jsonrpc": "2.0", "id": 5, "error": {"code": -32601, "message": "no", "data": null}}',
    '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
    '{"jsonrpc": "2.0", "id": 6, "method": "prompts/get", "params": {"name": "hello", "arguments": {}}}',
    '{"jsonrpc": "2.0", "id": 7, "method": "completion/complete", "params": {}}',
    '[{"jsonrpc": "2.0", "id": 8, "method": "ping"}]',
)


TARGETS: tuple[Target, ...] = (
    Target("reader", _simple(_reader), lambda: [*_seeds("reader"), *_files("examples/skills/*/SKILL.md")]),
    Target("envelope", _simple(_envelope), lambda: _seeds("envelope")),
    Target("prompt", _simple(_prompt), lambda: _seeds("prompt")),
    Target("archive", _archive, _archives),
    Target("lock", _simple(_lock), lambda: _seeds("lock")),
    Target("agent", _simple(_agent), lambda: [*_seeds("agent"), *_files("src/skillyard/**/agent.yaml")]),
    Target("workflow", _simple(_workflow), lambda: _seeds("workflow")),
    Target("index", _simple(_index), lambda: _seeds("index")),
    Target("printed", _simple(_printed), lambda: _seeds("printed")),
    Target("jsonrpc", _simple(_jsonrpc), _REQUESTS),
    Target("mcp", _mcp, _REQUESTS, most_bytes=1 << 12, traced=False),
)
