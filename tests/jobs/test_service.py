"""The service's file: what is written, and that systemd and launchd read it."""

import json
import plistlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import InvalidArgs
from skillyard.jobs.service import WorkerService, make_service
from tests.conftest import Skillyard

WORDS = ("--concurrency", "2")


def service_of(places: ProjectPaths, words: tuple[str, ...], **more: Any) -> WorkerService:
    assert places.project is not None
    return make_service(places.project, places.own_home, places.user_home, words, **more)


def odd(tmp_path: Path) -> ProjectPaths:
    root = tmp_path / 'my 项目 100% "$HOME" & <co>'
    root.mkdir()
    return ProjectPaths(project=root, user_home=tmp_path / "home", own_home=tmp_path / "own home")


def test_the_unit_names_the_project_and_starts_the_worker_again(places: ProjectPaths) -> None:
    service = service_of(places, WORDS, env={}, system="linux")

    assert service.file == places.user_home / ".config" / "systemd" / "user" / service.name
    assert f"WorkingDirectory={places.project}\n" in service.text
    assert f'Environment="SKILLYARD_HOME={places.own_home}"\n' in service.text
    assert '"worker" "--concurrency" "2" "--reconnect"' in service.text
    assert "Restart=always" in service.text
    assert [line for line in service.text.splitlines() if line.startswith("[")] == ["[Unit]", "[Service]", "[Install]"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_reads_the_unit_whatever_the_folders_are_called(tmp_path: Path) -> None:
    service = service_of(odd(tmp_path), WORDS, env={}, system="linux")
    file = tmp_path / service.name
    file.write_text(service.text, "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--user", str(file)], capture_output=True, text=True)

    assert service.name not in done.stderr, done.stderr


def test_launchd_reads_the_agent_whatever_the_folders_are_called(tmp_path: Path) -> None:
    places = odd(tmp_path)
    service = service_of(places, WORDS, system="darwin")
    read = plistlib.loads(service.text.encode())

    assert read["WorkingDirectory"] == str(places.project)
    assert read["ProgramArguments"][-4:] == ["worker", *WORDS, "--reconnect"]
    assert read["EnvironmentVariables"] == {"SKILLYARD_HOME": str(places.own_home)}
    assert read["KeepAlive"] is True


def test_a_folder_that_could_write_lines_of_its_own_is_refused(places: ProjectPaths) -> None:
    assert places.project is not None
    with pytest.raises(InvalidArgs):
        service_of(places._replace(project=places.project / "a\nExecStart=evil"), WORDS)


def test_nothing_is_written_without_a_yes_and_nothing_is_removed_that_is_not_there(
    places: ProjectPaths, skillyard: Skillyard
) -> None:
    shown = skillyard("service", "install", "--dry-run")
    refused = skillyard("service", "install")

    assert "ExecStart=" in shown.stdout
    assert refused.returncode == 1
    assert skillyard("service", "remove").returncode == 1
    assert not (places.user_home / ".config").exists()


def test_where_nothing_can_start_it_no_file_is_left_and_cron_is_advised(
    places: ProjectPaths, skillyard: Skillyard
) -> None:
    nobody_there = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null", "XDG_RUNTIME_DIR": "/dev/null"}
    done = skillyard("service", "install", "--accept", "--json", **nobody_there)

    assert done.returncode == 1
    assert "@reboot" in json.loads(done.stdout)["meta"]["hint"]
    assert not list(places.user_home.rglob("*.service"))


def test_a_file_is_removed_also_where_nobody_can_be_asked_to_stop_it(
    places: ProjectPaths, skillyard: Skillyard
) -> None:
    service = service_of(places, WORDS, env={})
    service.file.parent.mkdir(parents=True)
    service.file.write_text(service.text)
    nobody_there = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null", "XDG_RUNTIME_DIR": "/dev/null"}

    assert skillyard("service", "remove", **nobody_there).returncode == 0
    assert not service.file.exists()
