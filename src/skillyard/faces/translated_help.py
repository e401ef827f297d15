"""`--help` in another language than English; only its readers import this module.

A description is looked up paragraph by paragraph, its lines joined; the lines below `examples:` are commands, and stay.
"""

import argparse
from collections.abc import Iterable, Iterator

from skillyard.core.messages import Lang, translate
from skillyard.faces.command import HelpFormatter
from skillyard.faces.fold import fold

_USAGE = "usage "


def translate_parser(parser: argparse.ArgumentParser) -> None:
    """Translate every text of the parser in place; one that is translated already stays."""
    parser.formatter_class = TranslatedHelp
    parser.description = _describe(parser.description) if parser.description else None
    for group in parser._action_groups:  # noqa: SLF001  (argparse has no other way to its texts)
        group.title = say(group.title) if group.title else None
    for action in parser._actions:  # noqa: SLF001
        action.help = say(action.help) if action.help else None
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for choice in action._choices_actions:  # noqa: SLF001
                choice.help = say(choice.help) if choice.help else None


def say(text: str) -> str:
    """Return a text of the help in Chinese."""
    return translate(text, Lang.ZH, "help")


def paragraphs_of(description: str) -> Iterator[str]:
    """What is looked up of a description: each paragraph on one line, without the commands below `examples:`."""
    for paragraph in description.strip().split("\n\n"):
        title = paragraph.partition(":\n")[0]
        yield title if title in {"example", "examples"} else " ".join(paragraph.split())


def _describe(description: str) -> str:
    told = []
    for paragraph, text in zip(description.strip().split("\n\n"), paragraphs_of(description), strict=True):
        said = say(text)
        if text in {"example", "examples"}:
            said += paragraph.removeprefix(text)
        told.append(paragraph if said == text else said)
    return "\n\n".join(told)


class TranslatedHelp(HelpFormatter):
    """A Chinese character takes two columns, and a line may end after any of them."""

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        if prefix is not None:
            return super()._format_usage(usage, actions, groups, prefix)
        text = super()._format_usage(usage, actions, groups, _USAGE)  # as wide as what stands there in the end
        return f"{say('usage')}: {text.removeprefix(_USAGE)}"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return list(fold(" ".join(text.split()), width))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (line for part in text.split("\n") for line in ([part] if part.startswith(" ") else fold(part, width)))
        return "\n".join(f"{indent}{line}" for line in lines)
