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
from typing import NamedTuple

import pytest
import yaml

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.install.address import locked_source, parse_source
from skillyard.install.git import GitSource
from skillyard.install.source import Limits
from tests.conftest import Skillyard
from tests.install.conftest import commit, git, good
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
def tmp_path(everybodys_path: Path) -> Path:
    return everybodys_path


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
    name: str,
    words: Sequence[str],
    skillyard: Skillyard,
    places: ProjectPaths,
    ground: Ground,
    repo: Path,
    tmp_path: Path,
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


def test_a_folder_that_looks_like_a_bare_repository_means_nothing(
    skillyard: Skillyard, places: ProjectPaths, ground: Ground, repo: Path
) -> None:
    folder = ground.project / "docs"
    git(ground.project, "init", "-q", "--bare", "docs")
    with git_server(repo.parent.parent) as url:
        (places.own_home / "config.toml").write_text(f'[install]\nforge = "{url}"\n')
        spring(TRAPS["remote with the address as its name"], ground, url, "", folder / "config")
        done = skillyard("run", "owner/repo@one", "--json", cwd=folder)

    assert not ground.canary.exists()
    assert done.returncode == 0, done.stdout


LOCAL_TRAPS = {
    "pack objects hook": "[uploadpack]\n\tpackObjectsHook = {evil}\n",
    "lazy fetch": "[core]\n\trepositoryformatversion = 1\n\tsshCommand = {evil}\n[extensions]\n\tpartialClone = o\n"
    '[remote "o"]\n\turl = file://{fake}\n\tpromisor = true\n\tuploadpack = {evil}\n\tvcs = ext\n',
    "fsmonitor and hooks": "[core]\n\tfsmonitor = {evil}\n\thooksPath = {project}\n\tpager = {evil}\n",
    "include": "[include]\n\tpath = {project}/more\n",
    "broken": "[core\n",
    "unknown extension": "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tevil = {evil}\n",
}


@pytest.mark.parametrize("name", LOCAL_TRAPS)
@pytest.mark.parametrize("form", ["{path}", "file://{path}", "bare"])
def test_the_configuration_of_a_repository_of_this_machine_is_not_read(
    name: str, form: str, ground: Ground, repo: Path, tmp_path: Path
) -> None:
    if form == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(repo), "inner.git")
    source = tmp_path / "inner.git" if form == "bare" else repo
    config = source / "config" if form == "bare" else source / ".git/config"
    text = LOCAL_TRAPS[name].format(evil=ground.evil, fake=ground.fake, project=ground.project)
    config.write_text(config.read_text() + text)
    for hook in ("post-checkout", "reference-transaction", "pre-auto-gc"):
        (config.parent / "hooks").mkdir(exist_ok=True)
        shutil.copy(ground.evil, config.parent / "hooks" / hook)
    if name == "lazy fetch":  # an object is missing
        tree = git(ground.fake, "rev-parse", "HEAD^{tree}")
        assert tree
    wanted = GitSource(form.format(path=repo)) if "file" in form else GitSource(str(source), local=source)
    staging = tmp_path / "staging"
    staging.mkdir()
    found = wanted.resolve(staging, lambda _: None)
    fetched = wanted.fetch(staging, lambda _: None)

    assert not ground.canary.exists()
    assert found == fetched.commit
    assert (fetched.folder / "skills/one/SKILL.md").read_text() == good("one")


def test_objects_that_are_missing_are_not_fetched_from_where_the_repository_says(
    ground: Ground, repo: Path, tmp_path: Path
) -> None:
    text = LOCAL_TRAPS["lazy fetch"].format(evil=ground.evil, fake=ground.fake, project=ground.project)
    blob = git(repo, "rev-parse", "HEAD:skills/one/SKILL.md")
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with (repo / ".git/config").open("a") as file:
        file.write(text)
    (tmp_path / "staging").mkdir()

    with pytest.raises(SkillError):
        GitSource("x", local=repo).fetch(tmp_path / "staging", lambda _: None)

    assert not ground.canary.exists()


def test_worktrees_packed_refs_tags_and_shallow_clones_are_read_as_git_reads_them(repo: Path, tmp_path: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "tag", "-a", "v1", "-m", "one")
    git(repo, "branch", "特性/🚀")
    git(repo, "pack-refs", "--all")
    second = commit(repo, {"skills/one/SKILL.md": good("one") + "newer\n"})
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree of work"), "v1")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", "shallow")
    git(tmp_path, "clone", "-q", "--bare", str(repo), "named.git")

    def both(source: GitSource, name: str) -> tuple[str, str]:
        staging = tmp_path / f"staging {name}"
        staging.mkdir()
        return source.resolve(staging, lambda _: None), source.fetch(staging, lambda _: None).commit

    assert both(GitSource("x", local=repo), "a") == (second, second)
    assert both(GitSource("x", "v1", local=repo), "b") == (first, first)
    assert both(GitSource("x", "特性/🚀", local=repo), "c") == (first, first)
    assert both(GitSource("x", local=tmp_path / "tree of work"), "d") == (first, first)
    assert both(GitSource(f"file://{tmp_path}/tree%20of%20work"), "e") == (first, first)
    assert both(GitSource("x", local=tmp_path / "shallow"), "f") == (second, second)
    assert both(GitSource("x", local=tmp_path / "named"), "g") == (second, second)
    assert both(GitSource("x", "main", first, local=repo), "h") == (first, first)


def replace_with_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_with_link(path: Path, target: str) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda at: (at / "HEAD").write_text("ref: ../../../etc/passwd\n"),
        lambda at: replace_with_pipe(at / "HEAD"),
        lambda at: replace_with_pipe(at / "refs/heads/main"),
        lambda at: replace_with_link(at / "refs/heads/main", "/etc/passwd"),
        lambda at: (at / "refs/heads/main").write_text("ref: refs/heads/main\n"),
        lambda at: (at / "reftable").mkdir(),
        lambda at: replace_with_link(at / "refs", "/etc/ssl"),
    ],
)
def test_a_repository_of_this_machine_that_is_none_is_an_error(
    break_it: Callable[[Path], object], repo: Path, tmp_path: Path
) -> None:
    break_it(repo / ".git")
    (tmp_path / "staging").mkdir()
    with pytest.raises(SkillError):
        GitSource("x", local=repo, limits=Limits(seconds=60)).fetch(tmp_path / "staging", lambda _: None)


# -- what of the user's own stays


def test_the_credential_helper_and_the_rewrites_of_the_user_work(
    skillyard: Skillyard, places: ProjectPaths, repo: Path, project: Path
) -> None:
    helper = "!f() { echo username=me; echo password=secret; }; f"
    with private_git_server(repo.parent.parent) as url:
        (places.user_home / "more").write_text(f'[url "{url}/"]\n\tinsteadOf = https://company.invalid/\n')
        (places.user_home / ".gitconfig").write_text(
            f'[include]\n\tpath = more\n[credential "{url}"]\n\thelper = "{helper}"\n[alias]\n\tfetch = "!false"\n'
            "[core]\n\thooksPath = /evil\n"
        )
        xdg = skillyard("add", "https://company.invalid/owner/repo", "--skill", "one", "--json")
        (places.user_home / ".config/git").mkdir(parents=True)
        (places.user_home / ".gitconfig").rename(places.user_home / ".config/git/config")
        (places.user_home / "more").rename(places.user_home / ".config/git/more")
        again = skillyard("run", "https://company.invalid/owner/repo@two", "--json")

    assert xdg.returncode == 0, xdg.stdout
    assert again.returncode == 0, again.stdout


# -- how git is started


@pytest.fixture
def logging_git(tmp_path: Path) -> tuple[Path, Path]:
    """A git that notes how it was started, and then is the real one: its folder, and the notes."""
    folder, log = tmp_path / "tools", tmp_path / "starts"
    folder.mkdir()
    log.mkdir()
    log.chmod(0o777)
    (folder / "git").write_text(
        f"""#!{sys.executable} -I
import json, os, sys, tempfile
note = {{"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}}
handle, name = tempfile.mkstemp(dir={str(log)!r})
os.write(handle, json.dumps(note).encode())
os.execv({REAL_GIT!r}, ["git", *sys.argv[1:]])
"""
    )
    (folder / "git").chmod(0o755)
    return folder, log


def test_every_git_process_starts_in_a_folder_of_ours_with_a_repository_of_ours(
    skillyard: Skillyard, places: ProjectPaths, ground: Ground, repo: Path, logging_git: tuple[Path, Path]
) -> None:
    tools, log = logging_git
    for name in ("bin/git", "git", "node_modules/.bin/git"):
        (ground.project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ground.evil, ground.project / name)
    env = {
        "PATH": f".::bin:{ground.project}/bin:{ground.project}/node_modules/.bin:{tools}:{os.environ['PATH']}",
        "GIT_DIR": str(ground.project / ".git"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.sshCommand",
        "GIT_CONFIG_VALUE_0": str(ground.evil),
        "GIT_EXEC_PATH": str(ground.project),
        "GIT_TEMPLATE_DIR": str(ground.project),
        "GIT_EXTERNAL_DIFF": str(ground.evil),
        "GIT_PROXY_COMMAND": str(ground.evil),
        "GIT_TRACE": str(ground.canary),
        "GIT_ASKPASS": str(ground.evil),
    }
    with git_server(repo.parent.parent) as url:
        (places.own_home / "config.toml").write_text(f'[install]\nforge = "{url}"\n')
        commands = [
            ("run", "owner/repo@one"),
            ("run", f"file://{repo}@one"),
            ("add", "owner/repo", "--skill", "one"),
            ("add", str(repo), "--skill", "two"),
            ("outdated",),
            ("update", "--all"),
            ("restore",),
            ("verify",),
            ("list",),
            ("doctor",),
            ("new", "fresh", "--yes"),
            ("init", "--yes"),
        ]
        done = {words: skillyard(*words, **env) for words in commands}

    assert not ground.canary.exists()
    assert done[commands[0]].returncode == done[commands[2]].returncode == 0, done[commands[0]].stdout
    notes = [json.loads(file.read_text()) for file in log.iterdir()]
    assert len(notes) >= 8
    own = f"{places.own_home}/"
    for note in notes:
        if "upload-pack" in note["argv"] or note["argv"][0].endswith("upload-pack"):
            continue  # git's own child, which inherits the rest
        assert note["argv"][0] == str(tools / "git")
        assert note["argv"][1].startswith(f"--git-dir={own}"), note["argv"]
        assert Path(note["cwd"]).is_relative_to(places.own_home)
        settings = {note["argv"][at + 1] for at, word in enumerate(note["argv"][:-1]) if word == "-c"}
        assert {"core.hooksPath=/dev/null", "safe.bareRepository=explicit", "core.fsmonitor=false"} <= settings
        kept = {name: value for name, value in note["env"].items() if name.startswith("GIT_")}
        assert (kept["GIT_CONFIG_NOSYSTEM"], kept["GIT_NO_LAZY_FETCH"]) == ("1", "1")
        assert kept["GIT_CONFIG_GLOBAL"].startswith(own)
        assert set(kept["GIT_ALLOW_PROTOCOL"].split(":")) == {"file", "http", "https", "ssh"}
        assert not {"GIT_DIR", "GIT_EXEC_PATH", "GIT_CONFIG_COUNT", "GIT_TEMPLATE_DIR", "GIT_TRACE"} & set(kept)
        entries = note["env"]["PATH"].split(":")
        assert all(entry.startswith("/") and not entry.startswith(str(ground.project)) for entry in entries), entries


def test_only_one_module_starts_git() -> None:
    source = Path(__file__).parents[2] / "src/skillyard"
    found = set()
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            words = (
                node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else ()
            )
            for word in words:
                if (
                    isinstance(word, ast.Constant)
                    and isinstance(word.value, str)
                    and re.fullmatch(r"(.*/)?git", word.value)
                ):
                    found.add(file.relative_to(source).as_posix())

    # `doctor` only says where it is, and hidden files have names like its settings.
    assert found == {"install/git.py", "app/health.py", "trust/hidden_files.py"}


# -- addresses that are more than addresses


@pytest.mark.parametrize(
    "text",
    [
        "ssh://-oProxyCommand=touch%20x/path",
        "ssh://user@-oProxyCommand=x/path",
        "ssh://-oProxyCommand@host/path",
        "-x@host.invalid:path",
        "me@-host.invalid:path",
        "https://host.invalid/a\nhost=evil.invalid",
        "https://host.invalid%0ahost=evil.invalid/a",
        "https://host.invalid/%0d%0aX: y",
        "https://host.invalid/a\tb",
        "ext::sh -c id",
        "ext://host.invalid/x",
        "git://host.invalid/x",
        "fd::3",
        "https://[::1/x",
        "https://host.invalid:99999/x",
    ],
)
def test_an_address_that_a_program_could_take_for_more_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgs):
        parse_source(text, cwd=tmp_path, root=tmp_path)
    with pytest.raises(InvalidArgs):
        locked_source(text, "", "", tmp_path)


@pytest.mark.parametrize(
    ("ref", "commit"), [("--upload-pack=evil", ""), ("a..b", ""), ("x:refs/y", ""), ("", "--evil"), ("", "main")]
)
def test_a_lock_names_refs_and_commits_and_nothing_else(ref: str, commit: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgs):
        locked_source("https://host.invalid/x", ref, commit, tmp_path)


def test_an_ordinary_user_is_as_safe(ground: Ground, places: ProjectPaths, repo: Path, tmp_path: Path) -> None:
    if os.getuid() != 0 or not PYTHON:
        pytest.skip("only root can be another user")
    with git_server(repo.parent.parent) as url:
        (places.own_home / "config.toml").write_text(f'[install]\nforge = "{url}"\n')
        for name in ("remote with the address as its name", "address rewritten to a program", "included file"):
            spring(TRAPS[name], ground, url, "")
        for folder, _, files in os.walk(tmp_path):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{SOURCE}:{Path(yaml.__file__).parents[1]}",
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
        }
        words = [PYTHON, "-m", "skillyard", "run", "owner/repo@one", "--json"]
        done = subprocess.run(
            words,
            cwd=ground.project,
            env=env,
            user=ORDINARY,
            group=ORDINARY,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert not ground.canary.exists()
    assert done.returncode == 0, done.stdout + done.stderr
