"""What a run returns, and how errors become results."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from skillyard.core.errors import ParamMissing, SkillError
from skillyard.core.messages import WAITING, Lang
from skillyard.core.states import CACHED, MARKS, Mark, State
from skillyard.core.values import NOTHING, Json


class Result(NamedTuple):
    """Outcome of a run, whichever runner ran it and whichever face asked."""

    agent: str
    state: State
    summary: str
    data: Mapping[str, Json] = NOTHING
    meta: Mapping[str, Json] = NOTHING

    @property
    def ok(self) -> bool:
        return self.state in {State.SUCCESS, State.PARTIAL}

    @property
    def cached(self) -> bool:
        """Whether it repeats an earlier run because of an idempotency key."""
        return self.state is State.SUCCESS and self.data.get("cached") is True and "original_result" in self.data

    @property
    def mark(self) -> Mark:
        return CACHED if self.cached else MARKS[self.state]

    @property
    def exit_code(self) -> int:
        return self.mark.exit_code

    def as_text(self) -> str:
        """Return the two lines of docs/spec/result.md; `parse` reads them back."""
        from skillyard.core.envelope import as_text  # noqa: PLC0415  (it imports this module)

        return as_text(self)

    def as_json(self) -> str:
        """Return one JSON object on one line."""
        from skillyard.core.envelope import as_json  # noqa: PLC0415  (it imports this module)

        return as_json(self)

    def as_dict(self) -> dict[str, Json]:
        """Return the JSON object of `--json` and MCP."""
        return {**self._asdict(), "state": str(self.state)}


class Clock:
    """When something began, for the `meta` of its result."""

    def __init__(self, moment: datetime | None = None) -> None:
        self.moment, self._started = moment or datetime.now(UTC), time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def meta(self, agent: str, facts: Mapping[str, Json] = NOTHING) -> dict[str, Json]:
        return make_meta(agent, self.seconds, self.moment, **facts)


def make_meta(agent: str, seconds: float, moment: datetime, **more: Json) -> dict[str, Json]:
    """Return `agent`, `time` and `ts`, then the other values that are not None."""
    stamp = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    known = {key: value for key, value in more.items() if value is not None}
    return {"agent": agent, "time": meaningful(seconds), "ts": stamp, **known}


def meaningful(seconds: float) -> float:
    """Round to milliseconds below ten seconds, to tenths above."""
    digits = 3 if seconds < 10 else 1
    return round(seconds, digits)


def as_size(output_bytes: int) -> str:
    """Return a size for people, 1024-based with one decimal: 12.5KB."""
    size = float(output_bytes)
    for unit in ("B", "KB", "MB"):
        if round(size, 1) < 1024:
            return f"{size:g}B" if unit == "B" else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}GB"


def error_result(error: SkillError, agent: str, lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Return an expected failure as a result; its code and hint are in `meta`."""
    meta = {**meta, "code": error.code, "hint": error.hint(lang)}
    return Result(agent, error.state, error.summary(lang), error.data(), meta)


def pending_result(error: ParamMissing, agent: str, lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Return the question for a missing param, where someone can answer it."""
    summary = WAITING.render(lang, names=", ".join(error.required))
    return Result(agent, State.PENDING, summary, error.as_question(), {**meta, "hint": error.hint(lang)})
