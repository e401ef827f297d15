"""New skills: whatever they are called, they parse, say what they were told, and pass their own test."""

import ast
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skillyard.catalog.manifest import parse_skill
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang
from skillyard.core.skill import Kind
from skillyard.install.names import as_slug, quoted
from skillyard.install.new_skill import (
    CONVENTIONAL,
    ProgramLanguage,
    SkillDraft,
    as_files,
    create,
    make_draft,
    script_quoted,
    shell_quoted,
)
from tests.conftest import Skillyard

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
NASTY = (
    "\"\"\" ''' \\ \\n `id` $(id) ${HOME} */ </script> # : - %s {x} ⟪name⟫ «a|b» ⟦end⟧ 中文 "
    "\u2028 \u202e \r\n---\nname: other\n"
)
KINDS = [
    (Kind.JSON, ProgramLanguage.PYTHON),
    (Kind.COMMAND, ProgramLanguage.PYTHON),
    (Kind.PROMPT, ProgramLanguage.PYTHON),
]


def drafted(name: str, kind: Kind, program: ProgramLanguage, title: str, description: str) -> SkillDraft:
    try:
        return make_draft(name, kind, program=program, title=title, description=description)
    except InvalidArgs:
        assume(False)  # no letter in it: refused, with the reason
        raise


@given(TEXT, TEXT, TEXT, st.sampled_from(KINDS))
@example("x", NASTY, NASTY, KINDS[0])
@example(NASTY, "", NASTY, KINDS[1])
@example("../../etc/passwd", NASTY, "", KINDS[2])
@example("null", "null", "null", KINDS[0])
def test_whatever_is_typed_reads_back_equal_and_is_never_code(
    name: str, title: str, description: str, kind: tuple[Kind, ProgramLanguage]
) -> None:
    draft = drafted(name, *kind, title, description)

    files = as_files(draft)
    reading = parse_skill(files["SKILL.md"].encode(), Path(draft.slug) / "SKILL.md")

    assert reading.skill is not None
    skill = reading.skill
    assert (skill.name, skill.kind) == (draft.slug, draft.kind)
    assert skill.title == (title.strip() or name.strip())
    if description.strip():
        assert skill.description == description
    assert [f.code for f in reading.findings if f.code != "name-invalid"] == []
    for file, text in files.items():
        if file.endswith(".py"):
            tree = ast.parse(text)
            doc = ast.get_docstring(tree, clean=False) or ""
            if file == draft.program_file:
                assert doc.startswith(f"\n{draft.title}\n{draft.description}\n")
            plain = as_files(make_draft("x", *kind[:1], program=kind[1], title="t", description="d"))
            same = plain[draft.program_file if file == draft.program_file else "test_x.py"]
            # Beside its texts the program is the one that everybody gets.
            assert _shape(tree) == _shape(ast.parse(same))


def _shape(tree: ast.AST) -> list[str]:
    return [type(node).__name__ for node in ast.walk(tree)]


@given(TEXT)
def test_a_slug_is_never_a_path_and_always_fits(name: str) -> None:
    try:
        slug = as_slug(name)
    except InvalidArgs:
        assert not any(letter.isalnum() for letter in unicodedata.normalize("NFKD", name))
        return
    assert slug == Path(slug).name
    assert not slug.startswith((".", "-"))
    assert all(letter == "-" or not letter.isspace() for letter in slug)
    assert not set(slug) & set("/\\:*?\"<>|'`$&;()[]{}!#~")
    assert len(slug) <= 70
    assert len(slug.encode()) <= 206
    assert as_slug(slug) == slug


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("log-analyzer", "log-analyzer"),
        ("Log Analyzer!", "log-analyzer"),
        ("Café Münster", "cafe-munster"),
        ("周报", "周报"),
        ("日志 Analyzer", "日志-analyzer"),
        ("../../etc/passwd", "etc-passwd"),
        ("NUL", "nul-skill"),
        ("हिन्दी", "हिन्दी"),
        ("ｆｕｌｌ", "full"),
        ("a" * 100, "a" * 64),
    ],
)
def test_the_folder_is_named_by_the_standard_where_it_can_be(name: str, slug: str) -> None:
    assert as_slug(name) == unicodedata.normalize("NFC", slug)


@given(TEXT)
def test_literals_read_back_equal(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text
    assert "\n" not in script_quoted(text)
    assert "'" not in shell_quoted(text)[1:-1].replace("'\\''", "")


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
@pytest.mark.parametrize("text", [NASTY, "😀\u200d", "\x01\x7f\x85\ufeff", "back\\slash"])
def test_node_and_bash_read_the_same_text(text: str) -> None:
    asked = f"process.stdout.write(Buffer.from({script_quoted(text)}))"
    assert subprocess.run(["node", "-e", asked], capture_output=True).stdout.decode() == text
    asked = f"printf %s {shell_quoted(text)}"
    assert subprocess.run(["bash", "-c", asked], capture_output=True).stdout.decode() == text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("🎉", "--kind", "prompt"), "no letter"),
        (("x", "--kind", "json", "--lang", "bash"), "bash cannot read JSON"),
        (("x", "--kind", "prompt", "--actions", "analyze"), "only JSON skills"),
        (("x", "--kind", "json", "--actions", "a-b"), "no action's name"),
        (("x", "--kind", "prompt", "--description", "d" * 1025), "at most 1024"),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_reason(
    words: tuple[str, ...], reason: str, skillyard: Skillyard, project: Path
) -> None:
    shown = skillyard("new", *words, "--json")

    assert shown.returncode == 1
    assert reason in str(from_json(shown.stdout).data["msg"])
    assert not (project / ".claude").exists()


ALL = ",".join([*CONVENTIONAL, "mine", "on", "class"])


@pytest.mark.parametrize("lang", [Lang.EN, Lang.ZH])
@pytest.mark.parametrize(
    "options",
    [
        ("--kind", "prompt"),
        ("--kind", "command"),
        ("--kind", "command", "--lang", "bash"),
        ("--kind", "command", "--lang", "node"),
        ("--kind", "json"),
        ("--kind", "json", "--actions", "analyze"),
        ("--kind", "json", "--actions", ALL),
        ("--kind", "json", "--actions", ALL, "--lang", "node"),
    ],
    ids=" ".join,
)
def test_a_new_skill_passes_validate_its_own_test_and_runs(
    options: tuple[str, ...], lang: Lang, skillyard: Skillyard, project: Path
) -> None:
    if "node" in options and shutil.which("node") is None:
        pytest.skip("no node here")
    text = ("--title", NASTY, "--description", NASTY) if lang is Lang.EN else ()

    made = from_json(skillyard("new", "My skill", *options, "--lang", str(lang), *text, "--json").stdout)

    assert made.data["folder"] == ".claude/skills/my-skill", made
    validated = from_json(skillyard("validate", "--strict", "--json", ".claude/skills/my-skill").stdout)
    skills: Any = validated.data["skills"]
    worse = {finding["code"] for finding in skills[0]["findings"] if finding["severity"] != "note"}
    assert worse <= ({"description-xml"} if text else set())  # what the author wrote himself
    files = made.data["files"]
    assert isinstance(files, list)
    test = next(str(name) for name in files if str(name).startswith("test_"))
    own = [sys.executable, str(project / ".claude/skills/my-skill" / test)]
    ended = subprocess.run(own, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, timeout=120)
    assert ended.returncode == 0, ended.stderr
    steps = made.data["next"]
    assert isinstance(steps, dict)
    ran = skillyard(*str(steps["run"]).split()[1:])
    assert ran.returncode == 0, ran.stdout
    assert "zh" not in str(lang) or any("\u4e00" <= letter <= "\u9fff" for letter in _text(project))


def _text(project: Path) -> str:
    return (project / ".claude/skills/my-skill/SKILL.md").read_text("utf-8").split("---\n", 2)[2]


def test_nothing_is_ever_overwritten(skillyard: Skillyard, project: Path) -> None:
    skillyard("new", "mine", "--kind", "prompt")
    file = project / ".claude/skills/mine/SKILL.md"
    file.write_text("changed")

    again = skillyard("new", "mine", "--kind", "json")

    assert again.returncode == 1
    assert "choose another name" in again.stdout
    assert file.read_text() == "changed"
    assert [path.name for path in file.parent.parent.iterdir()] == ["mine"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    with pytest.raises(InvalidArgs):
        create(tmp_path, tmp_path / "link", {"SKILL.md": "x"})

    assert not (tmp_path / "nowhere").exists()


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="file"):
        create(tmp_path, tmp_path / "skills" / "x", {"SKILL.md": "x", "file": "y", "file/below": "z"})

    assert list((tmp_path / "skills").iterdir()) == []


def test_people_see_what_was_made_and_what_to_do_next(skillyard: Skillyard) -> None:
    shown = skillyard("new", "周报", "--kind", "prompt").stdout

    assert shown.splitlines()[:3] == ["made .claude/skills/周报", "  SKILL.md", "  test_周报.py"]
    assert "  skillyard check '.claude/skills/周报'" in shown
