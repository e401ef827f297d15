"""The example skills: each is found, answers to its names, runs through the real command and gives right answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
from tools.envelope_schema import envelope_schema

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import from_json
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.core.values import Json
from tests.conftest import Skillyard

EXAMPLES = Path(__file__).parent.parent / "examples"
SKILLS = EXAMPLES / "skills"
SCHEMA = jsonschema_rs.validator_for(envelope_schema())

#: folder → (name, kind)
LISTED = {
    "changelog-writer": ("changelog-writer", "prompt"),
    "code-review": ("code-review", "prompt"),
    "csv-summary": ("csv-summary", "command"),
    "date-span": ("date-span", "command"),
    "log-analyzer": ("log-analyzer", "json"),
    "marketing-ideas": ("marketing-ideas", "prompt"),
    "md-tools-v1": ("markdown-converter", "command"),
    "word-count": ("word-count", "command"),
    "zh-typography": ("zh-typography", "command"),
    "周报": ("周报", "prompt"),
}


class Example:
    def __init__(self, project: Path, skillyard: Skillyard) -> None:
        self.project, self.skillyard = project, skillyard

    def run(self, folder: str, *args: str) -> Result:
        """The example in a project of its own with the sample data, through the real command."""
        target = self.project / ".claude" / "skills" / folder
        if not target.exists():
            shutil.copytree(SKILLS / folder, target)
            shutil.copytree(EXAMPLES / "data", self.project, dirs_exist_ok=True)
        text = self.skillyard("run", "--json", *args).stdout
        SCHEMA.validate(json.loads(text))
        return from_json(text)


@pytest.fixture
def example(project: Path, skillyard: Skillyard) -> Example:
    return Example(project, skillyard)


def program(script: str, *args: str, cwd: Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """A program of an example by itself, without any runtime."""
    return subprocess.run(
        [sys.executable, SKILLS / script, *args],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"},
        timeout=60,
    )


def answer(script: str, *args: str, cwd: Path) -> dict[str, Json]:
    ended = program(script, *args, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    assert isinstance(facts, dict)
    return facts


def test_there_are_ten_examples_and_the_list_here_is_complete() -> None:
    assert {path.name for path in SKILLS.iterdir()} == LISTED.keys()
    assert len(LISTED) == 10


@pytest.mark.parametrize("folder", LISTED)
def test_each_example_is_discovered_with_its_kind(folder: str, project: Path, skillyard: Skillyard) -> None:
    shutil.copytree(SKILLS / folder, project / ".claude" / "skills" / folder)

    skills = from_json(skillyard("list", "--json").stdout).data["skills"]

    assert isinstance(skills, list)
    assert [(skill["folder_name"], skill["name"], skill["kind"]) for skill in skills] == [(folder, *LISTED[folder])]
    assert skills[0]["title"]
    assert skills[0]["worst_finding"] in (
        {None, "", "note", "warning"} if folder in {"md-tools-v1", "周报"} else {None, ""}
    )


@pytest.mark.parametrize("folder", [name for name, (_, kind) in LISTED.items() if kind == "prompt"])
def test_a_prompt_example_hands_over_its_whole_text_by_folder_and_by_title(folder: str, example: Example) -> None:
    text = (SKILLS / folder / "SKILL.md").read_text("utf-8")
    title = next(line.removeprefix("title: ") for line in text.splitlines() if line.startswith("title: "))

    for name in (folder, title):
        result = example.run(folder, f"@{name}")
        assert result.state is State.SUCCESS
        assert (result.data["name"], result.data["content"]) == (folder, text)


# markdown-converter


@pytest.mark.parametrize("name", ["markdown-converter", "md-tools-v1", "Markdown转换"])
def test_the_call_of_the_seeds_converts_a_readme(name: str, example: Example) -> None:
    result = example.run("md-tools-v1", "--lang", "zh", f"@{name}", "README.md")

    assert result.state is State.SUCCESS
    assert result.summary == "执行成功: Markdown转换 → mybox/output/README.html"
    assert result.data["skill"] == name
    assert result.data["operation"] == "convert"
    assert result.data["output_path"] == "mybox/output/README.html"
    assert result.data["headings"] == ["Tea Shop 茶铺", "Files", "Try it"]
    page = (example.project / "mybox/output/README.html").read_text("utf-8")
    assert '<html lang="zh">' in page
    assert "<title>Tea Shop 茶铺</title>" in page
    assert "<tr><td>sales.csv</td><td>a month of orders</td></tr>" in page
    assert '<a href="https://example.com/tea?a=1&amp;b=2">' in page
    assert "Prices are &lt; 200 &amp; in yuan." in page


def test_a_fragment_goes_where_the_output_says(example: Example) -> None:
    args = ("@markdown-converter", "README.md", "--to", "fragment", "--output", "mybox/output/page.html")

    result = example.run("md-tools-v1", *args)

    assert result.data["output_path"] == "mybox/output/page.html"
    page = (example.project / "mybox/output/page.html").read_text("utf-8")
    assert page.startswith("<h1>Tea Shop 茶铺</h1>\n")
    assert "<html" not in page


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# A & B #", "<h1>A &amp; B</h1>"),
        ("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>"),
        ("a **b *c*** `<d>`", "<p>a <strong>b <em>c</em></strong> <code>&lt;d&gt;</code></p>"),
        ("中文**粗**和*斜 a_b*。", "<p>中文<strong>粗</strong>和<em>斜 a_b</em>。</p>"),
        ("snake_case_name and 2*3*4", "<p>snake_case_name and 2*3*4</p>"),
        ("- a\n- b\n  - c\n- d", "<ul>\n<li>a</li>\n<li>b\n<ul>\n<li>c</li>\n</ul></li>\n<li>d</li>\n</ul>"),
        ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>'),
        ("```py\n# no *heading*\n```", '<pre><code class="language-py"># no *heading*\n</code></pre>'),
        ("```\nnever closed", "<pre><code>never closed\n</code></pre>"),
        ("> a\n> > b", "<blockquote>\n<p>a</p>\n<blockquote>\n<p>b</p>\n</blockquote>\n</blockquote>"),
        ("a\n\n---", "<p>a</p>\n<hr>"),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
        ('[x](/a"b)', '<p><a href="/a&quot;b">x</a></p>'),
        ("![图](a.png)", '<p><img src="a.png" alt="图"></p>'),
        (r"\*not\* \[a link\](x)", "<p>*not* [a link](x)</p>"),
        ("a\\\nb", "<p>a<br>\nb</p>"),
        ("", ""),
    ],
)
def test_markdown_becomes_the_html_one_expects(markdown: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(markdown, "utf-8")

    answer("md-tools-v1/convert.py", "a.md", "--to", "fragment", "--out", "b.html", cwd=tmp_path)

    assert (tmp_path / "b.html").read_text("utf-8") == expected + "\n"


def test_the_converter_never_overwrites_its_source(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# a", "utf-8")

    ended = program("md-tools-v1/convert.py", "a.md", "--out", "a.md", cwd=tmp_path)

    assert (ended.returncode, "the source itself" in ended.stderr) == (1, True)
    assert (tmp_path / "a.md").read_text("utf-8") == "# a"


# csv-summary


def test_a_csv_file_is_described_column_by_column(example: Example) -> None:
    result = example.run("csv-summary", "@csv-summary", "sales.csv")

    columns = result.data["columns"]
    assert isinstance(columns, list)
    by_name = {column["name"]: column for column in columns}
    assert (result.data["rows"], result.data["ragged"]) == (36, {"rows": 0})
    assert {name: column["type"] for name, column in by_name.items()} == {
        "order": "int",
        "date": "date",
        "city": "text",
        "product": "text",
        "quantity": "int",
        "unit_price": "number",
        "total": "number",
        "gift": "bool",
    }
    quantity = by_name["quantity"]
    assert (quantity["min"], quantity["max"], quantity["sum"], quantity["mean"]) == (1, 6, 110, 3.055556)
    assert (by_name["date"]["min"], by_name["date"]["max"]) == ("2026-01-01", "2026-01-31")
    assert (by_name["city"]["empty"], by_name["city"]["common"][1]) == (1, {"value": "上海", "count": 8})


def test_the_delimiter_and_the_encoding_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("城市;数量\n北京;1,5\n上海;2,5\n".encode("gb18030"))

    facts = answer("csv-summary/summary.py", "a.csv", cwd=tmp_path)

    assert (facts["encoding"], facts["delimiter"], facts["rows"]) == ("gb18030", ";", 2)


def test_damaged_rows_are_counted_and_located(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,2\n3\n"x\ny",5,6\n')

    facts = answer("csv-summary/summary.py", "a.csv", "--delimiter", ",", cwd=tmp_path)

    assert facts["ragged"] == {"rows": 2, "first_line": 3}


# word-count

MIXED = "Hello, world! It's 2026.\n\n你好，世界。再见！\nnaïve co-op\n"
MIXED_COUNTS = {
    "length": 12,
    "characters": 47,
    "characters_without_spaces": 40,
    "cjk_characters": 6,
    "words": 6,
    "sentences": 4,
    "lines": 4,
    "paragraphs": 2,
    "reading_minutes": 0.1,
}


def test_words_and_chinese_characters_are_counted_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(MIXED, "utf-8")

    assert answer("word-count/count.py", "a.txt", cwd=tmp_path) == MIXED_COUNTS


def test_word_count_takes_its_params_from_a_list(example: Example) -> None:
    (example.project / "mixed.txt").write_text(MIXED, "utf-8")

    result = example.run("word-count", "@word-count", "mixed.txt", "--speed", "10")

    assert result.data == {"skill": "word-count", **MIXED_COUNTS, "reading_minutes": 1.0}


def test_a_missing_param_of_word_count_is_asked_for_in_its_own_words(example: Example) -> None:
    result = example.run("word-count", "@word-count")

    assert result.state is State.PENDING
    assert result.data["required"] == ["file"]
    assert result.data["prompts"] == {"file": "Which text file should be counted?"}


# date-span


@pytest.mark.parametrize("start", ["2026-01-12", "2026/1/12", "20260112", "2026年1月12日"])
def test_the_span_between_two_dates_is_exact_in_every_notation(start: str, tmp_path: Path) -> None:
    facts = answer("date-span/span.py", start, "2026-03-31", cwd=tmp_path)

    assert (facts["days"], facts["days_inclusive"], facts["weekdays_inclusive"]) == (78, 79, 57)
    assert facts["calendar"] == {"years": 0, "months": 2, "days": 19}
    assert facts["start"] == {"date": "2026-01-12", "weekday": "Monday", "iso_week": "2026-W03"}


def test_the_end_of_february_counts_as_a_month_after_the_end_of_january(tmp_path: Path) -> None:
    facts = answer("date-span/span.py", "2028-02-29", "2028-01-31", cwd=tmp_path)

    assert (facts["days"], facts["calendar"]) == (-29, {"years": 0, "months": 1, "days": 0})


def test_date_span_takes_its_params_from_the_slots_of_its_command(example: Example) -> None:
    result = example.run("date-span", "@date-span", "2026-01-12", "2026-03-31")

    assert (result.state, result.data["days"]) == (State.SUCCESS, 78)
    assert example.run("date-span", "@date-span", "2026-01-12").data["required"] == ["end"]


# log-analyzer


def test_a_log_is_analysed_into_levels_and_groups_of_errors(example: Example) -> None:
    result = example.run("log-analyzer", "@log-analyzer", "analyze", "path=app.log", "top=2")

    assert result.data["action"] == "analyze"
    assert result.data["lines"] == 34
    assert result.data["levels"] == {"FATAL": 1, "ERROR": 6, "WARN": 3, "INFO": 18, "DEBUG": 2}
    assert result.data["continuation_lines"] == 4
    assert result.data["busiest_hour"] == {"hour": "2026-01-12T09:00", "errors": 4}
    assert result.data["error_groups"] == 3
    payment = "payment gateway timeout after 5000 ms (order 1015)"
    assert result.data["errors"] == [
        {"level": "ERROR", "count": 4, "first_line": 7, "example": payment},
        {"level": "ERROR", "count": 2, "first_line": 17, "example": "库存不足: 商品 '龙井' 剩余 0"},
    ]


def test_the_report_of_a_log_is_markdown(example: Example) -> None:
    report = example.run("log-analyzer", "@log-analyzer", "report", "path=app.log").data["report"]

    assert isinstance(report, str)
    assert report.startswith("# Log report: app.log\n\n- 34 lines; levels: FATAL 1, ERROR 6")
    assert "- 2× ERROR, first on line 17: 库存不足: 商品 '龙井' 剩余 0" in report


def test_an_unknown_action_names_the_ones_there_are(example: Example) -> None:
    result = example.run("log-analyzer", "@log-analyzer", "explode", "path=app.log")

    assert (result.state, result.data["type"]) == (State.ERROR, "InvalidParam")
    assert result.data["supported_actions"] == ["analyze", "report"]


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        ('{"action": "analyze", "params": {}}', "MISSING_PARAM"),
        ('{"action": "analyze", "params": {"path": "no.log"}}', "DATA_NOT_FOUND"),
        ('{"action": "analyze", "params": {"path": "../../etc/passwd"}}', "PERMISSION_DENIED"),
        ('{"action": "analyze", "params": {"path": "a.log", "top": 0}}', "INVALID_PARAM"),
        ('{"action": "analyze", "params": {"path": "a.log", "top": true}}', "INVALID_PARAM"),
        ('{"action": "analyze", "params": []}', "MISSING_PARAM"),
        ('{"action": ["analyze"]}', "UNKNOWN_ACTION"),
        ("[]", "INVALID_PARAM"),
        ("{", "INVALID_JSON"),
        ("", "INVALID_JSON"),
    ],
)
def test_what_the_log_analyzer_refuses_is_a_response_with_a_code(request_text: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("INFO fine\n")

    ended = program("log-analyzer/analyze.py", cwd=tmp_path, stdin=request_text)

    response = json.loads(ended.stdout)
    assert (ended.returncode, response["success"], response["error"]["code"]) == (1, False, code)
    assert response["error"]["message"]


# zh-typography


def test_a_chinese_text_is_typeset_and_the_original_stays(example: Example) -> None:
    before = (EXAMPLES / "data" / "文章.md").read_text("utf-8")

    result = example.run("zh-typography", "@中文排版", "文章.md")

    assert (result.data["changed_lines"], result.data["output_path"]) == (4, "mybox/output/文章.md")
    assert (example.project / "文章.md").read_text("utf-8") == before
    after = (example.project / "mybox/output/文章.md").read_text("utf-8").splitlines()
    assert after[0] == "# 用 Python 写茶铺"
    assert after[2] == "我们用 Python 写了 3 个脚本，每天处理 36 个订单！"
    assert after[4] == "技能（示例）很好，真的！"
    assert after[6] == "运行`python run.py,再看`即可，详见[文档](https://example.com/a,b)。"
    assert after[9] == "echo 这里,不改"


def test_checking_a_chinese_text_writes_nothing(example: Example) -> None:
    result = example.run("zh-typography", "@zh-typography", "文章.md", "--mode", "check")

    assert result.data["changed_lines"] == 4
    assert not (example.project / "mybox/output/文章.md").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("版本3.11发布", "版本 3.11 发布"),
        ("比例为1:2,约50%的人", "比例为 1:2,约 50% 的人"),
        ("等等。。。", "等等……"),
        ("plain, English (text)!", "plain, English (text)!"),
        ("见 https://a.cn/中?a=1,2 即可", "见 https://a.cn/中?a=1,2 即可"),
        ("行尾\r", "行尾\r"),
    ],
)
def test_only_chinese_surroundings_are_changed(before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(before.encode())

    answer("zh-typography/typeset.py", "a.txt", "--out", "b.txt", cwd=tmp_path)

    assert (tmp_path / "b.txt").read_bytes().decode() == after


def test_typesetting_twice_changes_nothing_more(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "data" / "文章.md", tmp_path / "a.md")
    answer("zh-typography/typeset.py", "a.md", "--out", "b.md", cwd=tmp_path)

    assert answer("zh-typography/typeset.py", "b.md", "--mode", "check", cwd=tmp_path)["changed_lines"] == 0


# changelog-writer


def git(*args: str, cwd: Path) -> None:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@a", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@a"}
    home = {"HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    subprocess.run(["git", *args], cwd=cwd, env={**names, **home}, check=True, capture_output=True, timeout=60)


def test_the_bundled_script_groups_the_commits_since_the_latest_tag(tmp_path: Path) -> None:
    git("init", cwd=tmp_path)
    for message in (
        "first",
        "feat: 导出 CSV",
        "fix(parser): a space",
        "feat!: rename --out",
        "docs: typo",
        "no prefix",
    ):
        git("commit", "--allow-empty", "-m", message, cwd=tmp_path)
        if message == "first":
            git("tag", "v1.0", cwd=tmp_path)

    ended = program("changelog-writer/scripts/commits.py", cwd=tmp_path)

    lines = [line.rpartition(" (")[0] or line for line in ended.stdout.splitlines() if line]
    assert lines == [
        "# Commits since v1.0",
        "## Breaking",
        "- rename --out",
        "## Features",
        "- 导出 CSV",
        "## Fixes",
        "- parser: a space",
        "## Other",
        "- no prefix",
        "- docs: typo",
    ]


# what goes wrong


@pytest.mark.parametrize(
    ("script", "args"),
    [
        ("md-tools-v1/convert.py", ()),
        ("md-tools-v1/convert.py", ("a.md", "--to", "pdf")),
        ("csv-summary/summary.py", ()),
        ("csv-summary/summary.py", ("a.csv", "--delimiter", "::")),
        ("word-count/count.py", ("a.txt", "--speed", "0")),
        ("word-count/count.py", ("a.txt", "--speed", "fast")),
        ("date-span/span.py", ("2026-01-12",)),
        ("date-span/span.py", ("2026-02-30", "2026-03-01")),
        ("date-span/span.py", ("tomorrow", "2026-03-01")),
        ("zh-typography/typeset.py", ("a.md", "--mode", "guess")),
        ("changelog-writer/scripts/commits.py", ("--until=--output=x",)),
    ],
)
def test_wrong_arguments_give_a_usage_text_and_exit_code_2(script: str, args: tuple[str, ...], tmp_path: Path) -> None:
    ended = program(script, *args, cwd=tmp_path)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("usage: ")


@pytest.mark.parametrize(
    ("script", "args", "reason"),
    [
        ("md-tools-v1/convert.py", ("no.md",), "no such file: no.md"),
        ("md-tools-v1/convert.py", (".",), "is a folder"),
        ("md-tools-v1/convert.py", ("binary",), "not UTF-8 text"),
        ("csv-summary/summary.py", ("no.csv",), "no such file: no.csv"),
        ("csv-summary/summary.py", ("binary",), "not a text file"),
        ("csv-summary/summary.py", ("empty",), "the file is empty"),
        ("word-count/count.py", ("no.txt",), "no such file: no.txt"),
        ("word-count/count.py", ("binary",), "not a text file"),
        ("zh-typography/typeset.py", ("no.md",), "找不到文件: no.md"),
        ("zh-typography/typeset.py", ("binary",), "不是 UTF-8 文本"),
        ("changelog-writer/scripts/commits.py", (), "not a git repository"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line_and_exit_code_1(
    script: str, args: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0\1")
    (tmp_path / "empty").touch()

    ended = program(script, *args, cwd=tmp_path)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert reason in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_program_that_fails_is_an_error_with_its_own_words(example: Example) -> None:
    result = example.run("csv-summary", "@csv-summary", "sales.csv", "--delimiter", "::")

    assert result.state is State.ERROR
    assert "--delimiter takes one character" in str(result.data["msg"])


def test_init_brings_the_examples_and_leaves_alone_what_is_there(
    tmp_path: Path, places: ProjectPaths, skillyard: Skillyard
) -> None:
    folder = tmp_path / "试 一试"
    folder.mkdir()
    (folder / "README.md").write_text("mine")

    made = json.loads(skillyard("init", "--examples", str(folder), "--json").stdout)["data"]
    listed = json.loads(skillyard("list", "--json", cwd=folder).stdout)["data"]["skills"]
    again = json.loads(skillyard("init", "--examples", str(folder), "--json").stdout)["data"]

    assert {skill["name"] for skill in listed} == {name for name, _ in LISTED.values()}
    assert "README.md" in made["kept"]
    assert (folder / "README.md").read_text() == "mine"
    assert ".claude/skills/周报/SKILL.md" in made["made"]
    assert not again["made"]
    assert skillyard("run", "@csv-summary", "sales.csv", cwd=folder).returncode == 0
