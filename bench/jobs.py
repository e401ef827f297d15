"""Jobs: what the engine below them costs, what a second worker brings, and what an idle one takes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.figures import Figure, interleaved
from bench.ground import PYTHON, SKILLYARD, make_env

_TASKS = 30
_DRAINED = 24
_IDLE_SECONDS = 20.0
_SKILL = """\
import json, sys
asked = json.loads(sys.stdin.read())
print(json.dumps({"success": True, "action": asked["action"], "data": {"n": asked.get("params", {}).get("n")}}))
"""
_AGENT = "metadata: {name: Bench}\nskills:\n  - {name: empty, entry: .claude/skills/empty.py, actions: [go]}\n"
#: One process asks both: DBOS alone, with a workflow of one empty step, and our engine above it, each with its queue.
#: Both look into their queue every 50 ms, and for the result every 20: most of either time is waiting for a look.
_COMPARE = """
import json, statistics, sys, time
from pathlib import Path
from skillyard.jobs.dbos_engine import DBOS, DurableEngine
from skillyard.jobs.engine import EngineConfig, Ticket

@DBOS.workflow(name="bench.bare")
def bare():
    return DBOS.run_step({"name": "run"}, lambda: {})

engine = DurableEngine(EngineConfig(Path(sys.argv[1]), "skillyard-bench", poll_seconds=0.05))
did = lambda ticket, steps: {"did": steps.once("run", lambda: {})}
engine.serve(did, {"default": 1, "bare": 1}, lambda: None)
DBOS.enqueue_workflow("skillyard-bench.bare", bare).get_result(polling_interval_sec=0.02)
taken = {"bare": [], "ours": []}
for number in range(int(sys.argv[2])):
    started = time.perf_counter()
    DBOS.enqueue_workflow("skillyard-bench.bare", bare).get_result(polling_interval_sec=0.02)
    taken["bare"].append(time.perf_counter() - started)
    started = time.perf_counter()
    engine.enqueue(Ticket(f"t{number}", "default", {}))
    engine.wait(f"t{number}")
    taken["ours"].append(time.perf_counter() - started)
print(json.dumps({name: statistics.median(seconds) for name, seconds in taken.items()}))
engine.close()
"""
#: A durable run of a JSON skill, started directly, beside the same program bare and with the same interpreter: the
#: first python3 of the PATH may be a script that looks for one, and ours has looked once.
_DIRECT = """
import json, statistics, subprocess, sys, time
from skillyard.app.project import open_project
from skillyard.jobs.jobs import Job
from skillyard.runners.interpreters import find_program

taken = {"bare": [], "ours": []}
with open_project() as yard:
    engine = yard.jobs.open_engine()
    jobs, work = yard.jobs.of(engine), yard.jobs.attempts()
    job = yard.jobs.prepare(Job("bench/empty", action="go", params={"n": 1}))
    asked = json.dumps({"action": "go", "params": {"n": 1}}).encode()
    bare = [find_program("python3"), "agents/bench/.claude/skills/empty.py"]
    for number in range(int(sys.argv[1]) + 2):
        started = time.perf_counter()
        subprocess.run(bare, input=asked, capture_output=True, check=True)
        middle = time.perf_counter()
        known = jobs.wait(jobs.start(job, work))
        ended = time.perf_counter()
        assert known.state == "success", known
        if number > 1:
            taken["bare"].append(middle - started)
            taken["ours"].append(ended - middle)
    print(json.dumps({name: statistics.median(seconds) for name, seconds in taken.items()}))
    engine.close()
"""


def measure(folder: Path) -> Iterator[Figure]:
    env = make_env(folder)
    project = _project(folder)
    told = json.loads(_run([PYTHON, "-c", _COMPARE, folder / "engine", str(_TASKS)], project, env))
    yield Figure(
        "enqueue → result, empty task / the bare engine's own (both mostly wait for their next look)",
        told["ours"] / told["bare"],
        at_most=1.2,
    )
    told = json.loads(_run([PYTHON, "-c", _DIRECT, str(_TASKS)], project, env))
    yield Figure("durable, sandboxed JSON skill / bare `python3 skill.py`", told["ours"] / told["bare"], at_most=1.6)
    yield from _workers(project, env)
    yield from _idle(project, env)


def _workers(project: Path, env: Mapping[str, str]) -> Iterator[Figure]:
    """The same queue drained by one and by two, each a run at a time; skills that wait, so that cores do not count."""
    cases = {}
    for count in (1, 2):

        def drain(count: int = count) -> None:
            workers = [_worker(project, env, "--drain") for _ in range(count)]
            for worker in workers:
                worker.wait()

        cases[str(count)] = drain
    taken: dict[str, float] = {}
    for name, case in cases.items():
        for _ in range(_DRAINED):
            _run([SKILLYARD, "jobs", "enqueue", "@nap"], project, env)
        taken |= interleaved({name: case}, 1)
    yield Figure("throughput of 2 workers / of 1", taken["1"] / taken["2"], at_least=1.5)


def _idle(project: Path, env: Mapping[str, str]) -> Iterator[Figure]:
    worker = _worker(project, env)
    time.sleep(5)
    before = _cpu_seconds(worker.pid)
    time.sleep(_IDLE_SECONDS)
    share = (_cpu_seconds(worker.pid) - before) / _IDLE_SECONDS * 100
    status = Path(f"/proc/{worker.pid}/status").read_text()
    kilobytes = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
    worker.send_signal(signal.SIGTERM)
    worker.wait()
    yield Figure("CPU of an idle worker", share, unit="%", at_most=2.0)
    yield Figure("memory of an idle worker", kilobytes / 1024, unit=" MB", at_most=120.0)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _worker(project: Path, env: Mapping[str, str], *words: str) -> "subprocess.Popen[bytes]":
    command = [str(SKILLYARD), "worker", *words]
    return subprocess.Popen(command, cwd=project, env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _run(argv: list[str | Path], project: Path, env: Mapping[str, str]) -> str:
    words = [str(word) for word in argv]
    done = subprocess.run(words, cwd=project, env=dict(env), check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]


def _project(folder: Path) -> Path:
    project = folder / "project"
    skills = project / "agents" / "bench" / ".claude" / "skills"
    skills.mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "agents" / "bench" / "agent.yaml").write_text(_AGENT)
    (skills / "empty.py").write_text(_SKILL)
    nap = project / ".claude" / "skills" / "nap"
    nap.mkdir(parents=True)
    (nap / "SKILL.md").write_text("---\nname: nap\ndescription: Naps for a while.\ncommand: sleep 1\n---\n")
    return project
