"""Names of table columns and page lines in the reader's language: one word for one idea, everywhere.

Those that have a translation are in the catalogue, with the context "label".
"""

from collections.abc import Iterator, Mapping

from skillyard.core.messages import Lang, Message, render, translate
from skillyard.core.values import Json


def label(name: str, lang: Lang) -> str:
    """Return the name as it is if it has no translation: somebody else's, such as a field of a file."""
    return translate(name, lang, "label")


def field_lines(data: Mapping[str, Json], lang: Lang) -> Iterator[str]:
    """Yield what is known of something, a line for each field that is not empty; records in a list have their own."""
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield f"{label(key, lang)}:"
            yield from (f"  - {as_words(item, lang)}" for item in value)
        elif value is not None and value not in ("", [], {}):
            yield f"{label(key, lang)}: {as_words(value, lang)}"


def as_words(value: Json, lang: Lang) -> str:
    """Return it on one line, without what is empty. A list among other things has its brackets."""
    if isinstance(value, Mapping):
        held = {key: as_words(item, lang) for key, item in value.items() if item not in (None, "", [], {})}
        listed = {key: f"[{words}]" if isinstance(value[key], list) else words for key, words in held.items()}
        return ", ".join(f"{label(key, lang)}: {words}" for key, words in listed.items())
    if isinstance(value, list):
        return ", ".join(as_words(item, lang) for item in value)
    if isinstance(value, bool):
        return yes_or_no(value).render(lang)
    return render(value, lang) if isinstance(value, str) else str(value)


def yes_or_no(claim: object) -> Message:
    return Message("yes") if claim else Message("no")
