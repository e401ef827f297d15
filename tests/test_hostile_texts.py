"""Texts made to keep a pattern busy for hours: each is read in a process of its own, which must come to an end."""

import subprocess
import sys

import pytest

SECONDS = 120.0
MEGABYTE = 1_000_000

#: What a clone or a run can hand us, and who reads it: as Python, with `text` for the text.
READERS = {
    "a log that could be keys": (
        f"'eyJ-' * {MEGABYTE}",
        "from skillyard.core.secrets import mask_keys; assert mask_keys(text) == text",
    ),
    "an envelope that never goes on": (
        f"'✅ a b\\n  state: success' + '\\n' * {MEGABYTE} + 'x'",
        "from skillyard.runners.kind import parse_printed; assert parse_printed(text.encode())[1] is None",
    ),
    "a heading of nothing but hashes": (
        f"'# ' + '# ' * {MEGABYTE // 2} + 'x'",
        "from skillyard.catalog.manifest import first_paragraph; assert len(first_paragraph(text)) == 1024",
    ),
    "links that are never closed": (
        f"'](a' * {MEGABYTE // 3}",
        "from skillyard.runners.probes import _LINK; assert not _LINK.findall(text)",
    ),
    "an interval of nothing but digits": (
        f"'every ' + '0' * {MEGABYTE}",
        "import pytest; from skillyard.catalog import cron; pytest.raises(cron.InvalidArgs, cron.parse_when, text)",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_text_that_is_made_to_take_hours_is_read_at_once(name: str) -> None:
    text, read = READERS[name]

    done = subprocess.run(
        [sys.executable, "-c", f"text = {text}\n{read}"], capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
