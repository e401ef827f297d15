"""The filter as a program: run here by a small machine of our own, instruction by instruction."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.sandbox.seccomp import AUDIT_ARCH, REFUSED, UNKNOWN, Instruction, Sockets, as_bytes, assemble
from skillyard.sandbox.syscalls import numbers

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
MACHINES = ["x86_64", "aarch64"]


def verdict(program: tuple[Instruction, ...], arch: int, number: int, *args: int) -> int:
    """What the kernel would do with this call."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    loaded, at = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x20:
            loaded = struct.unpack_from("<I", data, value)[0]
        elif code == 0x06:
            return value
        elif code == 0x54:
            loaded &= value
        else:
            taken = {0x15: loaded == value, 0x45: bool(loaded & value), 0x35: loaded >= value}[code]
            at += yes if taken else no


@pytest.mark.parametrize("machine", MACHINES)
def test_every_refused_call_is_refused_and_the_usual_ones_are_not(machine: str) -> None:
    program, known = assemble(machine, Sockets()), numbers(machine)

    def asked(number: int, *args: int) -> int:
        return verdict(program, AUDIT_ARCH[machine], number, *args)

    assert {asked(known[name]) for name in REFUSED if name in known} == {ERRNO | errno.EPERM}
    assert {asked(known[name]) for name in UNKNOWN} == {ERRNO | errno.ENOSYS}
    refused = {known[name] for name in (*REFUSED, *UNKNOWN, "socket", "socketpair") if name in known}
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


@given(st.sampled_from(MACHINES), st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_has_a_verdict(machine: str, number: int, args: list[int]) -> None:
    got = verdict(assemble(machine, Sockets()), AUDIT_ARCH[machine], number, *args)

    assert got in {ALLOW, ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.EACCES}


def test_the_kernel_reads_eight_bytes_an_instruction() -> None:
    program = assemble("x86_64", Sockets())

    assert len(as_bytes(program)) == 8 * len(program)
