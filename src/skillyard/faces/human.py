"""The view for people at a terminal: results, records and tables laid out for reading, as lines of spans.

Everything here is what a program may have printed: no control character, no direction override and no markup of rich
reaches the terminal. What is long is cut, and the last line says where the rest is.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

from skillyard.core.envelope import escape
from skillyard.core.errors import advice_for_person
from skillyard.core.messages import Lang, Message, render
from skillyard.core.result import Result, as_size
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.fold import JOINED, fold
from skillyard.faces.paint import ANSI, Line, Span, find_painter
from skillyard.faces.present import (
    Diff,
    Page,
    Record,
    Style,
    Table,
    as_words,
    cell_width,
    change_line,
    columns_of,
    cut,
    encodes,
    label,
    one_line,
    printable,
    without_colours,
    write_encoded,
)

_MOST_LINES, _MOST_CHARACTERS, _MOST_ROWS, _MOST_CHANGES = 200, 60_000, 100, 20
_WIDEST_LABEL, _NARROWEST, _LONGEST_SHORT = 24, 8, 400
_SMALLEST_ROOM, _LONGEST_WORD = 20, 24
_DAY = 86400
_NOTHING = Result("", State.ERROR, "")
#: What the summary says, or a block of its own.
_HIDDEN = frozenset({"skill", "output_path", "output_size", "changes"})
_OF_PROMPTS = frozenset({"type", "name", "description", "executable"})
#: Facts of an error that its advice names, and figures that its summary has.
_OF_ERRORS = frozenset(
    {
        "type",
        "msg",
        "recoverable",
        "nearest",
        "candidates",
        "grant",
        "known",
        "elapsed",
        "limit",
        "required",
        "optional",
        "prompts",
        "capability",
        "capabilities",
        "imported",
        "program",
        "where",
    }
)
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_WORDS = {
    **dict.fromkeys(("success", "done", "ok", "yes", "made", "written", "applied", "clean"), "good"),
    **dict.fromkeys(
        ("error", "timeout", "broken", "NO", "ERROR", "CRITICAL", "HIGH", "FAIL", "problems", "dead"), "bad"
    ),
    **dict.fromkeys(
        ("pending", "interrupted", "partial", "cancelled", "warning", "WARNING", "MEDIUM", "UNKNOWN"), "warning"
    ),
    **dict.fromkeys(("running", "queued", "note", "NOTE", "LOW", "INFO"), "note"),
}
_ASCII = str.maketrans({"→": "->", "·": "-", "…": "...", "•": "*", "│": "|", "─": "-", "✓": "ok", "✗": "x"})
_HEAD_STYLES = {State.SUCCESS: "good", State.ERROR: "bad", State.TIMEOUT: "bad"}
_COMMAND = re.compile(r"`([^`]+)`")


class Look(NamedTuple):
    """How wide it is shown, to whom, and when."""

    columns: int = 80
    lang: Lang = Lang.EN
    ascii: bool = False
    #: Whether there are colours, which may then stand for the signs of Markdown.
    colour: bool = False
    #: Whether the person saw what the program said on stderr already.
    heard: bool = False
    now: float = 0.0


def show_human(result: Result, style: Style, out: TextIO, page: Page | None) -> None:
    """Print what a command came to for a person."""
    paint = find_painter(out)
    encoding = "ascii" if style.ascii else out.encoding or "utf-8"
    columns = columns_of(out)
    look = Look(columns, style.lang, style.ascii, paint is not None, style.heard, time.time())
    match page:
        case None:
            lines = result_lines(result, look, encoding)
        case Record():
            lines = _record_lines(page, look, encoding)
        case Table():
            lines = table_lines(page, look)
        case Diff():
            lines = map(_diff_line, page.lines)
        case str():
            lines = ((Span(line),) for line in printable(page).splitlines())
        case _:
            lines = (_said_line(render(line, style.lang)) for line in page)
    if style.ascii:
        lines = (tuple(span._replace(text=span.text.translate(_ASCII)) for span in line) for line in lines)
    if paint is None or style.ascii:
        write_encoded(out, "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines), encoding)
    else:
        paint(lines)


def result_lines(result: Result, look: Look, encoding: str = "utf-8") -> Iterator[Line]:
    """Line one of the envelope, what the result holds, what to do next, and one line about the run."""
    yield from _head(result, look, encoding)
    blocks = [list(block) for block in _blocks(result, look)]
    for block in filter(None, blocks):
        yield ()
        yield from block
    if (advice := _advice(result, look)) and not result.ok:
        yield ()
        yield from _with_commands(f"→ {advice}", look)
    if about := _about(result, look):
        yield ()
        yield (Span(cut(about, look.columns), "dim"),)


def _head(result: Result, look: Look, encoding: str) -> Iterator[Line]:
    icon = result.mark.icon
    if look.ascii or not encodes(icon, encoding):
        icon = result.mark.ascii
    style = _HEAD_STYLES.get(result.state, "warning")
    kind = str(result.data.get("type", "")) if result.state is State.ERROR else ""
    indent = " " * (cell_width(icon) + 1)
    words = f"{result.agent} {escape(result.summary)}"
    for number, text in enumerate(fold(words, look.columns - len(indent))):
        start = f"{result.agent} {kind}:"
        if number == 0 and kind and text.startswith(start):
            yield Span(f"{icon} {result.agent} "), Span(f"{kind}:", style), Span(text.removeprefix(start))
        else:
            yield (Span(f"{icon} " if number == 0 else indent), Span(text, "strong" if not kind else ""))


def _blocks(result: Result, look: Look) -> Iterator[Iterable[Line]]:
    data = dict(result.data)
    is_prompt = data.get("type") == "prompt"
    hidden = set(_HIDDEN) | (_OF_PROMPTS if is_prompt else set())
    if not result.ok:
        hidden |= _OF_ERRORS
        yield _cause(result, look)
    if look.heard:
        hidden.add("stderr")
    if data.get("outputs") == [data.get("output_path")]:
        hidden.add("outputs")
    whole = _where_whole(result)
    if isinstance(content := data.pop("content", None), str):
        yield text_block(content, look, whole, markdown=is_prompt)
    if isinstance(usage := data.get("usage"), str) and not result.ok:
        hidden |= {"usage", "file"} if usage in result.summary else {"usage"}
        yield _usage(usage, result, look)
    if isinstance(required := result.data.get("required"), list) and result.state is State.PENDING:
        yield _questions(required, data.get("prompts"))
    yield fields_block({key: value for key, value in data.items() if key not in hidden}, look, whole)
    if isinstance(changes := result.data.get("changes"), list) and changes:
        yield _changes(changes, result, look)


def _where_whole(result: Result) -> str:
    """The command that shows what is too long to be shown here."""
    if result.data.get("type") == "prompt":
        return f"skillyard run --raw @{result.data.get('skill')}"
    run = result.meta.get("run")
    return f"skillyard runs show {run} --raw" if run else ""


def _cause(result: Result, look: Look) -> Iterator[Line]:
    """What happened in the words of whoever refused it, where the summary does not quote them already."""
    msg = result.data.get("msg")
    if result.state is not State.ERROR or not isinstance(msg, str) or msg in result.summary:
        return
    if result.meta.get("code") in {"permission_denied", "metadata_missing"}:
        yield from ((Span(text),) for text in fold(one_line(msg), look.columns))


def _usage(usage: str, result: Result, look: Look) -> Iterator[Line]:
    """The usage line, where the summary does not quote it; a program's own has as many lines as it likes."""
    if usage.strip() not in result.summary:
        yield from text_block(usage.strip(), look)


def _questions(required: Sequence[Json], prompts: Json) -> Iterator[Line]:
    asked = {str(name): prompts.get(str(name), "") if isinstance(prompts, dict) else "" for name in required}
    width = max(cell_width(name) for name in asked)
    for name, says in asked.items():
        yield Span(f"  {one_line(name)}{' ' * (width - cell_width(name))}", "label"), Span(f"  {one_line(str(says))}")


def _changes(changes: Sequence[Any], result: Result, look: Look) -> Iterator[Line]:
    pending = result.meta.get("changes") == "pending"
    title = Message("changed in the project ({count}):", count=len(changes))
    if not result.ok:
        title = Message("not kept, because it failed ({count}):", count=len(changes))
    yield (Span(title.render(look.lang), "label"),)
    for change in changes[:_MOST_CHANGES]:
        line = one_line(change_line(change))
        yield (Span(f"  {line}", {"+": "added", "-": "removed"}.get(line[:1], "")),)
    if len(changes) > _MOST_CHANGES:
        yield (Span(Message("  … and {count} more", count=len(changes) - _MOST_CHANGES).render(look.lang)),)
    if pending:
        said = Message("`skillyard changes {run} apply` keeps them, `discard` does not", run=result.meta.get("run"))
        yield from _with_commands(f"→ {said.render(look.lang)}", look)


def _advice(result: Result, look: Look) -> str:
    if result.state is State.PENDING and isinstance(required := result.data.get("required"), list):
        return Message("run it again with {params}", params=" ".join(f"{name}=…" for name in required)).render(
            look.lang
        )
    said = advice_for_person(result.data, result.meta)
    hint = result.meta.get("hint")
    return said.render(look.lang) if said is not None else hint if isinstance(hint, str) else ""


def _about(result: Result, look: Look) -> str:
    meta, parts = result.meta, list[str]()
    if "run" not in meta:
        return ""
    if isinstance(seconds := meta.get("time"), int | float):
        parts.append(f"{seconds:g} s")
    if run := meta.get("run"):
        parts.append(Message("run {id}", id=run).render(look.lang))
    for key in ("sandbox", "model", "changes", "not_covered"):
        if value := meta.get(key):
            parts.append(f"{label(key, look.lang)} {as_words(value, look.lang)}")
    return one_line(" · ".join(parts))


# Texts


def text_block(text: str, look: Look, whole: str = "", *, markdown: bool = False, indent: str = "") -> Iterator[Line]:
    """A program's text: to the letter where it is drawn or code, at words where a line is too long."""
    shown = text[:_MOST_CHARACTERS]
    shown = _with_colours(shown) if look.colour else printable(without_colours(shown))
    lines = shown.expandtabs(4).split("\n")
    total = text.count("\n") + 1
    while lines and not lines[-1].strip():
        lines.pop()
        total -= 1
    left = lines[:_MOST_LINES]
    yield from _markdown(left, look, indent) if markdown or _is_markdown(left) else _plain(left, look, indent)
    if len(text) > _MOST_CHARACTERS or len(lines) > _MOST_LINES:
        more = total - len(left)
        size = as_size(len(text.encode("utf-8", "replace")))
        said = Message("… {count} more lines ({size} in all)", count=max(more, 0), size=size)
        if whole:
            said = Message(
                "… {count} more lines ({size} in all); `{command}` shows it whole", command=whole, **said.values
            )
        yield from _with_commands(indent + said.render(look.lang), look, "dim")


_SIGNS = tuple(
    map(re.compile, (r"#{1,6} \S", r"```", r"\s*[-*] \S", r".*\*\*\S[^*]*\*\*", r".*\[[^\]]+\]\(\S+\)", r"\|.*\|$"))
)
_DRAWN = re.compile(r"[\u2500-\u259f]|^\s*[|+].*[|+]\s*$|^\s{4,}|\S {3,}\S")
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"(#{1,6}) (.*)")
_HANGING = re.compile(r"\s*(?:[-*+] |\d{1,3}[.)] |> )?")
_INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>\S(?:[^*]*\S)?)\*\*|\[(?P<link>[^\]]+)\]\((?P<to>[^)\s]+)\)")


def _is_markdown(lines: Sequence[str]) -> bool:
    """Whether it has two different signs of it: a text may have one by chance."""
    return sum(any(sign.match(line) for line in lines) for sign in _SIGNS) > 1


_SGR = re.compile(r"(\x1b\[[\d;:]*m)")
#: What hides a text or makes it blink, among the colours.
_UNWANTED = re.compile(r"(?:^|;)0?[568](?:;|$)")


def _with_colours(text: str) -> str:
    """The text with the program's own colours, and nothing else that a terminal would obey."""
    pieces = _SGR.split(text)
    for number, piece in enumerate(pieces):
        is_colour = number % 2 and not (_UNWANTED.search(piece[2:-1]) and not re.search("[34]8", piece))
        pieces[number] = piece if is_colour else "" if number % 2 else printable(piece)
    return "".join(pieces)


def _plain(lines: Iterable[str], look: Look, indent: str) -> Iterator[Line]:
    for line in lines:
        if "\x1b" in line:
            yield Span(indent), Span(line, ANSI)
        else:
            yield from ((Span(indent + text),) for text in _folded(line, look.columns - len(indent)))


def _folded(line: str, columns: int) -> Iterator[str]:
    """A long line of words in several, below each other; a line that is drawn stays as it is."""
    if cell_width(line) <= columns or _DRAWN.search(line):
        yield line
        return
    start = _HANGING.match(line)
    first = start[0] if start else ""
    hang = " " * cell_width(first)
    for number, text in enumerate(fold(line[len(first) :], max(columns - len(hang), _SMALLEST_ROOM))):
        yield (hang if number else first) + text


def _markdown(lines: Iterable[str], look: Look, indent: str) -> Iterator[Line]:
    """Markdown as it is written; with colours, headings, code and emphasis are shown instead of their signs."""
    in_code = False
    for line in lines:
        if "\x1b" in line:
            yield Span(indent), Span(line, ANSI)
        elif fence := _FENCE.match(line):
            in_code = not in_code
            yield (Span(indent + line, "dim"),)
        elif in_code or fence:
            yield (Span(indent + line, "code"),)
        elif look.colour and (heading := _HEADING.fullmatch(line)):
            texts = fold(_without_signs(heading[2]), look.columns - len(indent))
            yield from ((Span(indent), Span(text, "heading" if len(heading[1]) == 1 else "strong")) for text in texts)
        elif not look.colour:
            yield from ((Span(indent + text),) for text in _folded(line, look.columns - len(indent)))
        else:
            for text in _folded(line, look.columns - len(indent)):
                yield (Span(indent), *_inline(text))


def _without_signs(text: str) -> str:
    return "".join(span.text for span in _inline(text))


def _inline(text: str) -> Iterator[Span]:
    at = 0
    if bullet := re.match(r"(\s*)[-*+] (?=\S)", text):
        yield Span(f"{bullet[1]}• ")
        at = bullet.end()
    for found in _INLINE.finditer(text, at):
        yield Span(text[at : found.start()])
        at = found.end()
        if found["link"]:
            yield Span(found["link"], "strong")
            yield Span(f" ({found['to']})", "dim")
        else:
            yield Span(found["code"] or found["strong"], "code" if found["code"] else "strong")
    yield Span(text[at:])


def _with_commands(text: str, look: Look, style: str = "") -> Iterator[Line]:
    """A sentence of ours, its commands marked."""
    text = _COMMAND.sub(lambda command: command[0].replace(" ", JOINED), one_line(text))
    for folded in fold(text, look.columns):
        spans, at, line = list[Span](), 0, folded.replace(JOINED, " ")
        for found in _COMMAND.finditer(line):
            command = found[1] if look.colour else found[0]
            spans += [Span(line[at : found.start()], style), Span(command, "command")]
            at = found.end()
        yield (*spans, Span(line[at:], style))


def _said_line(text: str) -> Line:
    """A line of a page of ours: its first word may be a state or how bad something is."""
    text = one_line(text)
    found = re.match(r"(\s*(?:\d+:\d+\s+)?)(\w+)(?=\s|$)", text)
    style = _WORDS.get(found[2], "") if found else ""
    if found and style:
        return Span(found[1]), Span(found[2], style), Span(text[found.end() :])
    return (Span(text, "dim" if text.lstrip().startswith("| ") else ""),)


def _diff_line(text: str) -> Line:
    signs = {"+": "added", "-": "removed", "@": "hunk"}
    style = "strong" if text.startswith(("+++", "---", "diff ")) else signs.get(text[:1], "")
    return (Span(one_line(text), style),)


# Fields and tables


def fields_block(data: Mapping[str, Json], look: Look, whole: str = "", indent: str = "") -> Iterator[Line]:
    """A line for each short value, names aligned; texts of several lines, lists and objects stand below their name."""
    known = {key: value for key, value in data.items() if value is not None and value not in ("", [], {})}
    names = {key: one_line(label(key, look.lang)) for key in known}
    short = [key for key, value in known.items() if _is_short(value)]
    width = min(max((cell_width(names[key]) for key in short), default=0), _WIDEST_LABEL)
    before = ""
    for key, value in known.items():
        now = "short" if key in short else "long"
        if before and "long" in {before, now}:
            yield ()
        before = now
        if now == "short":
            yield from _field(names[key], _as_text(value, look), width, look, indent)
        else:
            yield (Span(indent + names[key], "label"),)
            yield from _long(value, look, whole, f"{indent}  ")


def _is_short(value: Json) -> bool:
    if isinstance(value, str):
        return "\n" not in value.strip() and len(value) <= _LONGEST_SHORT
    if isinstance(value, list):
        return not any(isinstance(item, dict | list) for item in value) and len(str(value)) <= _LONGEST_SHORT
    return not isinstance(value, Mapping)


def _as_text(value: Json, look: Look) -> str:
    return one_line(without_colours(as_words(value.strip() if isinstance(value, str) else value, look.lang)))


def _field(name: str, text: str, width: int, look: Look, indent: str) -> Iterator[Line]:
    room = max(look.columns - len(indent) - width - 2, _SMALLEST_ROOM)
    pad = " " * max(width - cell_width(name), 0)
    for number, part in enumerate(fold(text, room)):
        if number == 0:
            yield Span(f"{indent}{name}{pad}  ", "label"), Span(part, _WORDS.get(part, ""))
        else:
            yield (Span(f"{indent}{' ' * width}  {part}"),)


def _long(value: Json, look: Look, whole: str, indent: str) -> Iterator[Line]:
    if isinstance(value, str):
        yield from text_block(value, look, whole, indent=indent)
    elif isinstance(value, Mapping):
        yield from fields_block(value, look, whole, indent)
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
        yield from _objects([dict(item) for item in value if isinstance(item, dict)], look, whole, indent)
    elif isinstance(value, list):
        shown = value[:_MOST_ROWS]
        for item in shown:
            first = f"{indent}{'-' if look.ascii else '•'} "
            for number, text in enumerate(fold(_as_text(item, look), max(look.columns - len(first), _SMALLEST_ROOM))):
                yield (Span((" " * len(first) if number else first) + text),)
        yield from _more(len(value) - len(shown), look, whole, indent)


def _objects(rows: Sequence[Mapping[str, Json]], look: Look, whole: str, indent: str) -> Iterator[Line]:
    """A table of them; where it does not fit, the fields of each."""
    shown = rows[:_MOST_ROWS]
    names = list(dict.fromkeys(key for row in shown for key in row))
    cells = [[_as_text(row.get(name), look) if row.get(name) is not None else "" for name in names] for row in shown]
    numbers = {i for i, name in enumerate(names) if all(isinstance(row.get(name), int | float | None) for row in shown)}
    labels = [label(name, look.lang) for name in names]
    grid = _grid(labels, cells, look._replace(columns=look.columns - len(indent)), numbers)
    if grid is not None:
        yield from ((Span(indent), *line) for line in grid)
    else:
        for number, row in enumerate(shown):
            if number:
                yield ()
            yield from fields_block(row, look, whole, indent)
    yield from _more(len(rows) - len(shown), look, whole, indent)


def _more(count: int, look: Look, whole: str, indent: str) -> Iterator[Line]:
    if count > 0:
        said = Message("… and {count} more", count=count)
        if whole:
            said = Message("… and {count} more; `{command}` shows them all", count=count, command=whole)
        yield from _with_commands(indent + said.render(look.lang), look, "dim")


def _grid(labels: Sequence[str], rows: Sequence[Sequence[str]], look: Look, right: set[int]) -> list[Line] | None:
    """Return columns side by side whose cells are folded at words; None if there is no room for that."""
    table = [[one_line(name) for name in labels], *rows]
    if not labels:
        return None
    natural = [max(cell_width(row[i]) for row in table) for i in range(len(labels))]
    least = [min(wide, max(_NARROWEST, _longest_word(row[i] for row in table))) for i, wide in enumerate(natural)]
    room = look.columns - 2 * (len(labels) - 1)
    if sum(least) > room:  # rather a long word in two than no table
        least = [min(wide, _NARROWEST) for wide in natural]
    if sum(least) > room:
        return None
    widths = list(least)
    for _ in range(max(room - sum(least), 0)):  # one column more for whoever lacks most
        lacking = max(range(len(widths)), key=lambda i: natural[i] - widths[i])
        if natural[lacking] <= widths[lacking]:
            break
        widths[lacking] += 1
    lines = list[Line]()
    for number, row in enumerate(table):
        parts = [list(fold(cell, wide)) for cell, wide in zip(row, widths, strict=True)]
        for height in range(max(map(len, parts))):
            spans = list[Span]()
            for i, wide in enumerate(widths):
                text = parts[i][height] if height < len(parts[i]) else ""
                gap = " " * (wide - cell_width(text))
                style = "label" if number == 0 else _WORDS.get(text, "")
                spans.append(Span(gap + text if i in right else text + gap, style))
                spans.append(Span("  "))
            lines.append(_trimmed(spans))
    return lines


def _longest_word(cells: Iterable[str]) -> int:
    return max(
        (wide for cell in cells for word in cell.split() if (wide := cell_width(word)) <= _LONGEST_WORD), default=0
    )


def _trimmed(spans: list[Span]) -> Line:
    while spans and not spans[-1].text.strip():
        spans.pop()
    if spans:
        spans[-1] = spans[-1]._replace(text=spans[-1].text.rstrip())
    return tuple(spans)


def table_lines(table: Table, look: Look) -> Iterator[Line]:
    """A line for each row; the last column takes what room is left, and ends in an ellipsis."""
    if not table.rows:
        for text in filter(None, (table.empty, table.note)):
            yield from _with_commands(render(text, look.lang), look)
        return
    names = [label(name, look.lang).upper() for name in table.columns]
    cells = [[_for_people(one_line(render(cell, look.lang)), look) for cell in row] for row in table.rows]
    raw = [[str(cell) for cell in row] for row in table.rows]
    widths = [max(cell_width(row[i]) for row in [names, *cells]) for i in range(len(names) - 1)]
    room = max(look.columns - sum(widths) - 2 * len(widths), _SMALLEST_ROOM)
    for number, row in enumerate([names, *cells]):
        spans = list[Span]()
        for i, cell in enumerate(row):
            style = "label" if number == 0 else _WORDS.get(raw[number - 1][i], "")
            shown = cell + " " * (widths[i] - cell_width(cell)) if i < len(widths) else cut(cell, room)
            spans += [Span(shown, style), Span("  ")]
        yield _trimmed(spans)
    if table.note:
        yield from _with_commands(render(table.note, look.lang), look)


def _for_people(text: str, look: Look) -> str:
    return ago(_moment(text), look).strip() if _STAMP.fullmatch(text) else text


def _moment(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def ago(moment: float, look: Look) -> str:
    """A time for people: how long ago if that was today, else the local day and time."""
    seconds = look.now - moment
    if 0 <= seconds < 60:
        said = Message("just now")
    elif 0 <= seconds < 120:
        said = Message("1 minute ago")
    elif 0 <= seconds < 3600:
        said = Message("{count} minutes ago", count=int(seconds // 60))
    elif 0 <= seconds < 7200:
        said = Message("1 hour ago")
    elif 0 <= seconds < _DAY:
        said = Message("{count} hours ago", count=int(seconds // 3600))
    else:
        return local_time(moment)
    return said.render(look.lang)


def local_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


# Records


def _record_lines(record: Record, look: Look, encoding: str) -> Iterator[Line]:
    """What is known of a run or a job: what it came to, as it was shown then, its facts, and its log."""
    data = dict(record.data)
    log = data.pop("log", None)
    result = record.result(_NOTHING)
    if result is not _NOTHING:
        data.pop("result", None)
        at = {**result.meta, "run": result.meta.get("run") or data.get("run") or data.get("id")}
        yield from result_lines(result._replace(meta=at), look._replace(heard=bool(log)), encoding)
        yield ()
        for known in ("summary", "seconds"):
            data.pop(known, None)
    facts: dict[str, Json] = {}
    for key, value in data.items():
        if isinstance(value, str) and _STAMP.fullmatch(value):
            when = _moment(value)
            recent = look.now - when < _DAY
            facts[key] = f"{ago(when, look)} ({local_time(when)})" if recent else local_time(when)
        else:
            facts[key] = value
    yield from fields_block(facts, look)
    if isinstance(log, str) and log.strip():
        yield ()
        yield (Span(label("log", look.lang), "label"),)
        lines = printable(log[-_MOST_CHARACTERS:]).rstrip().split("\n")
        run = data.get("run") or data.get("id")
        if len(lines) > _MOST_LINES:
            said = Message(
                "… {count} lines before; `skillyard runs tail {run}` shows them all",
                count=len(lines) - _MOST_LINES,
                run=run,
            )
            yield from _with_commands(f"  {said.render(look.lang)}", look, "dim")
        yield from ((Span("  | ", "dim"), Span(line)) for line in lines[-_MOST_LINES:])
