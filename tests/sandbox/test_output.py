"""What comes back of what a program writes: all of it within bounds, and never a deadlock."""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.sandbox.ipc import Capture
from skillyard.sandbox.launch import Exit, Launch, Policy, Sandbox, python_paths
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.portable import LocalSandbox


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60), st.integers(1, 20))
def test_a_capture_keeps_head_and_tail_of_anything(pieces: list[bytes], head: int, tail: int) -> None:
    capture = Capture(head, tail)
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces)

    assert capture.total == len(whole)
    assert capture.head == whole[:head]
    assert capture.tail == whole[head:][-tail:]
    assert capture.overflowed == (len(whole) > head)


@given(st.lists(st.binary(max_size=40)))
def test_a_capture_with_room_gives_back_every_byte(pieces: list[bytes]) -> None:
    capture = Capture(10_000)
    for piece in pieces:
        capture.add(piece)

    assert capture.shortened() == b"".join(pieces)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        yield launcher


@pytest.fixture(params=["none", "sandboxed", "portable"])
def sandbox(request: pytest.FixtureRequest, launcher: Launcher) -> Sandbox:
    if request.param == "portable":
        return LocalSandbox()
    if request.param == "none":
        return launcher
    policy = Policy(read=python_paths())

    def run(launch: Launch) -> Exit:
        return launcher(launch._replace(policy=policy))

    return run


def python(code: str, tmp_path: Path, **more: object) -> Launch:
    launch = Launch(argv=(sys.executable, "-I", "-S", "-c", code), cwd=tmp_path)
    return launch._replace(**more)  # type: ignore[arg-type]


def test_every_byte_comes_back(sandbox: Sandbox, tmp_path: Path) -> None:
    done = sandbox(python("import os; os.write(1, bytes(range(256)) * 100)", tmp_path))

    assert done.stdout == bytes(range(256)) * 100
    assert not done.overflowed


def test_stdin_larger_than_a_pipe_is_fed_while_stdout_is_read(sandbox: Sandbox, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192

    code = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    done = sandbox(python(code, tmp_path, stdin=content))

    assert done.stdout == content


def test_a_program_that_never_reads_its_stdin_still_ends(sandbox: Sandbox, tmp_path: Path) -> None:
    done = sandbox(python("print('ok')", tmp_path, stdin=b"x" * 1_000_000))

    assert (done.code, done.stdout) == (0, b"ok\n")


def test_without_stdin_a_reader_sees_the_end_at_once(sandbox: Sandbox, tmp_path: Path) -> None:
    done = sandbox(python("import sys; print(len(sys.stdin.read()))", tmp_path))

    assert done.stdout == b"0\n"


def test_stderr_is_told_as_it_comes_and_kept_apart(sandbox: Sandbox, tmp_path: Path) -> None:
    heard: list[bytes] = []
    code = "import sys; print('out'); print('one', file=sys.stderr, flush=True); print('two', file=sys.stderr)"

    done = sandbox(python(code, tmp_path, on_stderr=heard.append))

    assert (done.stdout, done.stderr, b"".join(heard)) == (b"out\n", b"one\ntwo\n", b"one\ntwo\n")


def test_a_long_stderr_keeps_its_beginning_and_its_end(sandbox: Sandbox, tmp_path: Path) -> None:
    dots = "[os.write(2, b'.' * 65536) for _ in range(40)]"
    code = f"import os; os.write(2, b'first'); {dots}; os.write(2, b'last')"

    done = sandbox(python(code, tmp_path))

    assert done.code == 0
    assert done.stderr.startswith(b"first")
    assert done.stderr.endswith(b"last")
    assert b"bytes left out" in done.stderr
    assert len(done.stderr) < 300_000


def test_a_writer_without_end_is_stopped_at_the_limit_of_its_output(sandbox: Sandbox, tmp_path: Path) -> None:
    code = "import os\nwhile True: os.write(1, b'y' * 65536)"

    done = sandbox(python(code, tmp_path, output_bytes=1_000_000))

    assert done.overflowed
    assert done.stdout == b"y" * 1_000_000
    assert done.code < 0
    assert not done.timed_out
    assert done.stdout_tail


def test_a_program_that_is_not_there_is_an_oserror(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sandbox(Launch(argv=("/no/such/program",), cwd=tmp_path))


@pytest.mark.parametrize(
    "wrong",
    [{"argv": ()}, {"argv": ("x\0y",)}, {"env": {"A": "\0"}}, {"env": {"A=B": "c"}}, {"argv": ("\ud800",)}],
)
def test_words_that_no_program_can_be_given_are_refused(
    launcher: Launcher, tmp_path: Path, wrong: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        launcher(python("pass", tmp_path, **wrong))


def test_a_folder_to_write_that_is_not_there_is_an_oserror(launcher: Launcher, tmp_path: Path) -> None:
    policy = Policy(read=python_paths(), write=(tmp_path / "none",))

    with pytest.raises(FileNotFoundError, match="none"):
        launcher(python("pass", tmp_path, policy=policy))


def test_only_the_given_environment_arrives(launcher: Launcher, tmp_path: Path) -> None:
    done = launcher(Launch(argv=("/usr/bin/env",), cwd=tmp_path, env={"A": "1", "B": "中文"}))

    assert sorted(done.stdout.decode().split()) == ["A=1", "B=中文"]


def test_no_policy_is_no_sandbox_on_any_machine(launcher: Launcher, tmp_path: Path) -> None:
    done = launcher(Launch(argv=("/bin/true",), cwd=tmp_path))

    assert (done.sandbox, done.missing) == ("none", ())


def test_arguments_arrive_byte_for_byte(sandbox: Sandbox, tmp_path: Path) -> None:
    words = ("", " ", "中文", "a\nb", "\udcff", "--x=$(id)")
    code = "import os, sys; os.write(1, b'|'.join(os.fsencode(word) for word in sys.argv[1:]))"
    launch = python(code, tmp_path)

    done = sandbox(launch._replace(argv=(*launch.argv, *words)))

    assert done.stdout == b"||".join((b"", " |中文|a\nb|".encode() + b"\xff|--x=$(id)"))[1:]


@pytest.mark.slow
def test_a_gigabyte_of_output_stays_out_of_the_memory(launcher: Launcher, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\nfor _ in range(16384): os.write(1, b'y' * 65536)"

    done = launcher(python(code, tmp_path))

    assert done.overflowed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
