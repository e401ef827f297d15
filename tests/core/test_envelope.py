"""The envelope: every form reads back, whatever it holds, and the seeds' own examples are read as they stand."""

import json
from typing import NamedTuple

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from skillyard.core import envelope, messages
from skillyard.core.envelope import as_block, as_json, as_text, from_json, parse, read_envelope
from skillyard.core.errors import ParamMissing, ScriptNotFound, Timeout
from skillyard.core.messages import Lang
from skillyard.core.result import Result
from skillyard.core.states import CACHED, MARKS, State
from skillyard.core.values import Json
from tests.core.values import exactly, results, texts

ENCODINGS = ["utf-8", "ascii", "gbk"]
PLAIN = Result(
    agent="skills", state=State.SUCCESS, summary="执行成功: a", data={"skill": "a"}, meta={"agent": "skills"}
)


def told(result: Result) -> str:
    return exactly(result.as_dict())


@given(results())
def test_two_lines_always_and_they_read_back_in_every_encoding(result: Result) -> None:
    for encoding in ENCODINGS:
        text = as_text(result, encoding)
        assert len(text.splitlines()) == 2
        assert told(parse(text.encode(encoding).decode(encoding))) == told(result)


@given(results())
def test_a_block_is_four_lines_and_reads_back_in_every_encoding(result: Result) -> None:
    for encoding in ENCODINGS:
        text = as_block(result, encoding)
        assert len(text.splitlines()) == 4
        assert told(parse(text.encode(encoding).decode(encoding))) == told(result)


@given(results())
def test_the_json_form_is_one_line_and_reads_back(result: Result) -> None:
    text = as_json(result)

    assert len(text.splitlines()) == 1
    assert told(from_json(text)) == told(result)
    assert exactly(json.loads(text)) == told(result)


@given(results())
def test_the_lines_of_a_block_are_yaml(result: Result) -> None:
    lines = as_block(result).split("\n", 1)[1]
    wanted = exactly({"state": str(result.state), "data": result.data, "meta": result.meta})

    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        assert exactly(yaml.load(lines, Loader=loader)) == wanted


@given(texts)
@example("✅ skills x\n  state: success | data: {a: }")
@example("✅ skills x\n  state: nonsense")
@example("✅ skills\n  state: success")
def test_whatever_is_parsed_there_is_a_result_or_a_value_error(text: str) -> None:
    for attempt in (text, f"✅ skills {text}", f"✅ skills x\n  state: success | data: {{{text}}}", f"{{{text}}}"):
        for read in (parse, read_envelope, from_json):
            try:
                found = read(attempt)
            except ValueError:
                continue
            assert isinstance(found, Result)


@st.composite
def nearly_envelopes(draw: st.DrawFn) -> str:
    """An envelope as it is written, with a few characters of it exchanged, doubled or taken away."""
    render = draw(st.sampled_from([as_text, as_block]))
    text = render(draw(results()), draw(st.sampled_from(ENCODINGS)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text) - 1)) if text else 0
        piece = draw(
            st.sampled_from(["", " ", "\n", "\r\n", "'", '"', "0", "\\u0041", "\\", ",", "{}", "é", "a: 1", "❌"])
        )
        text = text[:at] + piece + text[at + draw(st.integers(0, 2)) :]
    return text


@given(st.one_of(nearly_envelopes(), texts))
@example("✅ skills x\n  state: success | data: {a: 1.50} | meta: {}")
@example("✅ skills x\n  state: success | data: {a: 'b'} | meta: {}")
@example("✅ skills x\n  state: success | meta: {} | data: {}")
@example("✅ skills x\n  state: error | data: {} | meta: {}")
@example("✅ skills \\u0041\n  state: success | data: {} | meta: {}")
@example('✅ skills é\n  state: success | data: {a: "\\u00e9"} | meta: {}')
@example("✅ skills x\n  state: success | data: {} | meta: {}\n\n")
def test_only_what_is_written_is_parsed(text: str) -> None:
    try:
        result = parse(text)
    except ValueError:
        return
    text = text.removesuffix("\n")
    again = {render(result) for render in (as_text, as_block)}
    assert folded(text) in set(map(folded, again)), "but for characters that the encoding lacks"
    if all(character in text for written in again for character in written.split(" ", 1)[1]):
        assert text.split(" ", 1)[1] in {written.split(" ", 1)[1] for written in again}


def folded(text: str) -> str:
    """The envelope without its icon, as an encoding writes it that has nothing but ASCII."""
    return "".join(c if c.isascii() else envelope.as_code(c) for c in text.split(" ", 1)[1])


def test_the_text_form_is_the_one_of_the_seeds() -> None:
    meta: dict[str, Json] = {"agent": "skills", "time": 1.8, "ts": "2025-01-29T10:30:00Z"}
    result = Result(agent="skills", state=State.SUCCESS, summary="执行成功: a → b", data={"skill": "a"}, meta=meta)

    assert as_text(result) == (
        "✅ skills 执行成功: a → b\n"
        '  state: success | data: {skill: "a"} | meta: {agent: skills, time: 1.8, ts: "2025-01-29T10:30:00Z"}'
    )


@pytest.mark.parametrize("state", State)
def test_each_state_has_its_icon_and_an_ascii_one(state: State) -> None:
    result = Result(agent="skills", state=state, summary="x")

    assert as_text(result).startswith(f"{MARKS[state].icon} skills x\n")
    assert as_text(result, "ascii").startswith(f"{MARKS[state].ascii} skills x\n")


def test_a_cached_success_has_an_icon_of_its_own() -> None:
    result = Result(
        agent="worker_agent", state=State.SUCCESS, summary="x", data={"cached": True, "original_result": {}}
    )

    assert as_text(result).startswith(f"{CACHED.icon} ")
    assert as_text(result, "ascii").startswith("[skip] ")
    assert parse(as_text(result, "ascii")) == result


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "\ud800", ["\udc00"], {"\ud800": 1}])
def test_what_no_reader_could_read_is_refused_in_every_form(value: Json) -> None:
    for result in (
        Result(agent="skills", state=State.SUCCESS, summary="x", data={"a": value}),
        Result(agent="skills", state=State.SUCCESS, summary="x", meta={"a": value}),
    ):
        for render in (as_text, as_block, as_json):
            with pytest.raises(ValueError, match=r"not a JSON number|lone surrogate"):
                render(result)


@pytest.mark.parametrize(
    "result",
    [
        Result(agent="skills", state=State.SUCCESS, summary="\ud800"),
        Result(agent="\ud800", state=State.SUCCESS, summary="x"),
    ],
)
def test_a_lone_surrogate_is_refused_in_the_first_line_too(result: Result) -> None:
    for render in (as_text, as_block, as_json):
        with pytest.raises(ValueError, match="lone surrogate"):
            render(result)


@pytest.mark.parametrize("agent", ["", "two words", "a\nb", "a\u2028b", "a\x85b"])
def test_an_agent_is_one_word(agent: str) -> None:
    with pytest.raises(ValueError, match="one word"):
        as_text(Result(agent=agent, state=State.SUCCESS, summary="x"))


def test_nothing_in_an_agents_name_reaches_the_terminal_as_a_control() -> None:
    text = as_text(Result(agent="a\x1b[2Jb\u202e", state=State.SUCCESS, summary="x"))

    assert text.startswith("✅ a\\u001b[2Jb\\u202e x\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "null",
        "{}",
        '{"agent": "a", "state": "success"}',
        '{"agent": "a", "state": "odd", "summary": ""}',
        '{"agent": "a", "state": "success", "summary": "", "data": []}',
        '{"agent": "a", "state": "success", "summary": "", "data": {"x": NaN}}',
        '{"agent": "a", "state": "success", "summary": "", "data": {"x": 1e999}}',
        '{"agent": "a", "state": "success", "summary": "", "meta": {"x": "\\ud800"}}',
        '{"agent": "a", "state": "success", "summary": "\\ud800"}',
        '{"a":' * 100_000,
    ],
    ids=range(13),
)
def test_json_that_is_no_envelope_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1"),
        ("ok skills x\n  state: success", "line 1"),
        ("✅ skills x", "line 2"),
        ("✅ skills x\n  data: {}", "line 2"),
        ("✅ skills x\n  state: odd", "odd"),
        ("✅ skills x\n  state: success | data: {a: 1", "expected"),
        ("✅ skills x\n  state: success | data: {} and more", "the end expected"),
        ("✅ skills x\n  state: success | data: {} | data: {}", "the end expected"),
    ],
)
def test_text_that_is_no_envelope_says_what_is_missing(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text)


def test_windows_line_ends_and_blank_lines_around_are_read() -> None:
    assert read_envelope("\r\n" + as_block(PLAIN).replace("\n", "\r\n") + "\r\n\r\n") == PLAIN


class Seed(NamedTuple):
    """An example of the seeds: its text, and what it says."""

    text: str
    state: State
    data: dict[str, Json]
    #: What our own words give for it in Chinese; empty where a script says it in its own.
    summary: str


RESULT_HTML = "mybox/output/result.html"
PROMPT_TEXT = """\
✅ skills 提示词加载: marketing-ideas
  state: success
  data: {{
    skill: "marketing-ideas",
    type: "prompt",
    name: "Marketing Ideas Generator",
    description: "{description}",
    content: "{content}",
    executable: false
  }}
  meta: {{agent: skills, time: 0.1, ts: "2025-01-30T10:00:00Z"}}
"""


def prompt_data(description: str, content: str) -> dict[str, Json]:
    return {
        "skill": "marketing-ideas",
        "type": "prompt",
        "name": "Marketing Ideas Generator",
        "description": description,
        "content": content,
        "executable": False,
    }


PENDING = Seed(
    """\
⏸️ skills 等待参数: 需要 input_file
  state: pending
  data: {required: ["input_file"], optional: ["format", "quality"]}
  meta: {agent: skills, time: 0.1, ts: "2025-01-29T10:30:00Z"}
""",
    State.PENDING,
    {"required": ["input_file"], "optional": ["format", "quality"]},
    messages.WAITING.render(Lang.ZH, names="input_file"),
)
PARAM_MISSING = Seed(
    """\
❌ skills ParamMissing: 参数不足: 需要 input_file
  state: error
  data: {type: "ParamMissing", msg: "Required parameter 'input_file' not provided", recoverable: true}
  meta: {agent: skills, time: 0.2, ts: "2025-01-29T10:30:00Z"}
""",
    State.ERROR,
    {"type": "ParamMissing", "msg": "Required parameter 'input_file' not provided", "recoverable": True},
    ParamMissing(("input_file",)).summary(Lang.ZH),
)

SEEDS = {
    "S0 2.4 success": Seed(
        """\
✅ skills 执行成功: Markdown转换 → mybox/workspace/result.html
  state: success
  data: {skill: "markdown-converter", output_path: "mybox/workspace/result.html", output_size: "12.5KB"}
  meta: {agent: skills, time: 1.8, ts: "2025-01-29T10:30:00Z"}
""",
        State.SUCCESS,
        {"skill": "markdown-converter", "output_path": "mybox/workspace/result.html", "output_size": "12.5KB"},
        messages.RAN_TO.render(Lang.ZH, label="Markdown转换", path="mybox/workspace/result.html"),
    ),
    "S0 2.4 pending": PENDING,
    "S0 2.4 error": PARAM_MISSING,
    "S0 2.4 timeout": Seed(
        """\
⏱️ skills Timeout: 执行超时 (>90秒)
  state: timeout
  data: {skill: "large-processor", elapsed: 90, limit: 90}
  meta: {agent: skills, time: 90, ts: "2025-01-29T10:30:00Z"}
""",
        State.TIMEOUT,
        {"skill": "large-processor", "elapsed": 90, "limit": 90},
        Timeout("large-processor", 90, 90).summary(Lang.ZH),
    ),
    "S0 4 prompt": Seed(
        PROMPT_TEXT.format(description="提供营销策略建议", content="<SKILL.md完整内容>"),
        State.SUCCESS,
        prompt_data("提供营销策略建议", "<SKILL.md完整内容>"),
        messages.PROMPT_LOADED.render(Lang.ZH, skill="marketing-ideas"),
    ),
    "S1 2.3 success": Seed(
        """\
✅ worker_agent 扫描完成: 新增 2 个, 更新 3 个
  state: success
  data: {added: ["skill_a","skill_b"], updated: ["skill_c","skill_d","skill_e"], total: 5}
  meta: {agent: worker_agent, time: 0.5, ts: "2025-01-29T10:30:00Z"}
""",
        State.SUCCESS,
        {"added": ["skill_a", "skill_b"], "updated": ["skill_c", "skill_d", "skill_e"], "total": 5},
        "",
    ),
    "S1 2.3 cached": Seed(
        """\
⏭️ worker_agent 缓存命中: 使用最近结果 (<5s)
  state: success
  data: {cached: true, original_result: {total: 5, skills: [...]}}
  meta: {agent: worker_agent, time: 0.01, ts: "2025-01-29T10:30:05Z"}
""",
        State.SUCCESS,
        {"cached": True, "original_result": {"total": 5, "skills": ["..."]}},
        messages.CACHE_HIT.render(Lang.ZH, seconds=5.0),
    ),
    "S1 2.3 partial": Seed(
        """\
⚠️ worker_agent 部分完成: 3/5 个脚本执行成功
  state: partial
  data: {succeeded: ["a.py","b.py","c.py"], failed: ["d.py","e.py"]}
  meta: {agent: worker_agent, time: 1.2, ts: "2025-01-29T10:30:00Z"}
""",
        State.PARTIAL,
        {"succeeded": ["a.py", "b.py", "c.py"], "failed": ["d.py", "e.py"]},
        messages.PARTLY.render(Lang.ZH, done=3, total=5),
    ),
    "S1 2.3 error": Seed(
        """\
❌ worker_agent RuntimeError: 脚本执行失败
  state: error
  data: {type: "FileNotFoundError", msg: "bin/script.py not found"}
  meta: {agent: worker_agent, time: 0.1, ts: "2025-01-29T10:30:00Z"}
""",
        State.ERROR,
        {"type": "FileNotFoundError", "msg": "bin/script.py not found"},
        "",
    ),
    "S1 4.1 interrupted": Seed(
        """\
⏸️ worker_agent 工作流已暂停: <N> 个技能需 LLM 分析
  state: interrupted
  data: {interrupted_skills: [...], resume_command: "..."}
""",
        State.INTERRUPTED,
        {"interrupted_skills": ["..."], "resume_command": "..."},
        messages.PAUSED.render(Lang.ZH, count="<N>"),
    ),
    "S2 4 success": Seed(
        f"""\
✅ skills 执行成功: Markdown转换 → {RESULT_HTML}
  state: success
  data: {{skill: "markdown-converter", operation: "convert", output_path: "{RESULT_HTML}", output_size: "12.5KB"}}
  meta: {{agent: skills, time: 1.8, ts: "2025-01-29T10:30:00Z"}}
""",
        State.SUCCESS,
        {
            "skill": "markdown-converter",
            "operation": "convert",
            "output_path": RESULT_HTML,
            "output_size": "12.5KB",
        },
        messages.RAN_TO.render(Lang.ZH, label="Markdown转换", path=RESULT_HTML),
    ),
    "S2 4 pending": PENDING,
    "S2 4 error": PARAM_MISSING,
    "S2 4 timeout": Seed(
        """\
⏱️ skills Timeout: 执行超时 (>60秒)
  state: timeout
  data: {skill: "large-processor", elapsed: 60, limit: 60}
  meta: {agent: skills, time: 60, ts: "2025-01-29T10:30:00Z"}
""",
        State.TIMEOUT,
        {"skill": "large-processor", "elapsed": 60, "limit": 60},
        Timeout("large-processor", 60, 60).summary(Lang.ZH),
    ),
    "S2 4 prompt": Seed(
        PROMPT_TEXT.format(description="提供 139 种营销策略建议", content="<SKILL.md 完整内容>"),
        State.SUCCESS,
        prompt_data("提供 139 种营销策略建议", "<SKILL.md 完整内容>"),
        messages.PROMPT_LOADED.render(Lang.ZH, skill="marketing-ideas"),
    ),
}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_seeds_examples_are_read_as_they_stand(seed: Seed) -> None:
    result = read_envelope(seed.text)

    assert (result.state, result.data) == (seed.state, seed.data)
    assert seed.text.startswith(f"{result.mark.icon} {result.agent} {result.summary}\n")
    assert result.summary == (seed.summary or result.summary)
    assert parse(as_text(result)) == parse(as_block(result)) == result


@pytest.mark.parametrize("name", [name for name in SEEDS if "prompt" not in name and "S1" not in name])
def test_we_write_the_seeds_one_line_examples_to_the_letter(name: str) -> None:
    text = SEEDS[name].text

    assert as_block(parse(text)) + "\n" == text


def test_a_script_that_is_not_there_is_said_with_the_contracts_type() -> None:
    seed = read_envelope(SEEDS["S1 2.3 error"].text)
    error = ScriptNotFound("bin/script.py", details={"exception": "FileNotFoundError"})

    assert error.summary(Lang.ZH) == "ScriptNotFound: 脚本不存在: bin/script.py"
    assert error.data()["msg"] == seed.data["msg"]
    assert error.data()["exception"] == seed.data["type"]
