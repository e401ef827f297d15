"""What a skill's Python programs need, read without running anything."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.errors import InvalidRequirements
from skillyard.core.skill import Kind, Skill
from skillyard.runners.requirements import describe_needs, find_requirements, list_requirements
from skillyard.runners.specifiers import allows, as_requirement, read_block, read_requirements

BLOCK = (
    '# /// script\n# requires-python = ">=3.9"\n# dependencies = [\n#   "Rich",\n#   "pandas >= 2, < 4",\n# ]\n# ///\n'
)


def skill(folder: Path, kind: Kind = Kind.PROMPT, command: str = "", entry: str = "") -> Skill:
    return Skill(name=folder.name, path=folder / "SKILL.md", kind=kind, command=command, entry=entry)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, "utf-8")


def test_a_script_block_names_packages_and_python_in_their_normal_form() -> None:
    found = read_block(f"#!/usr/bin/env python3\n{BLOCK}\nimport rich\n", "x.py")

    assert found == (("pandas<4,>=2", "rich"), ">=3.9", "x.py", True)


def test_windows_line_ends_and_other_tables_in_the_block_are_fine() -> None:
    text = '# /// script\n# dependencies = ["rich"]\n#\n# [tool.black]\n# line-length = 1\n# ///\n'

    assert read_block(text.replace("\n", "\r\n"), "x.py") == (("rich",), "", "x.py", True)


def test_no_block_is_nothing() -> None:
    assert read_block("# /// other\n# ///\nprint('# /// script')\n", "x.py") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# /// script\n# dependencies = []\n", "line 1: the script block is not closed"),
        ("\n# /// script\n# dependencies = [\n# ///\n", "line 2: the script block is not TOML"),
        ("# /// script\n# dependencies = 'rich'\n# ///\n", "must be a list"),
        ("# /// script\n# dependencies = [1]\n# ///\n", "must be a list"),
        ("# /// script\n# requires-python = 3\n# ///\n", "requires-python"),
        ("# /// script\n# requires-python = 'new'\n# ///\n", "requires-python"),
        ("# /// script\n# ///\n\n# /// script\n# ///\n", "line 4: a second script block"),
        ("# /// script\n# [tool.uv]\n# index-url = 'x'\n# ///\n", "where from"),
        ("# /// script\n# [tool.uv.sources]\n# rich = {git = 'x'}\n# ///\n", "where from"),
        ("# /// script\n# dependencies = ['rich @ file:///x']\n# ///\n", "names an address"),
    ],
)
def test_a_malformed_block_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidRequirements, match=says):
        read_block(text, "x.py")


def test_a_requirements_file_is_read_with_comments_continuations_and_doubles() -> None:
    text = "\ufeff# top\nPyYAML==6.0.1  # pinned\n\nrich[jupyter , Extra]>=13,\\\n  <15\nrich[extra,jupyter]<15,>=13\n"

    assert read_requirements(text.lstrip("\ufeff"), "r").packages == ("pyyaml==6.0.1", "rich[extra,jupyter]<15,>=13")


@pytest.mark.parametrize(
    ("given_text", "normal"),
    [
        ("Zope.Interface", "zope-interface"),
        ("a_b (>=1.0)", "a-b>=1.0"),
        ("x==1.*", "x==1.*"),
        ("x===1.0+local", "x===1.0+local"),
        ('tomli ; python_version  < "3.11"', 'tomli; python_version < "3.11"'),
        ("x[a];sys_platform == 'linux' and (extra == 'b')", "x[a]; sys_platform == 'linux' and (extra == 'b')"),
    ],
)
def test_plain_requirements_have_one_form(given_text: str, normal: str) -> None:
    assert as_requirement(given_text, "r") == normal
    assert as_requirement(normal, "r") == normal


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--index-url http://127.0.0.1/evil", "option of the installer"),
        ("-e .", "option of the installer"),
        ("-r other.txt", "option of the installer"),
        ("rich --hash=sha256:abc", "option of the installer"),
        ("rich --global-option=x", "option of the installer"),
        ("git+https://127.0.0.1/x.git", "names an address"),
        ("rich @ https://127.0.0.1/rich.whl", "names an address"),
        ("https://127.0.0.1/x.whl", "names an address"),
        ("./local", "is a path"),
        ("/tmp/x", "is a path"),
        ("..", "is a path"),
        ("rich-1.0-py3-none-any.whl", "is a path"),
        ("x.tar.gz", "is a path"),
        ("C:\\x", "is a path"),
        ("rich; import os", "environment marker"),
        ("rich;", "environment marker"),
        ("rich; python_version < '3' or `id`", "environment marker"),
        ("${HOME}", "no requirement"),
        ("rich >=", "no requirement"),
        ("名字", "no requirement"),
        ("x" * 2000, "no requirement"),
    ],
)
def test_anything_but_a_plain_requirement_is_refused_with_its_line(line: str, says: str) -> None:
    with pytest.raises(InvalidRequirements, match=f"r.txt, line 3: .*{says}") as caught:
        read_requirements(f"rich\n\n{line}\n", "r.txt")

    assert caught.value.type == "InvalidCommand"


@given(st.text(max_size=60))
def test_whatever_passes_is_one_line_that_no_installer_takes_for_an_option_or_a_path(text: str) -> None:
    try:
        normal = as_requirement(text, "r")
    except InvalidRequirements:
        return
    assert normal[0].isascii()
    assert normal[0].isalnum()
    assert not set("\n\r/\\@$`&|") & set(normal)
    assert as_requirement(normal, "r") == normal


@given(st.text(alphabet="#/ script[]='\"\nabc-0123>.,", max_size=200))
def test_a_block_is_read_or_refused_but_never_a_crash(text: str) -> None:
    try:
        read_block(f"# /// script\n{text}", "x.py")
    except InvalidRequirements as error:
        assert "x.py" in error.msg  # noqa: PT017


@pytest.mark.parametrize(
    ("specifier", "version", "fits"),
    [
        ("", (3, 11), True),
        (">=3.9", (3, 11, 7), True),
        ("<4,>=3.12", (3, 11, 7), False),
        (">=3.11.8", (3, 11, 7), False),
        ("==3.11", (3, 11, 7), True),
        ("==3.11.*", (3, 11, 7), True),
        ("!=3.11.*", (3, 11, 7), False),
        ("~=3.10", (3, 11, 7), True),
        ("~=3.10.1", (3, 11, 7), False),
        (">3.11", (3, 11, 0), False),
        ("<3.12", (3, 11, 7), True),
        ("<=3.11.7", (3, 11, 7), True),
    ],
)
def test_requires_python_is_compared_number_by_number(specifier: str, version: tuple[int, ...], fits: bool) -> None:
    assert allows(specifier, version) is fits


def test_the_block_of_a_script_wins_over_the_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, x__py=BLOCK, y__py="import nowhere_installed\n", requirements__txt="nowhere.installed>=1\n")

    by_block, by_file = find_requirements(skill(tmp_path), "x.py"), find_requirements(skill(tmp_path), "y.py")

    assert by_block
    assert by_file
    assert (by_block.source, by_block.packages) == ("x.py", ("pandas<4,>=2", "rich"))
    assert (by_file.source, by_file.packages) == ("requirements.txt", ("nowhere-installed>=1",))
    assert by_block.digest != by_file.digest
    assert {needs.source for needs in list_requirements(skill(tmp_path))} == {"x.py", "requirements.txt"}


def test_what_the_standard_library_is_enough_for_needs_nothing(tmp_path: Path) -> None:
    write(tmp_path, x__py='# /// script\n# requires-python = ">=3.8"\n# ///\n', run__sh="echo\n")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", requirements__txt="# nothing\n", y__py="")

    for script in ("x.py", "run.sh", "sub/y.py", "missing.py", ""):
        assert find_requirements(skill(tmp_path), script) is None


def test_a_python_that_is_not_there_is_a_need_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, x__py='# /// script\n# requires-python = ">=3.99"\n# ///\n')

    needs = find_requirements(skill(tmp_path), "x.py")

    assert needs
    assert (needs.packages, describe_needs((needs,))) == ((), "Python >=3.99")


@pytest.mark.parametrize(
    "command",
    ["python x.py {input}", "python3 -u {skill}/x.py", "${CLAUDE_SKILL_DIR}/x.py", "x.py --in {input}", "./x.py"],
)
def test_a_command_that_runs_a_script_of_the_skill_needs_what_the_script_needs(command: str, tmp_path: Path) -> None:
    write(tmp_path, x__py=BLOCK)

    needs = find_requirements(skill(tmp_path, Kind.COMMAND, command=command))

    assert needs
    assert needs.source == "x.py"


@pytest.mark.parametrize("command", ["echo {x}", "node x.js", "python", "cat x.py"])
def test_a_command_that_runs_no_python_of_the_skill_needs_nothing(command: str, tmp_path: Path) -> None:
    write(tmp_path, x__py=BLOCK, requirements__txt="rich\n")

    assert find_requirements(skill(tmp_path, Kind.COMMAND, command=command)) is None


def test_python_dash_m_and_json_entries_count_too(tmp_path: Path) -> None:
    write(tmp_path, x__py=BLOCK, requirements__txt="rich\n")

    by_module = find_requirements(skill(tmp_path, Kind.COMMAND, command="python -m tool {x}"))
    by_entry = find_requirements(skill(tmp_path, Kind.JSON, entry="x.py"))

    assert by_module
    assert by_module.source == "requirements.txt"
    assert by_entry
    assert by_entry.source == "x.py"


def test_a_first_line_that_starts_uv_means_python(tmp_path: Path) -> None:
    write(tmp_path, tool=f"#!/usr/bin/env -S uv run --script\n{BLOCK}")

    needs = find_requirements(skill(tmp_path), "tool")

    assert needs
    assert "python" in needs.interpreter


def test_a_requirements_file_that_leads_out_of_the_skill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("token\n")
    folder = tmp_path / "skill"
    folder.mkdir()
    write(folder, x__py="import nowhere_installed\n")
    (folder / "requirements.txt").symlink_to(tmp_path / "secret")

    with pytest.raises(InvalidRequirements, match="leads out"):
        find_requirements(skill(folder), "x.py")


def test_the_digest_follows_packages_python_and_version_but_not_the_file(tmp_path: Path) -> None:
    write(tmp_path, x__py=BLOCK, y__py=BLOCK)
    one, same = find_requirements(skill(tmp_path), "x.py"), find_requirements(skill(tmp_path), "y.py")
    assert one
    assert same

    others = {one._replace(packages=("rich",)), one._replace(python=""), one._replace(version="3.99")}

    assert one.digest == same.digest
    assert len({one.digest, *(other.digest for other in others)}) == 4


def test_a_python_that_the_skill_brings_is_never_started_to_ask_for_its_version(tmp_path: Path) -> None:
    fake = tmp_path / "python3.99"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    fake.chmod(0o755)
    write(tmp_path, x__py=f"#!{fake}\n{BLOCK}")

    needs = find_requirements(skill(tmp_path), "x.py")

    assert needs
    assert Path(needs.interpreter).parent != tmp_path
    assert not (tmp_path / "started").exists()
