"""The file of grants: nothing gets lost, nothing that cannot be believed counts, nothing revoked comes back."""

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.capability import PLAIN, WITH_ARGUMENT
from skillyard.core.errors import InvalidArgs, SkillError, StateNewer, StateUnsafe
from skillyard.store.database import open_database
from skillyard.store.grants import Grant, GrantFile, GrantRow, Grants, inspect_grants, render
from tests.conftest import TORTURE
from tests.sandbox.conftest import ORDINARY
from tests.store.killing import each_kill

ONE = Grant("/skills/转换 🚀", "f1", "network", 1.5)
TWO = Grant("/skills/b", "f2", "read-project", 2.0)


def grants_in(home: Path, told: list[SkillError] | None = None) -> Grants:
    return Grants(GrantFile(home, told.append if told is not None else lambda _: None, 5.0), "/p")


def fill(home: Path) -> bytes:
    grants = grants_in(home)
    grants.add(ONE)
    grants.add(TWO)
    grants.trust("t1", 3.0)
    return (home / "grants.json").read_bytes()


def test_what_was_granted_is_there_for_the_next_process(tmp_path: Path) -> None:
    fill(tmp_path)
    grants = grants_in(tmp_path)

    assert grants.list() == (TWO, ONE)
    assert grants.of(ONE.skill, "f1") == {"network"}
    assert grants.of(ONE.skill, "other") == frozenset()
    assert grants.has_any(ONE.skill)
    assert grants.trusted() == "t1"
    assert Grants(GrantFile(tmp_path), "/elsewhere").list() == ()
    assert (tmp_path / "grants.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "grants.json.copy").read_bytes() == (tmp_path / "grants.json").read_bytes()


def test_a_path_that_is_not_utf8_is_kept(tmp_path: Path) -> None:
    odd = Grant(os.fsdecode(b"/skills/\xff\xfe"), "f", "network", 1.0)
    grants_in(tmp_path).add(odd)

    assert grants_in(tmp_path).list() == (odd,)


def test_a_process_that_lives_long_sees_what_another_revoked(tmp_path: Path) -> None:
    fill(tmp_path)
    mine, other = grants_in(tmp_path), grants_in(tmp_path)
    assert mine.has_any(ONE.skill)

    assert other.revoke(ONE.skill) == 1
    other.distrust()

    assert not mine.has_any(ONE.skill)
    assert mine.trusted() == ""
    assert mine.list() == (TWO,)


#: A process that grants 200 times.
ADD = """
import sys
from pathlib import Path
from skillyard.store.grants import GrantFile
from skillyard.store.grants import Grant, Grants
grants = Grants(GrantFile(Path(sys.argv[1])), "/p")
for number in range(200):
    grants.add(Grant(f"/{sys.argv[2]}/{number}", "f", "network", 1.0))
"""


def test_two_processes_that_grant_at_once_lose_nothing(tmp_path: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", ADD, str(tmp_path), name]) for name in ("a", "b")]

    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert {grant.skill for grant in grants_in(tmp_path).list()} == {
        f"/{name}/{number}" for name in ("a", "b") for number in range(200)
    }


def test_a_changed_byte_anywhere_is_noticed_and_the_copy_restored(tmp_path: Path) -> None:
    whole = fill(tmp_path)
    for offset in range(0, len(whole), 1 if TORTURE else 11):
        for mask in (0x01, 0x80) if TORTURE else (0x01,):
            damaged = bytearray(whole)
            damaged[offset] ^= mask
            (tmp_path / "grants.json").write_bytes(damaged)
            told: list[SkillError] = []

            assert grants_in(tmp_path, told).list() == (TWO, ONE), offset
            assert len(told) == 1
            assert "its copy was restored" in told[0].msg
            assert (tmp_path / "grants.json").read_bytes() == whole
            kept = list(tmp_path.glob("grants.json.damaged-*"))
            assert [file.read_bytes() for file in kept] == [bytes(damaged)]
            kept[0].unlink()


def test_a_file_that_was_cut_off_at_any_length_is_restored(tmp_path: Path) -> None:
    whole = fill(tmp_path)
    for length in range(0, len(whole), 1 if TORTURE else 17):
        (tmp_path / "grants.json").write_bytes(whole[:length])

        assert grants_in(tmp_path).list() == (TWO, ONE), length
        assert grants_in(tmp_path).trusted() == "t1"


@pytest.mark.parametrize("what", ["folder", "link", "pipe", "missing"])
def test_what_is_no_plain_file_is_set_aside(tmp_path: Path, what: str) -> None:
    whole, path = fill(tmp_path), tmp_path / "grants.json"
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(render([GrantRow("/p", "/evil", "f", "network", 1.0)]))
    {
        "folder": lambda: (path / "x").mkdir(parents=True),
        "link": lambda: path.symlink_to(elsewhere),
        "pipe": lambda: os.mkfifo(path),
        "missing": lambda: None,
    }[what]()

    assert grants_in(tmp_path).list() == (TWO, ONE)
    assert path.read_bytes() == whole
    assert len(list(tmp_path.glob("grants.json.damaged-*"))) == (what != "missing")


def test_a_damaged_file_without_a_sound_copy_grants_nothing_and_is_kept(tmp_path: Path) -> None:
    fill(tmp_path)
    for name in ("grants.json", "grants.json.copy"):
        (tmp_path / name).write_bytes(f"broken {name}".encode())
    told: list[SkillError] = []
    grants = grants_in(tmp_path, told)

    assert grants.list() == ()
    assert "nothing is granted now" in told[0].msg
    assert {file.read_bytes() for file in tmp_path.glob("*.damaged-*")} == {
        b"broken grants.json",
        b"broken grants.json.copy",
    }
    grants.add(ONE)
    assert grants_in(tmp_path).list() == (ONE,)


def test_a_file_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    body = b'{"something": "else"}'
    checksum = hashlib.sha256(b"2\n" + body).hexdigest().encode()
    newer = b'{"version": 2, "checksum": "%s", "content": %s}\n' % (checksum, body)
    (tmp_path / "grants.json").write_bytes(newer)
    told: list[SkillError] = []
    grants = grants_in(tmp_path, told)

    assert grants.list() == ()
    assert [type(error) for error in told] == [StateNewer]
    for change in (lambda: grants.add(ONE), lambda: grants.revoke("x"), grants.distrust):
        with pytest.raises(StateNewer):
            change()
    assert (tmp_path / "grants.json").read_bytes() == newer
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_file_that_others_can_write_does_not_count_until_that_is_mended(tmp_path: Path) -> None:
    whole = fill(tmp_path)
    told: list[SkillError] = []
    grants = grants_in(tmp_path, told)
    for mode in (0o620, 0o602, 0o666):
        (tmp_path / "grants.json").chmod(mode)
        assert grants.list() == ()
        with pytest.raises(StateUnsafe, match="chmod 600"):
            grants.add(TWO)
    assert isinstance(told[0], StateUnsafe)

    (tmp_path / "grants.json").chmod(0o600)

    assert grants.list() == (TWO, ONE)
    assert (tmp_path / "grants.json").read_bytes() == whole


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_does_not_count(tmp_path: Path) -> None:
    fill(tmp_path)
    os.chown(tmp_path / "grants.json", ORDINARY, ORDINARY)
    told: list[SkillError] = []

    assert grants_in(tmp_path, told).list() == ()
    assert "belongs to another user" in told[0].msg


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_root_writes_into_a_users_home_belongs_to_the_user(tmp_path: Path) -> None:
    os.chown(tmp_path, ORDINARY, ORDINARY)
    fill(tmp_path)
    open_database(tmp_path / "state.db").close()

    assert {file.stat().st_uid for file in tmp_path.iterdir()} == {ORDINARY}


def test_a_kill_at_any_point_of_a_grant_keeps_all_earlier_ones(tmp_path: Path) -> None:
    def prepare() -> None:
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        (tmp_path / "home").mkdir()
        grants_in(tmp_path / "home").add(ONE)

    rounds = 0
    for number in each_kill(prepare, lambda: grants_in(tmp_path / "home").add(TWO)):
        rounds += 1
        found = grants_in(tmp_path / "home").list()
        assert found in ((ONE,), (TWO, ONE)), number
        grants_in(tmp_path / "home").add(TWO)
        assert grants_in(tmp_path / "home").list() == (TWO, ONE), number
        assert not list((tmp_path / "home").glob("*.damaged-*"))
    assert found == (TWO, ONE)
    assert rounds > 5


def test_what_was_revoked_never_comes_back_whenever_the_revoke_was_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        fill(home)

    for number in each_kill(prepare, lambda: grants_in(home).revoke(ONE.skill)):
        before = grants_in(home).list()
        (home / "grants.json").write_bytes(b"damaged")
        after = grants_in(home).list()
        assert set(after) <= set(before), number
    assert before == after == (TWO,)


def test_a_full_disk_leaves_the_grants_as_they_were(tmp_path: Path) -> None:
    whole = fill(tmp_path)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, len(whole) // 2))
        try:
            grants_in(tmp_path).add(Grant("/c", "f", "network", 1.0))
        except OSError:
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert (tmp_path / "grants.json").read_bytes() == whole
    assert not list(tmp_path.glob("*.new"))


def forged(grants: list[Any], trusts: list[Any] | None = None) -> bytes:
    """A file with a right checksum, whatever its rows are."""
    body = json.dumps({"grants": grants, "trusts": [] if trusts is None else trusts}).encode()
    checksum = hashlib.sha256(b"1\n" + body).hexdigest().encode()
    return b'{"version": 1, "checksum": "%s", "content": %s}\n' % (checksum, body)


LONG = "/" + "a" * 70_000
ODD_TIMES = (float("nan"), float("inf"), float("-inf"), 1e300, 10**300, -1e17, -1, True, "1", None, [1])
ODD_PATHS = ("", "relative", "/a\0b", LONG, "/\ud800", 5, None, ["/"])
ODD_CAPABILITIES = (
    *("", "bogus", "read", "read:", "read:\0", "read:/\ud800", f"read:{LONG}", "write:", "write:\0", "network\x1b[2J"),
    *("env:", "env:A=B", "env:A\0", "env:A B", "env:\n", f"env:{'A' * 300}", "secret:", "secret:\0", "memory:abc"),
    *("memory:-1", f"memory:{'9' * 5_000}", "processes:-1", "processes:", "network:", "network:a b", "network:*"),
    *("network:\0", "network:http://x/", f"network:{'a' * 400}", "schedule:x", "packages:", 5, None),
)
NO_ROWS: tuple[Any, ...] = (None, 5, "abcde", {}, [], ["/p"], ["/p", "/s", "f", "network", 1, 1])
ODD_ROWS: tuple[Any, ...] = (
    *([["/p", "/s", "f", "network", moment]] for moment in ODD_TIMES),
    *([["/p", path, "f", "network", 1]] for path in ODD_PATHS),
    *([[path, "/s", "f", "network", 1]] for path in ODD_PATHS),
    *([["/p", "/s", "f", capability, 1]] for capability in ODD_CAPABILITIES),
    *([["/p", "/s", mark, "network", 1]] for mark in ("", "\0", "\ud800", "f" * 1_000, 5)),
    *([row] for row in NO_ROWS),
)
ODD_TRUSTS: tuple[Any, ...] = (
    *([["/p", "t", moment]] for moment in ODD_TIMES),
    *([[path, "t", 1]] for path in ODD_PATHS),
    *([["/p", mark, 1]] for mark in ("", "\0", 5, None)),
)


@pytest.mark.parametrize("which", ["grants", "trusts"])
def test_a_row_that_cannot_be_is_damage_whatever_the_checksum_says(tmp_path: Path, which: str) -> None:
    whole = fill(tmp_path)
    for rows in ODD_ROWS if which == "grants" else ODD_TRUSTS:
        odd = forged(rows) if which == "grants" else forged([], rows)
        (tmp_path / "grants.json").write_bytes(odd)
        told: list[SkillError] = []

        assert inspect_grants(tmp_path).problem, rows
        assert grants_in(tmp_path, told).list() == (TWO, ONE), rows
        assert "its copy was restored" in told[0].msg
        told[0].msg.encode()
        assert len(told[0].msg) < 1_000
        assert (tmp_path / "grants.json").read_bytes() == whole
        for kept in tmp_path.glob("*.damaged-*"):
            kept.unlink()


def test_content_of_another_shape_is_damage(tmp_path: Path) -> None:
    fill(tmp_path)
    shapes: tuple[Any, ...] = (
        {},
        [],
        5,
        "x",
        {"grants": "x", "trusts": []},
        {"grants": {}, "trusts": {}},
        {"grants": []},
    )
    for content in shapes:
        body = json.dumps(content).encode()
        checksum = hashlib.sha256(b"1\n" + body).hexdigest().encode()
        (tmp_path / "grants.json").write_bytes(b'{"version": 1, "checksum": "%s", "content": %s}\n' % (checksum, body))

        assert grants_in(tmp_path).list() == (TWO, ONE), content


def test_every_capability_that_can_be_granted_is_read_again(tmp_path: Path) -> None:
    arguments = {"read": "/数据 x", "write": "out/结果.html", "env": "npm_config_a.b", "secret": "API_KEY"}
    arguments |= {"memory": "8192", "processes": "500", "package": "pandas>=2", "without-package": "pandas"}
    every = {*PLAIN, *(f"{name}:{arguments[name]}" for name in WITH_ARGUMENT)}
    every |= {f"network:{host}" for host in ("api.example.com", "*.example.com:443", "10.0.0.1", "[2001:db8::1]:443")}
    for capability in every:
        grants_in(tmp_path).add(Grant("/s", "f", capability, 1.0))

    assert grants_in(tmp_path).of("/s", "f") == every


def test_a_grant_that_could_not_be_read_again_is_refused_and_harms_no_other(tmp_path: Path) -> None:
    whole = fill(tmp_path)
    grants = grants_in(tmp_path)
    for odd in (
        Grant("relative", "f", "network", 1.0),
        Grant("/s", "f", "env:A=B", 1.0),
        Grant("/s", "f", "network", float("nan")),
        Grant(LONG, "f", "network", 1.0),
    ):
        with pytest.raises(InvalidArgs, match="cannot be kept"):
            grants.add(odd)

    assert (tmp_path / "grants.json").read_bytes() == whole


def test_no_command_ends_in_a_traceback_whatever_the_rows_are(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    skill = project / ".claude" / "skills" / "hi"
    skill.mkdir(parents=True)
    home.mkdir(mode=0o700)
    (skill / "SKILL.md").write_text("---\nname: hi\ndescription: says hi\ncommand: echo hi\n---\n")
    (project / ".git").mkdir()
    mark = fingerprint(skill)
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SKILLYARD_HOME": str(home), "LANG": "C.UTF-8"}
    rows: list[list[Any]] = [
        [[str(project), str(skill), mark, "network", float("nan")]],
        [[str(project), str(skill), mark, "network", -1e17]],
        [[str(project), LONG, mark, "network", 1]],
        [[str(project), str(skill), mark, capability, 1] for capability in ("read:\0", "env:A=B", "bogus", "env:")],
    ]
    for odd in rows:
        for command in (["grants"], ["run", "@hi"], ["doctor"], ["trust", "--accept"]):
            for name in ("grants.json", "grants.json.copy"):
                (home / name).write_bytes(forged(odd, [[str(project), "[" * 100_000, 1]]))
                (home / name).chmod(0o600)
            ran = subprocess.run(
                [sys.executable, "-m", "skillyard", *command],
                cwd=project,
                env=variables,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert "Traceback" not in ran.stderr + ran.stdout, (command, ran.stderr[-2_000:])
