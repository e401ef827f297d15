"""Edit a text file: atomically, in mybox/ and nowhere else unless you allow it.

Encoding, BOM, line ends and mode of the file stay. Any text is taken as it is, also where it starts with `-`; a text
that is also the name of an option goes after `--`. More folders: `[editor] roots` in SKILLYARD_HOME/config.toml.

exit codes: 0 done, 1 error, 2 marker or text not found, 64 usage

examples:
  skillyard edit append mybox/notes.md "- one more"
  skillyard edit replace mybox/notes.md draft final --dry-run
  skillyard edit update-json mybox/config.json server.port 8080
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillyard.app.project import open_project
from skillyard.core.errors import InvalidArgs, TextNotFound
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.command import Answer, Options, Parser, at_least, set_answer, split_options

#: Where 2 means that something was not found.
USAGE = 64
NOT_FOUND = 2


class _EditParser(Parser):
    """Whatever is no option of the operation is a text: `append notes.md ---` needs no quoting."""

    usage_code = USAGE

    def parse_known_args(  # type: ignore[override]  # (argparse has overloads for namespaces of other classes)
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        options, texts = split_options(args or (), self._option_string_actions)
        if "--" in texts:
            texts.remove("--")
        return super().parse_known_args([*options, "--", *texts] if texts else options, namespace)


def arguments(parser: Parser) -> None:
    parser.usage_code = USAGE
    commands = parser.add_subparsers(
        metavar="OPERATION", required=True, parser_class=_EditParser, title="operations", dest="operation"
    )
    replace = _operation(commands, "replace", "an exact text becomes another", "old", "new")
    _add_which(replace, "place")
    for name, says in (("append", "a text at the end; makes the file"), ("prepend", "a text at the start")):
        _take_stdin(_operation(commands, name, says))
    regex = _operation(commands, "regex", "what a pattern matches becomes something else", "pattern", "replacement")
    regex.add_argument("--count", type=at_least(1), default=0, metavar="N", help="only the first N matches")
    regex.add_argument("--multiline", action="store_true", help="^ and $ match at every line")
    regex.add_argument("--dotall", action="store_true", help=". matches a newline too")
    regex.add_argument("--ignore-case", action="store_true", help="letters match in either case")
    regex.add_argument("--seconds", type=float, metavar="S", help="stop the match after S seconds (5)")
    update = _operation(commands, "update-json", "one field of a JSON file", "field", "value")
    update.description = (
        'FIELD is a path: a.b, items.0.name, items[0], items[-] (one more), "a.b".c for a key with a dot. What is '
        "missing is made. VALUE is JSON where it parses, else a text. The rest of the file stays as it is."
    )
    for name, where in (("insert-after", "after"), ("insert-before", "before")):
        insert = _operation(commands, name, f"new lines {where} the line with a marker", "marker")
        _add_which(insert, "line")
        _take_stdin(insert)
    delete = _operation(commands, "delete-between", "the lines between two markers' lines", "start", "end")
    delete.description = "The lines between the one with START and the next one with END; these two stay."
    delete.add_argument("--with-markers", action="store_true", help="the two markers' lines go too")
    delete.add_argument("--nth", type=at_least(1), metavar="N", help="the Nth line with START")
    batch = commands.add_parser("batch", help="several edits from a JSON file, all or nothing")
    batch.description = (
        'The file holds a list such as [{"operation": "append", "file": "mybox/a.md", "content": "x"}]; the fields are '
        "the names of the arguments and options, with _ for -. `-` reads it from stdin."
    )
    batch.add_argument("file", metavar="FILE.json", help="the list of edits")
    for each in commands.choices.values():
        each.add_argument("--dry-run", action="store_true", help="show the difference, write nothing")
        set_answer(each, answer, nested=True)
    set_answer(parser, answer)
    parser.set_defaults(exit_codes={TextNotFound: NOT_FOUND, InvalidArgs: USAGE})


def _operation(commands: Any, name: str, says: str, *words: str) -> Parser:
    parser: Parser = commands.add_parser(name, help=says, description=says[0].upper() + says[1:] + ".")
    parser.add_argument("file", metavar="FILE", help="the file")
    for word in words:
        parser.add_argument(word, metavar=word.upper())
    return parser


def _add_which(parser: Parser, noun: str) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help=f"every {noun}, where there are several")
    which.add_argument("--nth", type=at_least(1), metavar="N", help=f"the Nth {noun}")


def _take_stdin(parser: Parser) -> None:
    parser.add_argument("content", metavar="CONTENT", nargs="?", help="the text; lines in it may end in any way")
    parser.add_argument("--stdin", action="store_true", help="CONTENT comes from stdin")


def answer(options: Options) -> Answer:
    text = _read(options.file) if options.operation == "batch" else ""
    if "content" in options:
        if options.stdin == (options.content is not None):
            raise InvalidArgs(Message("CONTENT as an argument, or --stdin: one of them"))
        options.content = _read("-") if options.stdin else options.content
    with open_project() as project:
        editor = project.editor
        if options.operation == "batch":
            edits = editor.parse_batch(text)
        else:
            edits = (editor.parse(options.operation, options.file, vars(options)),)
        report = editor.edit(edits, dry_run=options.dry_run)
    changed = any(edited.changed for edited in report.edited)
    file = ", ".join(dict.fromkeys(edit.file for edit in edits))
    summary = Message("edited: {file}", file=file)
    if not changed:
        summary = Message("nothing to change: {file}", file=file)
    elif options.dry_run:
        summary = Message("would edit: {file} (nothing was written)", file=file)
    data: dict[str, Json] = report.edited[0].as_dict()
    if options.operation == "batch":
        data = {"file": options.file, "operation": "batch", "changed": changed}
        data["edits"] = [edited.as_dict() for edited in report.edited]
    if options.dry_run:
        data["diff"] = report.diff
    if report.recovered:
        data["recovered"] = {"settled": list(report.recovered.settled), "kept": list(report.recovered.kept)}
    return Answer(summary, data, report.diff.splitlines() if options.dry_run and report.diff else None)


def _read(file: str) -> str:
    """`-` is stdin."""
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8")
    except UnicodeDecodeError as error:
        place = "stdin" if file == "-" else file
        raise InvalidArgs(Message("{place}: {reason}", place=place, reason=error)) from None


def run(words: Sequence[str], prog: str) -> None:
    """The command under another name."""
    parser = Parser(prog=prog, description=__doc__)
    arguments(parser)
    options = parser.parse_args(list(words))
    options.answer(options)
