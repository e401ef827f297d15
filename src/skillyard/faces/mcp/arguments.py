"""The arguments of a tool as what they must be; InvalidArgs where a client sends something else."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json, check_value


class Arguments(NamedTuple):
    tool: str
    values: Mapping[str, Any]

    def check(self, known: Mapping[str, Any]) -> None:
        """Nothing that nobody reads, and nothing that cannot be written down."""
        unknown = sorted(set(self.values) - set(known))
        if unknown:
            raise InvalidArgs(
                Message(
                    "{name} takes no {key}; it takes {known}",
                    name=self.tool,
                    key=", ".join(unknown),
                    known=", ".join(known),
                )
            )
        try:
            check_value(self.values)
        except ValueError as error:
            raise InvalidArgs(str(error)) from None

    def text(self, name: str) -> str:
        value = self.find_text(name)
        if value is None or not value.strip():
            raise InvalidArgs(Message("{tool} needs {name}, a text", tool=self.tool, name=name))
        return value

    def find_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArgs(Message("{name} must be a text", name=name))
        return value

    def whole(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgs(Message("{name} must be a whole number above zero", name=name))
        return value

    def mapping(self, name: str) -> Mapping[str, Json]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict):
            raise InvalidArgs(Message("{name} must be an object", name=name))
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InvalidArgs(Message("{name} must be a list of texts", name=name))
        return tuple(value)
