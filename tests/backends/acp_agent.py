"""A small ACP agent: does what the task says, so that every end of a turn can be had without npm."""

import json
import os
import sys
import time
from typing import Any


def tell(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def update(**what: Any) -> None:
    tell({"method": "session/update", "params": {"sessionId": "s1", "update": what}})


def say(text: str) -> None:
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    heard: dict[str, Any] = json.loads(line)
    return heard


def permitted(kind: str = "edit", title: str = "write a file", call: str = "t1", **given: str) -> bool:
    options = [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
    asked = {"toolCallId": call, "kind": kind, "title": title, "rawInput": given}
    tell({"id": "p1", "method": "session/request_permission", "params": {"toolCall": asked, "options": options}})
    return bool(hear()["result"]["outcome"]["optionId"] == "y")


def ask_for(text: str) -> str:
    """Return how the turn ends; nothing for a task that asks for no permission."""
    if text == "ask":
        say("yes" if permitted() else "no")
    elif text == "need":
        return "end_turn" if permitted() else "refusal"
    elif text == "ask twice about one call":
        say(f"{permitted()} {permitted()}")
    elif text == "two calls":
        say(f"{permitted()} {permitted(title='write another', call='t2')}")
    elif text.startswith("run "):
        command = text.removeprefix("run ")
        say(str(permitted("execute", command, command=command)))
    else:
        return ""
    return "end_turn"


def play(text: str) -> str:
    if text == "crash":
        print("I cannot go on, sk-abcdefghijklmnopqrstuvwxyz", file=sys.stderr, flush=True)
        sys.exit(9)
    if text == "noise":
        for line in ("not json", "[]", '{"method": 5}', '{"id": null}', '{"id": 77, "result": 1}', "{}", '"x"'):
            print(line, flush=True)
        update(sessionUpdate="tool_call_update")
        update(sessionUpdate=None, content=[1])
        tell({"method": "session/update", "params": [1]})
        tell({"id": "x", "method": "fs/read_text_file", "params": {}})
        say(json.dumps(hear()["error"]["code"]))
    elif text == "profile":
        say(os.environ["SKILLYARD_PERMISSIONS"])
    elif end := ask_for(text):
        return end
    elif text == "hang":
        say("hanging")
        time.sleep(600)
    elif text == "who":
        say(str(os.getpid()))
    elif text == "cut":
        return "max_tokens"
    else:
        say(text)
    return "end_turn"


def main() -> None:
    while True:
        heard = hear()
        match heard["method"]:
            case "initialize":
                result: dict[str, Any] = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
            case "session/new":
                result = {"sessionId": "s1"}
            case "session/load":
                say("what was said long ago")
                result = {}
            case "session/set_model":
                result = {}
            case "session/prompt":
                result = {"stopReason": play(heard["params"]["prompt"][-1]["text"])}
            case _:
                continue
        tell({"id": heard["id"], "result": result})


if __name__ == "__main__":
    main()
