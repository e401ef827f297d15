"""Write a new skill that passes its own test at once.

It goes into .claude/skills/ of the project: SKILL.md, the program, and a test that needs nothing but Python.
--lang takes the program's language (python, bash, node) and the text's (zh, en); give it twice for both.

examples:
  skillyard new "Log analyzer" --kind json --actions analyze,report
  skillyard new 周报 --kind prompt --lang zh
  skillyard new resize --kind command --lang bash
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from skillyard.app.project import open_project
from skillyard.core.messages import Message
from skillyard.core.skill import Kind
from skillyard.faces.command import Answer, Options, Parser, lang_of
from skillyard.faces.present import Lines
from skillyard.install.new_skill import CONVENTIONAL, ProgramLanguage, make_draft

_LANGUAGES = ("zh", "en")
#: Those that have a template.
_KINDS = [str(kind) for kind in (Kind.COMMAND, Kind.PROMPT, Kind.JSON)]


class _Lang(argparse.Action):
    """One option, two questions: what the program is written in, and what the words are."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: Options,
        value: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        del parser, option
        setattr(namespace, "lang" if value in _LANGUAGES else "program", value)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", help="what it is called, in any script; its folder is named after it")
    parser.add_argument("--kind", required=True, choices=_KINDS, help="what it is")
    parser.add_argument("--title", default="", help="what people call it; the name where it is not given")
    parser.add_argument("--description", default="", help="what it does and when to use it, for the agent")
    offered = ", ".join(CONVENTIONAL)
    parser.add_argument("--actions", default="", help=f"of a JSON skill, with commas: {offered}, or your own")
    choices = (*map(str, ProgramLanguage), *_LANGUAGES)
    parser.add_argument("--lang", action=_Lang, choices=choices, help="of the program (python), and of the words")
    parser.set_defaults(lang="", program=str(ProgramLanguage.PYTHON))


def answer(options: Options) -> Answer:
    draft = make_draft(
        options.name,
        Kind(options.kind),
        program=ProgramLanguage(options.program),
        title=options.title,
        description=options.description,
        actions=tuple(word.strip() for word in options.actions.split(",") if word.strip()),
        lang=lang_of(options),
    )
    project = open_project(ends_with_process=True)
    folder, files = project.new_skill(draft)
    from_here = os.path.relpath(project.root / folder)
    steps = {
        "validate": f"skillyard validate {quote(from_here)}",
        "check": f"skillyard check {quote(from_here)}",
        "test": f"python3 {quote(f'{from_here}/{draft.test_file}')}",
        "run": " ".join(("skillyard run", quote(f"@{draft.slug}"), *map(quote, draft.example))),
    }
    return Answer(
        Message("made: {folder}", folder=folder),
        {"skill": draft.slug, "kind": str(draft.kind), "folder": folder, "files": list(files), "next": {**steps}},
        made_page(folder, files, steps),
    )


def made_page(folder: str, files: Sequence[str], steps: Mapping[str, str]) -> Lines:
    """What was made, and what to do next."""
    made, following = (f"  {name}" for name in files), (f"  {step}" for step in steps.values())
    return Lines([Message("made {folder}", folder=folder), *made, Message("next:"), *following])
