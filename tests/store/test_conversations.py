"""Conversations with agents: found again, told as they stand, and bounded."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.store.conversations import (
    EVENT_CHARACTERS,
    HISTORY_CHARACTERS,
    Conversation,
    ConversationEvent,
    ConversationLocks,
    Conversations,
    ConversationState,
)
from skillyard.store.database import open_database


def open_conversations(home: Path) -> Conversations:
    return Conversations(open_database(home / "state.db"), ConversationLocks(home / "conversations"))


@pytest.fixture
def conversations(tmp_path: Path) -> Conversations:
    return open_conversations(tmp_path)


@pytest.fixture
def talk(conversations: Conversations) -> Conversation:
    return conversations.open("codex", "/p", "发布 🚀", 1.0)


def test_a_conversation_is_made_once_for_each_backend_folder_and_name(
    conversations: Conversations, talk: Conversation
) -> None:
    assert conversations.open("codex", "/p", "发布 🚀", 9.0) == talk
    others = {conversations.open(*place, "发布 🚀", 2.0).id for place in (("codex", "/q"), ("claude-code", "/p"))}
    assert talk.id not in others
    assert len(others) == 2
    assert conversations.find("codex", "/nowhere", "发布 🚀") is None


def test_the_agents_session_is_kept_until_it_tells_another(conversations: Conversations, talk: Conversation) -> None:
    conversations.move(talk, ConversationState.IDLE, 2.0, session="abc")
    conversations.move(talk, ConversationState.FAILED, 3.0)

    found = conversations.find("codex", "/p", "发布 🚀")
    assert found is not None
    assert (found.session, found.state, found.last) == ("abc", ConversationState.FAILED, 3.0)


def test_the_list_has_the_latest_first(conversations: Conversations, talk: Conversation) -> None:
    other = conversations.open("opencode", "/p", "x", 5.0)
    assert [each.id for each in conversations.list()] == [other.id, talk.id]

    conversations.record(talk, ConversationEvent("r1", 6.0, "text", "hello"))
    assert [each.id for each in conversations.list(1)] == [talk.id]


def test_a_turn_that_is_held_is_running_and_one_that_nobody_holds_crashed(
    conversations: Conversations, talk: Conversation
) -> None:
    hold = conversations.hold(talk)
    assert hold is not None
    with hold:
        conversations.begin(talk, "r1", 2.0)
        assert conversations.list()[0].state is ConversationState.STARTING
        conversations.move(talk, ConversationState.RUNNING, 2.5)
        assert conversations.list()[0].state is ConversationState.RUNNING
        assert conversations.hold(talk) is None

    assert conversations.list()[0].state is ConversationState.CRASHED
    again = conversations.hold(talk)
    assert again is not None
    again.close()


OWNER = """
import sys, time
from pathlib import Path
from skillyard.store.conversations import Conversations, ConversationState, ConversationEvent
from skillyard.store.database import open_database
from skillyard.store.conversations import ConversationLocks
home = Path(sys.argv[1])
conversations = Conversations(open_database(home / "state.db"), ConversationLocks(home / "conversations"))
talk = conversations.open("codex", "/p", "talk", 1.0)
hold = conversations.hold(talk)
print("none" if hold is None else "held", flush=True)
if hold:
    conversations.begin(talk, "r1", 2.0)
    conversations.move(talk, ConversationState.RUNNING, 3.0, session="s-1")
    conversations.record(talk, ConversationEvent("r1", 3.0, "text", "half a sent"))
    print("told", flush=True)
sys.stdin.readline()
"""


def start(home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def said(owner: "subprocess.Popen[str]") -> str:
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


def test_a_runtime_that_is_killed_leaves_a_crashed_conversation_with_its_session_and_history(tmp_path: Path) -> None:
    owner = start(tmp_path)
    assert (said(owner), said(owner)) == ("held", "told")
    conversations = open_conversations(tmp_path)
    assert conversations.list()[0].state is ConversationState.RUNNING

    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate(timeout=60)

    (found,) = conversations.list()
    assert (found.state, found.session, found.run) == (ConversationState.CRASHED, "s-1", "r1")
    assert [telling.text for _, telling in conversations.history(found)] == ["half a sent"]


def test_of_two_processes_one_holds_a_conversation(tmp_path: Path) -> None:
    both = [start(tmp_path) for _ in range(2)]
    answers = [said(each) for each in both]
    for each in both:
        each.communicate("\n", timeout=60)

    assert sorted(answers) == ["held", "none"]


def test_whoever_looks_never_keeps_an_owner_out(
    conversations: Conversations, talk: Conversation, tmp_path: Path
) -> None:
    looking = f"""
import sys
from pathlib import Path
from skillyard.store.conversations import ConversationLocks
holds = ConversationLocks(Path({str(tmp_path / "conversations")!r}))
print("looking", flush=True)
while True:
    holds.is_held({talk.id})
"""
    hold = conversations.hold(talk)
    assert hold is not None
    hold.close()
    looker = subprocess.Popen([sys.executable, "-c", looking], stdout=subprocess.PIPE, text=True)
    assert said(looker) == "looking"
    try:
        for _ in range(200):
            hold = conversations.hold(talk)
            assert hold is not None
            hold.close()
    finally:
        looker.kill()
        looker.communicate(timeout=60)


def test_a_turn_that_began_since_is_not_taken_for_the_one_that_crashed(
    conversations: Conversations, talk: Conversation
) -> None:
    conversations.begin(talk, "r1", 2.0)
    (row,) = conversations._connection.execute(
        "SELECT id, backend, folder, name, session, state, started, last, run FROM conversations"
    ).fetchall()
    conversations.begin(talk, "r2", 3.0)

    seen = conversations._checked(row)
    assert (seen.state, seen.run) == (ConversationState.STARTING, "r2")


def test_history_is_told_in_order_and_from_where_one_left_off(conversations: Conversations, talk: Conversation) -> None:
    for number in range(5):
        conversations.record(
            talk, ConversationEvent("r1", float(number), "tool_call", f"{number}", {"tool": "读", "n": number})
        )

    everything = conversations.history(talk)
    assert [telling.data for _, telling in everything] == [{"tool": "读", "n": n} for n in range(5)]
    assert conversations.history(talk, after=everything[2][0]) == everything[3:]


def test_long_texts_are_cut_with_a_mark(conversations: Conversations, talk: Conversation) -> None:
    conversations.record(talk, ConversationEvent("r1", 1.0, "text", "技" * (EVENT_CHARACTERS + 7), {"x": "y" * 30_000}))

    ((_, telling),) = conversations.history(talk)
    assert telling.text == "技" * EVENT_CHARACTERS + "… (7 characters more)"
    assert telling.data == {"cut": 30_009}


def test_the_oldest_goes_first_when_a_conversation_grows_too_large(
    conversations: Conversations, talk: Conversation
) -> None:
    other = conversations.open("codex", "/p", "other", 1.0)
    conversations.record(other, ConversationEvent("r0", 1.0, "text", "untouched"))
    for number in range(250):
        conversations.record(talk, ConversationEvent("r1", 2.0, "text", f"{number:05d}" + "x" * 9_995))

    kept = [int(telling.text[:5]) for _, telling in conversations.history(talk)]
    assert kept == list(range(kept[0], 250))
    assert HISTORY_CHARACTERS * 8 // 10 < sum(10_102 for _ in kept) <= HISTORY_CHARACTERS
    assert [telling.text for _, telling in conversations.history(other)] == ["untouched"]


def test_what_nobody_used_for_long_is_forgotten_but_not_under_somebodys_hands(
    conversations: Conversations, talk: Conversation
) -> None:
    held = conversations.open("codex", "/p", "held", 1.0)
    fresh = conversations.open("codex", "/p", "fresh", 100.0)
    conversations.record(talk, ConversationEvent("r1", 2.0, "text", "old"))
    hold = conversations.hold(held)
    assert hold is not None
    with hold:
        assert conversations.forget_before(50.0) == 1

    assert {each.id for each in conversations.list()} == {held.id, fresh.id}
    assert conversations.history(talk) == ()


@given(st.text(st.characters()))
def test_whatever_an_agent_says_can_be_kept(text: str) -> None:
    with TemporaryDirectory() as folder, closing(open_database(Path(folder, "state.db"))) as connection:
        conversations = Conversations(connection, ConversationLocks(Path("/dev/null/nowhere")))
        talk = conversations.open("codex", "/p", "x", 1.0)
        conversations.record(talk, ConversationEvent("r", 1.0, "text", text, {text: text}))

        ((_, kept),) = conversations.history(talk)

    assert kept.text == text.encode("utf-8", "replace").decode()
    assert kept.data == {text: text}
