"""What a program imports is found before it starts, through the skill's own modules."""

from pathlib import Path

import pytest

from skillyard.runners.requirements import find_imports, package_of


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os, json\nfrom pathlib import Path\n", ()),
        ("import pandas as pd\nfrom PIL import Image\n", ("PIL", "pandas")),
        ('"""Usage:\n\nimport pandas\n"""\nimport os\n', ()),
        ("try:\n    import rich\nexcept ImportError:\n    rich = None\nimport yaml\n", ("yaml",)),
        ("import yaml\ndef f():\n    import torch\n", ("yaml",)),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nimport yaml\n", ("yaml",)),
        ("from . import sibling\nimport yaml\n", ("yaml",)),
        ("import helper\nimport yaml\n", ("requests", "yaml")),
        ("from scripts.helper import x\nimport yaml\n", ("requests", "yaml")),
        ("import broken(\nimport pandas\n", ()),
    ],
)
def test_only_what_runs_at_the_start_counts(tmp_path: Path, source: str, found: tuple[str, ...]) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "helper.py").write_text("import requests\nx = 1\n")
    (scripts / "main.py").write_text(source)

    assert find_imports(scripts / "main.py", tmp_path).modules == found


def test_a_module_has_the_name_of_its_package() -> None:
    assert [package_of(name) for name in ("PIL", "yaml", "sklearn", "some_thing")] == [
        "pillow",
        "PyYAML",
        "scikit-learn",
        "some-thing",
    ]
