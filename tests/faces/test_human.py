"""Two views of one result: laid out for a person at a terminal, two lines for everything else."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import parse
from skillyard.core.messages import Lang
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.faces.fold import fold
from skillyard.faces.human import Look, ago, result_lines, text_block
from skillyard.faces.paint import Line
from skillyard.faces.present import cell_width
from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_terminal import Terminal

ESCAPES = re.compile(r"\x1b\[[\d;]*[mK]")

REPORT = """\
print('''# Report

Two **words** and `code`.

| name | count |
| ---- | ----: |

┌───┐
│ 1 │
└───┘''')
"""
FILES = [
    {"path": "docs/说明.md", "lines": 33, "note": "第一个文件，主要入口"},
    {"path": "src/main.py", "lines": 7, "note": "a long note " * 8},
]


@pytest.fixture
def shown(places: ProjectPaths) -> Callable[..., str]:
    """What a command shows on a terminal, without what colours it and what was wiped out again."""

    def show(*command: str, columns: int = 100) -> str:
        with Terminal(places, *command, stdout_too=True, columns=columns) as terminal:
            seen = terminal.read_all()
            terminal.finish()
        lines = (line.rstrip("\r").rpartition("\r")[2] for line in seen.split("\n"))
        return ESCAPES.sub("", "\n".join(lines))

    return show


@pytest.fixture
def skills(write_skill: WriteSkill) -> None:
    def write(name: str, program: str, params: str = "") -> None:
        head = f"---\nname: {name}\ndescription: x\ncommand: python p.py {params}\n"
        write_skill(name, f"{head}---\n", {"p.py": program})

    write("report", REPORT)
    write("files", f"import json; print(json.dumps({{'files': {FILES!r}, 'total': 40, 'text': 'one\\ntwo'}}))\n")
    write("boom", "import sys\nprint('half a result')\nprint('reading', file=sys.stderr)\n{}['missing']\n")
    write("page", "print('<p>one</p>\\n<p>two</p>')\n")
    write("asks", "print(1)\n", "{topic}")


# Who sees which


@pytest.mark.usefixtures("skills")
def test_a_terminal_shows_content_as_text_and_a_pipe_gets_two_lines(
    shown: Callable[..., str], skillyard: Skillyard
) -> None:
    seen = shown("run", "@report")
    piped = skillyard("run", "@report").stdout

    assert seen.startswith("✅ skills ran: report\n\nReport\n\nTwo words and code.\n\n| name | count |\n")
    assert "┌───┐\n│ 1 │\n└───┘\n" in seen
    assert re.search(r"\n\n[\d.]+ s · run \w+ · sandbox \w+\n$", seen)
    assert len(piped.splitlines()) == 2
    assert parse(piped).data["content"].startswith("# Report\n\nTwo **words**")  # type: ignore[union-attr]


@pytest.mark.usefixtures("skills")
@pytest.mark.parametrize("layout", ["human", "lines", "block", "json", "text"])
def test_every_layout_can_be_asked_for_wherever_it_goes(skillyard: Skillyard, layout: str) -> None:
    out = skillyard("run", "@page", "--format", layout).stdout

    expected = {
        "human": r"✅ skills ran: page\n\n<p>one</p>\n<p>two</p>\n\n.* · run .*\n",
        "lines": r"✅ skills ran: page\n  state: success \| data: .*\n",
        "block": r"✅ skills ran: page\n  state: success\n  data: .*\n  meta: .*\n",
        "json": r'\{"agent": "skills".*\}\n',
    }
    assert re.fullmatch(expected["lines" if layout == "text" else layout], out)


@pytest.mark.usefixtures("skills")
def test_raw_is_the_content_or_the_data_and_nothing_else(skillyard: Skillyard) -> None:
    page = skillyard("run", "--raw", "@page")
    files = skillyard("run", "@files", "--raw")
    failed = skillyard("run", "@boom", "--raw")
    missing = skillyard("run", "@nobody", "--raw")

    assert page.stdout == "<p>one</p>\n<p>two</p>"
    assert json.loads(files.stdout)["files"] == FILES
    assert failed.stdout == "half a result"
    assert "RuntimeFailed" in failed.stderr
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "SkillNotFound" in missing.stderr


def test_raw_content_is_whole_however_long(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill(
        "long", "---\nname: long\ndescription: x\ncommand: python p.py\n---\n", {"p.py": "print('line\\n' * 50_000)"}
    )

    assert skillyard("run", "--raw", "@long").stdout.count("line") == 50_000


# What it looks like


@pytest.mark.usefixtures("skills")
@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_objects_are_a_table_as_wide_as_the_terminal(shown: Callable[..., str], columns: int) -> None:
    seen = shown("run", "@files", columns=columns)

    header = next(line for line in seen.splitlines() if "path" in line)
    chinese = next(line for line in seen.splitlines() if "说明" in line)
    at = cell_width(header[: header.index("note")])
    assert cell_width(chinese[: chinese.index("第一")]) == at
    assert max(map(cell_width, seen.splitlines())) <= columns
    assert " a long note " in seen
    assert seen.count("long") == 8, "no word is broken"
    assert "\ntotal  40\n" in seen
    assert "\ntext\n  one\n  two\n" in seen


@pytest.mark.usefixtures("skills")
def test_a_failure_shows_its_words_once_and_the_next_step(shown: Callable[..., str]) -> None:
    seen = shown("run", "@boom")

    assert seen.count("Traceback (most recent call last)") == 1
    assert seen.count("| reading") == 1
    assert "❌ skills RuntimeFailed: failed: KeyError: 'missing'\n\nhalf a result\n" in seen
    assert re.search(r"\n→ skillyard runs show \w+ has everything that it said\n", seen)


@pytest.mark.usefixtures("skills")
def test_a_question_that_nobody_answered_says_how_to_answer(places: ProjectPaths) -> None:
    with Terminal(places, "run", "@asks", stdout_too=True) as terminal:
        terminal.expect("topic: ")
        terminal.say("")
        seen = ESCAPES.sub("", terminal.read_all())

    assert "⏸️ skills waiting for: topic" in seen
    assert "→ run it again with topic=…" in seen


@pytest.mark.usefixtures("skills")
def test_a_run_that_is_over_is_shown_as_it_was(shown: Callable[..., str], skillyard: Skillyard) -> None:
    run = str(parse(skillyard("run", "@files").stdout).meta["run"])
    failed = str(parse(skillyard("run", "@boom").stdout).meta["run"])

    seen, boom = shown("runs", "show", run), shown("runs", "show", failed)

    assert seen.startswith("✅ skills ran: files\n\nfiles\n  path")
    assert "just now (" in seen
    assert boom.count("Traceback") == 1
    assert "  | reading" in boom
    assert json.loads(skillyard("runs", "show", run, "--raw").stdout)["files"] == FILES


@pytest.mark.usefixtures("skills")
def test_colours_are_there_only_where_they_are_wanted(places: ProjectPaths) -> None:
    seen = {}
    cases: dict[str, dict[str, str]] = {
        "plain": {},
        "no": {"NO_COLOR": "1"},
        "dumb": {"TERM": "dumb"},
        "forced": {"TERM": "dumb", "FORCE_COLOR": "1"},
    }
    for name, env in cases.items():
        with Terminal(places, "run", "@boom", stdout_too=True, extra_env=env) as terminal:
            seen[name] = "\x1b[" in terminal.read_all().rpartition("❌")[2]

    assert seen == {"plain": True, "no": False, "dumb": False, "forced": True}


@pytest.mark.usefixtures("skills")
def test_ascii_is_nothing_but_ascii(shown: Callable[..., str]) -> None:
    assert shown("run", "@files", "--ascii").isascii()


# Hostile output

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]markup[/] \u202egnp.exe \x9b31m\r\x08 [link=https://evil]x[/link]\n" * 3


@pytest.mark.parametrize("where", ["content", "field", "table", "stderr"])
def test_output_cannot_reach_the_terminal(places: ProjectPaths, write_skill: WriteSkill, where: str) -> None:
    printed = {
        "content": f"print({HOSTILE!r})",
        "field": f"import json; print(json.dumps({{'a': {HOSTILE!r}, {HOSTILE!r}: 1}}))",
        "table": f"import json; print(json.dumps({{'a': [{{'b': {HOSTILE!r}, {HOSTILE!r}: 2}}]}}))",
        "stderr": f"import sys; sys.exit({HOSTILE!r}.replace(chr(13), chr(8)))",
    }
    write_skill("evil", "---\nname: evil\ndescription: x\ncommand: python p.py\n---\n", {"p.py": printed[where]})

    with Terminal(places, "run", "@evil", stdout_too=True) as terminal:
        seen = terminal.read_all()

    assert "[bold red]markup[/]" in seen, "markup of rich is text"
    left = re.sub(r"\x1b\[[\d;]*[mKA]|\r|\n", "", seen)
    assert left.isprintable(), repr(left)


COLOURED = (
    "\x1b[0;34mℹ\x1b[0m checking \x1b[1;38;5;8mthings\x1b[m \x1b[8mhidden\x1b[0m \x1b[2J\x1b]0;owned\x07 [red]x[/]"
)


@pytest.mark.parametrize("coloured", [True, False])
def test_a_programs_own_colours_are_colours_or_nothing(
    places: ProjectPaths, write_skill: WriteSkill, *, coloured: bool
) -> None:
    program = f"import json, sys; print({COLOURED!r}); print({COLOURED!r}, file=sys.stderr)"
    write_skill("verify", "---\nname: verify\ndescription: x\ncommand: python p.py\n---\n", {"p.py": program})
    env = {"TERM": "xterm-256color"} | ({} if coloured else {"NO_COLOR": "1"})

    with Terminal(places, "run", "@verify", stdout_too=True, extra_env=env) as terminal:
        seen = terminal.read_all()

    shown = seen.rpartition("✅")[2]
    assert ("\x1b[34mℹ\x1b[0m" in shown) is coloured
    assert "ℹ checking things hidden" in ESCAPES.sub("", shown)
    assert "| ℹ checking things hidden" in seen
    assert "\x1b[8m" not in seen
    assert "\x1b[2J" not in seen
    assert "\x1b]" not in seen
    assert "[red]x[/]" in shown


@pytest.mark.parametrize("text", ["x" * 10_000_000, "word " * 2_000_000, "\n" * 10_000_000, "好" * 3_000_000])
def test_ten_megabytes_are_cut_and_say_where_the_rest_is(text: str) -> None:
    lines = list(text_block(text, Look(80), "skillyard runs show 1 --raw"))

    assert sum(len(span.text) for line in lines for span in line) < 200_000
    if text.strip():
        assert "skillyard runs show 1 --raw" in as_text(lines)


def as_text(lines: Iterable[Line]) -> str:
    return "".join("".join(span.text for span in line) + "\n" for line in lines)


@given(st.text(), st.integers(8, 200))
def test_a_folded_text_fits_and_loses_nothing(text: str, width: int) -> None:
    text = " ".join(word for word in text.split() if word.isprintable())

    lines = list(fold(text, width))

    assert all(cell_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=12), _JSON, max_size=5), st.integers(60, 200), st.sampled_from(State))
def test_whatever_a_program_gives_can_be_shown(data: dict[str, object], columns: int, state: State) -> None:
    result = Result("skills", state, "ran: x", data, {"agent": "skills", "time": 1.0, "run": "1a"})  # type: ignore[arg-type]

    shown = as_text(result_lines(result, Look(columns)))

    assert shown.replace("\n", "").isprintable()


# Times


def test_times_are_local_for_people() -> None:
    look = Look(now=1_700_000_000.0)
    told = [ago(look.now - seconds, look) for seconds in (5, 70, 720, 4000, 9000)]

    assert told == ["just now", "1 minute ago", "12 minutes ago", "1 hour ago", "2 hours ago"]
    assert ago(look.now - 720, look._replace(lang=Lang.ZH)) == "12 分钟前"
    day = datetime.fromtimestamp(look.now - 90_000, UTC).astimezone()
    assert ago(look.now - 90_000, look) == f"{day:%Y-%m-%d %H:%M}"


# What it costs elsewhere


@pytest.mark.usefixtures("skills")
@pytest.mark.parametrize("command", [("list",), ("run", "@page"), ("runs",)])
def test_off_a_terminal_nothing_of_it_is_imported(places: ProjectPaths, command: tuple[str, ...]) -> None:
    program = (
        "import atexit, os, sys\n"
        "leave = os._exit\n"
        "def tell(code):\n"
        "    found = [n for n in sys.modules if n.split('.')[0] == 'rich' or n.startswith('skillyard.faces.human')]\n"
        "    os.write(2, repr(found).encode())\n"
        "    leave(code)\n"
        "os._exit = tell\n"
        "from skillyard.__main__ import main\n"
        "main()\n"
    )
    env = {"PATH": "/usr/bin:/bin", "SKILLYARD_HOME": str(places.own_home), "HOME": str(places.user_home)}
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=places.project,
        env={**env, "PYTHONPATH": source, "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stderr.endswith("[]"), done.stderr
