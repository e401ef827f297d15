"""Environments are really built, in the real sandbox, from wheels made by hand."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from skillyard.core.errors import EnvironmentFailed, InvalidArgs, PythonMissing, SandboxUnavailable
from skillyard.core.messages import Lang
from skillyard.runners.environments import (
    build,
    choose_python,
    find,
    find_indexes,
    home_of,
    list_built,
    readable_parts,
    remove,
)
from skillyard.runners.interpreters import full_version_of, version_of
from skillyard.runners.requirements import Requirements
from skillyard.sandbox.launch import Sandbox, make_sandbox
from skillyard.sandbox.layers import ABI_SCOPES, Layers
from tests.wheels import CEILING_SECONDS, Index, make_sdist, make_wheel, open_index

UV = shutil.which("uv")
PIP_ONLY = {"PATH": "/nowhere", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with closing(make_sandbox()) as opened:
        yield opened


@pytest.fixture
def own_home(tmp_path: Path) -> Path:
    return tmp_path / "skillyard-home"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture(params=["pip", pytest.param("uv", marks=pytest.mark.skipif(not UV, reason="no uv on the PATH"))])
def settings(request: pytest.FixtureRequest, wheels: Path, tmp_path: Path) -> Mapping[str, str]:
    """What the user set, for one installer or the other: a folder of wheels and no index."""
    if request.param == "pip":
        return {**PIP_ONLY, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    file = tmp_path / "uv.toml"
    file.write_text(f"no-index = true\nfind-links = ['{wheels}']\n")
    return {"PATH": str(Path(str(UV)).parent), "UV_CONFIG_FILE": str(file)}


def needs(*packages: str, python: str = "") -> Requirements:
    return Requirements(tuple(sorted(packages)), python, "x.py", sys.executable, version_of(sys.executable))


def asked(folder: Path, code: str) -> str:
    argv = [str(folder / "bin" / "python"), "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=CEILING_SECONDS, check=True)
    return done.stdout.strip()


def test_wheels_are_installed_found_again_listed_and_removed(
    settings: Mapping[str, str], wheels: Path, own_home: Path, sandbox: Sandbox
) -> None:
    make_wheel(wheels, "greet", {"greet/__init__.py": "WORD = '你好'\n"}, version="1.2")
    # Would be run by the next start of the environment's own Python: no build may start that.
    make_wheel(wheels, "sly", {"sly.pth": "import sys; open(sys.prefix + '/ran', 'w')\n", "sly.py": ""})
    wanted, steps = needs("greet>=1", "sly"), list[str]()
    assert find(wanted, own_home) is None

    folder = build(wanted, own_home, sandbox, steps.append, settings)

    assert folder == home_of(own_home) / wanted.digest
    assert not (folder / "ran").exists()
    assert asked(folder, "import greet; print(greet.WORD)") == "你好"
    assert list((folder / "lib").rglob("greet/__pycache__/*.pyc"))
    assert any("greet" in step for step in steps)
    assert find(wanted, own_home) == folder
    assert build(wanted, own_home, sandbox, steps.append, {"PATH": ""}) == folder
    (record,) = list_built(own_home)
    assert (record.digest, record.packages) == (wanted.digest, ("greet>=1", "sly"))
    assert record.size_bytes > 0
    assert record.sandbox == "full" or "+" in record.sandbox or record.sandbox == "bubblewrap"
    assert sorted(path.name.partition(".")[2] for path in home_of(own_home).iterdir()) == ["", "json", "lock"]

    remove(wanted.digest[:6], own_home)

    assert (find(wanted, own_home), list_built(own_home)) == (None, ())
    with pytest.raises(InvalidArgs, match="0 environments"):
        remove(wanted.digest, own_home)


def test_a_package_that_brings_a_configuration_of_python_opens_nothing(
    settings: Mapping[str, str], wheels: Path, own_home: Path, sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "private/bin").mkdir(parents=True)
    shipped = {"evil-1.0.data/data/pyvenv.cfg": f"home = {tmp_path}/private/bin\n", "evil.py": ""}
    make_wheel(wheels, "evil", shipped)
    wanted = needs("evil")

    build(wanted, own_home, sandbox, env=settings)

    folder = home_of(own_home) / wanted.digest
    assert str(tmp_path / "private") in (folder / "pyvenv.cfg").read_text(), "the installer lets it"
    opened = readable_parts(wanted, own_home)
    assert folder / "lib" in opened
    assert not [path for path in opened if (tmp_path / "private").is_relative_to(path)]


def test_a_package_without_a_wheel_is_refused_and_nothing_of_it_is_run(
    settings: Mapping[str, str], wheels: Path, own_home: Path, sandbox: Sandbox
) -> None:
    make_sdist(wheels, "source", "raise SystemExit('the setup was run')\n")

    with pytest.raises(EnvironmentFailed) as caught:
        build(needs("source"), own_home, sandbox, env=settings)

    error = caught.value
    told = str(error.details["installer"])
    assert (error.type, "source" in error.msg) == ("RuntimeFailed", True)
    assert "source" in told
    assert "the setup was run" not in told
    assert "wheel" in error.hint(Lang.EN)
    assert find(needs("source"), own_home) is None
    assert not (home_of(own_home) / needs("source").digest).exists()


def test_without_namespaces_it_is_built_all_the_same(wheels: Path, own_home: Path) -> None:
    make_wheel(wheels, "greet", {"greet.py": ""})
    settings = {**PIP_ONLY, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    with closing(make_sandbox()) as probing:
        layers = getattr(probing, "layers", Layers())
    if layers.landlock < ABI_SCOPES or not layers.seccomp:
        pytest.skip("this kernel's Landlock is too old to do without namespaces")

    with closing(make_sandbox(Layers(landlock=layers.landlock, seccomp=True))) as sandbox:
        folder = build(needs("greet"), own_home, sandbox, env=settings)

    assert asked(folder, "import greet; print(1)") == "1"
    assert list_built(own_home)[0].sandbox == "landlock+seccomp"


def test_without_a_sandbox_nothing_is_installed(own_home: Path) -> None:
    with closing(make_sandbox(Layers())) as sandbox, pytest.raises(SandboxUnavailable):
        build(needs("greet"), own_home, sandbox, env=PIP_ONLY)

    assert [path.suffix for path in home_of(own_home).iterdir()] == [".lock"]


def test_an_environment_whose_python_is_gone_does_not_count(own_home: Path) -> None:
    wanted = needs("x")
    folder = home_of(own_home) / wanted.digest / "bin"
    folder.mkdir(parents=True)
    (home_of(own_home) / f"{wanted.digest}.json").write_text("{}")
    (folder / "python").symlink_to("/nowhere/python3")

    assert find(wanted, own_home) is None
    assert [record.digest for record in list_built(own_home)] == [wanted.digest]


@pytest.fixture
def index(wheels: Path) -> Iterator[Index]:
    with open_index(wheels) as opened:
        yield opened


def start_builder(index: Index, own_home: Path, *packages: str) -> "subprocess.Popen[str]":
    script = Path(__file__).with_name("builder.py")
    env = {**PIP_ONLY, "PIP_INDEX_URL": index.address, "PIP_TRUSTED_HOST": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, script, own_home, *packages],
        env=env,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_who_race_build_once_and_the_second_waits(index: Index, wheels: Path, own_home: Path) -> None:
    make_wheel(wheels, "greet", {"greet.py": ""})
    with start_builder(index, own_home, "greet") as first:
        assert index.asked.wait(CEILING_SECONDS)
        with start_builder(index, own_home, "greet") as second:
            assert second.stdout
            assert "waiting for another build" in second.stdout.readline()
            index.give.set()
            ends = [builder.communicate(timeout=CEILING_SECONDS)[0].splitlines()[-1] for builder in (first, second)]

    built = home_of(own_home) / needs("greet").digest
    assert ends == [f"built {built}"] * 2
    assert index.fetched == ["greet-1.0-py3-none-any.whl"]


def test_a_builder_that_is_killed_leaves_nothing_that_counts_and_the_next_one_succeeds(
    index: Index, wheels: Path, own_home: Path
) -> None:
    make_wheel(wheels, "greet", {"greet.py": ""})
    make_wheel(wheels, "other", {"other.py": ""})
    for package in ("greet", "other"):
        index.asked.clear()
        with start_builder(index, own_home, package) as doomed:
            assert index.asked.wait(CEILING_SECONDS)
            os.kill(doomed.pid, signal.SIGKILL)
            doomed.wait(CEILING_SECONDS)
        assert (home_of(own_home) / needs(package).digest).exists()
        assert find(needs(package), own_home) is None

    index.give.set()
    with start_builder(index, own_home, "greet") as builder:
        said, _ = builder.communicate(timeout=CEILING_SECONDS)

    assert said.splitlines()[-1].startswith("built ")
    assert find(needs("greet"), own_home) is not None
    left = {path.name.partition(".")[0] for path in home_of(own_home).iterdir() if path.suffix != ".lock"}
    assert left == {needs("greet").digest}


def test_an_environment_without_packages_is_one_for_another_python(own_home: Path, sandbox: Sandbox) -> None:
    folder = build(needs(python=">=3.9"), own_home, sandbox, env=PIP_ONLY)

    assert asked(folder, "import sys; print(sys.prefix)") == str(folder)


def test_a_python_that_nobody_has_is_named() -> None:
    with pytest.raises(PythonMissing, match=r"x\.py needs Python >=3\.99; this machine has .*3\.1"):
        choose_python(needs("x", python=">=3.99"))


def test_the_python_that_runs_the_script_is_taken_where_it_fits() -> None:
    major, minor, _ = full_version_of(sys.executable)

    assert choose_python(needs("x", python=f"~={major}.{minor}.0")) == sys.executable


def test_only_settings_that_say_where_packages_come_from_are_passed(tmp_path: Path) -> None:
    config, links = tmp_path / "pip" / "pip.conf", tmp_path / "links"
    config.parent.mkdir()
    links.mkdir()
    config.write_text(f"[global]\nfind-links = {links}\n    http://127.0.0.1/x\ncache-dir = {tmp_path}\n")
    env = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_TARGET": "/",
        "UV_INDEX_INNER_PASSWORD": "s",
        "API_TOKEN": "secret",
        "https_proxy": "http://127.0.0.1:3128",
    }

    found = find_indexes(env)

    assert {config, links} <= set(found.files)
    assert tmp_path not in found.files
    assert found.variables["PIP_CONFIG_FILE"] == str(config)
    assert found.variables["PIP_INDEX_URL"] == env["PIP_INDEX_URL"]
    assert found.variables["UV_INDEX_INNER_PASSWORD"] == "s"
    assert found.variables["https_proxy"] == env["https_proxy"]
    assert not {"API_TOKEN", "PIP_TARGET"} & set(found.variables)


@pytest.mark.skipif(not UV, reason="no uv on the PATH")
def test_uv_is_left_aside_where_only_pip_knows_the_index() -> None:
    path = str(Path(str(UV)).parent)
    only_pip = {"PATH": path, "PIP_INDEX_URL": "http://127.0.0.1:1/simple"}

    assert find_indexes(only_pip).uv == ""
    assert find_indexes({**only_pip, "UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple"}).uv == os.path.realpath(str(UV))
