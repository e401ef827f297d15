"""Keys and credentials of a project are hidden from runs, by their names."""

import time
from pathlib import Path

import pytest

from skillyard.trust.hidden_files import find_hidden, is_hidden

HIDDEN = [".env", ".env.local", "sub/.envrc", "certs/server.pem", "tls.KEY", "id_rsa", "keys/id_ed25519_work", ".npmrc"]
SEEN = [
    "a.py",
    "environment.py",
    "id_map.py",
    "id_rsa.pub",
    "README.md",
    "node_modules/x/cert.pem",
    "key.txt",
    "中文.md",
]


@pytest.mark.parametrize("name", HIDDEN)
def test_a_secret_is_hidden(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()

    assert find_hidden(tmp_path) == (tmp_path / name,)
    assert is_hidden(name)


@pytest.mark.parametrize("name", SEEN)
def test_other_files_are_seen(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()

    assert find_hidden(tmp_path) == ()


def test_a_folder_of_credentials_is_hidden_whole(tmp_path: Path) -> None:
    (tmp_path / "deploy/.aws").mkdir(parents=True)
    (tmp_path / "deploy/.aws/credentials").touch()

    assert find_hidden(tmp_path) == (tmp_path / "deploy/.aws",)
    assert is_hidden("deploy/.aws/credentials")


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        ('[remote "origin"]\n\turl = https://github.com/a/b\n', False),
        ('[remote "origin"]\n\turl = https://me:ghp_secret@github.com/a/b\n', True),
        ("[http]\n\textraheader = AUTHORIZATION: basic x\n", True),
        ('[remote "origin"]\n\turl = https://ghp_secret@github.com/a/b\n', True),
        ('[remote "origin"]\n\turl = ssh://git@github.com/a/b\n', False),
    ],
)
def test_the_configuration_of_git_is_hidden_where_it_holds_a_password(
    tmp_path: Path, config: str, hidden: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(config)

    assert find_hidden(tmp_path) == ((tmp_path / ".git/config",) if hidden else ())


def test_the_configuration_of_a_submodule_is_hidden_too(tmp_path: Path) -> None:
    for folder in (".git/modules/libs/one", ".git/modules/two", "libs/one/.git"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "HEAD").touch()
        (tmp_path / folder / "config").write_text("url = https://me:secret@example.com/a\n")

    assert {path.parent.relative_to(tmp_path).as_posix() for path in find_hidden(tmp_path)} == {
        ".git/modules/libs/one",
        ".git/modules/two",
        "libs/one/.git",
    }


def test_secrets_in_folders_of_packages_are_hidden_and_certificates_are_not(tmp_path: Path) -> None:
    package = tmp_path / "node_modules/x/lib"
    package.mkdir(parents=True)
    (package / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (package / "mine.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    (package / ".env").touch()

    assert set(find_hidden(tmp_path)) == {package / "mine.pem", package / ".env"}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A project with so many folders that they are remembered, all of them older than the clock's coarsest tick."""
    project = tmp_path / "large"
    for number in range(60):
        (project / f"src/part{number}").mkdir(parents=True)
    time.sleep(2.1)
    return project


def test_what_appears_in_a_remembered_folder_is_hidden(tmp_path: Path, large: Path) -> None:
    home = tmp_path / "home"
    assert find_hidden(large, home) == ()
    assert list((home / "cache/hidden").iterdir())

    secrets = [large / "src/part7/.env", large / "src/part8/new/id_rsa"]
    secrets[1].parent.mkdir()
    for secret in secrets:
        secret.touch()
    assert set(find_hidden(large, home)) == set(secrets)

    secrets[0].unlink()
    assert find_hidden(large, home) == (secrets[1],)


def test_a_folder_that_takes_the_place_of_a_remembered_one_is_looked_through(tmp_path: Path, large: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    other.mkdir()
    (other / "server.key").touch()
    find_hidden(large, home)

    (large / "src/part3").rmdir()
    other.rename(large / "src/part3")

    assert find_hidden(large, home) == (large / "src/part3/server.key",)


def test_damaged_notes_are_not_used(tmp_path: Path, large: Path) -> None:
    home = tmp_path / "home"
    (large / "src/part1/.env").touch()
    find_hidden(large, home)
    (notes,) = (home / "cache/hidden").iterdir()
    for content in ("", "{", "[]", '{"rules": [], "folders": {}}'):
        notes.write_text(content)
        assert find_hidden(large, home) == (large / "src/part1/.env",)


@pytest.mark.slow
def test_a_project_with_many_files_is_listed_once(tmp_path: Path) -> None:
    project, home = tmp_path / "many", tmp_path / "home"
    for number in range(2_500):
        folder = project / f"node_modules/p{number % 50}/{number}"
        folder.mkdir(parents=True)
        for name in range(20):
            (folder / f"{name}.js").touch()
    secret = project / "node_modules/p7/7/.npmrc"
    secret.touch()
    time.sleep(2.1)

    assert find_hidden(project, home) == find_hidden(project, home) == (secret,)
