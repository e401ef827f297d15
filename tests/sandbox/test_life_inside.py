"""What ordinary programs need still works inside, whichever way in was taken."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillyard.runners.interpreters import reach_of
from skillyard.sandbox import bubblewrap
from skillyard.sandbox.launch import Exit, Launch, Policy, python_paths
from skillyard.sandbox.launcher import Launcher

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture(scope="module", params=["full", "bubblewrap", "landlock+seccomp"])
def launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    with Launcher() as probing:
        layers = probing.layers
    if request.param != "full":
        layers = layers._replace(namespaces=False, bubblewrap="")
    if request.param == "bubblewrap":
        program, reason = bubblewrap.find()
        if not program:
            pytest.skip(f"bubblewrap: {reason}")
        layers = layers._replace(bubblewrap=program)
    with Launcher(layers, weak=True) as launcher:
        assert launcher(Launch(argv=("/bin/true",), cwd=Path("/"), policy=Policy())).sandbox == request.param
        yield launcher


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    for name in ("skill", "mybox", "private"):
        (root / name).mkdir()
    (root / "skill/data.txt").write_text("bundled")
    (root / "private/notes").write_text("mine")
    return root


def python(launcher: Launcher, project: Path, code: str, **more: object) -> Exit:
    policy = Policy(read=(*python_paths(), project / "skill"), write=(project / "mybox",))
    policy = policy._replace(**more)  # type: ignore[arg-type]
    argv = (sys.executable, "-I", "-c", code)
    return launcher(Launch(argv=argv, cwd=project, env=PATH, policy=policy))


def says(done: Exit) -> str:
    assert done.code == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_it_reads_its_skill_and_writes_its_output(launcher: Launcher, project: Path) -> None:
    code = "open('mybox/out', 'w').write(open('skill/data.txt').read())"

    says(python(launcher, project, code))

    assert (project / "mybox/out").read_text() == "bundled"


def test_the_rest_of_the_project_is_not_readable(launcher: Launcher, project: Path) -> None:
    done = python(launcher, project, "open('private/notes').read()")

    assert done.code == 1
    assert b"private/notes" in done.stderr


def test_temp_and_home_are_private_and_writable(launcher: Launcher, project: Path) -> None:
    code = """
import os, pathlib, tempfile
home = pathlib.Path.home()
assert list(home.iterdir()) == [], list(home.iterdir())
(home / "x").write_text("kept while it runs")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
print(home, tempfile.gettempdir())
"""
    home, temp = says(python(launcher, project, code)).split()

    assert not Path(home).exists()
    assert temp == "/tmp" or not Path(temp).exists()


def test_threads_and_child_processes_work(launcher: Launcher, project: Path) -> None:
    code = """
import subprocess, threading, socket
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
a, b = socket.socketpair()
a.send(b"hello")
said = subprocess.run(["sh", "-c", "echo one | cat"], capture_output=True, text=True).stdout
print(said, b.recv(5).decode())
"""
    assert says(python(launcher, project, code)).split() == ["one", "hello"]


def test_multiprocessing_works(launcher: Launcher, project: Path) -> None:
    code = """
import multiprocessing
def square(n): return n * n
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(square, range(4)))
"""
    if launcher.layers.namespaces or launcher.layers.bubblewrap:
        assert says(python(launcher, project, code)) == "[0, 1, 4, 9]"
    else:
        pytest.skip("without namespaces there is no private /dev/shm for its semaphores")


def test_files_move_between_folders_of_the_output(launcher: Launcher, project: Path) -> None:
    code = """
import os
os.makedirs("mybox/a"); os.makedirs("mybox/b")
open("mybox/a/x", "w").write("moved")
os.rename("mybox/a/x", "mybox/b/x")
os.symlink("x", "mybox/b/link")
"""
    says(python(launcher, project, code))

    assert (project / "mybox/b/link").read_text() == "moved"


def test_a_read_path_inside_a_write_path_stays_read_only_with_namespaces(launcher: Launcher, project: Path) -> None:
    if not (launcher.layers.namespaces or launcher.layers.bubblewrap):
        pytest.skip("Landlock cannot say it")
    (project / "mybox/fixed").mkdir()
    policy = {"read": (*python_paths(), project / "mybox/fixed"), "write": (project / "mybox",)}

    done = python(launcher, project, "open('mybox/x', 'w'); open('mybox/fixed/x', 'w')", **policy)

    assert done.code == 1
    assert (project / "mybox/x").exists()
    assert not (project / "mybox/fixed/x").exists()


def test_with_the_network_granted_a_host_can_be_reached(launcher: Launcher, project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=20); print('reached')"

        assert says(python(launcher, project, code, network=True)) == "reached"
        assert python(launcher, project, code).code == 1


def test_a_single_file_can_be_named(launcher: Launcher, project: Path) -> None:
    policy = {"read": (*python_paths(), project / "private/notes")}

    assert says(python(launcher, project, "print(open('private/notes').read())", **policy)) == "mine"


def test_a_named_path_that_is_not_there_is_no_obstacle(launcher: Launcher, project: Path) -> None:
    assert says(python(launcher, project, "print('ok')", read=(*python_paths(), project / "none"))) == "ok"


def test_a_hidden_file_is_hidden_in_a_readable_folder(launcher: Launcher, project: Path) -> None:
    policy = {"read": (*python_paths(), project), "hide": (project / "private/notes",)}

    done = python(launcher, project, "import os; print(len(open('private/notes').read()))", **policy)

    assert done.code == 1 or done.stdout == b"0\n"


def test_a_file_larger_than_allowed_is_cut_off(launcher: Launcher, project: Path) -> None:
    done = python(launcher, project, "open('mybox/big', 'wb').write(b'x' * 100_000)", file_bytes=10_000)

    assert done.code != 0
    assert (project / "mybox/big").stat().st_size <= 10_000


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_node_runs(launcher: Launcher, project: Path) -> None:
    node = Path(shutil.which("node") or "").resolve()
    policy = Policy(read=(*reach_of(node).known, project / "skill"), write=(project / "mybox",))
    code = "const fs = require('fs'); fs.writeFileSync('mybox/n', fs.readFileSync('skill/data.txt'))"
    argv = (str(node), "-e", code)

    says(launcher(Launch(argv=argv, cwd=project, env=PATH, policy=policy)))

    assert (project / "mybox/n").read_text() == "bundled"


#: Programs that set modes, priorities, limits and affinities of their own, or come near what the filter refuses.
USUAL = {
    "tar": "mkdir -p t/a && echo x > t/a/f && chmod 1777 t/a && tar cf t.tar t && rm -r t && tar xpf t.tar && ls t/a/f",
    "cp": "mkdir c && echo x > c/f && chmod 755 c/f && cp -a c d && cp -p c/f e && install -m 755 c/f i && test -x d/f",
    "git": "git init -q g && echo x > g/f && git -C g add f && git -C g -c user.name=n -c user.email=e commit -qm m"
    " && git clone -q g h && cat h/f",
    "sqlite3": "test $(sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1);') = wal",
    "gcc": "echo 'int main(){return 0;}' > a.c && gcc a.c -o a.out && ./a.out",
    "nice": "test $(nice -n 5 nice) = 5",
    "taskset": "test $(taskset -c 0 nproc) = 1 && taskset -c -p $$",
    "prlimit": "prlimit --nofile=100 sh -c 'test $(ulimit -n) = 100'",
    "chrt": "chrt --batch 0 true && chrt --idle 0 true",
    "ionice": "ionice -c 3 true",
    "timeout": "timeout 20 sh -c 'sleep 60 & kill $! && kill -0 $PPID'",
    "java": "java -version",
    "npm": "npm --version --cache $TMPDIR",
}


@pytest.mark.parametrize("name", USUAL)
def test_usual_programs_still_run(launcher: Launcher, project: Path, name: str) -> None:
    if shutil.which(name, path=PATH["PATH"]) is None:
        pytest.skip(f"no {name} here")
    policy = Policy(write=(project / "mybox",))
    env = PATH | {"GIT_CONFIG_NOSYSTEM": "1"}
    launch = Launch(argv=("/bin/sh", "-ec", USUAL[name]), cwd=project / "mybox", env=env, policy=policy)
    if name == "taskset" and not (launcher.layers.namespaces or launcher.layers.bubblewrap):
        launch = launch._replace(argv=("/bin/sh", "-ec", USUAL[name].partition(" &&")[0]))  # others by number: never

    says(launcher(launch))


THREADS = """
import asyncio, concurrent.futures, ctypes, os, resource, threading
libc = ctypes.CDLL(None)
pinned = []
def pin():
    mask = ctypes.create_string_buffer(b"\\1", 128)
    pinned.append(libc.pthread_setaffinity_np(ctypes.c_void_p(threading.get_ident()), 128, mask))
thread = threading.Thread(target=pin)
thread.start()
thread.join()
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.nice(1)
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
async def child():
    return await (await asyncio.create_subprocess_exec("true")).wait()
assert asyncio.run(child()) == 0
assert list(concurrent.futures.ThreadPoolExecutor(4).map(abs, [-1, 2])) == [1, 2]
print(*pinned)
"""


def test_threads_may_choose_their_own_cpu(launcher: Launcher, project: Path) -> None:
    """With namespaces by their number too; without, that is refused, because it could be anybody's."""
    expected = "0" if launcher.layers.namespaces or launcher.layers.bubblewrap else "1"

    assert says(python(launcher, project, THREADS)) == expected


def test_the_programs_own_failure_is_told_as_it_is(launcher: Launcher, project: Path) -> None:
    assert python(launcher, project, "raise SystemExit(3)").code == 3


def test_a_signal_that_ends_it_is_told(launcher: Launcher, project: Path) -> None:
    if launcher.layers.bubblewrap:
        pytest.skip("bubblewrap gives 128 and the signal")
    assert python(launcher, project, "import os; os.kill(os.getpid(), 9)").code == -9


def test_it_is_alone_in_its_session(launcher: Launcher, project: Path) -> None:
    code = "import os; assert os.getsid(0) != 0; print(os.path.exists('/dev/tty') and os.access('/dev/tty', 0))"
    done = python(launcher, project, code + "\ntry: open('/dev/tty')\nexcept OSError: print('no terminal')")

    assert "no terminal" in says(done)


def test_a_cwd_that_may_not_be_read_is_still_where_it_runs(launcher: Launcher, project: Path) -> None:
    assert says(python(launcher, project, "import os; print(os.getcwd())")) == os.fspath(project)
