"""What the tests of this room share."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of its own, of 64 kB or as much as the test asks for by `@pytest.mark.parametrize(…, indirect=True)`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = getattr(request, "param", "64k")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)
