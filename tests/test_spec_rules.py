"""How the rules of docs/spec and their tests are read; tests/test_house.py looks at the pages themselves."""

from tools.spec_rules import SpecRule, find_test, read_rules, what_is_wrong

PAGE = """\
# A page

What it is about. <!-- no rule -->

## One

- An item
  over two lines
  <!-- test_a,
       test_b -->
- An item without a test

```text
- no item, but code
```

A paragraph:

```python
x = "- no item"
```
<!-- test_c -->

    - code too

| name | what |
| --- | --- |
| a | `x\\|y` <!-- test_d --> |
| b | |
<!-- test_e -->

| other | table |
| --- | --- |
| c | 1 |
"""


def test_a_rule_is_an_item_a_row_or_a_paragraph_with_its_tests() -> None:
    assert read_rules(PAGE) == [
        SpecRule("A page", 3, "What it is about.", ("no rule",)),
        SpecRule("One", 7, "An item over two lines", ("test_a", "test_b")),
        SpecRule("One", 11, "An item without a test", ()),
        SpecRule("One", 17, "A paragraph:", ("test_c",)),
        SpecRule("One", 28, "a · `x\\|y`", ("test_d", "test_e")),
        SpecRule("One", 29, "b", ("test_e",)),
        SpecRule("One", 34, "c · 1", ()),
    ]


def test_a_rule_without_a_test_and_a_test_that_is_not_there_are_told() -> None:
    known = {"test_a": ["tests/test_x.py"], "test_b": ["tests/test_x.py", "tests/y/test_y.py"]}

    told = list(what_is_wrong("- one\n- two <!-- test_a, test_c -->\n- three <!-- test_b -->\n", known))

    assert told == [
        "line 1: 'one' names no test: write <!-- test_name --> after it",
        "line 2: 'two': test_c is in no file of tests/",
        "line 3: 'three': test_b is in tests/test_x.py, tests/y/test_y.py",
    ]
    assert find_test("y/test_y.py::test_b", known) == "tests/y/test_y.py::test_b"
