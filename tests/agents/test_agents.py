"""The three real agents with the stub: alone with it, and heard by it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.agents import offline
from tests.agents.agent import ONE_SHOT, Agent
from tests.agents.stub import Stub, answer, error, hang

CHECK = """
import json, socket, sys, urllib.request
def reach(host, port):
    with socket.socket() as s:
        s.settimeout(30)
        return s.connect_ex((host, port))
print(json.dumps({
    "interfaces": [name for _, name in socket.if_nameindex()],
    "routes": open("/proc/net/route").read().splitlines()[1:],
    "other": reach("192.0.2.1", 80),
    "stub": urllib.request.urlopen(sys.argv[1] + "/v1/models", timeout=60).status,
}))
"""
SPEAK = 'id -u; printf "%s|" "$@"; exit 7'


def test_a_wrapped_program_has_loopback_and_the_stub_and_nothing_else(stub: Stub, tmp_path: Path) -> None:
    offline.need_namespaces()
    python = offline.wrapped(Path(sys.executable), stub, tmp_path / "programs")

    done = subprocess.run([python, "-c", CHECK, stub.url], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["interfaces"], found["routes"], found["stub"]) == (["lo"], [], 200)
    assert found["other"] != 0


def test_a_wrapped_program_gives_its_own_exit_code_and_stays_the_same_user(stub: Stub, tmp_path: Path) -> None:
    offline.need_namespaces()
    shell = offline.wrapped(Path("/bin/sh"), stub, tmp_path / "programs")

    done = subprocess.run([shell, "-c", SPEAK, "sh", "a b", "$HOME", "--"], capture_output=True, text=True)

    mine = subprocess.run(["id", "-u"], capture_output=True, text=True).stdout
    assert (done.returncode, done.stdout) == (7, f"{mine}a b|$HOME|--|")


def test_a_task_arrives_unchanged_and_the_answer_comes_back(agent: Agent, stub: Stub) -> None:
    task = (
        "# Reference Skills\n\n你好 🎉\n"
        + "".join(f"line {number} 行\n" for number in range(3_500))
        + "# Task\n\nDo it."
    )
    stub.play(answer("All done, 好的 🎉."))

    done = agent.ask(task)

    assert done.returncode == 0, done.stderr
    assert "All done, 好的 🎉." in done.stdout
    assert stub.last_user_text(agent.name) == task
    assert len(task) > 35_000


def test_the_words_of_a_failing_model_come_through(agent: Agent, stub: Stub) -> None:
    stub.play(error(401, "no such key, says the stub"))

    done = agent.ask("Hello?")

    assert "no such key, says the stub" in done.stdout + done.stderr


def test_a_waiting_agent_is_alone_with_the_stub_and_its_end_is_noticed(agent: Agent, stub: Stub) -> None:
    """The signal reaches the program itself: nothing stands between it and whoever starts it."""
    offline.need_namespaces()
    stub.play(hang("One moment… "))
    quiet = subprocess.DEVNULL
    command: list[str | Path] = [agent.program, *ONE_SHOT[agent.name]]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=agent.env, cwd=agent.cwd)
    with started as process:
        assert process.stdin is not None
        process.stdin.write(b"Hello?")
        process.stdin.close()
        stub.wait_until_held()
        interfaces = Path(f"/proc/{process.pid}/net/dev").read_text().splitlines()[2:]
        process.kill()

    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    assert stub.wait_until_hung_up().agent == agent.name
