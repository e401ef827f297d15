import re
from pathlib import Path
from string import Formatter

import pytest

from skillyard.catalog import findings
from skillyard.catalog.findings import RULES, make_finding
from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import Reading, parse_skill
from skillyard.core.skill import Finding

HEAD = "---\nname: demo\ndescription: Does it.\n"


def parse(text: str | bytes, folder: str = "demo") -> Reading:
    """The text as the SKILL.md of a folder called `demo`."""
    content = text if isinstance(text, bytes) else text.encode()
    return parse_skill(content, Path("/skills") / folder / "SKILL.md")


def found(text: str, code: str) -> list[Finding]:
    return [finding for finding in lint(parse(text)).findings if finding.code == code]


def test_a_clean_skill_has_no_findings() -> None:
    reading = lint(parse(f"{HEAD}---\nDo it.\n"))

    assert reading.findings == ()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("name: 123\ndescription: Adds.\n", "text-unquoted"),
        ("name: adds\ndescription: 233342\n", "text-unquoted"),
        (f"name: adds\ndescription: {'long ' * 150}\n", "catalog-cost"),
    ],
)
def test_a_name_or_description_that_others_read_differently_is_told(fields: str, code: str) -> None:
    reading = lint(parse(f"---\n{fields}---\nDo it.\n"))

    assert code in [finding.code for finding in reading.findings]
    assert reading.skill is not None
    assert reading.skill.name in {"123", "adds"}


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("Say $ARGUMENTS here", "portable-arguments", 5),
        ("Take $1 now", "portable-arguments", 6),
        ("Now: !`git status`", "portable-injection", 6),
        ("See @docs/guide.md first", "portable-file", 5),
        ("Run ${CLAUDE_PLUGIN_ROOT}/x", "portable-variable", 5),
    ],
)
def test_what_other_agents_do_not_know_is_said_with_its_place(text: str, code: str, column: int) -> None:
    (finding,) = found(f"{HEAD}---\n\n{text}\n", code)

    assert (finding.line, finding.column) == (6, column)


@pytest.mark.parametrize("text", ["It costs $1.50 or $10k", "me@mail.md", "Wow!`x`", "$$1"])
def test_look_alikes_are_left_alone(text: str) -> None:
    reading = lint(parse(f"{HEAD}---\n{text}\n"))

    assert not [finding for finding in reading.findings if finding.code.startswith("portable")]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("argument-hint: '[x]'\n", "field-extension"),
        ("hooks: {}\n", "field-extension"),
        ("sparkle: 1\n", "field-unknown"),
        ("user-invocable: sometimes\n", "field-type"),
        ("license: [MIT]\n", "field-type"),
        ("metadata: text\n", "field-type"),
        ("metadata:\n", "field-type"),
        ("metadata: {n: 1}\n", "metadata-values"),
        ("allowed-tools: [Read]\n", "tools-list"),
        (f"compatibility: {'x' * 501}\n", "compatibility-too-long"),
    ],
)
def test_fields_are_checked_where_they_stand(fields: str, code: str) -> None:
    (finding,) = found(f"{HEAD}{fields}---\nx\n", code)

    assert (finding.line, finding.column) == (4, 1)


def test_tags_in_a_description_break_the_agents_own() -> None:
    text = "---\nname: demo\ndescription: Use </skill> now\n---\nx"

    assert "</skill>" in found(text, "description-xml")[0].message


@pytest.mark.parametrize("letter", ["\u200b", "\u202e", "\U000e0041", "\u2066", "a\u200d"])
def test_hidden_characters_are_shown(letter: str) -> None:
    (finding,) = found(f"{HEAD}---\nab{letter}\n", "hidden-characters")

    assert finding.line == 5
    assert f"U+{ord(letter[-1]):04X}" in finding.message


def test_joined_emoji_are_not_hidden() -> None:
    assert not found(f"{HEAD}---\n👩‍💻\n", "hidden-characters")


def test_the_body_has_its_rules() -> None:
    assert found(f"{HEAD}---\n", "body-empty")
    assert found(HEAD + "---\n" + "x\n" * 501, "body-long")
    assert not found(HEAD + "---\n" + "x\n" * 500, "body-long")
    assert found(f"{HEAD}---\n<<<<<<< HEAD\nx\n", "merge-conflict")[0].line == 5


def test_findings_stand_in_the_order_of_the_file() -> None:
    findings = lint(parse(f"{HEAD}zeta: 1\nalpha: 2\n---\n$1\n")).findings

    assert [finding.line for finding in findings] == sorted(finding.line for finding in findings)


@pytest.mark.parametrize("code", RULES)
def test_every_rule_says_what_is_wrong_and_what_to_do(code: str) -> None:
    slots = {slot for _, slot, *_ in Formatter().parse("".join(RULES[code][1:])) if slot}
    words = dict.fromkeys(slots, "\x1b{x}")
    finding = make_finding(code, 3, 4, **words)

    assert finding.message
    assert finding.advice
    assert "\x1b" not in finding.message + finding.advice
    assert (finding.line, finding.column) == (3, 4)


def test_the_code_uses_exactly_the_rules_that_exist() -> None:
    source = "\n".join(file.read_text() for file in Path(findings.__file__).parent.glob("*.py"))
    made = set(re.findall(r'(?:make_finding|report)\((?:[\w"]+, )?"([a-z0-9]+-[a-z0-9-]+)"', source))

    assert made <= set(RULES)
    assert {code for code in RULES if f'"{code}"' not in source} == {
        *("portable-arguments", "portable-injection", "portable-file", "portable-variable"),  # made from a group's name
        *("role-value", "role-key", "flow-value", "flow-key"),  # made from the kind of file
        *("role-task", "role-backend", "role-script-missing", "role-skill-missing"),  # found by app/authoring.py
    }
