"""What running a skill costs on top of the program itself."""

import json
import operator
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.figures import Figure, command, interleaved, samples
from bench.ground import PYTHON, SKILLYARD, make_env
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.result import Request
from skillyard.sandbox.launch import Launch, Policy, python_paths
from skillyard.trust.consent import trust
from skillyard.trust.hidden_files import find_hidden

HELLO = "---\nname: hello\ndescription: Says hello\ncommand: echo hello\n---\n"
LOUD = "import sys\nblock = 'x' * 65536\nfor _ in range(160):\n    sys.stdout.write(block)\n"
ENDLESS = "import sys\nblock = 'x' * 65536\nfor _ in range(16384):\n    sys.stdout.write(block)\n"


def measure(folder: Path) -> Iterator[Figure]:
    project = folder / "project"
    skill = project / ".claude" / "skills" / "hello"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(HELLO)
    (project / ".git").mkdir()
    (project / ".env").write_text("TOKEN=1\n")  # something to hide, and a home to keep away, as most projects have
    (folder / "home" / ".config" / "tool").mkdir(parents=True)
    places = ProjectPaths(project=project, user_home=folder / "home", own_home=folder / "skillyard")
    with Project(places) as yard:
        yield from _added(yard, project)
        yield from _hidden(folder)
        yield from _cache_hit(yard, project)
        yield from _limit(yard, project)
        yield from _output(yard, project)
        yield from _concurrent(yard, project)
    yield from _start(folder, project)


def _bare(argv: tuple[str, ...], project: Path) -> Callable[[], object]:
    return lambda: subprocess.run(argv, cwd=project, env={"PATH": os.defpath}, capture_output=True, check=True)


def _wrapped(argv: tuple[str, ...], project: Path) -> tuple[str, ...]:
    """The same program in bubblewrap alone, with everything unshared."""
    binds = [word for path in ("/usr", "/bin", "/lib", "/lib64", "/etc") for word in ("--ro-bind", path, path)]
    prefixes = [word for path in python_paths() for word in ("--ro-bind", str(path), str(path))]
    own = ["--bind", str(project), str(project), "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--new-session"]
    return ("bwrap", *binds, *prefixes, *own, "--chdir", str(project), "--", *argv)


def _added(yard: Project, project: Path) -> Iterator[Figure]:
    argv = ("/bin/echo", "hello")
    runtime, sandbox = yard.runtime, yard.sandbox
    policy = Policy(read=(project,))
    launch = Launch(argv=argv, cwd=project, env={"PATH": os.defpath})
    cases: dict[str, Callable[[], object]] = {
        "bare": _bare(argv, project),
        "launch": lambda: sandbox(launch),
        "layers": lambda: sandbox(launch._replace(policy=policy)),
        "run": lambda: runtime.run(Request(name="hello", sandboxed=False)),
        "sandboxed": lambda: runtime.run(Request(name="hello")),
        "read only": lambda: runtime._replace(reads_project=False).run(Request(name="hello")),
    }
    if shutil.which("bwrap"):
        cases["bwrap"] = _bare(_wrapped(argv, project), project)
    for case in cases.values():
        case()
    rounds = samples(cases, rounds=60, pause_seconds=0.03)
    taken = {name: statistics.median(seconds) for name, seconds in rounds.items()}
    added = {name: (seconds - taken["bare"]) * 1000 for name, seconds in taken.items()}
    yield Figure("launcher without sandbox, added to a bare `subprocess.run`, p50", added["launch"], " ms", at_most=3)
    yield Figure("launcher with all layers, added, p50", added["layers"], " ms", at_most=15)
    yield Figure("whole run without sandbox (found, checked, recorded), added, p50", added["run"], " ms")
    yield Figure("whole run with all layers, added, p50", added["sandboxed"], " ms", at_most=15)
    overlay = statistics.median(map(operator.sub, rounds["sandboxed"], rounds["read only"])) * 1000
    yield Figure("the project copy-on-write, added to a run with params only, p50", overlay, " ms", at_most=2)
    if "bwrap" in taken:
        yield Figure("launcher with all layers against bubblewrap alone", taken["layers"] / taken["bwrap"], at_most=1.5)


def _hidden(folder: Path) -> Iterator[Figure]:
    """Every run looks for the secrets of its project."""
    large = folder / "large"
    for number in range(2_500):
        place = large / f"node_modules/{number % 50}/{number}"
        place.mkdir(parents=True)
        for name in range(20):
            (place / f"{name}.js").touch()
    time.sleep(2.1)  # what changed just now is not remembered
    taken = interleaved({"hidden": lambda: find_hidden(large, folder / "skillyard")}, rounds=11)
    yield Figure("hidden files of a project with 50,000, found again, p50", taken["hidden"] * 1000, " ms", at_most=30)


def _cache_hit(yard: Project, project: Path) -> Iterator[Figure]:
    """The same key again, in a process that is warm."""
    (project / "bin").mkdir()
    (project / "bin" / "x.py").write_text("print('x')\n")
    trust(yard.grants, project)
    kernel = Kernel(yard)

    def task() -> object:
        return kernel.task("worker_agent", "bench", "run python bin/x.py", idempotency_key="bench")

    task()
    taken = interleaved({"hit": task}, rounds=200)
    yield Figure("a hit of an idempotency key, p50", taken["hit"] * 1000, " ms", at_most=2)


def _limit(yard: Project, project: Path) -> Iterator[Figure]:
    marker = f"bench-{os.getpid()}-{time.time_ns()}"
    launch = Launch(
        argv=("/bin/sh", "-c", "sleep 47 & sleep 47"),
        cwd=project,
        env={"PATH": os.defpath, "MARKER": marker},
        limit_seconds=2.0,
        policy=Policy(read=(project,)),
    )
    started = time.perf_counter()
    yard.sandbox(launch)
    yield Figure("a 2 s limit with a `sleep 47` in the background", time.perf_counter() - started, " s", at_most=2.4)
    left = sum(marker.encode() in _environment(path) for path in Path("/proc").glob("[0-9]*/environ"))
    yield Figure("processes left after it", left, "", at_most=0)


def _environment(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _output(yard: Project, project: Path) -> Iterator[Figure]:
    python = str(PYTHON.resolve())
    policy = Policy(read=(project, *python_paths()))
    launch = Launch(argv=(python, "-c", LOUD), cwd=project, env={"PATH": os.defpath}, output_bytes=20_000_000)
    cases = {
        "bare": _bare(launch.argv, project),
        "ours": lambda: yard.sandbox(launch),
        "layers": lambda: yard.sandbox(launch._replace(policy=policy)),
    }
    taken = interleaved(cases, rounds=15)
    yield Figure(
        "10 MB of output against `subprocess.run`, without sandbox", taken["ours"] / taken["bare"], at_most=1.3
    )
    yield Figure(
        "10 MB of output against `subprocess.run`, with all layers", taken["layers"] / taken["bare"], at_most=1.3
    )
    yield Figure("1 GB of output: peak memory of the runtime", _peak_of_endless(project), " MB", at_most=60)


def _peak_of_endless(project: Path) -> float:
    code = (
        "import sys, json, resource, pathlib\n"
        "from skillyard.sandbox.launch import Launch, make_sandbox\n"
        "argv = json.loads(sys.argv[1])\n"
        "sandbox = make_sandbox()\n"
        "sandbox(Launch(argv=tuple(argv), cwd=pathlib.Path.cwd()))\n"
        "sandbox.close()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    words = [sys.executable, "-c", code, json.dumps([str(PYTHON.resolve()), "-c", ENDLESS])]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def _concurrent(yard: Project, project: Path) -> Iterator[Figure]:
    """64 at once of a Python program, as skills mostly are."""
    argv = (str(PYTHON.resolve()), "-c", "print('hello')")
    policy = Policy(read=(project, *python_paths()))
    launch = Launch(argv=argv, cwd=project, env={"PATH": os.defpath})
    finished: list[bytes] = []
    lock = threading.Lock()

    def ours(order: Launch) -> None:
        ended = yard.sandbox(order)
        with lock:
            finished.append(ended.stdout)

    cases: dict[str, Callable[[], object]] = {
        "bare": lambda: _many(_bare(argv, project)),
        "ours": lambda: _many(lambda: ours(launch)),
        "layers": lambda: _many(lambda: ours(launch._replace(policy=policy))),
    }
    if shutil.which("bwrap"):
        cases["bwrap"] = lambda: _many(_bare(_wrapped(argv, project), project))
    taken = interleaved(cases, rounds=5)
    yield Figure("64 concurrent runs: lost", 64 * 10 - finished.count(b"hello\n"), "", at_most=0)
    yield Figure("64 concurrent runs: throughput against bare processes", taken["bare"] / taken["ours"], at_least=0.85)
    if "bwrap" in taken:
        what = "64 concurrent runs with all layers: throughput against bubblewrap"
        yield Figure(what, taken["bwrap"] / taken["layers"], at_least=0.85)


def _many(case: Callable[[], object]) -> None:
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda _: case(), range(64)))


def _start(folder: Path, project: Path) -> Iterator[Figure]:
    env = make_env(folder)
    command([SKILLYARD, "run", "@hello"], project, env)()
    taken = interleaved(
        {
            "pass": command([PYTHON, "-c", "pass"], project, env),
            "program": command(["/bin/echo", "hello"], project, env),
            "run": command([SKILLYARD, "run", "@hello"], project, env),
            "no sandbox": command([SKILLYARD, "run", "--no-sandbox", "@hello"], project, env),
        },
        rounds=25,
    )
    ours = taken["run"] - taken["program"]
    without = taken["no sandbox"] - taken["program"]
    yield Figure("`skillyard run` of a trivial skill against `python -c pass`", ours / taken["pass"], at_most=7)
    yield Figure("the same without sandbox", without / taken["pass"], at_most=7)
