"""Any text that is typed to `run` gives a bool or an error of ours, never a foreign exception."""

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillyard.core.errors import SkillError
from skillyard.install.address import parse_source, split_source
from skillyard.scripts.prompt_grammar import may_name_source

#: Half characters, control characters and NUL too: an argument may be any bytes.
ANY = st.text(st.characters(exclude_categories=()), max_size=60)
PIECES = st.lists(
    st.sampled_from(
        ["~", "~nouser", "/", "./", "../", "@", "#", ":", "://", ".zip", "http", "[", "]", "\0", "\udcff", "x" * 300]
    ),
    max_size=8,
).map("".join)


@given(st.one_of(ANY, PIECES, st.builds("{}/{}".format, ANY, PIECES)))
@example("~nouser/x")
@example("~nouser/x.zip@b")
@example("./\udcff/\ud800")
@example("x" * 5000 + "/y")
@example("a/\0")
@example("http://[")
@example("https://h:port/x.zip")
@settings(max_examples=300)
def test_any_text_names_a_source_or_not_or_is_an_error_of_ours(text: str) -> None:
    here = Path("/")

    assert may_name_source(text, here) in {True, False}
    try:
        asked = split_source(text, here)
        parse_source(asked.source, asked.ref, cwd=here, root=here)
    except SkillError:
        pass
