"""`./dev fuzz`: a short run of every target, and the fuzzer itself."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.fuzz.__main__ import main
from tools.fuzz.loop import fuzz, replay
from tools.fuzz.mutate import mutate
from tools.fuzz.targets import TARGETS, Run, Target, found

from skillyard.core.errors import InvalidArgs
from tests.conftest import TORTURE

SECONDS = 60.0 if TORTURE else 1.0
BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_mutated_input_is_read_or_refused_and_nothing_else(name: str, tmp_path: Path) -> None:
    report = fuzz(BY_NAME[name], SECONDS, tmp_path, seed=None if TORTURE else 1)

    assert [(finding.error, finding.file.read_bytes()) for finding in report.findings] == []
    assert report.runs >= len(BY_NAME[name].seeds())


SAVED = [(target.name, number) for target in TARGETS for number in range(len(found(target.name)))]


@pytest.mark.parametrize(("name", "number"), SAVED)
def test_what_once_broke_something_does_not_any_more(name: str, number: int) -> None:
    assert replay(BY_NAME[name], found(name)[number]) == ""


def _target(run: Run) -> Target:
    @contextmanager
    def opened() -> Iterator[Run]:
        yield run

    return Target("planted", opened, lambda: [b"abc"])


def test_a_planted_bug_is_found_saved_and_replayed(tmp_path: Path) -> None:
    def careless(content: bytes) -> None:
        if b"{" in content:
            raise KeyError("a foreign exception")
        raise InvalidArgs("refused as it should be")

    target = _target(careless)
    (finding,) = fuzz(target, 2.0, tmp_path, seed=3).findings

    assert "KeyError" in finding.error
    assert b"{" in finding.file.read_bytes()
    assert finding.replay == f"./dev fuzz planted --replay {finding.file}"
    assert "a foreign exception" in replay(target, finding.file.read_bytes())
    assert replay(target, b"abc") == ""


def test_the_same_seed_gives_the_same_input() -> None:
    one, two = (mutate(random.Random(7), b"name: x", [b"name: y"]) for _ in range(2))

    assert one == two
    assert len(mutate(random.Random(1), b"x" * 100, [b"y"], most_bytes=50)) <= 50


def test_the_command_tells_what_it_did(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLYARD_FUZZ", str(tmp_path))

    assert main(["jsonrpc", "--seconds", "0.2"]) == 0

    assert "jsonrpc" in capsys.readouterr().out
    (tmp_path / "input").write_bytes(b"{}")
    assert main(["jsonrpc", "--replay", str(tmp_path / "input")]) == 0
