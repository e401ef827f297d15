"""docs/reference/settings.md says what the code reads: every key, every default, every variable, and nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skillyard
from skillyard.app.settings import ConfigTable, Settings, parse_settings, read_settings
from skillyard.core.errors import InvalidArgs

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
SOURCES = Path(skillyard.__file__).parent
HERE = Path("/nowhere")


class Asked(dict[str, Any]):
    """A table of which every key is given, and which remembers those that were asked for."""

    def __init__(self, name: str, seen: set[tuple[str, str]]) -> None:
        super().__init__()
        self._name, self._seen = name, seen
        if name in {"backends", "engine.queues"}:
            self["NAME"] = Asked(f"{name}.NAME", seen)

    def get(self, key: str, default: Any = None) -> Any:
        if key in self:
            return self[key]
        if key == "queues" or not self._name:
            return Asked(f"{self._name}.{key}".strip("."), self._seen)
        self._seen.add((self._name, key))
        return 1 if key == "limit" and self._name == "engine.queues.NAME" else default


def rows() -> Iterator[tuple[str, str, str]]:
    """Table, key and default, as the page has them."""
    for heading, text in re.findall(r"^## `\[([^]]+)\]`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for key, default in re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? *\|", text, re.MULTILINE):
            yield heading, key, default


def test_every_key_that_is_read_stands_on_the_page_and_no_other() -> None:
    seen: set[tuple[str, str]] = set()

    parse_settings(ConfigTable(HERE, Asked("", seen)), HERE, HERE)

    assert {(table, key) for table, key, _ in rows()} == seen


def test_every_default_on_the_page_is_the_default(tmp_path: Path) -> None:
    tables: dict[str, list[str]] = {}
    for table, key, default in rows():
        if default:
            tables.setdefault(table, []).append(f"{key} = {default}")
    (tmp_path / "config.toml").write_text(
        "\n".join(line for table, lines in tables.items() for line in (f"[{table}]", *lines))
    )

    assert read_settings(tmp_path, tmp_path) == Settings()


@pytest.mark.parametrize(("table", "key"), [(table, key) for table, key, _ in rows()])
def test_a_value_of_another_type_is_refused_with_the_file_and_the_key(table: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"[{table}]\n{key} = 1979-05-27\n")

    with pytest.raises(InvalidArgs, match=rf"config\.toml.*{key}"):
        read_settings(tmp_path, tmp_path)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf"])
def test_a_number_that_counts_nothing_is_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"[runs]\nkeep = {value}\n")

    with pytest.raises(InvalidArgs, match=r"config\.toml.*keep"):
        read_settings(tmp_path, tmp_path)


def test_every_variable_that_is_read_stands_on_the_page_and_none_of_ours_is_made_up() -> None:
    page = PAGE.read_text().partition("## Environment variables")[2]
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    sources = {path: path.read_text() for path in SOURCES.rglob("*.py")}
    ours = {name for text in sources.values() for name in re.findall(r"\bSKILLYARD_[A-Z_]+[A-Z]\b", text)}
    read = {name for text in sources.values() for name in re.findall(r"\benv(?:iron)?(?:\.get\(|\[)\"(\w+)\"", text)}

    assert ours == {name for name in listed if name.startswith("SKILLYARD_")}
    assert read <= listed | {"SKILL_DEBUG", "PIP_CONFIG_FILE", "UV_CONFIG_FILE"}
