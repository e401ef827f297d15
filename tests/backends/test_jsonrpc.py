"""JSON-RPC over lists: what is sent, and what is made of what comes."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.backends.json_messages import Peer, RpcError, RpcRequest, RpcResponse, as_incoming
from skillyard.core.values import Json

Message = Mapping[str, Json]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["id", "method", "params", "result", "error", "jsonrpc", "code", "message"])


def peer_of(*incoming: Message) -> tuple[Peer, list[Message]]:
    sent: list[Message] = []
    coming = iter(incoming)
    return Peer(sent.append, lambda: next(coming)), sent


def test_a_call_waits_for_its_own_response_and_keeps_what_came_before_in_order() -> None:
    peer, sent = peer_of(
        {"method": "tick", "params": {"n": 1}},
        {"id": 99, "result": {}},
        {"id": "their", "method": "ask", "params": {}},
        {"id": 1, "result": {"ok": True}},
    )

    assert peer.call("begin", {"a": 1}) == {"ok": True}
    assert sent == [{"jsonrpc": "2.0", "id": 1, "method": "begin", "params": {"a": 1}}]
    assert peer.next() == RpcRequest("tick", {"n": 1})
    assert peer.next() == RpcResponse(99, {})
    assert peer.next() == RpcRequest("ask", {}, "their")


def test_a_refusal_is_raised_in_the_words_of_the_other_side() -> None:
    peer, _ = peer_of({"id": 1, "error": {"code": -32602, "message": "no such model", "data": {"model": "x"}}})

    with pytest.raises(RpcError, match="no such model") as raised:
        peer.call("begin")

    assert (raised.value.code, raised.value.data) == (-32602, {"model": "x"})


def test_a_request_is_answered_or_refused_by_its_id() -> None:
    peer, sent = peer_of()
    request = RpcRequest("fs/read", {}, "7")

    peer.answer(request, {"x": 1})
    peer.refuse(request)

    assert sent[0] == {"jsonrpc": "2.0", "id": "7", "result": {"x": 1}}
    assert sent[1]["error"] == {"code": -32601, "message": "fs/read is not offered"}


def test_a_request_with_the_id_zero_is_a_request() -> None:
    assert as_incoming({"id": 0, "method": "ask"}) == RpcRequest("ask", {}, 0)


@given(st.dictionaries(KEYS, ANYTHING))
def test_whatever_comes_it_is_a_request_a_response_or_nothing(message: dict[str, Json]) -> None:
    assert isinstance(as_incoming(message), RpcRequest | RpcResponse | None)
