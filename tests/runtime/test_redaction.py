"""What looks like a key is shown and kept nowhere; a person at a terminal may ask to see it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.envelope import as_text
from skillyard.core.result import Request
from skillyard.core.secrets import MASK, Redactor
from skillyard.trust.consent import trust
from tests.conftest import WriteSkill

KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
PROGRAMS = {
    "text": f"print('令牌 {KEY} 完')",
    "json": f'print(\'{{"令牌": "{KEY}", "内": ["x {KEY}"]}}\')',
    "escaped json": f'print(r\'{{"令牌": "{ESCAPED}"}}\')',
    "envelope": f'print(\'✅ skills 令牌 {KEY}\\n  state: success | data: {{a: "{KEY}"}} | meta: {{hint: "{KEY}"}}\')',
    "error": f'print(\'{{"success": false, "error": {{"code": "X", "message": "{KEY}"}}}}\')',
    "crash": f"raise ValueError('{'x' * 180} {KEY}')",
    "stderr in pieces": f"import sys\nfor c in '{KEY} 完':\n    sys.stderr.write(c)\n    sys.stderr.flush()\nprint(1)",
    "private key": "import sys\n"
    "for l in ('-----BEGIN PRIVATE KEY-----', 'ghp_abcdefgh', '-----END PRIVATE KEY-----'):\n"
    "    print(l, file=sys.stderr, flush=True)\n",
}


@pytest.mark.parametrize("kind", ["command", "script", "bin", "json"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_key_is_in_no_result_no_log_and_no_history(
    kind: str, program: str, yard: Project, write_skill: WriteSkill
) -> None:
    heard: list[bytes] = []
    if kind == "bin":
        (yard.root / "bin").mkdir()
        (yard.root / "bin/钥.py").write_text(program, "utf-8")
        trust(yard.grants, yard.root)
        result = Kernel(yard).task("worker", "x", "执行 python bin/钥.py", on_progress=heard.append)
    else:
        front = {"command": "command: python3 go.py", "script": "license: MIT", "json": "protocol: json\nentry: go.py"}
        write_skill("钥匙", f"---\nname: 钥匙\ndescription: x\n{front[kind]}\n---\n", {"go.py": program})
        request = Request(
            name="钥匙", script="go.py" if kind == "script" else "", action="a" if kind == "json" else None
        )
        result = yard.runtime.run(request, heard.append)

    (row,) = yard.history.list()
    everywhere = (as_text(result), b"".join(heard).decode(), str(row), yard.logs.read(row.id))
    assert not [text for text in everywhere if "ghp_abcdefgh" in text]
    assert MASK in "".join(everywhere) or kind == "json"  # which quotes nothing of what is no response


def test_a_key_in_a_prompt_skill_and_in_what_was_asked_is_masked(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("用法", f"---\nname: 用法\ndescription: x\n---\nexport TOKEN={KEY}\n")
    write_skill("n", "---\nname: n\ndescription: x\ncommand: echo {n}\nparams: {n: {type: int}}\n---\n")

    assert KEY not in as_text(yard.runtime.run(Request(name="用法")))
    assert KEY not in as_text(yard.runtime.run(Request(name="n", params={"n": KEY})))


def test_the_response_of_a_json_skill_is_masked_too(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("j", "---\nname: j\ndescription: x\nprotocol: json\nentry: go.py\n---\n", {"go.py": PROGRAMS["json"]})

    response = yard.runtime.respond(Request(name="j", action="x"))

    assert response["data"] == {"令牌": MASK, "内": [f"x {MASK}"]}


PIECES = st.lists(
    st.sampled_from([b"ghp_", b"abcdefghijklmnopqrstu", b"vwxyz", b" ", b"\n", b"Bearer ", b"x.", b"\xff"])
)


@given(PIECES)
def test_a_stream_in_pieces_is_masked_as_the_whole(pieces: list[bytes]) -> None:
    redactor, held, shown = Redactor(), b"", b""
    for piece in pieces:
        safe, held = redactor.split_safe(held + piece)
        shown += safe
    shown += redactor.blob(held)

    assert shown == redactor.blob(b"".join(pieces))
