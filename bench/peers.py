"""The tools that we compare with, installed by package name into a cache that git ignores."""

import subprocess
import sys
from pathlib import Path
from shutil import which

_CACHE = Path(__file__).parent.parent / ".cache" / "bench"


def find_openskills() -> Path | None:
    program = _CACHE / "node" / "node_modules" / ".bin" / "openskills"
    if not program.exists() and which("npm"):
        _try(["npm", "install", "--silent", "--prefix", str(_CACHE / "node"), "openskills"])
    return program if program.exists() else None


def find_skillport() -> Path | None:
    program = _CACHE / "python" / "bin" / "skillport"
    if not program.exists():
        _try([sys.executable, "-m", "venv", str(_CACHE / "python")])
        _try([str(_CACHE / "python" / "bin" / "pip"), "install", "--quiet", "skillport"])
    return program if program.exists() else None


def _try(argv: list[str]) -> None:
    """A peer that cannot be had here is left out of the table, and that is said."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"not measured: {' '.join(argv)} failed", file=sys.stderr)
