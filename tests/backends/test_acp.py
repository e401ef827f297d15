"""Any ACP agent is configuration: a small one of ours, and every way in which a turn can end."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillyard.backends.driver import Running, Start, Turn
from skillyard.backends.registry import make_drivers
from skillyard.core.backend_events import EventKind, Permission, TurnEnd
from skillyard.core.errors import AgentSilent, BackendFailed, Timeout

COMMAND = (sys.executable, str(Path(__file__).with_name("acp_agent.py")))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    started = start(tmp_path)
    yield started
    started.close()


def start(folder: Path, session: str | None = None) -> Running:
    return make_drivers({"PATH": os.environ["PATH"]}, {"small": COMMAND})["small"].start(Start(folder, session))


def test_a_turn_starts_tells_and_is_done(running: Running) -> None:
    events = list(running.turn(Turn("你好 🎉")))

    assert [event.kind for event in events] == [EventKind.STARTED, EventKind.TEXT, EventKind.USAGE, EventKind.DONE]
    assert events[-1].text == "你好 🎉"
    assert events[-1].data == {"stop": "end", "session": "s1"}


def test_a_session_that_is_loaded_does_not_tell_its_past_again(tmp_path: Path) -> None:
    running = start(tmp_path, session="s1")

    assert list(running.turn(Turn("now")))[-1].text == "now"
    running.close()


@pytest.mark.parametrize(("allowed", "says"), [(True, "yes"), (False, "no")])
def test_a_person_decides_about_a_permission(running: Running, allowed: bool, says: str) -> None:
    asked: list[Permission] = []

    def ask(permission: Permission) -> bool:
        asked.append(permission)
        return allowed

    events = list(running.turn(Turn("ask"), ask))

    assert asked == [Permission("edit", "write a file")]
    assert events[-1].text == says


def test_a_permission_is_refused_where_nobody_can_be_asked(running: Running) -> None:
    assert list(running.turn(Turn("ask")))[-1].text == "no"


def test_noise_is_forgiven_and_what_we_never_offered_is_refused(running: Running) -> None:
    assert list(running.turn(Turn("noise")))[-1].text == "-32601"


def test_an_agent_that_gives_up_says_so_in_its_own_word(running: Running) -> None:
    assert list(running.turn(Turn("cut")))[-1].data == {"stop": TurnEnd.CUT, "session": "s1", "reason": "max_tokens"}


def test_a_crash_is_an_error_with_the_last_words_and_without_keys(running: Running) -> None:
    with pytest.raises(BackendFailed) as raised:
        list(running.turn(Turn("crash")))

    assert "exit code 9" in raised.value.msg
    assert "I cannot go on, •••" in raised.value.msg
    with pytest.raises(BackendFailed, match="start it again"):
        list(running.turn(Turn("more")))


def test_silence_and_the_limit_of_a_turn_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(AgentSilent) as silent:
        list(start(tmp_path).turn(Turn("hang", silent_seconds=2)))
    with pytest.raises(Timeout) as late:
        list(start(tmp_path).turn(Turn("hang", limit_seconds=2)))

    assert not isinstance(late.value, AgentSilent)
    assert (silent.value.data()["limit"], late.value.data()["limit"]) == (2, 2)


def test_a_cancel_before_the_turn_is_not_lost(running: Running) -> None:
    running.cancel()

    events = list(running.turn(Turn("hello")))

    assert [(event.kind, event.data["stop"]) for event in events] == [(EventKind.DONE, TurnEnd.CANCELLED)]


def test_a_close_from_elsewhere_ends_a_turn_as_cancelled(running: Running) -> None:
    events = running.turn(Turn("hang"))
    seen = [next(events), next(events)]
    closer = threading.Thread(target=running.close)
    closer.start()

    seen += list(events)
    closer.join()

    assert (seen[-1].kind, seen[-1].data["stop"]) == (EventKind.DONE, TurnEnd.CANCELLED)


def test_a_second_turn_at_the_same_time_is_refused(running: Running) -> None:
    events = running.turn(Turn("hang"))
    next(events)

    with pytest.raises(BackendFailed, match="busy"):
        next(running.turn(Turn("more")))


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BackendFailed, match="could not start"):
        list(start(tmp_path / "nowhere").turn(Turn("hello")))
