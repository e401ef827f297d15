"""An edit and its inverse give back every byte, in every encoding and with every kind of line end."""

import codecs
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skillyard.core.values import Json
from skillyard.editor.allowed_roots import user_root
from skillyard.editor.editor import Edit, Edited, Editor
from skillyard.editor.operations import (
    Append,
    DeleteBetween,
    InsertAfter,
    InsertBefore,
    Operation,
    Prepend,
    Regex,
    Replace,
    UpdateJson,
)

ENCODINGS = {
    "utf-8": b"",
    "utf-8-sig": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "gb18030": b"",
}
#: Invalid as UTF-8 in GB18030, and the first line of every file here.
FIRST = "中文编辑 🧰"

line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\ufeff"), max_size=12)
newlines = st.sampled_from([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"], ["\n", "\r\n", "\r"]])
encodings = st.sampled_from(sorted(ENCODINGS))


class File(NamedTuple):
    """A file to edit: its lines, how each ends, and its encoding."""

    lines: list[str]
    ends: list[str]
    encoding: str

    @property
    def content(self) -> bytes:
        text = "".join(map(str.__add__, self.lines, self.ends))
        mark = ENCODINGS[self.encoding]
        return mark + text.encode(self.encoding.removesuffix("-sig"))

    @property
    def uniform(self) -> bool:
        return len(set(self.ends)) == 1

    def with_line(self, place: int, text: str) -> "File":
        return self._replace(lines=[*self.lines[:place], text, *self.lines[place + 1 :]])


@st.composite
def files(draw: st.DrawFn) -> File:
    lines = [FIRST, *draw(st.lists(line, min_size=1, max_size=6))]
    style = st.sampled_from(draw(newlines))
    return File(lines, [draw(style) for _ in lines], draw(encodings))


@contextmanager
def edited_file(content: bytes) -> Iterator[tuple[Path, Editor]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "文件 📄.txt"
        path.write_bytes(content)
        yield path, Editor([user_root(path.parent)], [], Path("/dev/null/no-home"))


def edit(editor: Editor, path: Path, operation: Operation) -> Edited:
    (edited,) = editor.edit([Edit("an edit", str(path), operation)]).edited
    return edited


@given(files(), line, line, line, line, st.data())
@settings(max_examples=80)
def test_a_replacement_and_its_inverse(
    file: File, old: str, new: str, before: str, after: str, data: st.DataObject
) -> None:
    assume(old != new)
    old, new = f"<{old}>", f"[{new}]"
    place = data.draw(st.integers(1, len(file.lines) - 1))
    file = file.with_line(place, before + old + after)
    assume("".join(file.lines).count(old) == 1)
    assume("".join(file.with_line(place, before + new + after).lines).count(new) == 1)

    with edited_file(file.content) as (path, editor):
        assert edit(editor, path, Replace(old=old, new=new)).changed
        assert path.read_bytes() == file.with_line(place, before + new + after).content
        edit(editor, path, Replace(old=new, new=old))

        assert path.read_bytes() == file.content


@given(files(), st.lists(line, min_size=1, max_size=4))
@settings(max_examples=60)
def test_what_is_appended_goes_away_again(file: File, content: list[str]) -> None:
    start, end = "<<start>>", "<<end>>"
    text = "\n".join([start, *content, end, ""])
    with edited_file(file.content) as (path, editor):
        edit(editor, path, Append(content=text))
        edit(editor, path, DeleteBetween(start=start, end=end, with_markers=True))

        assert path.read_bytes() == file.content


@given(files(), st.lists(line, min_size=1, max_size=4))
@settings(max_examples=60)
def test_what_is_prepended_goes_away_again(file: File, content: list[str]) -> None:
    with edited_file(file.content) as (path, editor):
        edit(editor, path, Prepend(content="\n".join(["<<start>>", *content, "<<end>>"])))
        edit(editor, path, DeleteBetween(start="<<start>>", end="<<end>>", with_markers=True))

        assert path.read_bytes() == file.content


@given(files(), st.lists(line, min_size=1, max_size=4), st.booleans(), st.data())
@settings(max_examples=60)
def test_lines_that_are_inserted_at_a_marker_go_away_again(
    file: File, content: list[str], after: bool, data: st.DataObject
) -> None:
    place = data.draw(st.integers(1, len(file.lines) - 1))
    file = file.with_line(place, file.lines[place] + "<<marker>>")
    text = "\r\n".join(["<<start>>", *content, "<<end>>"])
    insert: Operation = (InsertAfter if after else InsertBefore)(marker="<<marker>>", content=text)
    with edited_file(file.content) as (path, editor):
        assert edit(editor, path, insert).number == 1
        edit(editor, path, DeleteBetween(start="<<start>>", end="<<end>>", with_markers=True))

        assert path.read_bytes() == file.content


@given(files(), st.lists(line, min_size=1, max_size=4))
@settings(max_examples=60)
def test_lines_that_are_deleted_between_two_markers_can_be_put_back(file: File, content: list[str]) -> None:
    assume(file.uniform)
    lines = [*file.lines, "<<start>>", *content, "<<end>>"]
    file = file._replace(lines=lines, ends=[file.ends[0]] * len(lines))
    with edited_file(file.content) as (path, editor):
        assert edit(editor, path, DeleteBetween(start="<<start>>", end="<<end>>")).number == len(content)
        edit(editor, path, InsertAfter(marker="<<start>>", content="\n".join([*content, ""])))

        assert path.read_bytes() == file.content


@given(files(), line)
@settings(max_examples=15)
def test_a_pattern_and_its_inverse(file: File, middle: str) -> None:
    file = file.with_line(1, f"<<{middle}=1>>")
    assume("=1>>" not in "".join(file.lines[2:]))
    with edited_file(file.content) as (path, editor):
        edit(editor, path, Regex(pattern=r"=(\d)>>$", replacement=r"=\1\1>>", multiline=True))
        assert path.read_bytes() == file.with_line(1, f"<<{middle}=11>>").content
        edit(editor, path, Regex(pattern=r"=(\d)\1>>", replacement=r"=\1>>"))

        assert path.read_bytes() == file.content


def test_a_file_without_a_final_newline_has_none_after_an_insertion_at_its_end() -> None:
    with edited_file("no newline".encode("utf-16")) as (path, editor):
        edit(editor, path, InsertAfter(marker="no", content="two"))

        assert path.read_bytes() == "no newline\ntwo".encode("utf-16")


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(texts, values, min_size=1, max_size=5)


def paths_of(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every field of a document, with the path that leads to it."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, f"{path}[{json.dumps(key)}]")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_of(item, f"{path}[{index}]")


@given(documents, values, st.sampled_from([None, 1, 2, 4, "\t"]), newlines, encodings, st.data())
@settings(max_examples=80)
def test_a_json_field_that_is_set_and_set_back_gives_the_same_json(
    document: dict[str, Json],
    value: Json,
    indent: int | str | None,
    ends: list[str],
    encoding: str,
    data: st.DataObject,
) -> None:
    document = {FIRST: 0, **document}
    path, before = data.draw(st.sampled_from(list(paths_of(document))))
    text = json.dumps(document, indent=indent, ensure_ascii=False).replace("\n", ends[0])
    assume(not text.startswith("\ufeff"))
    content = ENCODINGS[encoding] + text.encode(encoding.removesuffix("-sig"))
    with edited_file(content) as (file, editor):
        edit(editor, file, UpdateJson(field=path, value=value))
        now = dict(paths_of(json.loads(decoded(file, encoding))))
        assert same(now[path], value)
        edit(editor, file, UpdateJson(field=path, value=before))

        assert same(json.loads(decoded(file, encoding)), document)
        if isinstance(before, str | int | float | bool | None):
            assert file.read_bytes() == content


def decoded(file: Path, encoding: str) -> str:
    return file.read_bytes().removeprefix(ENCODINGS[encoding]).decode(encoding.removesuffix("-sig"))


def same(one: Json, other: Json) -> bool:
    """Python takes 1, 1.0 and True for the same."""
    return json.dumps(one) == json.dumps(other)
