"""A broken block, cut into the sections of its top-level fields, so that each can be read on its own."""

import re
from dataclasses import dataclass, replace

from skillyard.catalog.findings import Rule
from skillyard.core.skill import Finding

_KEY = re.compile(r"""(?P<indent>[ ]*)(?P<key>"[^"\n]+"|'[^'\n]+'|[^\W\d][\w.-]*)[ \t]*:(?=\s|$)[^\S\n]*""")
_CONFLICT = re.compile(r"(?:<{7}|={7}|>{7})(?: .*)?$")


@dataclass(frozen=True, slots=True)
class Section:
    """One field: its first line, and the lines up to the next field. `line` is the file's."""

    key: str
    line: int
    column: int
    value_column: int
    first: str
    rest: str
    more: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join((self.first, *self.more)) + "\n"

    @property
    def lines(self) -> list[str]:
        """Every line of the value that says something, without its indentation."""
        return [line.strip() for line in (self.rest, *self.more) if line.strip()]

    @property
    def hanging(self) -> bool:
        """Lines that should be indented below the field, and are not."""
        return any(line.strip() and not line[0].isspace() for line in self.more)


@dataclass(frozen=True, slots=True)
class Sections:
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    #: Two versions of the block are mixed: which lines belong together is unknown.
    conflict: bool


def split_sections(block: str, line: int) -> Sections:
    """Fields start at the indentation of the first one. Lines before it belong to none."""
    found: list[Section] = []
    findings: list[Finding] = []
    conflict = False
    indent: str | None = None
    more: list[str] = []
    for number, text in enumerate(block.split("\n"), line):
        if _CONFLICT.match(text):
            findings += [] if conflict else [Rule.MERGE_CONFLICT.at(number)]
            conflict = True
            continue
        key = _KEY.match(text)
        if key and (indent is None or key["indent"] == indent):
            indent = key["indent"]
            _close_last(found, more)
            more = []
            found.append(_section(key, number, text))
        elif found:
            more.append(text)
        elif text.strip() and not text.lstrip().startswith("#"):
            findings.append(Rule.REPAIR_LINE.at(number))
    _close_last(found, more)
    return Sections(tuple(found), tuple(findings), conflict)


def _close_last(found: list[Section], more: list[str]) -> None:
    """The last section gets the lines that followed it."""
    if found and more:
        found[-1] = replace(found[-1], more=tuple(more))


def _section(key: re.Match[str], number: int, text: str) -> Section:
    rest = text[key.end() :].rstrip()
    return Section(key["key"].strip("\"'"), number, key.start("key") + 1, key.end() + 1, text, rest, ())
