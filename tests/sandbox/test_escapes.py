"""Real attempts to get out, as root and as an ordinary user, at three levels."""

import ctypes
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillyard.sandbox import seccomp
from skillyard.sandbox.syscalls import MACHINE, numbers
from tests.sandbox.conftest import HERE, ORDINARY, PYTHON, Drive, users

SECRET = "s3cret-of-the-runtime"
LIBC = ctypes.CDLL(None, use_errno=True)


class Targets:
    """Listeners outside, open to everybody, that nothing inside may reach."""

    def __init__(self, ground: Path) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.name = f"skillyard-test-{os.urandom(8).hex()}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.name)
        self.path = socket.socket(socket.AF_UNIX)
        self.path.bind(str(ground / "outside/socket"))
        (ground / "outside/socket").chmod(0o777)
        for listener in (self.abstract, self.path):
            listener.listen()
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(ground / "outside/datagrams"))
        (ground / "outside/datagrams").chmod(0o777)
        self.named = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.named.bind("\0" + self.name + "-datagrams")
        self.all = (self.tcp, self.udp, self.abstract, self.path, self.datagrams, self.named)
        self.key = int.from_bytes(os.urandom(3), "big") + 1
        self._ipc = [
            ("shmctl", LIBC.shmget(self.key, 4096, 0o1666), (0, None)),
            ("msgctl", LIBC.msgget(self.key, 0o1666), (0, None)),
            ("semctl", LIBC.semget(self.key, 1, 0o1666), (0, 0)),
        ]
        queue = LIBC.mq_open(f"/{self.name}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        assert queue >= 0
        assert all(number >= 0 for _, number, _ in self._ipc)
        os.close(queue)

    def close(self) -> None:
        for listener in self.all:
            listener.close()
        for remove, number, (first, last) in self._ipc:
            getattr(LIBC, remove)(number, first, last)  # 0 is IPC_RMID
        LIBC.mq_unlink(f"/{self.name}".encode())

    def heard(self) -> list[str]:
        got = []
        names = ("tcp", "udp", "abstract", "path", "datagrams", "named")
        for name, listener in zip(names, self.all, strict=True):
            listener.setblocking(False)
            try:
                _ = listener.recv(100) if listener.type == socket.SOCK_DGRAM else listener.accept()
            except BlockingIOError:
                continue
            got.append(name)
        return got


@pytest.fixture
def targets(ground: Path) -> Iterator[Targets]:
    listening = Targets(ground)
    yield listening
    listening.close()


def attempt(targets: Targets, ground: Path, *, private_loopback: bool) -> list[str]:
    known = numbers(MACHINE)
    refused = {name: known[name] for name in seccomp.REFUSED if name in known}
    given = {
        "ground": str(ground),
        "tcp": targets.tcp.getsockname()[1],
        "udp": targets.udp.getsockname()[1],
        "abstract": targets.name,
        "secret": SECRET,
        "numbers": refused,
        "private_loopback": private_loopback,
        "calls": known,
        "key": targets.key,
        "queue": targets.name,
        # Of the runtime's command line and environment, and of bubblewrap's command line.
        "words_backwards": [word[::-1] for word in ("drive.py", "PYTHONPATH", "--ro-bind")],
    }
    text = json.dumps(given)[:-1] + ', "runtime": {runtime}}'
    return [PYTHON, "-I", "-S", "-c", (HERE / "attempts.py").read_text(), text]


def policy(ground: Path) -> dict[str, list[str]]:
    return {
        "read": [str(ground / "open")],
        "write": [str(ground / "out")],
        "hide": [str(ground / "open/hidden"), str(ground / "home")],
    }


@pytest.mark.parametrize("level", ["full", "landlock+seccomp", "bubblewrap"])
@pytest.mark.parametrize("uid", users())
def test_nothing_gets_out(drive: Drive, ground: Path, targets: Targets, uid: int, level: str) -> None:
    argv = attempt(targets, ground, private_loopback=level != "landlock+seccomp")

    done = drive(uid, level, argv=argv, policy=policy(ground), weak=True)

    assert done["code"] == 0, done["stderr"]
    said = json.loads(done["stdout"])
    # The first process of bubblewrap's namespace is bubblewrap: it holds nothing of ours and enforces nothing.
    expected = ["read_the_memory_of_the_parent"] if level == "bubblewrap" else []
    assert said["escaped"] == expected, said["escaped"]
    assert said["read"] == "welcome"
    assert done["sandbox"] == level
    assert targets.heard() == []
    assert (ground / "outside/victim").read_text() == "untouched"
    assert [path for path in ground.rglob("*") if path.lstat().st_mode & 0o6000] == []
    assert sorted(path.name for path in (ground / "outside").iterdir()) == ["datagrams", "socket", "victim"]


@pytest.mark.parametrize("level", ["full", "landlock+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_what_it_writes_belongs_to_the_person_who_asked(drive: Drive, ground: Path, uid: int, level: str) -> None:
    drive(uid, level, argv=["/bin/sh", "-c", "echo done > out/result"], policy=policy(ground), weak=True)

    assert (ground / "out/result").stat().st_uid == uid
    assert (ground / "out/result").read_text() == "done\n"


@pytest.mark.parametrize("uid", users())
def test_a_machine_without_layers_refuses_to_run(drive: Drive, ground: Path, uid: int) -> None:
    done = drive(uid, "none", argv=["/bin/touch", str(ground / "out/ran")], policy=policy(ground))

    assert done["unavailable"] == ["files", "network", "processes"]
    assert set(done["reasons"]) >= {"namespaces", "landlock", "seccomp"}
    assert not (ground / "out/ran").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused")
def test_root_is_refused_without_namespaces_unless_the_person_insists(drive: Drive, ground: Path) -> None:
    touch = ["/bin/touch", str(ground / "out/ran")]

    refused = drive(0, "landlock+seccomp", argv=touch, policy=policy(ground))

    assert refused["unavailable"] == ["stat", "metadata", "proc", "fifo"]
    assert "--weak-sandbox" in refused["hint"]
    assert not (ground / "out/ran").exists()
    assert drive(0, "landlock+seccomp", argv=touch, policy=policy(ground), weak=True)["code"] == 0
    assert (ground / "out/ran").exists()


def test_an_ordinary_user_runs_without_namespaces_and_is_told_what_is_not_covered(drive: Drive, ground: Path) -> None:
    uid = os.getuid() or ORDINARY
    nested = {"read": [str(ground / "out")], "write": [str(ground / "out")]}

    done = drive(uid, "landlock+seccomp", argv=["/bin/true"], policy=nested)

    assert done["code"] == 0
    assert done["missing"][-5:] == ["stat", "metadata", "proc", "fifo", "nested"]


MOUNTS = r"""
import re
for line in open("/proc/self/mountinfo"):
    fields = line.split()
    if "nosuid" not in fields[5].split(","):
        print(fields[4])
"""


@pytest.mark.parametrize("level", ["full", "bubblewrap"])
@pytest.mark.parametrize("uid", users())
def test_every_mount_ignores_setuid_bits(drive: Drive, ground: Path, uid: int, level: str) -> None:
    done = drive(uid, level, argv=[PYTHON, "-I", "-S", "-c", MOUNTS], policy=policy(ground))

    assert (done["code"], done["stdout"]) == (0, "")


@pytest.mark.parametrize("level", ["full", "landlock+seccomp"])
def test_an_output_folder_swapped_for_a_symlink_is_refused(drive: Drive, ground: Path, level: str) -> None:
    (ground / "out/result").symlink_to(ground / "outside")
    swapped = {"write": [str(ground / "out/result")]}

    with pytest.raises(AssertionError, match="there is a symlink on the way"):
        drive(os.getuid(), level, argv=["/bin/touch", str(ground / "outside/new")], policy=swapped, weak=True)

    assert not (ground / "outside/new").exists()


BOMB = """
import os, time
count = 0
for _ in range(3000):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        break
    count += 1
print(count)
"""


@pytest.mark.slow
@pytest.mark.alone  # it uses up what one user may start, and counts what that user runs elsewhere
@pytest.mark.parametrize("level", ["full", "landlock+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_a_fork_bomb_is_bounded(drive: Drive, ground: Path, uid: int, level: str) -> None:
    done = drive(uid, level, argv=[PYTHON, "-I", "-S", "-c", BOMB], policy={"processes": 40}, weak=True)

    expected = [] if level == "full" else ["stat", "metadata", "proc", "fifo"]
    assert done["missing"] == (expected if uid == 0 else done["missing"])
    # An ordinary user without namespaces has one count for all that runs: room for that is added.
    is_exact = uid == 0 or level == "full"
    assert is_exact == ("forks" not in done["missing"])
    ceiling = 45 if is_exact else 1500
    assert 10 <= int(done["stdout"]) <= ceiling
    assert not left_over(ground)


def left_over(ground: Path) -> list[str]:
    """Processes that still work in the test's folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cwd").readlink() == ground:
                found.append(folder.name)
        except OSError:
            continue
    return found


GREEDY = """
held = []
for _ in range(160):
    piece = bytearray(64 << 20)
    piece[:: 4096] = b"x" * len(piece[:: 4096])
    held.append(piece)
print("took 10 GB")
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["full", "landlock+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_ten_gigabytes_of_memory_are_refused(drive: Drive, ground: Path, uid: int, level: str) -> None:
    done = drive(uid, level, argv=[PYTHON, "-I", "-S", "-c", GREEDY], policy={"memory_bytes": 256 << 20}, weak=True)

    assert done["code"] != 0
    assert "took 10 GB" not in done["stdout"]


MANY_GREEDY = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(48 << 20)
        held[:: 4096] = b"x" * len(held[:: 4096])
        time.sleep(600)
for _ in range(8):
    os.wait()
    print("one ended", flush=True)
    break
"""


@pytest.mark.slow
def test_the_memory_of_all_processes_together_is_bounded_where_there_is_a_cgroup(drive: Drive, ground: Path) -> None:
    argv = [PYTHON, "-I", "-S", "-c", MANY_GREEDY]
    done = drive(os.getuid(), "full", argv=argv, policy={"memory_bytes": 128 << 20})
    if "memory" in done["missing"]:
        pytest.skip("no memory cgroup is writable here")

    assert done["hit"] == "memory"


#: Every process is smaller than the supervisor, so the kernel chooses that one.
MANY_SMALL = "for n in $(seq 200); do sh -c 'x=$(head -c 900000 /dev/zero | tr \"\\0\" x); sleep 600' & done; wait"


@pytest.mark.slow
def test_a_supervisor_that_ran_out_of_memory_is_told_as_such(drive: Drive, ground: Path) -> None:
    done = drive(os.getuid(), "full", argv=["/bin/sh", "-c", MANY_SMALL], policy={"memory_bytes": 64 << 20})
    if "memory" in done["missing"]:
        pytest.skip("no memory cgroup is writable here")

    assert (done["code"] != 0, done["hit"]) == (True, "memory")
    assert not left_over(ground)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_is_told_what_is_not_guarded(drive: Drive, ground: Path) -> None:
    done = drive(ORDINARY, "full", argv=["/bin/true"], policy={})

    assert done["missing"] == ["memory"]
