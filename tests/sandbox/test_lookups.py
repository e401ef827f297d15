"""What a run looked for and did not see: noted from what it did, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.conftest import Drive, users

OWN = ["full", "namespaces+seccomp"]
NAMES = (".claude", ".config/gh", "Documents", "ein Ordner, 中文")


@pytest.fixture(autouse=True)
def fuse(uid: int) -> None:
    """Skip a test whose user may not open /dev/fuse: nothing is noted for that user, and `doctor` says so."""
    try:
        mode = Path("/dev/fuse").stat().st_mode
    except FileNotFoundError:
        pytest.skip("no /dev/fuse")
    if uid and mode & 0o006 != 0o006:
        pytest.skip("only root may open /dev/fuse")


@pytest.fixture
def project(ground: Path) -> Path:
    project = ground / "project"
    (project / "sub").mkdir(parents=True)
    for name in (".env", "sub/key.pem", "a.txt"):
        (project / name).write_text(f"{name}\n")
    for folder in ("upper", "work"):
        (ground / folder).mkdir()
    return project


def run(drive: Drive, uid: int, level: str, project: Path, line: str, **more: Any) -> dict[str, Any]:
    policy = {
        "read": [str(project)],
        "hide": [str(project / name) for name in (".env", "sub/key.pem")],
        "copy_on_write": [str(project), str(project.parent / "upper"), str(project.parent / "work")],
        "home_names": list(NAMES),
    }
    return drive(uid, level, argv=["/bin/sh", "-c", line], policy=policy, cwd=str(project), **more)


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
@pytest.mark.parametrize(
    ("line", "noted"),
    [
        ("cat .env", [".env"]),
        ("test -e sub/key.pem; ls -R; cat ~/.claude/projects/x", ["sub/key.pem", "~/.claude"]),
        ("cat ~/.config/gh/hosts.yml", ["~/.config/gh"]),
        ("cat ~/ein*; cat '/run/private/home/ein Ordner, 中文/x'", ["~/ein Ordner, 中文"]),
        ("ls -laR . ~; find . ~; rm -rf sub; cat a.txt", []),
        ("cat ~/.other ~/.config/other /nowhere sub/.env", []),
        ("ls -R; cat .env; ls -R; cat .env", [".env"]),
        ("echo mine > .env; cat .env", [".env"]),
    ],
)
def test_only_what_it_looked_for_is_noted(
    drive: Drive, project: Path, uid: int, level: str, line: str, noted: list[str]
) -> None:
    done = run(drive, uid, level, project, line)

    assert sorted(done["looked_for"]) == noted, done
    assert done["copied_on_write"], done


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_the_private_home_is_written_as_before(drive: Drive, project: Path, uid: int, level: str) -> None:
    line = (
        "cd ~ && mkdir -p .config/app .claude && echo 1 > .config/app/x && echo 2 > .claude/y && mv .claude .z"
        " && ln .z/y .z/link && rm -r .local && mkdir .local && chmod 600 .z/y && cat .config/app/x .z/link && ls -a"
    )
    done = run(drive, uid, level, project, line)

    assert (done["code"], done["stderr"]) == (0, "")
    assert done["stdout"].split() == ["1", "2", ".", "..", ".config", ".local", ".z"]
    assert list(done["home_files"]) == [".config/app/x", ".z/link", ".z/y"]


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_a_run_cannot_stop_the_notes_or_be_held_up_by_them(drive: Drive, project: Path, uid: int, level: str) -> None:
    line = (
        'for p in /proc/[0-9]*; do n=${p#/proc/}; [ "$n" = $$ ] || [ "$n" = self ] || kill -9 "$n" 2>/dev/null; done;'
        " i=0; while [ $i -lt 3000 ]; do [ -e ~/n$i ]; i=$((i+1)); done; cat .env; (sleep 600 &) ; echo end"
    )
    done = run(drive, uid, level, project, line)

    assert done["stdout"] == "end\n", done
    assert done["code"] == 0
    assert done["looked_for"] in ([".env"], [])  # where the program could kill it, nothing is noted, and nothing hangs


@pytest.mark.parametrize("uid", users())
def test_a_run_that_is_stopped_tells_what_it_looked_for(drive: Drive, project: Path, uid: int) -> None:
    done = run(drive, uid, "full", project, "cat .env; while :; do [ -e ~/x ]; done", limit_seconds=1.0)

    assert done["timed_out"]
    assert done["looked_for"] == [".env"]
