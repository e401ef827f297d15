"""Collects the messages of the code into the catalogue of each language, and compiles it.

usage: python tools/messages.py [--check]

The catalogue is src/skillyard/locale/zh/LC_MESSAGES/skillyard.po; the .mo beside it is what the product reads, so that
neither a clone nor the wheel needs Babel. `--check` writes nothing: it fails if the catalogue is out of date or a
translation does not fit its message, and counts the messages without a translation, which is never a failure.
"""

import argparse
import ast
import gettext
import sys
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from skillyard.catalog import flowfile
from skillyard.catalog.agentfile import agent_schema
from skillyard.catalog.explain import AGENT_PATHS
from skillyard.catalog.findings import RULES
from skillyard.core.messages import DOMAIN, escape
from skillyard.faces.cli import main as cli
from skillyard.faces.translated_help import paragraphs_of
from skillyard.install.threats.rule import all_rules

SOURCE = Path(cli.__file__).parent.parent.parent
PO = SOURCE / "locale" / "zh" / "LC_MESSAGES" / f"{DOMAIN}.po"
MO = PO.with_suffix(".mo")
#: Values that say nothing in Chinese, where words have no plural.
_OMITTED = {"plural", "noun"}
#: What argparse says itself, in every version that we support.
_ARGPARSE = (
    "the following arguments are required: %s",
    "unrecognized arguments: %s",
    "argument %(argument_name)s: %(message)s",
    "invalid choice: %(value)r (choose from %(choices)s)",
    "expected one argument",
    "expected at most one argument",
    "expected at least one argument",
    "not allowed with argument %s",
    "one of the arguments %s is required",
    "invalid %(type)s value: %(value)r",
    "ignored explicit argument %r",
    "ambiguous option: %(option)s could match %(matches)s",
)
_ARGPARSE_COUNTED = (("expected %s argument", "expected %s arguments"),)


class Extracted(NamedTuple):
    """A text to translate: `context` is "help", "label" or nothing; braces are slots only without a context."""

    text: str
    context: str = ""
    plural: str = ""


def extract() -> dict[tuple[str, str], Extracted]:
    """Return every text, by context and text, as the catalogue sorts them."""
    found = {Extracted(text) for text in _in_code()}
    found |= {Extracted(escape(text)) for text in _in_schemas(agent_schema())}
    found |= {Extracted(escape(text)) for text in _in_schemas(flowfile.workflow_schema())}
    found |= {Extracted(text.template) for rule in all_rules().values() for text in (rule.title, rule.advice)}
    found |= {Extracted(text) for _, *texts in RULES.values() for text in texts}
    found |= {Extracted(paths.choice) for paths in AGENT_PATHS}
    found |= {Extracted(text, "help") for text in _in_help()}
    found |= {Extracted(name, "label") for name in (*_in_tables(), *_known_labels())}
    found |= {Extracted(text) for text in _ARGPARSE}
    found |= {Extracted(one, plural=many) for one, many in _ARGPARSE_COUNTED}
    return {(each.context, each.text): each for each in sorted(found)}


def _in_code() -> Iterator[str]:
    """Yield the templates of `Message("…")` and the texts of `gettext("…")`."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            first = node.args[0]
            if called in {"Message", "gettext"} and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _in_tables() -> Iterator[str]:
    """Yield the names of columns in `Table(("…", …), …)`."""
    for path in sorted((SOURCE / "faces").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table" and node.args:
                columns = node.args[0].elts if isinstance(node.args[0], ast.Tuple) else []
                yield from (str(column.value) for column in columns if isinstance(column, ast.Constant))


def _known_labels() -> Iterator[str]:
    """Yield the labels that somebody translated: fields of results, which are labels where people read them."""
    yield from (str(message.id) for message in read_catalogue() if message.context == "label")


def _in_schemas(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"description", "patternErrorMessage"} and isinstance(item, str):
                yield item
            else:
                yield from _in_schemas(item)
    elif isinstance(value, list):
        for item in value:
            yield from _in_schemas(item)


def _in_help() -> Iterator[str]:
    yield from ("usage", "[options]", "example", "examples", cli._ABOUT, cli._MORE, *cli.GROUPS)
    yield from (says for _, says in cli.COMMANDS.values())
    for name in cli.COMMANDS:
        yield from _of_parser(cli.parser_of(name))


def _of_parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from paragraphs_of(parser.description or "examples:\n  x")
    yield from (group.title for group in parser._action_groups if group.title)
    for action in parser._actions:
        if action.help:
            yield action.help
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.help for choice in action._choices_actions if choice.help)
            for child in action.choices.values():
                yield from _of_parser(child)


def read_catalogue() -> Catalog:
    with PO.open("rb") as file:
        return read_po(file, locale="zh", domain=DOMAIN, abort_invalid=True)


def updated(old: Catalog) -> Catalog:
    """Return the catalogue with the messages of the code, and the translations that are known of them."""
    new = Catalog(locale="zh", domain=DOMAIN, header_comment=old.header_comment, fuzzy=False)
    for context, text in (texts := extract()):
        known = old.get(text, context or None)
        said = known.string if known else ""
        plural = texts[context, text].plural
        if plural:
            new.add((text, plural), said or ("",), context=context or None)
        else:
            new.add(text, said, context=context or None)
    return new


def write_catalogue(catalogue: Catalog) -> None:
    buffer = BytesIO()
    write_po(buffer, catalogue, width=110, sort_output=True, no_location=True, ignore_obsolete=True)
    # Dates and versions would change with every run, on every branch.
    dated = (b'"POT-Creation-Date', b'"PO-Revision-Date', b'"Last-Translator', b'"Language-Team', b'"Generated-By')
    PO.write_bytes(b"".join(line for line in buffer.getvalue().splitlines(True) if not line.startswith(dated)))
    with MO.open("wb") as file:
        write_mo(file, read_catalogue())


def _texts(catalogue: Catalog) -> dict[tuple[str, str], str]:
    return {
        (message.context or "", message.id if isinstance(message.id, str) else message.id[0]): (
            message.string if isinstance(message.string, str) else (message.string or ("",))[0]
        )
        for message in catalogue
        if message.id
    }


def problems(catalogue: Catalog) -> Iterator[str]:
    """Yield what is wrong with the catalogue; a text without a translation is not."""
    said, wanted = _texts(catalogue), extract()
    yield from (f"not in the catalogue: {text!r}" for _, text in sorted(wanted.keys() - said.keys()))
    yield from (f"nobody says it any more: {text!r}" for _, text in sorted(said.keys() - wanted.keys()))
    for (context, text), translation in said.items():
        if translation and not context and not _fits(text, translation):
            yield f"the slots of {text!r} are not those of {translation!r}"
    yield from _stale(said)


def _fits(text: str, translation: str) -> bool:
    """Whether the translation has the slots of the text: all of them, but for plurals."""
    if "%" in text and any(text == said for said in (*_ARGPARSE, *(one for one, _ in _ARGPARSE_COUNTED))):
        return set(_percents(translation)) <= set(_percents(text))
    try:
        has, needs = set(_slots(translation)), set(_slots(text))
    except ValueError:
        return False
    return has <= needs and {name for name, _, _ in needs - has} <= _OMITTED


def _slots(template: str) -> Iterator[tuple[str, str, str]]:
    for _, name, spec, conversion in Formatter().parse(template):
        if name is not None:
            yield name, conversion or "", spec or ""


def _percents(text: str) -> Iterable[str]:
    return (part.split(")")[0] for part in text.split("%(")[1:])


def _stale(said: dict[tuple[str, str], str]) -> Iterator[str]:
    with MO.open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for (context, text), translation in said.items():
        shown = compiled.pgettext(context, text) if context else compiled.gettext(text)
        if translation and shown != translation and not text.startswith("expected %s"):
            yield f"not compiled: {text!r}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Collect and compile the messages.")
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        write_catalogue(updated(read_catalogue()))
    catalogue = read_catalogue()
    found = list(problems(catalogue))
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print(f"{len(found)} problems in {PO.name}: run ./dev messages", file=sys.stderr)
    missing = [text for (_, text), said in _texts(catalogue).items() if not said]
    if missing:
        print(f"warning: {len(missing)} messages without a Chinese translation, such as {missing[0]!r}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
