from pathlib import Path

import pytest

from skillyard.core.skill import Kind, Skill
from skillyard.runners.prompt import render


@pytest.mark.parametrize(
    ("body", "rendered"),
    [
        ("Do $ARGUMENTS now", "Do one 'two words' now"),
        ("First $0, then $1.", "First one, then two words."),
        ("$ARGUMENTS[1]", "two words"),
        ("Only $2", "Only $2\n\nARGUMENTS: one 'two words'\n"),  # no such word: stays, and nothing was placed
        ("$product for $market", "one for two words"),
        ("In ${CLAUDE_SKILL_DIR}/x: $0", "In /skill/x: one"),
        ("costs $5 each, $0", "costs $5 each, one"),
        ("$ARGUMENTS_EXTRA $HOME $0", "$ARGUMENTS_EXTRA $HOME one"),
        ("nothing here", "nothing here\n\nARGUMENTS: one 'two words'\n"),
        ("!`rm -rf $0`", "!`rm -rf one`"),
    ],
)
def test_placeholders_are_filled_by_claude_codes_rules(body: str, rendered: str) -> None:
    skill = Skill("demo", Path("/skill/SKILL.md"), Kind.PROMPT)

    for names in ("product market", ["product", "market"]):
        assert render(body, ("one", "two words"), skill._replace(fields={"arguments": names})) == rendered


def test_a_value_that_looks_like_a_placeholder_is_not_filled_again() -> None:
    assert render("$0 and $1", ("$1", "x"), Skill("demo", Path("/skill/SKILL.md"), Kind.PROMPT)) == "$1 and x"
