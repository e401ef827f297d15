"""git never runs what a folder says: not the current one, not the project's, not the repository it reads from."""

import ast
import base64
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.install.address import locked_source, parse_source
from skillyard.install.git import GitSource
from skillyard.install.limits import Limits
from skillyard.kernel.places import Places
from tests.conftest import Skillyard
from tests.install.conftest import commit, git, good, write
from tests.install.servers import _Git, git_server, logged_server
from tests.sandbox.conftest import ORDINARY, PYTHON, SOURCE

REAL_GIT = shutil.which("git") or "git"
TOKEN = base64.b64encode(b"me:secret").decode()


@contextmanager
def private_git_server(root: Path) -> Iterator[str]:
    """Git's smart HTTP for whoever gives the password; 401 for everybody else."""

    class Private(_Git):
        def _hand_over(self, body: bytes) -> None:
            if self.headers.get("Authorization") == f"Basic {TOKEN}":
                super()._hand_over(body)
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    handler = type("PrivateRoot", (Private,), {"root": root})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Trap(NamedTuple):
    """What a hostile project says to git, and the file that appears if git believes it."""

    config: str
    private: bool = False


TRAPS = {
    "credential helper": Trap('[credential]\n\thelper = "!touch {canary};"\n', private=True),
    "credential helper for the address": Trap('[credential "{url}"]\n\thelper = "!touch {canary};"\n', private=True),
    "askpass": Trap("[core]\n\taskPass = {evil}\n", private=True),
    "remote with the address as its name": Trap(
        '[remote "{url}/owner/repo"]\n\turl = file://{fake}\n\tuploadpack = {evil}\n'
    ),
    "remote helper": Trap(
        '[remote "{url}/owner/repo"]\n\tvcs = ext\n\turl = ext::{evil}\n[protocol]\n\tallow = always\n'
    ),
    "address rewritten to a program": Trap(
        '[url "ext::{evil} "]\n\tinsteadOf = {url}/\n[protocol "ext"]\n\tallow = always\n'
    ),
    "address rewritten to ssh": Trap(
        '[url "ssh://host.invalid/"]\n\tinsteadOf = {url}/\n[core]\n\tsshCommand = {evil}\n'
    ),
    "address rewritten to another repository": Trap('[url "file://{forge_of_fake}/"]\n\tinsteadOf = {url}/\n'),
    "included file": Trap("[include]\n\tpath = ../more\n"),
    "included on condition": Trap('[includeIf "gitdir:**"]\n\tpath = ../more\n'),
    "proxy": Trap("[http]\n\tproxy = {proxy}\n"),
}


class Ground(NamedTuple):
    project: Path
    canary: Path
    evil: Path
    fake: Path


@pytest.fixture
def ground(project: Path, tmp_path: Path) -> Ground:
    """A hostile project: a real repository with a program of its own in it, and a second repository that lies."""
    shutil.rmtree(project / ".git")
    git(project, "init", "-q", "-b", "main", ".")
    canary, evil = tmp_path / "canary", project / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(canary))}\nexit 1\n")
    evil.chmod(0o755)
    fake = tmp_path / "fake/owner/repo"
    fake.mkdir(parents=True)
    git(fake, "init", "-q", "-b", "main", ".")
    commit(fake, {"skills/one/SKILL.md": good("one") + "\nFROM THE FAKE\n"})
    return Ground(project, canary, evil, fake)


def spring(trap: Trap, ground: Ground, url: str, proxy: str, at: Path | None = None) -> None:
    text = trap.config.format(
        url=url,
        canary=ground.canary,
        evil=ground.evil,
        fake=ground.fake,
        forge_of_fake=ground.fake.parent.parent,
        proxy=proxy,
    )
    more = '[remote "{url}/owner/repo"]\n\turl = file://{fake}\n\tuploadpack = {evil}\n'
    (ground.project / "more").write_text(more.format(url=url, fake=ground.fake, evil=ground.evil))
    with (at or ground.project / ".git/config").open("a") as file:
        file.write(text)


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize(
    "words", [("run", "owner/repo@one", "--json"), ("add", "owner/repo", "--skill", "one", "--json")]
)
def test_the_configuration_of_the_current_folder_means_nothing(
    name: str, words: Sequence[str], skillyard: Skillyard, places: Places, ground: Ground, repo: Path, tmp_path: Path
) -> None:
    trap, serve = TRAPS[name], private_git_server if TRAPS[name].private else git_server
    (tmp_path / "empty").mkdir()
    with serve(repo.parent.parent) as url, logged_server(tmp_path / "empty") as (proxy, asked):
        (places.own_home / "config.toml").write_text(f'[install]\nforge = "{url}"\n')
        spring(trap, ground, url, proxy)
        done = skillyard(*words)

    assert not ground.canary.exists(), done.stdout
    assert asked == []
    assert "FROM THE FAKE" not in done.stdout
    assert done.returncode == (1 if trap.private else 0), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
