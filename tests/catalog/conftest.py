"""The corpus of real files, where it is there."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked corpus: from SKILLYARD_CORPUS (archive or folder), else from beside the repository."""
    beside = REPO.parent / "shared" / "corpus" / "dev-corpus.tar.gz"
    source = Path(os.environ.get("SKILLYARD_CORPUS") or beside)
    if source.is_dir():
        return source
    if not source.is_file():
        pytest.skip(f"no corpus at {source}: set SKILLYARD_CORPUS to dev-corpus.tar.gz")
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(source) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer; the archive is our own either way
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def manifest(corpus: Path) -> list[dict[str, Any]]:
    """What the corpus says about each of its files."""
    found = next(corpus.rglob("manifest.json"))
    files: list[dict[str, Any]] = json.loads(found.read_text())["files"]
    for file in files:
        file["on_disk"] = found.parent / file["file"]
    return files
