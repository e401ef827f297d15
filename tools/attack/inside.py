"""The payloads that run inside a sandbox, by layer, and how the harness sees whether one got out."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.sandbox import seccomp
from skillyard.sandbox.syscalls import MACHINE, numbers
from tools.attack.ground import LIBC, Ground, crowd, descendants, kill_marked, marked
from tools.attack.report import Cell, Verdict
from tools.attack.who import BARE, Limits, Runtime, Who

#: How long after its end or its limit a run may take to be gone with everything that it started.
GONE_SECONDS = 5.0
CEILING_SECONDS = 60.0
_MORE_NUMBERS = {"mq_open": 240, "mq_timedsend": 242, "fchmodat2": 452, "openat2": 437, "creat": 85, "open": 2}
_MORE_NUMBERS |= {"openat": 257, "mknodat": 259, "mkdirat": 258, "prlimit64": 302, "ioprio_set": 251, "ptrace": 101}
_MORE_NUMBERS |= {"process_vm_readv": 310, "pidfd_getfd": 438, "open_by_handle_at": 304}
#: Calls that every skill can do without.
_SURFACE: tuple[str, ...] = (
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "fsopen", "open_tree", "move_mount", "mount_setattr"),
    *("fanotify_init", "kcmp", "name_to_handle_at", "quotactl", "modify_ldt", "process_madvise"),
    *("pidfd_getfd", "move_pages", "migrate_pages", "process_vm_readv", "process_vm_writev", "ptrace"),
)


class Seen(NamedTuple):
    """What a judge may look at."""

    ground: Ground
    runtime: Runtime
    #: Empty while the payload holds.
    stdout: str
    missing: tuple[str, ...] = ()


Judge = Callable[[Seen], str]


class Payload(NamedTuple):
    """`judge` looks after the end, `during` while the payload holds. Both give evidence, or nothing."""

    name: str
    layer: str
    judge: Judge
    during: Judge | None = None
    limits: Limits = Limits()
    #: Where it must not run at all, with the reason.
    skip: Mapping[str, str] = {}
    #: Shown and no failure where the run itself says, by this word of `Exit.missing`, that it is not covered.
    word: str = ""
    #: Only root can do it even where nothing guards.
    needs_root: bool = False
    #: Its processes must be gone soon after the limit.
    must_end: bool = False
    #: Runs with the runtime in a cgroup of its own, as in a container.
    crowded: bool = False


# -- judges


def leaked(seen: Seen) -> str:
    """A secret that lies outside came out."""
    said = seen.stdout + _written(seen.ground)
    if seen.ground.secret in said:
        return "read the secret"
    return "read the runtime's own words" if seen.runtime.secret in said else ""


def _written(ground: Ground) -> str:
    texts = []
    for path in (ground.root / "out").rglob("*"):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError):
                texts.append(path.read_bytes()[:100_000].decode("utf-8", "replace"))
    return "".join(texts)


def shadowed(seen: Seen) -> str:
    return "read /etc/shadow" if "root:" in seen.stdout and ":::" in seen.stdout else ""


def changed(seen: Seen) -> str:
    return seen.ground.changed()


def heard(seen: Seen) -> str:
    return seen.ground.listeners.heard(seen.ground.token)


def setuid_left(seen: Seen) -> str:
    found = [path.name for path in (seen.ground.root / "out").rglob("*") if path.lstat().st_mode & 0o6000]
    return f"left {', '.join(sorted(found))} with setuid or setgid" if found else ""


def capabilities_left(seen: Seen) -> str:
    found = [p.name for p in (seen.ground.root / "out").rglob("*") if "security.capability" in os.listxattr(p)]
    return f"gave capabilities to {found[0]}" if found else ""


def attribute_left(seen: Seen) -> str:
    return "marked a file outside" if os.listxattr(seen.ground.root / "outside/victim") else ""


def device_left(seen: Seen) -> str:
    found = [p.name for p in (seen.ground.root / "out").rglob("*") if p.is_char_device() or p.is_block_device()]
    return f"left the device {found[0]}" if found else ""


def reached(seen: Seen) -> str:
    """What the payload reached in the kernel; there is nothing outside that could show it."""
    said = [line.removeprefix("REACHED ") for line in seen.stdout.splitlines() if line.startswith("REACHED ")]
    return (
        "reached " + ", ".join(" ".join(said).split()[:6]) + (f" ({len(said)})" if len(said) > 6 else "")
        if said
        else ""
    )


def victim_ended(seen: Seen) -> str:
    with contextlib.suppress(Exception):
        seen.ground.victim.process.wait(0.3)
    return "ended a process outside" if seen.ground.victim.process.poll() is not None else ""


def _status(pid: int, field: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field):
                return line.partition(":")[2].strip()
    return ""


def _files_limit(pid: int) -> str:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max open files"):
                return line.split()[3]
    return ""


def _rescheduled(pid: int) -> str:
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(pid) == os.SCHED_IDLE:
            return "set the idle class on"
        if os.getpriority(os.PRIO_PROCESS, pid) == 19:
            return "set the lowest priority on"
        if LIBC.syscall(252 if MACHINE == "x86_64" else 31, 1, pid) >> 13 == 3:
            return "set the idle I/O class on"
    return ""


def _pinned(pid: int) -> str:
    with contextlib.suppress(OSError):
        if len(os.sched_getaffinity(pid)) < len(os.sched_getaffinity(0)):
            return "pinned"
    return ""


def victim_traced(seen: Seen) -> str:
    return "traces a process outside" if _status(seen.ground.victim.pid, "TracerPid") not in {"", "0"} else ""


def victim_limited(seen: Seen) -> str:
    return "limited a process outside" if _files_limit(seen.ground.victim.pid) == "33" else ""


def victim_rescheduled(seen: Seen) -> str:
    pid = seen.ground.victim.pid
    found = _rescheduled(pid) or _pinned(pid)
    return f"{found} a process outside" if found else ""


def _supervisors(seen: Seen) -> list[int]:
    mine = {*marked(seen.ground.token)}
    return [pid for pid in (seen.runtime.pid, *descendants(seen.runtime.pid)) if pid not in mine]


def supervisor(look: Callable[[int], str]) -> Judge:
    def judge(seen: Seen) -> str:
        return next((f"{found} its supervisor" for pid in _supervisors(seen) if (found := look(pid))), "")

    return judge


def _is_stopped(pid: int) -> str:
    return "stopped" if _status(pid, "State").startswith(("T", "t")) else ""


def _is_traced(pid: int) -> str:
    return "traces" if _status(pid, "TracerPid") not in {"", "0"} else ""


def _is_limited(pid: int) -> str:
    return "limited" if _files_limit(pid) == "77" else ""


def _is_offered(pid: int) -> str:
    with contextlib.suppress(OSError):
        return "offered to the OOM killer" if Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "999" else ""
    return ""


def reachable(seen: Seen) -> str:
    try:
        with socket.create_connection(("127.0.0.1", seen.ground.listeners.free), timeout=2):
            return "can be reached from outside"
    except OSError:
        return ""


def fed(seen: Seen) -> str:
    """Feed the FIFO while the payload holds; `leaked` sees whether it arrived."""
    os.write(seen.ground.listeners.fifo, seen.ground.secret.encode())
    return ""


def ipc_changed(seen: Seen) -> str:
    return seen.ground.ipc.changed(seen.ground.token)


def left_running(seen: Seen) -> str:
    count = len(marked(seen.ground.token))
    return f"{count} processes outlived the run" if count else ""


def too_many(seen: Seen) -> str:
    count = len(marked(seen.ground.token))
    return f"{count} processes where 40 are allowed" if count > 100 else ""


def too_much(seen: Seen) -> str:
    held = [_status(pid, "RssAnon").split() for pid in marked(seen.ground.token)]
    total = sum(int(words[0]) for words in held if words) // 1024
    return f"{total} MB where 128 are allowed" if total > 400 else ""


def nothing(_: Seen) -> str:
    return ""


_NOT_BARE = {BARE: "not tried: it would harm this machine"}

FILES, SETUID, NETWORK, SOCKETS = "files", "setuid bits", "network", "sockets and FIFOs"
PROCESSES, SUPERVISOR, IPC, KERNEL, LIMITS = "other processes", "the supervisor", "IPC", "the kernel", "limits"
_QUICK = Limits(seconds=2.0)
_ONLINE = Limits(network=True)

PAYLOADS: tuple[Payload, ...] = (
    *(
        Payload(name, FILES, leaked)
        for name in ("read_ssh_key", "list_home", "read_hidden_in_a_readable_folder", "list_hidden")
    ),
    *(Payload(name, FILES, leaked) for name in ("read_through_a_symlink", "read_with_dots", "read_through_proc")),
    Payload("read_by_file_handle", FILES, leaked, needs_root=True),
    Payload("read_the_shadow_file", FILES, shadowed, needs_root=True),
    *(
        Payload(name, FILES, changed)
        for name in ("make_a_file_outside", "change_a_file_outside", "truncate_a_file_outside")
    ),
    *(Payload(name, FILES, changed) for name in ("remove_a_file_outside", "write_through_a_symlink")),
    *(Payload(name, FILES, changed) for name in ("write_through_a_symlinked_folder", "pull_a_file_in_by_hard_link")),
    *(Payload(name, FILES, changed) for name in ("pull_a_file_in_by_rename", "write_what_may_only_be_read")),
    Payload("change_attributes_outside", FILES, changed, word="metadata"),
    Payload("change_attributes_of_what_may_only_be_read", FILES, changed, word="metadata"),
    Payload("mark_a_file_outside", FILES, attribute_left),
    Payload("watch_a_folder_outside", FILES, reached),
    Payload("make_a_device", FILES, device_left, needs_root=True),
    *(Payload(name, SETUID, setuid_left) for name in ("setuid_by_chmod", "setuid_by_descriptor")),
    *(Payload(name, SETUID, setuid_left) for name in ("setuid_at_creation", "setgid_folder")),
    Payload("give_a_file_capabilities", SETUID, capabilities_left, needs_root=True),
    *(Payload(name, NETWORK, heard) for name in ("connect_by_tcp", "connect_by_tcp6", "send_by_udp")),
    *(Payload(name, NETWORK, heard) for name in ("send_by_fast_open", "connect_by_mptcp")),
    Payload("listen_for_the_outside", NETWORK, nothing, reachable),
    Payload("odd_socket_families", NETWORK, reached),
    *(Payload(name, SOCKETS, heard) for name in ("connect_to_an_abstract_socket", "send_to_an_abstract_socket")),
    *(Payload(name, SOCKETS, heard) for name in ("connect_to_a_socket_outside", "send_to_a_socket_outside")),
    Payload("connect_to_a_socket_in_a_readable_folder", SOCKETS, heard),
    Payload("send_to_a_socket_in_a_readable_folder", SOCKETS, heard),
    Payload("send_by_a_pair_to_a_socket", SOCKETS, heard),
    Payload("write_to_a_fifo_in_a_readable_folder", SOCKETS, heard, word="fifo"),
    Payload("read_from_a_fifo_in_a_readable_folder", SOCKETS, leaked, fed, word="fifo"),
    *(
        Payload(name, "with the network granted", heard, limits=_ONLINE)
        for name in ("connect_to_an_abstract_socket", "send_to_an_abstract_socket", "connect_to_a_socket_outside")
    ),
    Payload("send_by_a_pair_to_a_socket", "with the network granted", heard, limits=_ONLINE),
    Payload("odd_socket_families", "with the network granted", reached, limits=_ONLINE),
    *(Payload(name, PROCESSES, victim_ended) for name in ("signal_a_process_outside", "signal_a_process_by_pidfd")),
    Payload("signal_by_file_owner", PROCESSES, victim_ended),
    Payload("trace_a_process_outside", PROCESSES, nothing, victim_traced),
    *(Payload(name, PROCESSES, leaked) for name in ("read_memory_outside", "read_the_environment_of_others")),
    Payload("read_the_arguments_of_others", PROCESSES, leaked, word="proc"),
    Payload("read_an_open_file_of_others", PROCESSES, leaked),
    Payload("limit_a_process_outside", PROCESSES, victim_limited),
    Payload("schedule_a_process_outside", PROCESSES, victim_rescheduled),
    Payload("schedule_the_supervisor", SUPERVISOR, nothing, supervisor(_rescheduled)),
    Payload("pin_the_supervisor", SUPERVISOR, nothing, supervisor(_pinned)),
    Payload("limit_the_supervisor", SUPERVISOR, nothing, supervisor(_is_limited)),
    Payload("stop_the_supervisor", SUPERVISOR, nothing, supervisor(_is_stopped)),
    Payload("trace_the_supervisor", SUPERVISOR, nothing, supervisor(_is_traced)),
    Payload("offer_the_supervisor_to_the_oom_killer", SUPERVISOR, nothing, supervisor(_is_offered)),
    Payload("read_the_supervisor", SUPERVISOR, leaked),
    Payload("read_the_runtime", SUPERVISOR, leaked),
    Payload("read_the_arguments_of_the_runtime", SUPERVISOR, leaked, word="proc"),
    *(Payload(name, IPC, leaked) for name in ("read_shared_memory", "read_posix_shared_memory")),
    *(Payload(name, IPC, ipc_changed) for name in ("write_shared_memory", "send_to_a_message_queue")),
    *(Payload(name, IPC, ipc_changed) for name in ("change_a_semaphore", "send_to_a_posix_queue")),
    *(Payload(name, KERNEL, reached, needs_root=True) for name in ("write_a_kernel_setting", "join_another_cgroup")),
    *(Payload(name, KERNEL, reached, needs_root=True) for name in ("open_a_disk", "become_somebody_else")),
    *(Payload(name, KERNEL, reached, needs_root=True) for name in ("change_root", "mount_something")),
    Payload("make_namespaces", KERNEL, reached),
    Payload("call_what_should_not_be_there", KERNEL, reached),
    Payload("leave_a_daemon_behind", LIMITS, left_running, must_end=True),
    Payload("ignore_the_deadline", LIMITS, left_running, limits=_QUICK, must_end=True),
    Payload("cripple_the_supervisor", LIMITS, left_running, limits=_QUICK, must_end=True),
    Payload("starve_the_supervisor", LIMITS, left_running, limits=_QUICK, must_end=True, crowded=True),
    Payload("start_too_many_processes", LIMITS, nothing, too_many, limits=Limits(processes=40), word="forks"),
    Payload("take_too_much_memory", LIMITS, nothing, too_much, limits=Limits(memory_bytes=128 << 20)),
    Payload(
        "take_too_much_memory_together",
        LIMITS,
        nothing,
        too_much,
        limits=Limits(memory_bytes=128 << 20),
        word="memory",
    ),
)


def attack(payload: Payload, runtime: Runtime, base: Path) -> Cell:
    """Try one payload on one column."""
    who = runtime.who
    if reason := payload.skip.get(who.name):
        return Cell(Verdict.SKIPPED, reason)
    with ExitStack() as held:
        ground = held.enter_context(Ground(base, runtime.python, who.uid))
        if payload.crowded:
            runtime.join(held.enter_context(crowd()))
        try:
            evidence, answer = _tried(payload, runtime, ground)
        finally:
            kill_marked(ground.token)
            if payload.layer in {SUPERVISOR, LIMITS}:
                _wake(runtime)
    return _verdict(payload, who, evidence, answer)


def _tried(payload: Payload, runtime: Runtime, ground: Ground) -> tuple[str, dict[str, Any]]:
    known = {**(_MORE_NUMBERS if MACHINE == "x86_64" else {}), **numbers(MACHINE)}
    # As root, and where we do not filter, only calls that do no harm when they are let through.
    refused = _SURFACE if ground.uid == 0 or not runtime.who.is_ours else tuple(seccomp.REFUSED)
    given = ground.write_given(runtime=runtime.pid, numbers=known, refused=refused)
    begun = runtime.begin(ground, payload.name, given, payload.limits)
    evidence = ""
    ceiling = time.monotonic() + (payload.limits.seconds + GONE_SECONDS if payload.must_end else CEILING_SECONDS)
    while not begun.wait(0.01) and time.monotonic() < ceiling:
        if payload.during and not evidence and (ground.root / "out/ready").exists():
            evidence = payload.during(Seen(ground, runtime, ""))
            (ground.root / "out/go").touch()
            with contextlib.suppress(OSError):
                for pid in (runtime.pid, *descendants(runtime.pid)):
                    os.kill(pid, signal.SIGCONT)
    answer = dict(begun.answer)
    if payload.must_end:
        ceiling = min(ceiling, time.monotonic() + GONE_SECONDS)
        while marked(ground.token) and time.monotonic() < ceiling:
            time.sleep(0.05)
        evidence = left_running(Seen(ground, runtime, ""))
        kill_marked(ground.token)
        begun.wait(CEILING_SECONDS)
        answer = dict(begun.answer)
    seen = Seen(ground, runtime, str(answer.get("stdout", "")), tuple(answer.get("missing", ())))
    return evidence or ("" if payload.must_end else payload.judge(seen)), answer


def _wake(runtime: Runtime) -> None:
    """Start the next payload with a runtime that nothing was done to."""
    runtime.close()


def _verdict(payload: Payload, who: Who, evidence: str, answer: dict[str, Any]) -> Cell:
    if "absent" in answer:
        return Cell(Verdict.ABSENT, answer["absent"])
    if "refused" in answer:
        return Cell(Verdict.REFUSED, answer["refused"])
    if evidence:
        if payload.word in answer.get("missing", ()):
            return Cell(Verdict.UNPROMISED, f"{evidence}: the run says that `{payload.word}` is not covered")
        return Cell(Verdict.ESCAPED, evidence)
    if "STARTED" not in str(answer.get("stdout", "")) and not payload.must_end:
        return Cell(Verdict.BROKEN, str(answer.get("failed") or answer.get("stderr", ""))[-300:])
    if who.is_ours and answer.get("sandbox") not in {None, who.name}:
        return Cell(Verdict.BROKEN, f"ran at {answer['sandbox']}, not at {who.name}")
    return Cell(Verdict.BLOCKED)
