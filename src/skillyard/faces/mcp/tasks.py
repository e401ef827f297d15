"""The extension `io.modelcontextprotocol/tasks`: a call that takes long is answered with a task, to be polled.

Covered: a task ends with the server, and when the client cancels it; what it has to ask is asked through it.
Not covered: a task of a server that has ended. Its run is in the history, with the result.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from skillyard.core.result import Clock
from skillyard.core.values import Json
from skillyard.faces.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ClientRequest,
    Fields,
    InputRequired,
    ProtocolError,
)

EXTENSION = "io.modelcontextprotocol/tasks"
#: A call that has ended by then is answered as any other.
_PATIENCE_SECONDS = 2.0
_POLL_MS, _KEPT_MS = 1_000, 3_600_000
_MOST = 100
_END_SECONDS = 10.0


class PolledCall(NamedTuple):
    request: ClientRequest
    #: Returns the answer to the call.
    work: Callable[[ClientRequest], Fields]
    created: str
    #: `status`, and `result`, `error` or `inputRequests` with it.
    known: dict[str, Any]
    ended: threading.Event


class PolledCalls:
    def __init__(self) -> None:
        self._tasks: dict[str, PolledCall] = {}
        self.methods = {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}

    def answer(self, request: ClientRequest, work: Callable[[ClientRequest], Fields]) -> Fields:
        """Return the answer to a call, or the task that it has become."""
        is_asked_for = request.is_modern and EXTENSION in (request.client.get("extensions") or {})
        if not is_asked_for or (len(self._tasks) >= _MOST and not self._forget()):
            return work(request)
        task_id = os.urandom(16).hex()
        task = PolledCall(request, work, _now(), {"status": "working"}, threading.Event())
        self._start(task)
        task.ended.wait(_PATIENCE_SECONDS)
        if task.known["status"] == "completed":
            return dict(task.known["result"])
        if task.known["status"] == "failed":
            error = task.known["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        if task.known["status"] == "input_required":
            raise task.known["_question"]
        request.end_progress()
        self._tasks[task_id] = task
        return {**self._describe(task_id, task), "resultType": "task"}

    def _start(self, task: PolledCall) -> None:
        threading.Thread(target=_work, args=(task,), daemon=True).start()

    def _describe(self, task_id: str, task: PolledCall) -> dict[str, Json]:
        known = {key: value for key, value in task.known.items() if not key.startswith("_")}
        about: dict[str, Json] = {"taskId": task_id, "createdAt": task.created, "lastUpdatedAt": _now()}
        return {**about, "ttlMs": _KEPT_MS, "pollIntervalMs": _POLL_MS, **known}

    def _find(self, request: ClientRequest) -> tuple[str, PolledCall]:
        task_id = request.text("taskId")
        if task_id not in self._tasks:
            raise ProtocolError(INVALID_PARAMS, f"no task {task_id[:100]!r} here")
        return task_id, self._tasks[task_id]

    def _get(self, request: ClientRequest) -> Fields:
        return self._describe(*self._find(request))

    def _update(self, request: ClientRequest) -> Fields:
        """The answers to what the task asked: it goes on with them."""
        _, task = self._find(request)
        given = request.mapping("inputResponses")
        if task.known["status"] == "input_required" and set(given) & set(task.known["inputRequests"]):
            del task.known["inputRequests"]
            task.known["status"] = "working"
            task.ended.clear()
            task.request.resume(given, task.known.pop("_question").result["requestState"])
            self._start(task)
        return {}

    def _cancel(self, request: ClientRequest) -> Fields:
        _, task = self._find(request)
        task.request.stop.cancel()
        if task.known["status"] == "input_required":
            del task.known["inputRequests"]
            task.known["status"] = "cancelled"
        return {}

    def _forget(self) -> bool:
        """Drop the oldest task that has ended."""
        over = next((key for key, task in self._tasks.items() if task.ended.is_set()), None)
        return over is not None and self._tasks.pop(over, None) is not None

    def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.request.stop.cancel()
        for task in tasks:
            task.ended.wait(_END_SECONDS)


def _work(task: PolledCall) -> None:
    done: dict[str, Any] = {"status": "failed", "error": {"code": INTERNAL_ERROR, "message": "a defect of skillyard"}}
    try:
        result = task.work(task.request)
        done = {"status": "completed", "result": {"resultType": "complete", **result}}
        if task.request.stop.cancelled:
            done = {"status": "cancelled"}
    except InputRequired as question:
        done = {"status": "input_required", "inputRequests": question.result["inputRequests"], "_question": question}
    except ProtocolError as error:
        done = {"status": "failed", "error": error.as_error()}
    finally:
        task.known.update(done)
        task.ended.set()


def _now() -> str:
    return str(Clock().meta("")["ts"])
