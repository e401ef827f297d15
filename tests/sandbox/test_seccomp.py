"""The filter as a program: run here by a small machine of our own, instruction by instruction."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.sandbox.seccomp import (
    AUDIT_ARCH,
    REFUSED,
    REFUSED_WHEN_SHARED,
    Instruction,
    Sockets,
    as_bytes,
    assemble,
)
from skillyard.sandbox.syscalls import numbers

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
MACHINES = ["x86_64", "aarch64"]


def verdict(program: tuple[Instruction, ...], arch: int, number: int, *args: int) -> int:
    """What the kernel would do with this call."""
    words = struct.unpack("<16I", struct.pack("<iIQ6Q", number, arch, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6]))
    loaded, at = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x15:
            at += yes if loaded == value else no
        elif code == 0x20:
            loaded = words[value // 4]
        elif code == 0x06:
            return value
        elif code == 0x54:
            loaded &= value
        else:
            taken = {0x45: bool(loaded & value), 0x35: loaded >= value}[code]
            at += yes if taken else no


@pytest.mark.parametrize("machine", MACHINES)
def test_every_refused_call_is_refused_and_the_usual_ones_are_not(machine: str) -> None:
    program, known = assemble(machine, Sockets()), numbers(machine)

    def asked(number: int, *args: int) -> int:
        return verdict(program, AUDIT_ARCH[machine], number, *args)

    assert {REFUSED["ptrace"], REFUSED["clone3"]} == {errno.EPERM, errno.ENOSYS} == set(REFUSED.values())
    for name, code in REFUSED.items():
        assert name not in known or asked(known[name]) == ERRNO | code
    refused = {known[name] for name in (*REFUSED, "socket", "socketpair") if name in known}
    assert {asked(number) for number in range(470) if number not in refused} == {ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_thread_may_be_cloned_but_no_namespace(machine: str) -> None:
    program, clone = assemble(machine, Sockets()), numbers(machine)["clone"]

    assert verdict(program, AUDIT_ARCH[machine], clone, 0x003D0F00) == ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, AUDIT_ARCH[machine], clone, flag | 17) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_nobody_types_into_our_terminal(machine: str) -> None:
    program, ioctl = assemble(machine, Sockets()), numbers(machine)["ioctl"]

    assert verdict(program, AUDIT_ARCH[machine], ioctl, 0, 0x5412) == ERRNO | errno.EPERM
    assert verdict(program, AUDIT_ARCH[machine], ioctl, 0, 0x5401) == ALLOW


UNIX, INET, INET6 = 1, 2, 10
STREAM, DGRAM, RAW, SEQPACKET, NONBLOCK_CLOEXEC = 1, 2, 3, 5, 0x80800
TCP_AND_UDP = {
    (family, kind, protocol)
    for family in (INET, INET6)
    for kind, own in ((STREAM, 6), (DGRAM, 17))
    for protocol in (0, own)
}


@pytest.mark.parametrize(
    ("sockets", "families", "internet"),
    [
        (Sockets(internet=False, unix=True), {UNIX}, set()),
        (Sockets(internet=False, unix=False), set(), set()),
        (Sockets(internet=True, unix=True), {UNIX}, TCP_AND_UDP),
        (Sockets(internet=True, unix=False), set(), TCP_AND_UDP),
    ],
)
@pytest.mark.parametrize("flags", [0, NONBLOCK_CLOEXEC])
@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_given_sockets_open(
    machine: str, flags: int, sockets: Sockets, families: set[int], internet: set[tuple[int, int, int]]
) -> None:
    program, number = assemble(machine, sockets), numbers(machine)["socket"]

    opened = {
        (family, kind, protocol)
        for family in range(46)
        for kind in range(16)
        for protocol in (*range(40), 58, 132, 136, 255, 262)
        if verdict(program, AUDIT_ARCH[machine], number, family, kind | flags, protocol) == ALLOW
    }

    assert {asked for asked in opened if asked[0] != UNIX} == internet
    assert {family for family, _, _ in opened} - {INET, INET6} == families


@pytest.mark.parametrize(("unix", "kinds"), [(True, {STREAM, DGRAM, SEQPACKET}), (False, {STREAM, SEQPACKET})])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_pair_of_sockets_is_connected_for_good_where_unix_sockets_are_not_given(
    machine: str, unix: bool, kinds: set[int]
) -> None:
    program, number = assemble(machine, Sockets(unix=unix)), numbers(machine)["socketpair"]

    opened = {
        (family, kind)
        for family in range(46)
        for kind in range(16)
        if verdict(program, AUDIT_ARCH[machine], number, family, kind | NONBLOCK_CLOEXEC) == ALLOW
    }

    assert opened == {(UNIX, kind) for kind in kinds}


@pytest.mark.parametrize("machine", MACHINES)
def test_another_machines_calls_end_the_program(machine: str) -> None:
    assert verdict(assemble(machine, Sockets()), 0x40000003, 1) == KILL


def test_the_x32_numbers_are_no_way_around() -> None:
    program = assemble("x86_64", Sockets())

    assert verdict(program, AUDIT_ARCH["x86_64"], 0x40000000 | 521) == ERRNO | errno.ENOSYS


#: Which argument of each call is a mode; for those that open, the flags stand before it.
MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2}
MODES |= {"mknod": 1, "mknodat": 2, "open": 2, "openat": 3}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("machine", "name"), [(machine, name) for machine in MACHINES for name in MODES if name in numbers(machine)]
)
def test_no_call_sets_a_setuid_or_setgid_bit(machine: str, name: str, shared: bool) -> None:
    program, known = assemble(machine, Sockets(), shared=shared), numbers(machine)

    def asked(mode: int, flags: int = 0o100) -> int:
        before = (*(0,) * (MODES[name] - 1), flags)
        return verdict(program, AUDIT_ARCH[machine], known[name], *before, mode)

    for mode in (0o4755, 0o2755, 0o6000, 0o106711, (7 << 32) | 0o4000, 0xFFFF_FFFF_FFFF_FFFF):
        assert asked(mode) == ERRNO | errno.EPERM
    for mode in (0o755, 0o1777, 0o100644, 0o600):
        assert asked(mode) == ALLOW
    if name.startswith("open"):
        assert asked(0o4755, 0o20200000) == ERRNO | errno.EPERM  # O_TMPFILE
        assert asked(0o4755, 0o2) == ALLOW  # creates nothing: the mode is whatever stands there


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "name", ["sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "prlimit64"]
)
def test_the_supervisor_cannot_be_changed_but_threads_of_ones_own_can(machine: str, name: str) -> None:
    arch, number = AUDIT_ARCH[machine], numbers(machine)[name]
    apart, shared = assemble(machine, Sockets()), assemble(machine, Sockets(), shared=True)

    assert verdict(apart, arch, number, 0) == verdict(apart, arch, number, 4711) == ALLOW
    assert verdict(apart, arch, number, 1) == verdict(apart, arch, number, (9 << 32) | 1) == ERRNO | errno.EPERM
    assert verdict(shared, arch, number, 0) == ALLOW
    assert verdict(shared, arch, number, 4711) == verdict(shared, arch, number, 1) == ERRNO | errno.EPERM


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "process"), [("setpriority", 0), ("ioprio_set", 1)])
def test_priorities_of_groups_and_users_stay(machine: str, name: str, process: int, shared: bool) -> None:
    program, number = assemble(machine, Sockets(), shared=shared), numbers(machine)[name]

    def asked(kind: int, who: int) -> int:
        return verdict(program, AUDIT_ARCH[machine], number, kind, who)

    refused = ERRNO | errno.EPERM
    assert (asked(process, 0), asked(process + 1, 0)) == (ALLOW, ALLOW)
    assert asked(process, 1) == refused
    assert asked(process, 4711) == (refused if shared else ALLOW)
    assert {asked(process + 1, who) for who in (1, 4711)} == {refused}
    assert {asked(process + 2, who) for who in (0, 1, 4711)} == {refused}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_supervisor_gets_no_signal_but_may_be_asked_for(machine: str) -> None:
    program, known, arch = assemble(machine, Sockets()), numbers(machine), AUDIT_ARCH[machine]

    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"):
        assert verdict(program, arch, known[name], 1, 17) == ERRNO | errno.EPERM
        assert verdict(program, arch, known[name], 4711, 17) == ALLOW
    assert verdict(program, arch, known["kill"], 1, 0) == ALLOW
    assert verdict(program, arch, known["kill"], 2**32 - 1, 15) == ALLOW  # everybody but the first process


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_nothing_of_the_machine_can_be_named(machine: str) -> None:
    shared, apart = assemble(machine, Sockets(unix=False), shared=True), assemble(machine, Sockets())
    known, arch = numbers(machine), AUDIT_ARCH[machine]

    assert set(REFUSED_WHEN_SHARED.values()) == {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
    for name, code in REFUSED_WHEN_SHARED.items():
        assert verdict(shared, arch, known[name]) == ERRNO | code
        assert verdict(apart, arch, known[name]) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_only_connected_pairs_are_made(machine: str) -> None:
    program = assemble(machine, Sockets(unix=False), shared=True)
    number, arch = numbers(machine)["socketpair"], AUDIT_ARCH[machine]

    def made(family: int, flags: int) -> set[int]:
        return {kind for kind in range(16) if verdict(program, arch, number, family, kind | flags) == ALLOW}

    assert made(1, 0) == made(1, 0o2004000) == {1, 5}
    assert not any(made(family, 0) for family in range(2, 46))


@given(st.sampled_from(MACHINES), st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_has_a_verdict(machine: str, number: int, args: list[int]) -> None:
    got = verdict(assemble(machine, Sockets()), AUDIT_ARCH[machine], number, *args)

    assert got in {ALLOW, ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.EACCES}


def test_the_kernel_reads_eight_bytes_an_instruction() -> None:
    program = assemble("x86_64", Sockets())

    assert len(as_bytes(program)) == 8 * len(program)
