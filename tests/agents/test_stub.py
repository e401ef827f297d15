"""The stub model by itself: what it says on each of its three wires, and what it keeps."""

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.agents.stub import Stub, answer, call, error, hang
from tests.agents.wire import Completions, Messages, Responses, Tool, find

PATHS = {"claude-code": Messages.path, "codex": Responses.path, "opencode": Completions.path}
each_wire = pytest.mark.parametrize("name", PATHS)


def question(name: str, text: str, **more: Any) -> dict[str, Any]:
    if name == "codex":
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        return {"model": "m", "stream": True, "instructions": "Be kind.", "input": [item], **more}
    messages = [{"role": "user", "content": text}]
    if name == "opencode":
        messages.insert(0, {"role": "system", "content": "Be kind."})
        return {"model": "m", "stream": True, "messages": messages, **more}
    return {"model": "m", "stream": True, "system": "Be kind.", "messages": messages, **more}


def send(stub: Stub, name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of the answer."""
    request = urllib.request.Request(stub.url + PATHS[name], json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        lines = [line.decode().strip() for line in response]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


def deltas(name: str, events: list[dict[str, Any]]) -> list[str]:
    if name == "opencode":
        return [said for e in events for c in e["choices"] if (said := c["delta"].get("content"))]
    if name == "codex":
        return [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    return [e["delta"]["text"] for e in events if e.get("delta", {}).get("type") == "text_delta"]


@each_wire
def test_an_answer_comes_whole_and_in_several_pieces(stub: Stub, name: str) -> None:
    stub.play(answer("你好, all of it 🎉"))

    said = deltas(name, send(stub, name, question(name, "Hello?")))

    assert "".join(said) == "你好, all of it 🎉"
    assert len(said) > 1


@each_wire
def test_what_was_asked_is_kept_as_it_was(stub: Stub, name: str) -> None:
    body = question(name, "第一 🎉\n" + "x" * 35_000)

    send(stub, name, body)

    received = stub.last(name)
    assert received.body == body
    assert (received.agent, received.system.strip()) == (name, "Be kind.")
    assert stub.last_user_text() == "第一 🎉\n" + "x" * 35_000


@each_wire
def test_turns_are_played_in_order(stub: Stub, name: str) -> None:
    stub.play(answer("one"), answer("two"))

    said = ["".join(deltas(name, send(stub, name, question(name, "Next?")))) for _ in range(3)]

    assert said == ["one", "two", "The stub has nothing more to say."]
    assert stub.left == []


@each_wire
def test_a_failed_request_fails_again_but_the_next_one_goes_on(stub: Stub, name: str) -> None:
    stub.play(error(429, "too many"), answer("fine"))

    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError) as failed:
            send(stub, name, question(name, "First"))
        with failed.value as response:
            assert (response.code, json.load(response)["error"]["message"]) == (429, "too many")

    assert "".join(deltas(name, send(stub, name, question(name, "Second")))) == "fine"


def test_a_request_that_failed_often_enough_succeeds(stub: Stub) -> None:
    stub.play(error(500, "once", times=1), answer("then"))

    with pytest.raises(urllib.error.HTTPError) as failed:
        send(stub, "codex", question("codex", "Hello?"))
    failed.value.close()

    assert "".join(deltas("codex", send(stub, "codex", question("codex", "Hello?")))) == "then"


def test_a_title_takes_no_turn(stub: Stub) -> None:
    stub.play(answer("mine"))
    aside = {"role": "system", "content": "You are a title generator."}

    titled = send(stub, "opencode", {"stream": True, "messages": [aside]})

    assert "".join(deltas("opencode", titled)) == "A title"
    assert stub.asked() == []
    assert "".join(deltas("opencode", send(stub, "opencode", question("opencode", "Hello?")))) == "mine"


def test_a_script_for_some_requests_is_left_alone_by_the_others(stub: Stub) -> None:
    stub.play(answer("for B"), when="Task B")
    stub.play(answer("for A"))

    said = ["".join(deltas("codex", send(stub, "codex", question("codex", task)))) for task in ("Task A", "Task B")]

    assert said == ["for A", "for B"]


def test_a_hanging_model_goes_on_when_it_is_released(stub: Stub) -> None:
    stub.play(hang("wait… ", then="now"))
    events: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: events.extend(send(stub, "codex", question("codex", "Hello?"))))
    asking.start()

    stub.wait_until_held()
    assert events == []
    stub.release()
    asking.join(60)

    assert "".join(deltas("codex", events)) == "wait… now"


def test_who_hangs_up_is_noticed(stub: Stub) -> None:
    stub.play(hang("wait…"))
    body = json.dumps(question("codex", "Hello?")).encode()

    with urllib.request.urlopen(urllib.request.Request(stub.url + Responses.path, body), timeout=60):
        stub.wait_until_held()

    assert stub.wait_until_hung_up().user_text == "Hello?"


def test_a_tool_is_called_by_the_name_that_the_agent_gave_it(stub: Stub) -> None:
    tools = [{"name": "Read"}, {"name": "mcp__skillyard__skill_run"}]
    stub.play(call("skill_run", {"name": "echo", "params": {"text": "你好"}}))

    events = send(stub, "claude-code", question("claude-code", "Run it", tools=tools))

    started = [e["content_block"] for e in events if e.get("content_block", {}).get("type") == "tool_use"]
    assert [block["name"] for block in started] == ["mcp__skillyard__skill_run"]
    parts = [e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"]
    assert json.loads("".join(parts)) == {"name": "echo", "params": {"text": "你好"}}


def test_codex_hears_the_group_of_a_tool() -> None:
    offered = Responses().tools({"tools": [{"type": "namespace", "name": "mcp__x", "tools": [{"name": "skill_run"}]}]})

    assert find(offered, "skill_run") == find(offered, "mcp__x__skill_run") == Tool("skill_run", "mcp__x")


@each_wire
def test_an_agent_that_wants_no_stream_gets_one_answer(stub: Stub, name: str) -> None:
    stub.play(answer("whole"))
    request = urllib.request.Request(
        stub.url + PATHS[name], json.dumps({**question(name, "?"), "stream": False}).encode()
    )

    with urllib.request.urlopen(request, timeout=60) as response:
        assert "whole" in response.read().decode()


def test_models_and_tokens_are_answered_and_what_is_unknown_is_said(stub: Stub) -> None:
    with urllib.request.urlopen(stub.url + "/v1/models", timeout=60) as response:
        assert json.load(response)["data"][0]["id"] == "m"
    with urllib.request.urlopen(stub.url + "/v1/messages/count_tokens", b"{}", timeout=60) as response:
        assert json.load(response) == {"input_tokens": 1}
    with pytest.raises(urllib.error.HTTPError, match="404") as missing:
        urllib.request.urlopen(stub.url + "/v1/nothing", timeout=60)
    missing.value.close()
