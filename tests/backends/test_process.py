"""An agent's program, with small real ones in its place."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillyard.backends.process import EXIT_SECONDS, Process, ProcessEnded
from skillyard.core.values import Json
from tests.sandbox.test_trees import HOSTILE, marked, until

ECHO = """
import sys
for line in sys.stdin:
    print(line, end="", flush=True)
"""
CEILING_SECONDS = 60.0


@contextmanager
def running(code: str, folder: Path, exit_seconds: float = EXIT_SECONDS, **env: str) -> Iterator[Process]:
    argv = (sys.executable, "-S", "-c", code)
    process = Process(argv, folder, {"PATH": os.environ["PATH"], **env}, exit_seconds=exit_seconds)
    try:
        yield process
    finally:
        process.close()


def received(process: Process) -> Mapping[str, Json]:
    deadline = time.monotonic() + CEILING_SECONDS
    while time.monotonic() < deadline:
        if message := process.receive(deadline - time.monotonic()):
            return message
    raise AssertionError("nothing came")


def test_a_message_of_megabytes_goes_there_and_back(tmp_path: Path) -> None:
    message = {"text": "你好 🎉\n" * 500_000}

    with running(ECHO, tmp_path) as process:
        process.send(message)

        assert received(process) == message


def test_a_program_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    with running('import time; print("{\\"up\\": 1}", flush=True); time.sleep(600)', tmp_path) as process:
        for _ in range(100):
            process.send({"text": "x" * 100_000})

        assert received(process) == {"up": 1}


def test_what_is_no_message_is_noise_and_kept_as_words(tmp_path: Path) -> None:
    code = 'import sys; print("hello\\n[1]\\n\\n{\\"a\\": 1}"); print("oh no", file=sys.stderr)'

    with running(code, tmp_path) as process:
        assert received(process) == {"a": 1}
        assert until(lambda: "oh no" in process.words())
        assert "hello" in process.words()


def test_the_end_is_told_again_and_again_with_how_it_ended(tmp_path: Path) -> None:
    with running('import sys; print("bad key", file=sys.stderr); sys.exit(3)', tmp_path) as process:
        for _ in range(2):
            with pytest.raises(ProcessEnded):
                received(process)

        assert process.close() == process.close() == "exit code 3"
        assert process.words() == "bad key"
        with pytest.raises(ProcessEnded):
            process.receive(1)


def test_a_program_that_cannot_start_says_why(tmp_path: Path) -> None:
    process = Process((str(tmp_path / "nobody"),), tmp_path, {})

    with pytest.raises(ProcessEnded):
        received(process)
    assert process.close().startswith("it could not start: ")
    assert process.close().endswith("nobody: No such file or directory")


def test_words_on_stderr_are_bounded(tmp_path: Path) -> None:
    with running('import sys; sys.stderr.write("x" * 1_000_000 + "the end")', tmp_path) as process:
        with pytest.raises(ProcessEnded):
            received(process)
        process.close()

        assert len(process.words()) < 20_000
        assert process.words().endswith("the end")


def test_a_line_of_stderr_can_stand_for_a_message(tmp_path: Path) -> None:
    process = Process(
        (sys.executable, "-c", 'import sys; print("tick\\nboom 1", file=sys.stderr); sys.stdin.read()'),
        tmp_path,
        {},
        as_message=lambda line: {"boom": line[5:]} if line.startswith("boom") else None,
    )

    assert received(process) == {"boom": "1"}
    process.close()


def test_somebody_who_waits_can_be_woken(tmp_path: Path) -> None:
    with running("import time; time.sleep(600)", tmp_path) as process:
        process.wake()

        assert not process.receive(CEILING_SECONDS)


def test_a_program_that_ends_by_itself_at_the_end_of_its_input_is_left_to(tmp_path: Path) -> None:
    code = 'import sys; sys.stdin.read(); open("farewell", "w").write("written")'

    with running(code, tmp_path, exit_seconds=CEILING_SECONDS) as process:
        assert process.close() == "exit code 0"

    assert (tmp_path / "farewell").read_text() == "written"


@pytest.mark.parametrize("floods", ["", "while True: print('{}' * 1000, flush=True)"], ids=["quiet", "flooding"])
def test_close_leaves_nobody_behind_however_they_hide(tmp_path: Path, floods: str) -> None:
    marker = f"marked-{os.urandom(8).hex()}"
    code = HOSTILE.replace("started", '{\\"up\\": 1}') + (floods or "stay()")

    with running(code, tmp_path, MARKER=marker) as process:
        assert received(process) == {"up": 1}
        assert len(marked(marker)) > 1

        process.close()

        assert marked(marker) == []


def test_a_runtime_that_is_killed_leaves_nobody_behind(tmp_path: Path) -> None:
    marker = f"marked-{os.urandom(8).hex()}"
    code = HOSTILE.replace("started", '{\\"up\\": 1}') + "stay()"
    runtime = f"""
import sys
from pathlib import Path
from skillyard.backends.process import Process
process = Process((sys.executable, "-S", "-c", {code!r}), Path("."), {{"MARKER": {marker!r}}})
print(process.receive(60), flush=True)
process.receive(600)
"""
    doomed = subprocess.Popen([sys.executable, "-c", runtime], cwd=tmp_path, stdout=subprocess.PIPE)
    assert doomed.stdout
    with doomed.stdout:
        assert json.loads(doomed.stdout.readline().replace(b"'", b'"')) == {"up": 1}
        assert marked(marker)
        doomed.kill()
        doomed.wait()

        assert until(lambda: marked(marker) == []), marked(marker)
