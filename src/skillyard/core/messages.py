"""Messages for people: a template and its values, so that a face can show them in the reader's language.

A `Message` is a `str`, its English text: programs, JSON and databases see nothing else. `render` gives the reader's
language from the catalogue in `skillyard/locale`. Values that are messages are rendered too; every other value (a name,
a model's words, a program's stderr) goes in untouched. Nothing matches rendered text back to a template.

    Message("no script {name} in bin/", name=name)    a message
    Message("failed: {reason}")                       a template: `render(lang, reason=…)` fills it

`./dev messages` collects the templates for the translators; see tools/messages.py.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache, partial
from typing import Any, Self

DOMAIN = "skillyard"
LOCALE = __file__.removesuffix("core/messages.py") + "locale"


class Lang(StrEnum):
    ZH = "zh"
    EN = "en"

    @classmethod
    def choose(cls, asked: str | None, env: Mapping[str, str]) -> "Lang":
        """Return the language asked for, else that of SKILLYARD_LANG, else that of the locale."""
        names = (asked, *(env.get(name) for name in ("SKILLYARD_LANG", "LC_ALL", "LC_MESSAGES", "LANG")))
        return cls.ZH if next(filter(None, names), "").lower().startswith("zh") else cls.EN


class Message(str):
    """English text that remembers its template (a format string) and its values.

    A template with slots that have no value yet is its own text, until `render` fills them.
    """

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> Self:
        for name, value in values.items():
            if isinstance(value, BaseException):  # its words: the error itself would keep its frames alive
                values[name] = value.args[0] if value.args and isinstance(value.args[0], Message) else str(value)
        try:
            text = template.format_map(values) if "{" in template or "}" in template else template
        except KeyError:
            text = template
        self = super().__new__(cls, text)
        self.template = template
        self.values = values
        return self

    @classmethod
    def plain(cls, text: str) -> Self:
        """Return the message for a text of ours that comes from a file, where braces mean nothing."""
        return cls(escape(text))

    def __str__(self) -> str:
        """Return itself, so that `str(error)` is still a message."""
        return self

    def __reduce__(self) -> tuple[Callable[[], "Message"], tuple[()]]:
        return partial(Message, self.template, **self.values), ()

    def render(self, lang: Lang, /, **values: object) -> str:
        """Return the text in this language; `values` fill a template, or replace values of the message."""
        if lang is Lang.EN:
            return self.template.format_map({**self.values, **values}) if values else super().__str__()
        if not self.template:  # gettext has its own header under the empty text
            return ""
        known = {**self.values, **values}
        for name, value in known.items():
            if isinstance(value, Message):
                known[name] = value.render(lang)
        return _translation(lang)(self.template).format_map(known)


def render(text: str, lang: Lang) -> str:
    """Return the text as a reader of this language sees it: a message is rendered, other people's words stay."""
    return text.render(lang) if isinstance(text, Message) else text


def join_messages(separator: str, parts: Iterable[str]) -> Message:
    """Return one message of several, as `str.join` does; parts that are messages stay messages."""
    values = {f"part{number}": part for number, part in enumerate(parts)}
    return Message(escape(separator).join(f"{{{name}}}" for name in values), **values)


def translate(text: str, lang: Lang, context: str = "") -> str:
    """Return a fixed text of ours, such as a line of a help page, in this language; as it is if there is none."""
    if lang is Lang.EN:
        return text
    key = f"{context}\x04{text}" if context else text
    said = _translation(lang)(key)
    return text if said == key else said


def escape(text: str) -> str:
    """Return a template that gives exactly this text."""
    return text.replace("{", "{{").replace("}", "}}")


def as_json(value: object) -> Any:
    """Return what `of_json` reads back: a message with its template, another value as it is or as its text."""
    if isinstance(value, Message):
        return {"template": value.template, "values": {name: as_json(each) for name, each in value.values.items()}}
    return value if isinstance(value, str | int | float | None) else str(value)


def of_json(record: Any) -> Any:
    """Return the value behind `as_json`."""
    if not isinstance(record, dict):
        return record
    return Message(record["template"], **{name: of_json(each) for name, each in record["values"].items()})


@cache
def _translation(lang: Lang) -> Callable[[str], str]:
    from gettext import translation  # noqa: PLC0415  (only a reader of another language needs a catalogue)

    return translation(DOMAIN, LOCALE, [str(lang)], fallback=True).gettext


RAN = Message("ran: {label}")
RAN_TO = Message("ran: {label} → {path}")
PLANNED = Message("would run: {label} (nothing was started)")
PROMPT_LOADED = Message("prompt loaded: {skill}")
WAITING = Message("waiting for: {names}")
CACHE_HIT = Message("cached: the latest result (<{seconds:g}s)")
PARTLY = Message("partly done: {done}/{total} scripts succeeded")
RAN_ALL = Message("ran: {done}/{total} scripts")
PAUSED = Message("workflow paused: {count} skills need a decision")
