import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import (
    MAX_FILE_BYTES,
    MAX_FRONTMATTER_BYTES,
    Reading,
    _parse_tolerantly,
    parse_skill,
    read_skill,
)
from skillyard.core.skill import Kind, Severity, Skill
from skillyard.core.values import check_value

PATH = Path("/skills/demo/SKILL.md")


def parse(text: str | bytes, folder: str = "demo") -> Reading:
    """The text as the SKILL.md of a folder called `demo`."""
    content = text if isinstance(text, bytes) else text.encode()
    return parse_skill(content, Path("/skills") / folder / "SKILL.md")


def skill_of(reading: Reading) -> Skill:
    assert reading.skill
    return reading.skill


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def doc(fields: str, body: str = "Do it.\n") -> str:
    return f"---\nname: demo\ndescription: Does it.\n{fields}---\n{body}"


def test_a_plain_skill_is_read_whole() -> None:
    reading = parse(doc("license: MIT\nodd-field: [1, two]\n", "\n# Demo\n"))
    skill = skill_of(reading)

    assert (skill.name, skill.description, skill.kind) == ("demo", "Does it.", Kind.PROMPT)
    assert skill.fields == {
        "name": "demo",
        "description": "Does it.",
        "license": "MIT",
        "odd-field": [1, "two"],
    }
    assert (reading.body, reading.fence.body_line) == ("\n# Demo\n", 7)
    assert reading.findings == skill.findings == ()
    assert reading.ok


@pytest.mark.parametrize("name", ["yes", "8004", "null-object"])
def test_names_stay_text(name: str) -> None:
    reading = parse(f"---\nname: {name}\ndescription: d\n---\nx", name)

    assert skill_of(reading).name == name
    assert reading.ok


def test_a_command_makes_a_command_skill_with_its_slots() -> None:
    skill = skill_of(parse(doc("command: ./run.sh {input} --to {output}\ntimeout: 90\n")))

    assert (skill.kind, skill.command, skill.timeout_seconds) == (
        Kind.COMMAND,
        "./run.sh {input} --to {output}",
        90,
    )
    assert [param.name for param in skill.params] == ["input"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("/si:review", "command-slash"),
        ("/review", "command-slash"),
        ("/review {what}", "command-slash"),
        ("''", "command-empty"),
        ("", "command-empty"),
        ("{a: b}", "command-not-text"),
        ("[a b, c d]", "command-not-text"),
    ],
)
def test_what_is_no_program_makes_a_prompt_skill(command: str, code: str) -> None:
    reading = parse(doc(f"command: {command}\n"))

    assert (skill_of(reading).kind, skill_of(reading).command) == (Kind.PROMPT, "")
    assert codes(reading) == [code]
    assert reading.findings[0].line == 4


def test_a_program_by_its_full_path_is_a_program() -> None:
    assert skill_of(parse(doc("command: /usr/bin/env python3 x.py\n"))).kind is Kind.COMMAND


@pytest.mark.parametrize("command", ["a | b", "a > b", "a && b", "a; b", "a $(b)", "a `b`", "'a"])
def test_what_needs_a_shell_is_an_error(command: str) -> None:
    assert not parse(doc(f"command: >-\n  {command}\n")).ok


def test_the_same_characters_in_quotes_are_fine() -> None:
    assert parse(doc("command: >-\n  grep 'a|b;c' {file}\n")).ok


def test_protocol_json_with_an_entry_makes_a_json_skill() -> None:
    skill = skill_of(parse(doc("protocol: json\nentry: scripts/main.py\nactions: [add, list]\n")))

    assert (skill.kind, skill.entry, skill.actions) == (Kind.JSON, "scripts/main.py", ("add", "list"))


@pytest.mark.parametrize("entry", ["../x.py", "/etc/passwd", "a/../../b", "C:\\x", "..\\x", "~/x", '"a\\0b"'])
def test_an_entry_outside_the_folder_is_an_error_and_never_runs(entry: str) -> None:
    reading = parse(doc(f"protocol: json\nentry: {entry}\n"))

    assert (skill_of(reading).kind, skill_of(reading).entry) == (Kind.PROMPT, "")
    assert codes(reading) == ["entry-outside"]
    assert not reading.ok


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("protocol: json\n", "entry-missing"),
        ("protocol: grpc\nentry: a.py\n", "protocol-unknown"),
        ("timeout: soon\n", "timeout-invalid"),
        ("timeout: -1\n", "timeout-invalid"),
    ],
)
def test_other_flaws_of_what_runs_are_findings(fields: str, code: str) -> None:
    reading = parse(doc(fields))

    assert skill_of(reading).kind is Kind.PROMPT
    assert codes(reading) == [code]


@pytest.mark.parametrize(("said", "seconds"), [("30", 30), ("1.5", 1.5), ("90s", 90), ("2m", 120), ("500ms", 0.5)])
def test_timeouts_are_seconds(said: str, seconds: float) -> None:
    assert skill_of(parse(doc(f"timeout: {said}\n"))).timeout_seconds == seconds


def test_tags_come_from_wherever_people_put_them() -> None:
    fields = "tags: a, b\ntriggers: [c, a]\nmetadata:\n  tags: [d]\n"

    assert skill_of(parse(doc(fields))).tags == ("a", "b", "c", "d")


def test_without_a_name_the_folder_names_it() -> None:
    reading = parse("---\ndescription: d\n---\nx")

    assert skill_of(reading).name == "demo"
    assert codes(reading) == ["name-missing"]


def test_without_a_description_the_first_paragraph_describes() -> None:
    reading = parse("---\nname: demo\n---\n\n# Title\n\nFirst line\nand second.\n\nMore.")

    assert skill_of(reading).description == "First line and second."
    assert codes(reading) == ["description-missing"]


def test_a_file_without_frontmatter_is_usable_and_not_ok() -> None:
    reading = parse("# Only a title\n")

    assert (skill_of(reading).name, skill_of(reading).description) == ("demo", "Only a title")
    assert codes(reading) == ["frontmatter-missing", "name-missing", "description-missing"]
    assert not reading.ok


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Demo", ["name-invalid", "name-not-folder"]),
        ("-demo", ["name-invalid", "name-not-folder"]),
        ("de--mo", ["name-invalid", "name-not-folder"]),
        ("other", ["name-not-folder"]),
        ("[demo]", ["name-not-text"]),
    ],
)
def test_the_standard_rules_of_names(name: str, expected: list[str]) -> None:
    assert codes(parse(f"---\nname: {name}\ndescription: d\n---\nx")) == expected


def test_a_warning_fails_only_the_strict_verdict() -> None:
    reading = parse("---\nname: other\ndescription: d\n---\nx")

    assert reading.ok
    assert {finding.severity for finding in reading.findings} == {Severity.WARNING}


def test_names_and_descriptions_have_limits() -> None:
    assert codes(parse(f"---\nname: {'a' * 65}\ndescription: d\n---\nx", "a" * 65)) == ["name-too-long"]
    assert codes(parse(f"---\nname: demo\ndescription: {'d' * 1025}\n---\nx")) == ["description-too-long"]


def test_large_files_and_large_frontmatter_are_refused() -> None:
    assert codes(parse(b"x" * (MAX_FILE_BYTES + 1))) == ["file-too-large"]
    assert parse(b"x" * (MAX_FILE_BYTES + 1)).skill is None

    reading = parse(doc(f"more: {'x' * MAX_FRONTMATTER_BYTES}\n"))
    assert (reading.skill, codes(reading)) == (None, ["frontmatter-too-large"])


def test_an_empty_file_is_no_skill() -> None:
    assert (parse(b"").skill, codes(parse(b""))) == (None, ["file-empty"])


def test_a_repaired_file_is_read_and_not_ok() -> None:
    reading = parse("---\nname: demo\ndescription: Use it: always\n---\nx")

    assert skill_of(reading).description == "Use it: always"
    assert codes(reading) == ["yaml-invalid", "repair-colon"]
    assert [(found.line, found.column) for found in reading.findings] == [(3, 20), (3, 14)]
    assert not reading.ok


def test_a_broken_command_is_refused_and_the_rest_is_read() -> None:
    reading = parse(doc("command: ./run.sh {a}: {b}\n"))

    assert (skill_of(reading).kind, skill_of(reading).params) == (Kind.PROMPT, ())
    assert reading.refused == ("command",)
    assert "repair-refused" in codes(reading)


def test_a_command_in_a_guessed_frontmatter_is_refused() -> None:
    reading = parse("# Example\n\n---\nname: demo\ndescription: d\ncommand: ./run\n---\nx")

    assert (skill_of(reading).kind, skill_of(reading).description) == (Kind.PROMPT, "d")
    assert reading.refused == ("command",)


def test_a_glued_fence_keeps_the_command() -> None:
    reading = parse("---\nname: demo\ndescription: d\ncommand: ./run\n---# Title\n\n---\nmore")

    assert (skill_of(reading).kind, reading.body) == (Kind.COMMAND, "# Title\n\n---\nmore")
    assert codes(reading)[0] == "fence-glued-close"


def test_gbk_with_crlf_and_a_bom_are_read_like_any_other() -> None:
    text = doc("title: 翻译文章\n").replace("\n", "\r\n")

    for content in (
        text.encode("gbk"),
        b"\xef\xbb\xbf" + text.encode(),
        ("\ufeff" + text).encode("utf-16-le"),
    ):
        assert skill_of(parse(content)).title == "翻译文章"
        assert parse(content).body == "Do it.\n"


def test_reading_touches_the_disk_and_a_missing_file_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "SKILL.md"
    assert codes(read_skill(path)) == ["file-unreadable"]

    path.parent.mkdir()
    path.write_text(doc(""))
    assert skill_of(read_skill(path)).path == path
    assert codes(read_skill(path.parent)) == ["file-unreadable"]
    assert codes(read_skill(Path("a\0b"))) == ["file-unreadable"]


def test_a_pipe_is_no_skill_and_nobody_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    os.mkfifo(path)

    assert codes(read_skill(path)) == ["file-unreadable"]


PIECES = st.lists(
    st.sampled_from(
        [
            b"---\n",
            b"---",
            b"\r\n",
            b"\n",
            b"name: demo\n",
            b"description: a: b\n",
            b"description: |\n",
            b"  text\n",
            b"command: ./run {a}\n",
            b"params: {a: {type: int}}\n",
            b"\xef\xbb\xbf",
            b"\xff\xfe",
            b"\0",
            b"\xd6\xd0\xce\xc4",
            b"# Title\n",
            b"```\n",
            b'title: "\n',
            b"tags: [a, *b]\n",
            b"<<: *x\n",
            b"\t- x\n",
            b"timeout: 1e400\n",
            "描述：中文\n".encode(),
        ]
    )
)


@given(st.binary() | PIECES.map(b"".join))
def test_any_bytes_have_an_answer_and_never_a_traceback(content: bytes) -> None:
    reading = lint(parse_skill(content, PATH))

    check_value([finding.as_dict() for finding in reading.findings])
    check_value(reading.skill.fields if reading.skill else None)
    assert reading.skill or not reading.ok


@given(PIECES.map(b"".join).map(b"---\nname: demo\n".__add__))
def test_the_quick_way_and_the_close_look_agree(content: bytes) -> None:
    quick, close = parse_skill(content, PATH), _parse_tolerantly(content, PATH)

    if isinstance(quick.fence.source, bytes) and content.decode(errors="ignore").encode() == content:
        assert (quick.body, quick.fence.body_line, quick.text) == (close.body, close.fence.body_line, close.text)
        assert quick.positions == close.positions
        assert skill_of(quick).fields == skill_of(close).fields


def test_a_body_in_another_encoding_is_read_and_validate_says_so() -> None:
    reading = parse(b"---\nname: demo\ndescription: d\n---\n" + "正文在这里".encode("gbk"))

    assert reading.body == "正文在这里"
    assert "encoding-gbk" in codes(lint(reading))
