"""Values of every kind that a result may hold, for the properties of the words."""

from hypothesis import strategies as st

from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.core.values import Json

#: What breaks lines, moves cursors, ends quotes, or means something to some reader.
ODD_CHARACTERS = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA1)),
    *"\u2028\u2029\u202e\u2066\ufeff\ufffe\uffff\ufffd\u200d\ufe0f",
    *"\"'\\{}[]:,#&*!|>%@`?-~ ",
    *"中文あ한ßعहท́",
    *"😀👩🏽\U0001f3f4\U0001fffe\U0010ffff",
]
ODD_TEXTS = [
    *("", " ", "yes", "No", "on", "y", "1", "1.5", "1e3", "0x1F", "0o7", "1:30", "null", "~", "true", "NaN", ".inf"),
    *("<<", "=", "2025-01-29", "- a", "a: b", "a #b", "{x}", "[x]", "| data: {}", "state: error", "\\n", "\\ud83d"),
    *("x" * 900, "x" * 2000, "键" * 400, "😀" * 160, "a:" * 300, '"' * 400),
]

texts = st.one_of(
    st.text(),
    st.text(st.sampled_from(ODD_CHARACTERS)),
    st.sampled_from(ODD_TEXTS),
)
scalars: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 1e-7, 1e22, 123456789.123456789]),
    texts,
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
mappings: st.SearchStrategy[dict[str, Json]] = st.dictionaries(texts, values, max_size=5)
agents = st.one_of(
    st.sampled_from(["skills", "worker_agent", "skillyard", "yes", "代理", "a-b"]),
    st.text(st.characters(exclude_categories=("Cs", "Z", "Cc")), min_size=1),
)


@st.composite
def results(draw: st.DrawFn) -> Result:
    agent = draw(agents)
    meta = draw(mappings)
    if draw(st.booleans()):
        meta = {"agent": agent, "time": 0.1, "ts": "2025-01-29T10:30:00Z", **meta}
    return Result(
        agent=agent,
        state=draw(st.sampled_from(State)),
        summary=draw(texts),
        data=draw(mappings),
        meta=meta,
    )


def exactly(value: object) -> str:
    """A text that is equal only for equal values of equal types in equal order: 1 is neither 1.0 nor True."""
    return repr(value)
