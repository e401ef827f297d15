"""A readable folder gives its files and nothing that lives: no socket, FIFO or device in it leads to the host."""

import json
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillyard.sandbox.namespaces import Bind, with_mounts_below
from tests.sandbox.conftest import PYTHON, Drive, users

LEVELS = ["full", "namespaces+seccomp", "bubblewrap", "landlock+seccomp"]


class Sockets:
    """Listeners in a folder that a run may read."""

    def __init__(self, folder: Path) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.bind(str(folder / "docker.sock"))
        self.stream.listen()
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(str(folder / "log"))
        for name in ("docker.sock", "log"):
            (folder / name).chmod(0o777)

    def heard(self) -> list[str]:
        got = []
        for name, listener in (("stream", self.stream), ("datagram", self.datagram)):
            listener.setblocking(False)
            try:
                _ = listener.accept() if name == "stream" else listener.recv(100)
            except BlockingIOError:
                continue
            got.append(name)
        return got

    def close(self) -> None:
        self.stream.close()
        self.datagram.close()


@pytest.fixture
def sockets(ground: Path) -> Iterator[Sockets]:
    listening = Sockets(ground / "open")
    yield listening
    listening.close()


CONNECT = """
import os, socket, sys
folder = sys.argv[1]
def stream():
    socket.socket(socket.AF_UNIX).connect(folder + "/docker.sock")
def through_a_link():
    os.symlink(folder, "/tmp/link")
    socket.socket(socket.AF_UNIX).connect("/tmp/link/docker.sock")
def through_a_descriptor():
    place = os.open(folder, os.O_PATH)
    socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{place}/docker.sock")
def datagram():
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"escaped", folder + "/log")
def pair():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"escaped", folder + "/log")
def raw_pair():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0].sendto(b"escaped", folder + "/log")
for attempt in (stream, through_a_link, through_a_descriptor, datagram, pair, raw_pair):
    try:
        attempt()
    except OSError:
        continue
    print(attempt.__name__)
"""


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", users())
def test_a_socket_in_a_readable_folder_cannot_be_connected_to(
    drive: Drive, ground: Path, sockets: Sockets, uid: int, level: str, network: bool
) -> None:
    argv = [PYTHON, "-I", "-S", "-c", CONNECT, str(ground / "open")]
    policy = {"read": [str(ground / "open")], "network": network}

    done = drive(uid, level, argv=argv, policy=policy, weak=True)

    assert (done["code"], done["stdout"]) == (0, ""), done["stderr"]
    assert sockets.heard() == []


FIFO = """
import os, sys
for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY):
    try:
        file = os.open(sys.argv[1], flags | os.O_NONBLOCK)
        print("read", os.read(file, 100)) if flags == os.O_RDONLY else os.write(file, b"escaped")
    except OSError:
        pass
print("done")
"""


@pytest.mark.parametrize("level", ["full", "namespaces+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_a_fifo_in_a_readable_folder_leads_nowhere(drive: Drive, ground: Path, uid: int, level: str) -> None:
    fifo = ground / "open/fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    mine = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    os.write(mine, b"secret")
    argv = [PYTHON, "-I", "-S", "-c", FIFO, str(fifo)]

    done = drive(uid, level, argv=argv, policy={"read": [str(ground / "open")]}, weak=True)

    assert "secret" not in done["stdout"]
    assert done["stdout"].endswith("done\n"), done["stderr"]
    assert os.read(mine, 100) == b"secret"
    os.close(mine)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", users())
def test_a_run_says_where_a_fifo_in_a_readable_folder_can_be_opened(
    drive: Drive, ground: Path, uid: int, level: str
) -> None:
    fifo = ground / "open/fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    mine = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    os.write(mine, b"secret")
    argv = [PYTHON, "-I", "-S", "-c", FIFO, str(fifo)]

    done = drive(uid, level, argv=argv, policy={"read": [str(ground / "open")]}, weak=True)

    os.close(mine)
    assert ("secret" in done["stdout"]) == ("fifo" in done["missing"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("uid", users())
def test_a_folder_that_no_overlay_can_show_is_told_by_the_runs_that_read_it(
    drive: Drive, ground: Path, uid: int
) -> None:
    """Overlays can be stacked twice, so the third, which is ours, cannot be mounted."""
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        one, two, first, second = (Path(base, name) for name in ("one", "two", "first", "second"))
        for place in (one, two, first, second):
            place.mkdir()
        mounted: list[Path] = []
        try:
            for below, place in ((one, first), (first, second)):
                words = ["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={below}:{two}", str(place)]
                if subprocess.run(words, check=False, capture_output=True).returncode:
                    pytest.skip("overlays cannot be stacked here")
                mounted.append(place)
            deep = drive(uid, "full", argv=["/bin/true"], policy={"read": [str(second)]})
            plain = drive(uid, "full", argv=["/bin/true"], policy={"read": [str(two)]})
        finally:
            for place in reversed(mounted):
                subprocess.run(["umount", str(place)], check=True)

    assert (deep["code"], "fifo" in deep["missing"]) == (0, True)
    assert (plain["code"], "fifo" in plain["missing"]) == (0, False)


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize("level", ["full", "namespaces+seccomp", "bubblewrap"])
@pytest.mark.parametrize("uid", users())
@pytest.mark.parametrize("named", ["read", "write"])
def test_a_device_in_a_named_folder_does_not_open(drive: Drive, ground: Path, uid: int, level: str, named: str) -> None:
    device = ground / "open/zero"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    argv = [PYTHON, "-I", "-S", "-c", f"open({str(device)!r}, 'rb').read(1)"]

    done = drive(uid, level, argv=argv, policy={named: [str(ground / "open")]}, weak=True)

    assert done["code"] == 1
    assert "PermissionError" in done["stderr"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["socket", "fifo"])
@pytest.mark.parametrize("named", ["read", "write"])
def test_a_socket_or_fifo_cannot_be_named_itself(drive: Drive, ground: Path, level: str, what: str, named: str) -> None:
    path = ground / "open/special"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path)) if what == "socket" else os.mkfifo(path)

        with pytest.raises(AssertionError, match="neither a regular file nor a folder"):
            drive(os.getuid(), level, argv=["/bin/true"], policy={named: [str(path)]}, weak=True)


OWN_SOCKETS = """
import multiprocessing, os, socket, sys
def talk(folder):
    server = socket.socket(socket.AF_UNIX)
    server.bind(folder + "/own")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(folder + "/own")
    client.sendall(b"hello")
    print(server.accept()[0].recv(10).decode())
    os.mkfifo(folder + "/fifo")
    both = os.open(folder + "/fifo", os.O_RDWR)
    os.write(both, b"through")
    print(os.read(both, 10).decode())
if __name__ == "__main__":
    talk("/tmp")
    talk(sys.argv[1])
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.send(b"pair")
    print(right.recv(10).decode())
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(abs, [-7])[0])
"""


@pytest.mark.parametrize("uid", users())
def test_sockets_and_fifos_of_its_own_work(drive: Drive, ground: Path, uid: int) -> None:
    (ground / "open/own.py").write_text(OWN_SOCKETS)
    policy = {"read": [str(ground / "open")], "write": [str(ground / "out")]}

    done = drive(uid, "full", argv=[PYTHON, "-I", str(ground / "open/own.py"), str(ground / "out")], policy=policy)

    assert done["stdout"].split() == ["hello", "through", "hello", "through", "pair", "7"], done["stderr"]


#: Reads a tree in every way that a program would, and prints what it saw.
LOOK = """
import json, mmap, os, subprocess, sys
root = sys.argv[1]
seen = {"walk": sorted(os.path.relpath(os.path.join(base, name), root)
        for base, folders, files in os.walk(root) for name in (*folders, *files))}
seen["link"] = os.readlink(root + "/link"), open(root + "/link").read()
seen["mode"] = oct(os.stat(root + "/private").st_mode & 0o7777), open(root + "/private").read()
seen["folder mode"] = oct(os.stat(root).st_mode & 0o7777)
with open(root + "/sub/deep/file") as file:
    seen["mmap"] = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:].decode()
seen["exec"] = subprocess.run([root + "/tool"], capture_output=True, text=True).stdout
seen["size"] = os.path.getsize(root + "/sub/deep/file")
seen["samefile"] = os.path.samefile(root + "/private", root + "/hard")
for name, attempt in {
    "write": lambda: open(root + "/private", "w"), "make": lambda: open(root + "/new", "w"),
    "remove": lambda: os.unlink(root + "/private"), "rename": lambda: os.rename(root + "/private", root + "/x"),
    "chmod": lambda: os.chmod(root + "/private", 0o777), "link": lambda: os.link(root + "/private", sys.argv[2] + "/l"),
}.items():
    try:
        attempt()
        seen["changed"] = name
    except OSError:
        pass
print(json.dumps(seen))
"""


@pytest.mark.parametrize("name", ["plain", "with space, comma:colon \\back", "中文 ☃", "a\nb"])
@pytest.mark.parametrize("uid", users())
def test_files_read_as_before_through_the_overlay(drive: Drive, ground: Path, uid: int, name: str) -> None:
    root = ground / "open" / name
    (root / "sub/deep").mkdir(parents=True)
    (root / "sub/deep/file").write_text("deep")
    (root / "private").write_text("mine")
    (root / "private").chmod(0o600)
    os.link(root / "private", root / "hard")
    (root / "link").symlink_to("sub/deep/file")
    (root / "tool").write_text("#!/bin/sh\necho ran\n")
    (root / "tool").chmod(0o755)
    root.chmod(0o750)
    policy = {"read": [str(root)], "write": [str(ground / "out")]}

    done = drive(uid, "full", argv=[PYTHON, "-I", "-c", LOOK, str(root), str(ground / "out")], policy=policy)

    assert done["code"] == 0, done["stderr"]
    assert json.loads(done["stdout"]) == {
        "walk": ["hard", "link", "private", "sub", "sub/deep", "sub/deep/file", "tool"],
        "link": ["sub/deep/file", "deep"],
        "mode": ["0o600", "mine"],
        "folder mode": "0o750",
        "mmap": "deep",
        "exec": "ran\n",
        "size": 4,
        "samefile": True,
    }


NESTED = """
import os, sys
root = sys.argv[1]
print(open(root + "/file").read(), open(root + "/in/file").read(), open(root + "/in/out/fixed/file").read())
open(root + "/in/out/new", "w").write("written")
for path in ("/new", "/in/new", "/in/out/fixed/new"):
    try:
        open(root + path, "w")
        print("wrote", path)
    except OSError:
        pass
print(sorted(os.listdir(root + "/hidden")), os.path.getsize(root + "/in/token"))
"""


@pytest.mark.parametrize("uid", users())
def test_paths_inside_each_other_keep_their_own_rules(drive: Drive, ground: Path, uid: int) -> None:
    root = ground / "open"
    (root / "in/out/fixed").mkdir(parents=True)
    for path in ("file", "in/file", "in/out/fixed/file", "in/token"):
        (root / path).write_text(path)
    policy = {
        "read": [str(root), str(root / "in"), str(root / "in/out/fixed")],
        "write": [str(root / "in/out")],
        "hide": [str(root / "hidden"), str(root / "in/token")],
    }

    done = drive(uid, "full", argv=[PYTHON, "-I", "-S", "-c", NESTED, str(root)], policy=policy)

    assert done["stdout"] == "file in/file in/out/fixed/file\n[] 0\n", done["stderr"]
    assert (root / "in/out/new").read_text() == "written"


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
@pytest.mark.parametrize("uid", users())
def test_mounts_in_a_readable_folder_are_shown_and_sealed_too(drive: Drive, ground: Path, uid: int, kind: str) -> None:
    """Also a folder that lies on a tmpfs or an overlay itself."""
    with tempfile.TemporaryDirectory() as layers:
        for name in ("lower", "upper", "work"):
            Path(layers, name).mkdir()
        place = ground / "open/mounted here"
        place.mkdir()
        options = f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work"
        source = ["-t", "tmpfs", "tmpfs"] if kind == "tmpfs" else ["-t", "overlay", "overlay", "-o", options]
        if subprocess.run(["mount", *source, str(place)], check=False, capture_output=True).returncode:
            pytest.skip(f"{kind} cannot be mounted here")
        try:
            (place / "file").write_text("mounted")
            sockets = Sockets(place)
            for read in (ground / "open", place):
                code = f"{CONNECT}\nprint(open(folder + '/file').read())"
                done = drive(
                    uid, "full", argv=[PYTHON, "-I", "-S", "-c", code, str(place)], policy={"read": [str(read)]}
                )
                assert done["stdout"] == "mounted\n", done["stderr"]
                assert sockets.heard() == []
            sockets.close()
        finally:
            subprocess.run(["umount", str(place)], check=True)


def test_mounts_below_belong_to_the_innermost_bind() -> None:
    binds = (Bind("/p"), Bind("/p/mybox", writable=True), Bind("/p/mybox/fixed"))
    mounts = ["/p", "/p/data", "/p/mybox/disk", "/p/mybox/fixed/disk", "/p/secret/disk", "/elsewhere", "/pp"]

    found = with_mounts_below(binds, [Path("/p/secret")], mounts)

    assert [bind.path for bind in found if bind.is_mount] == ["/p/data", "/p/mybox/fixed/disk"]


def test_tools_inside_a_readable_folder_are_bound_as_they_are(drive: Drive, ground: Path) -> None:
    (ground / "open/venv").mkdir()
    (ground / "open/venv/file").write_text("tool")
    policy = {"read": [str(ground / "open")], "tools": [str(ground / "open/venv")]}
    code = f"print(open({str(ground / 'open/venv/file')!r}).read(), open({str(ground / 'open/file')!r}).read())"

    for level in LEVELS:
        done = drive(os.getuid(), level, argv=[PYTHON, "-I", "-S", "-c", code], policy=policy, weak=True)
        assert done["stdout"] == "tool welcome\n", done["stderr"]
        code_write = f"open({str(ground / 'open/venv/new')!r}, 'w')"
        assert (
            drive(os.getuid(), level, argv=[PYTHON, "-I", "-S", "-c", code_write], policy=policy, weak=True)["code"]
            == 1
        )
