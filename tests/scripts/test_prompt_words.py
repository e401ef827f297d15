"""Words of a prompt that only a shell's rules can tell apart: quoted line ends, names with spaces."""

from pathlib import Path
from typing import Any, cast

import pytest

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.errors import InvalidArgs, MultiStep
from skillyard.core.result import Result
from skillyard.scripts.prompt_grammar import parse_prompt, parse_script_calls
from skillyard.trust.consent import trust
from tests.conftest import WriteSkill


def own_results(result: Result) -> list[Any]:
    return list(cast("list[Any]", result.data["results"]))


def test_a_quoted_line_end_belongs_to_its_argument(yard: Project, project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin/words.py").write_text("import sys, json\nprint(json.dumps({'words': sys.argv[1:]}))\n")
    trust(yard.grants, project)
    prompt = "执行 python bin/words.py \"第一行\n第二行\" 'a\r\nb' end\n\nrun python bin/words.py two"

    result = Kernel(yard).task("worker", "two scripts", prompt)

    first, second = (each["data"]["words"] for each in own_results(result))
    assert first == ["第一行\n第二行", "a\r\nb", "end"]
    assert second == ["two"]


def test_a_backslash_at_the_end_of_a_line_continues_it() -> None:
    (call,) = parse_script_calls("执行 python bin/a.py --city \\\n  Ürümqi")

    assert call.args == ("--city", "Ürümqi")


def test_a_quote_that_is_never_closed_does_not_swallow_the_next_script() -> None:
    with pytest.raises(InvalidArgs):
        parse_script_calls("执行 python bin/a.py 'x\n执行 python bin/b.py")


@pytest.mark.parametrize(
    "prompt",
    ['执行 @"灵感 Generator" 三个', "run @灵感\\ Generator 三个", "@'灵感 Generator' 三个", '@灵感" "Generator 三个'],
)
def test_a_name_with_spaces_is_quoted_or_escaped(yard: Project, write_skill: WriteSkill, prompt: str) -> None:
    write_skill("灵感 Generator", "---\nname: ideas\ndescription: d\ncommand: echo {topic}\n---\ntext\n")

    result = Kernel(yard).task("skills", "ideas", prompt)

    assert result.data["content"] == "三个"


def test_a_name_that_is_quoted_whole_is_a_value_and_calls_nothing() -> None:
    with pytest.raises(InvalidArgs):
        parse_prompt('run "@ideas"', lambda _: True)
    assert parse_prompt('run @a "@b"', lambda _: True).args == ("@b",)


def test_a_second_name_with_spaces_is_a_second_step() -> None:
    with pytest.raises(MultiStep) as raised:
        parse_prompt('run @a x then @"b c" y', lambda _: True)
    assert '"@b c"' in str(raised.value.details["workflow"])
