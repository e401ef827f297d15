"""What a supervisor is told, as it travels: one JSON document with its length before it."""

import json
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple, Self

from skillyard.sandbox.layers import Layers, Plan, Way
from skillyard.sandbox.policy import Guard, Mount, Policy

_LENGTH = struct.Struct("!Q")


class Order(NamedTuple):
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    limit_seconds: float
    plan: Plan
    policy: Policy | None

    def as_json(self) -> dict[str, Any]:
        return {
            "argv": self.argv,
            "cwd": self.cwd,
            "env": self.env,
            "limit_seconds": self.limit_seconds,
            "way": self.plan.way,
            "layers": self.plan.layers.as_json(),
            "policy": None if self.policy is None else _policy_as_json(self.policy),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        policy = data["policy"]
        return cls(
            argv=tuple(data["argv"]),
            cwd=data["cwd"],
            env=data["env"],
            limit_seconds=data["limit_seconds"],
            plan=Plan(way=Way(data["way"]), layers=Layers.from_json(data["layers"])),
            policy=None if policy is None else _policy_from_json(policy),
        )


_PATHS = ("read", "write", "tools", "hide")


def _policy_as_json(policy: Policy) -> dict[str, Any]:
    data = policy._asdict()
    data |= {name: [str(path) for path in data[name]] for name in _PATHS}
    mounts = [[str(path) for path in mount] for mount in policy.mounts]
    return data | {"mounts": mounts, "demand": sorted(policy.demand)}


def _policy_from_json(data: dict[str, Any]) -> Policy:
    paths = {name: tuple(Path(path) for path in data[name]) for name in _PATHS}
    mounts = tuple(Mount(Path(source), Path(target)) for source, target in data["mounts"])
    demand = frozenset(Guard(name) for name in data["demand"])
    return Policy(**(data | paths | {"mounts": mounts, "demand": demand, "hosts": tuple(data["hosts"])}))


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    channel.sendall(_LENGTH.pack(len(body)) + body)


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """None when the other side ended before it had said everything."""
    header = _exactly(channel, _LENGTH.size)
    if header is None:
        return None
    body = _exactly(channel, _LENGTH.unpack(header)[0])
    if body is None:
        return None
    message: dict[str, Any] = json.loads(body)
    return message


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    pieces: list[bytes] = []
    while size:
        try:
            piece = channel.recv(min(size, 1 << 20))
        except ConnectionError:
            return None
        if not piece:
            return None
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
