"""Sources that hang, lead elsewhere, or come by ssh; places that cannot be written to."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import SourceFailed
from skillyard.install.git import GitSource
from skillyard.install.source import Limits
from skillyard.install.target import read_lock
from tests.conftest import Skillyard
from tests.install.conftest import git, good, write
from tests.install.servers import hanging_server, logged_server
from tests.install.test_add import data_of, skills_in
from tests.sandbox.conftest import ORDINARY, PYTHON, SOURCE


def test_only_the_entries_of_an_index_that_were_asked_for_are_downloaded(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    index = tmp_path / "site/.well-known/agent-skills"
    entries = []
    for name in ("one", "two", "Three Words"):
        text = good(name)
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        entries.append({"name": name, "type": "skill-md", "url": f"{name[:3]}.md", "digest": digest})
        write(index, {f"{name[:3]}.md": text})
    write(index, {"index.json": json.dumps({"skills": entries})})
    with logged_server(tmp_path / "site") as (url, asked):
        address = f"{url}/.well-known/agent-skills/index.json"
        assert skillyard("add", address, "--skill", "two", "--skill", "three-words").returncode == 0
        assert [Path(path).name for path in asked] == ["index.json", "two.md", "Thr.md"]
        assert data_of(skillyard("add", address, "--skill", "four", "--json"))["type"] == "SkillNotFound"
        asked.clear()
        shutil.rmtree(project / ".claude")
        assert skillyard("restore").returncode == 0
        assert "one.md" not in {Path(path).name for path in asked}
        assert skillyard("run", f"{address}@one").returncode == 0

    assert skills_in(project) == ["three-words", "two"]


def test_a_redirect_from_https_to_http_is_refused_before_it_is_followed(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    site = tmp_path / "site"
    write(tmp_path / "in", {"SKILL.md": good("packed")})
    site.mkdir()
    shutil.make_archive(str(site / "packed"), "zip", tmp_path / "in")
    with logged_server(site) as (plain, asked):
        with logged_server(site, moved=plain, certificate=both) as (url, _):
            down = skillyard("add", f"{url}/packed.zip", "--json", SSL_CERT_FILE=str(certificate))
        with logged_server(site, certificate=both) as (url, _):
            unknown = skillyard("add", f"{url}/packed.zip", "--json")
            known = skillyard("add", f"{url}/packed.zip", "--json", SSL_CERT_FILE=str(certificate))

    assert data_of(down)["type"] == "SourceRefused", down.stdout
    assert asked == []  # not even a request went there
    assert "certificate" in data_of(unknown)["msg"].lower()
    assert data_of(known)["installed"] == ["packed"]


@pytest.mark.parametrize("form", ["ssh://git@host.invalid{path}", "git@host.invalid:{path}"])
def test_a_repository_comes_by_ssh(
    form: str, skillyard: Skillyard, project: Path, places: ProjectPaths, tmp_path: Path, repo: Path
) -> None:
    """The transport is git's own; only the wire to the other host is a pipe on this machine."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"""#!/bin/sh
printf '%s\\n' "$@" >> {shlex.quote(str(tmp_path / "words"))}
for command; do :; done
exec sh -c "$command"
""")
    ssh.chmod(0o755)
    done = skillyard("add", form.format(path=repo), "--skill", "one", "--json", GIT_SSH_COMMAND=str(ssh))

    assert done.returncode == 0, done.stdout
    assert "git@host.invalid" in (tmp_path / "words").read_text()
    assert read_lock(project / "skillyard.lock")["one"].commit == git(repo, "rev-parse", "HEAD")


def test_a_server_that_never_answers_is_left(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    with hanging_server() as (url, has_left):
        with pytest.raises(SourceFailed, match="longer than"):
            GitSource(f"{url}/owner/repo", limits=Limits(seconds=1.0)).fetch(tmp_path / "staging", lambda _: None)
        assert has_left()  # git and what it started are gone


@pytest.fixture
def tmp_path(everybodys_path: Path) -> Path:
    return everybodys_path


@pytest.fixture
def as_nobody(places: ProjectPaths, project: Path) -> Skillyard:
    """The real command as a user who is not root; the folders of the test are theirs."""
    if os.getuid() == 0:
        for folder, _, files in os.walk(project.parent):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)

    def run(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{SOURCE}:{Path(yaml.__file__).parents[1]}",
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
            **env,
        }
        user, group = (ORDINARY, ORDINARY) if os.getuid() == 0 else (os.getuid(), os.getgid())
        command = [PYTHON, "-m", "skillyard", *args]
        return subprocess.run(
            command, cwd=project, env=variables, user=user, group=group, capture_output=True, text=True, timeout=120
        )

    return run


@pytest.mark.parametrize("closed", [".claude/skills", ".", ".claude/skills/one"])
def test_what_cannot_be_written_is_refused_and_stays_as_it_was(
    closed: str, as_nobody: Skillyard, project: Path, tmp_path: Path
) -> None:
    write(tmp_path / "one", {"SKILL.md": good("one")})
    if not PYTHON or as_nobody("--version").returncode:
        pytest.skip("no Python that an ordinary user can run with our source")
    assert as_nobody("add", str(tmp_path / "one")).returncode == 0
    lock = (project / "skillyard.lock").read_bytes()
    write(tmp_path / "one", {"SKILL.md": good("one") + "newer\n"})
    (project / closed).chmod(0o555)
    try:
        done = as_nobody("update", "--all", "--json")
    finally:
        (project / closed).chmod(0o755)

    assert (done.returncode, data_of(done)["type"]) == (1, "PermissionDenied"), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (project / "skillyard.lock").read_bytes() == lock
    assert (project / ".claude/skills/one/SKILL.md").read_text() == good("one")
    assert as_nobody("update", "--all").returncode == 0
    assert (project / ".claude/skills/one/SKILL.md").read_text().endswith("newer\n")
