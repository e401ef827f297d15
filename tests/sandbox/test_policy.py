"""What a policy says, and what follows from it on a machine with these or those layers. All pure."""

import os
import sys
from pathlib import Path

import pytest

from skillyard.core.errors import SandboxTooWeak, SandboxUnavailable
from skillyard.sandbox import confine, namespaces
from skillyard.sandbox.confine import kernel_version, process_limit
from skillyard.sandbox.ipc import SpawnRequest
from skillyard.sandbox.launch import Policy, python_paths, system_paths
from skillyard.sandbox.layers import NO_LAYERS, Hierarchies, Layers, Level, check_guards, not_covered

EVERYTHING = Layers(
    namespaces=True,
    landlock=7,
    seccomp=True,
    bubblewrap="/usr/bin/bwrap",
    overlay=True,
    cgroup=Hierarchies(unified="/u", memory="/u", pids="/u"),
    pid_limit=True,
    process_limit=True,
)


@pytest.mark.parametrize("path", ["relative", "/", "/a/../b"])
def test_a_policy_names_absolute_paths_below_the_root(path: str) -> None:
    with pytest.raises(ValueError, match="absolute"):
        Policy(read=(Path(path),)).check()


@pytest.mark.parametrize(
    ("layers", "level", "missing"),
    [
        (EVERYTHING, Level.FULL, ()),
        (EVERYTHING._replace(landlock=0), Level.NAMESPACES, ()),
        (EVERYTHING._replace(namespaces=False), Level.BUBBLEWRAP, ("fifo",)),
        (EVERYTHING._replace(overlay=False), Level.FULL, ("fifo",)),
        (EVERYTHING._replace(namespaces=False, bubblewrap=""), Level.LANDLOCK, ("stat", "metadata", "proc", "fifo")),
        (EVERYTHING._replace(cgroup=Hierarchies()), Level.FULL, ("memory",)),
        (
            EVERYTHING._replace(cgroup=Hierarchies(), process_limit=False, pid_limit=False),
            Level.FULL,
            ("memory", "forks"),
        ),
        # RLIMIT_NPROC counts all processes of the person there.
        (
            EVERYTHING._replace(namespaces=False, cgroup=Hierarchies()),
            Level.BUBBLEWRAP,
            ("memory", "forks", "fifo"),
        ),
        (
            EVERYTHING._replace(namespaces=False, bubblewrap="", cgroup=Hierarchies()),
            Level.LANDLOCK,
            ("memory", "forks", "stat", "metadata", "proc", "fifo"),
        ),
    ],
)
def test_the_best_level_is_taken_and_what_it_lacks_is_named(
    layers: Layers, level: Level, missing: tuple[str, ...]
) -> None:
    assert (layers.level, check_guards(layers, Policy())) == (level, missing)


@pytest.mark.parametrize(
    ("layers", "missing"),
    [
        (NO_LAYERS, ["files", "network", "processes"]),
        (Layers(seccomp=True), ["files", "processes"]),
        (Layers(seccomp=True, landlock=2), ["files", "processes"]),
        (Layers(seccomp=True, landlock=5), ["processes"]),
        (Layers(namespaces=True, landlock=7), ["files", "network", "processes"]),
    ],
)
def test_a_demand_that_a_machine_cannot_meet_is_refused(layers: Layers, missing: list[str]) -> None:
    with pytest.raises(SandboxUnavailable) as refused:
        check_guards(layers, Policy())

    assert refused.value.details["missing"] == missing


def test_root_needs_namespaces_unless_the_person_insists() -> None:
    layers = EVERYTHING._replace(namespaces=False, bubblewrap="")

    assert check_guards(layers, Policy()) == check_guards(layers._replace(root=True), Policy(), weak=True)
    with pytest.raises(SandboxTooWeak, match=r"As root, landlock\+seccomp does not cover stat, metadata, proc"):
        check_guards(layers._replace(root=True), Policy())


def test_namespaces_are_enough_for_root() -> None:
    for layers in (EVERYTHING, EVERYTHING._replace(namespaces=False)):
        missing = check_guards(layers._replace(root=True), Policy())
        assert not set(missing) & {"stat", "metadata", "proc", "nested"}


def test_without_any_layer_every_guard_is_missing() -> None:
    assert NO_LAYERS.level is Level.NONE
    assert set(not_covered(NO_LAYERS)) == {"files", "network", "processes", "memory", "forks"}


def test_an_order_survives_its_journey() -> None:
    policy = Policy(read=(Path("/a"),), write=(Path("/b/中文"),), hide=(Path("/c"),))
    request = SpawnRequest(
        argv=("x", "\udcff"),
        cwd="/",
        env={"A": "1"},
        limit_seconds=1.5,
        layers=EVERYTHING,
        policy=policy,
    )

    assert SpawnRequest.from_json(request.as_json()) == request


def test_what_is_hidden_wins_over_what_is_named() -> None:
    policy = Policy(read=(Path("/x/secret/skill"), Path("/x")), write=(Path("/x/secret"),), hide=(Path("/x/secret"),))

    assert [bind.path for bind in namespaces.named(policy)] == ["/x"]


def test_inner_paths_are_bound_after_outer_ones() -> None:
    policy = Policy(read=(Path("/a/b/c"), Path("/a")), write=(Path("/a/b"),))

    assert [bind.path for bind in namespaces.named(policy)] == ["/a", "/a/b", "/a/b/c"]


def test_landlock_gives_the_siblings_of_what_is_hidden(tmp_path: Path) -> None:
    for name in ("kept", "hidden", "deep/hidden", "deep/kept"):
        (tmp_path / name).mkdir(parents=True)

    visible = confine.without(tmp_path, (tmp_path / "hidden", tmp_path / "deep/hidden"))

    assert set(visible) == {tmp_path / "kept", tmp_path / "deep/kept"}


def test_without_namespaces_only_named_paths_have_rules(tmp_path: Path) -> None:
    rules = confine.rules_outside(Policy(write=(tmp_path,)), "/private")

    writable = {rule.path for rule in rules if rule.access & confine.Access.MAKE_REG}
    assert writable == {str(tmp_path), "/private"}


@pytest.mark.parametrize(("abi", "unknown"), [(1, "REFER"), (2, "TRUNCATE"), (4, "IOCTL_DEV")])
def test_an_older_landlock_is_not_asked_for_what_it_does_not_know(abi: int, unknown: str) -> None:
    assert not confine.handled(abi) & confine.Access[unknown]
    assert confine.handled(7) & confine.Access[unknown]


def test_the_system_is_readable_but_not_all_of_etc() -> None:
    assert "/usr" in system_paths()
    assert not {"/etc", "/etc/shadow", "/etc/ssl", "/etc/ssh", "/root", "/home", "/var", "/run"} & set(system_paths())


def test_our_own_interpreter_is_among_the_paths_we_give() -> None:
    places = (*python_paths(), Path("/usr"))

    assert any(Path(os.__file__).is_relative_to(place) for place in places), sys.prefix


@pytest.mark.parametrize(
    ("release", "version"), [("6.18.44-fc-v445", (6, 18)), ("5.4.0-42-generic", (5, 4)), ("6.1-rc3", (6, 1))]
)
def test_a_kernel_release_is_read(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version


def test_where_others_count_too_there_is_room_for_them() -> None:
    assert process_limit(10, counted_here=True) < process_limit(10, counted_here=False)
