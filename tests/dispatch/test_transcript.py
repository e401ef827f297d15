"""What is kept of an agent's words: in whole lines, without secrets, however they were cut into pieces."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.backend_events import Event, EventKind
from skillyard.dispatch.delivery import Transcript
from skillyard.store.conversations import Conversation, ConversationEvent, Conversations, ConversationState

KEY = "sk-abcdefghijklmnopqrstuvwxyz"
TALK = Conversation(1, "small", "/x", "talk", "", ConversationState.RUNNING, 0.0, 0.0, "run")


class Kept(Conversations):
    """Remembers what would be written."""

    def __init__(self) -> None:
        self.tellings: list[ConversationEvent] = []

    def record(self, conversation: Conversation, telling: ConversationEvent) -> None:
        del conversation
        self.tellings.append(telling)


def heard(pieces: Sequence[str]) -> tuple[Transcript, list[ConversationEvent], bytes]:
    kept, log = Kept(), list[bytes]()
    transcript = Transcript(kept, TALK, "run", lambda _: None, log.append)
    for piece in pieces:
        transcript.add(Event(EventKind.TEXT, piece, {"message": 1}))
    transcript.flush()
    return transcript, kept.tellings, b"".join(log)


@given(st.lists(st.text()))
def test_the_pieces_together_are_what_was_said(pieces: list[str]) -> None:
    transcript, tellings, log = heard(pieces)

    assert transcript.content == "".join(pieces) == log.decode()
    assert "".join(telling.text for telling in tellings) == "".join(pieces)


@given(st.integers(0, len(KEY)), st.text("ab \n"), st.text("ab \n"))
def test_a_secret_that_was_cut_in_two_is_not_kept(cut: int, before: str, after: str) -> None:
    text = f"{before}\n{KEY}\n{after}"
    at = len(before) + 1 + cut

    _, tellings, _ = heard([text[:at], text[at:]])

    assert KEY not in "".join(telling.text for telling in tellings)


def test_a_new_message_begins_the_answer_anew() -> None:
    kept = Kept()
    transcript = Transcript(kept, TALK, "run", lambda _: None, lambda _: None)
    for number, text in ((1, "Let me look. "), (2, "It is "), (2, "done.")):
        transcript.add(Event(EventKind.TEXT, text, {"message": number}))

    assert transcript.content == "It is done."
    transcript.flush()
    assert [telling.text for telling in kept.tellings] == ["Let me look. ", "It is done."]
