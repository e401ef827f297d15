"""Secrets of a role: only the declared ones, only into that process, and nowhere else, however a skill spells them."""

import base64
import json
import sqlite3
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard import execute_skill
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.result import Request, Result
from skillyard.core.secrets import MASK, SHORTEST, Redactor
from skillyard.trust.consent import trust
from tests.conftest import Skillyard

VALUE = 's3cr"et-Wert-值/+&'
#: Prints everything that it has, in every way it knows; `action` says where to.
LEAK = """\
import base64, json, os, sys, urllib.parse
request = json.load(sys.stdin)
value = os.environ.get("TOKEN", "")
if request["action"] == "names":
    print(json.dumps({"success": True, "data": {"names": sorted(os.environ)}}))
elif request["action"] == "processes":
    words = []
    for each in os.listdir("/proc"):
        if each.isdigit():
            try:
                words.append(open(f"/proc/{each}/cmdline").read())
            except OSError:
                pass
    print(json.dumps({"success": True, "data": {"found": any(value in text for text in words), "count": len(words)}}))
elif request["action"] == "fail":
    print("x" * 150 + value + "y" * 100, file=sys.stderr)
    sys.exit(3)
elif request["action"] == "error":
    error = {"code": "DATA_NOT_FOUND", "message": f"no {value}", "details": {value: [value]}}
    print(json.dumps({"success": False, "error": error}))
elif request["action"] == "number":
    print(json.dumps({"success": True, "data": {"number": int(value), "inside": f"<{value}>"}}))
elif request["action"] == "lines":
    for line in value.splitlines():
        print(f"> {line}", file=sys.stderr)
    print(json.dumps({"success": True, "data": {"lines": value.splitlines()}}))
else:
    print("progress with", value, file=sys.stderr)
    sys.stderr.write("no line end " + value)
    spelt = [value, urllib.parse.quote(value), base64.b64encode(value.encode()).decode(),
             base64.b64encode(f"user:{value}".encode()).decode(), value.encode().hex(), json.dumps(value)]
    print(json.dumps({"success": True, "message": f"used {value}", "data": {"spelt": spelt, value: 1},
                      "metadata": {"with": value}}))
"""
AGENT = """\
skills: [{name: leak, entry: leak.py}, {name: other, entry: leak.py}]
secrets:
  - {name: TOKEN, source: env, key: MY_TOKEN}
"""


@pytest.fixture
def role(project: Path) -> Path:
    folder = project / "agents" / "dev"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text(AGENT, "utf-8")
    (folder / "leak.py").write_text(LEAK, "utf-8")
    return folder


def run(yard: Project, action: str, **params: str) -> Result:
    return yard.runtime.run(Request(name="dev/leak", role="dev", action=action, params=params, interactive=False))


def everything_kept(places: ProjectPaths) -> str:
    """All that we wrote down anywhere, whatever the file is."""
    with sqlite3.connect(places.database) as database:
        rows = [str(row) for row in database.execute("SELECT * FROM runs")]
    files = [path.read_bytes().decode("utf-8", "replace") for path in places.own_home.rglob("*") if path.is_file()]
    return "\n".join([*rows, *files])


def spellings(value: str) -> list[str]:
    plain = [value, quote(value), json.dumps(value)[1:-1], value.encode().hex()]
    return [*plain, base64.b64encode(value.encode()).decode().rstrip("=")]


def test_without_trust_a_role_with_secrets_does_not_run_and_says_what_to_do(
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", VALUE)

    result = run(yard, "names")

    assert result.data["type"] == "NotGranted"
    assert result.data["grant"] == "skillyard trust"
    assert "secret:TOKEN" in str(result.data["msg"])
    assert yard.history.list() == ()


def test_a_process_gets_the_declared_secret_under_its_name_and_no_other_variable(
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", VALUE)
    monkeypatch.setenv("OTHER_TOKEN", "not declared at all")
    trust(yard.grants, yard.root)

    names = run(yard, "names").data["names"]

    assert isinstance(names, list)
    assert "TOKEN" in names
    assert not {"MY_TOKEN", "OTHER_TOKEN"} & set(names)


def test_another_role_and_other_skills_see_nothing_of_it(
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", VALUE)
    other = yard.root / "agents" / "other"
    other.mkdir()
    (other / "agent.yaml").write_text("skills: [{name: leak, entry: leak.py}]\n")
    (other / "leak.py").write_text(LEAK, "utf-8")
    trust(yard.grants, yard.root)

    result = yard.runtime.run(Request(name="other/leak", role="other", action="names"))

    names = result.data["names"]
    assert isinstance(names, list)
    assert "TOKEN" not in names


def test_a_secret_is_in_no_result_no_log_and_no_history_however_it_is_spelt(
    yard: Project, role: Path, places: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", VALUE)
    trust(yard.grants, yard.root)
    heard: list[bytes] = []
    request = Request(name="dev/leak", role="dev", action="print", params={"typed": VALUE}, interactive=False)

    result = yard.runtime.run(request, heard.append)

    shown = json.dumps(result.as_dict(), ensure_ascii=False)
    progress = b"".join(heard).decode()
    assert result.ok
    assert MASK in result.summary
    assert progress == f"progress with {MASK}\nno line end {MASK}"
    for spelt in spellings(VALUE):
        assert spelt not in shown
        assert spelt not in everything_kept(places)
    assert MASK in everything_kept(places)


def test_s3s_own_response_is_masked_too(yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", VALUE)
    trust(yard.grants, yard.root)

    printed = execute_skill(agent_role="dev", skill_name="leak", action="print", project=yard)
    refused = execute_skill(agent_role="dev", skill_name="leak", action="error", project=yard)

    assert printed["message"] == f"used {MASK}"
    assert refused["error"] == {
        "code": "DATA_NOT_FOUND",
        "message": f"no {MASK}",
        "details": {MASK: [MASK]},
    }
    for spelt in spellings(VALUE):
        assert spelt not in json.dumps([printed, refused], ensure_ascii=False)


def test_a_secret_that_the_quoted_error_would_cut_in_two_is_masked_before_the_cut(
    yard: Project, role: Path, places: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "".join(chr(0x4E00 + number) for number in range(120))
    monkeypatch.setenv("MY_TOKEN", value)
    trust(yard.grants, yard.root)

    result = run(yard, "fail")

    assert value[-50:] not in json.dumps(result.as_dict(), ensure_ascii=False)
    assert value[-50:] not in everything_kept(places)


def test_a_secret_that_is_a_number_stays_one_in_no_result(
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "4815162342")
    trust(yard.grants, yard.root)

    result = run(yard, "number")

    assert (result.data["number"], result.data["inside"]) == (MASK, f"<{MASK}>")


def test_each_line_of_a_long_secret_is_masked(
    yard: Project, role: Path, places: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "first part of it\nsecond part of it\n")
    trust(yard.grants, yard.root)

    result = run(yard, "lines")

    assert result.data["lines"] == [MASK, MASK]
    assert "part of it" not in everything_kept(places)


def test_a_secret_is_in_no_argument_of_any_process(yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", VALUE)
    trust(yard.grants, yard.root)

    result = run(yard, "processes")

    assert result.data["found"] is False
    assert isinstance(result.data["count"], int)
    assert result.data["count"] >= 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{name: TOKEN, source: env, key: MY_TOKEN}", "the environment variable MY_TOKEN is not set"),
        ("{name: TOKEN, source: env}", "the environment variable TOKEN is not set"),
        ("{name: TOKEN, source: file, key: token}", "secrets/token cannot be read"),
        ("{name: TOKEN, source: file, key: /no/such/file}", "/no/such/file cannot be read"),
        ("{name: TOKEN, source: file, key: ../state.db}", "is ours, not a secret of yours"),
    ],
)
def test_a_missing_secret_is_named_with_the_place_where_it_was_looked_for(
    yard: Project, role: Path, source: str, says: str
) -> None:
    (role / "agent.yaml").write_text(AGENT.replace("{name: TOKEN, source: env, key: MY_TOKEN}", source))
    trust(yard.grants, yard.root)

    result = run(yard, "names")

    assert result.data["type"] == "RuntimeFailed"
    assert "TOKEN" in str(result.data["msg"])
    assert says in str(result.data["msg"])
    assert result.data["secret"] == "TOKEN"
    assert result.meta["hint"]


def test_a_file_of_our_home_or_of_the_person_gives_the_value_without_its_last_line_end(
    yard: Project, role: Path, places: ProjectPaths
) -> None:
    (places.own_home / "secrets").mkdir()
    (places.own_home / "secrets" / "token").write_text("48151623\n")
    (role / "agent.yaml").write_text(AGENT.replace("source: env, key: MY_TOKEN", "source: file, key: token"))
    trust(yard.grants, yard.root)

    assert run(yard, "number").data["number"] == MASK


@pytest.mark.parametrize("value", ["12345", "x"])
def test_a_value_too_short_to_be_masked_is_not_passed(
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MY_TOKEN", value)
    trust(yard.grants, yard.root)

    result = run(yard, "names")

    assert f"less than {SHORTEST} characters" in str(result.data["msg"])


def test_a_dry_run_names_the_secret_and_does_not_read_it(yard: Project, role: Path) -> None:
    plan = yard.runtime.plan(Request(name="dev/leak", role="dev", action="print")).data

    assert plan["missing_grants"] == ["secret:TOKEN"]
    assert "TOKEN" in plan["env"]  # type: ignore[operator]


def test_on_the_command_line_nothing_of_it_is_printed(skillyard: Skillyard, role: Path) -> None:
    skillyard("trust", "--accept")

    shown = skillyard("role", "run", "dev", "leak", "print", MY_TOKEN=VALUE)

    assert shown.returncode == 0
    assert MASK in shown.stderr
    for spelt in spellings(VALUE):
        assert spelt not in shown.stdout + shown.stderr


def test_without_a_sandbox_the_secret_is_passed_and_masked_all_the_same(
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "4815162342")
    trust(yard.grants, yard.root)

    result = yard.runtime.run(Request(name="dev/leak", role="dev", action="number", sandboxed=False))

    assert result.data["number"] == MASK


@given(st.text(min_size=SHORTEST, max_size=60).filter(lambda text: len(text.strip()) >= SHORTEST), st.text(max_size=20))
def test_whatever_the_secret_is_no_common_spelling_of_it_passes(secret: str, around: str) -> None:
    redactor = Redactor([secret])
    whole = secret.encode("utf-8", "replace")

    for spelt in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], whole.hex()):
        assert spelt not in redactor.text(f"{spelt}") or spelt in MASK
    document = json.dumps({"a": [f"{around}{secret}"]}).encode()
    assert secret not in json.loads(redactor.document(document))["a"][0].replace(MASK, "")


@given(st.binary(min_size=SHORTEST, max_size=40), st.binary(max_size=9), st.binary(max_size=9))
def test_base64_of_a_text_around_a_secret_does_not_pass_it(value: bytes, before: bytes, after: bytes) -> None:
    secret = value.hex()

    letters = base64.b64encode(before + secret.encode() + after).decode()
    masked = Redactor([secret]).text(letters)

    assert MASK in masked


@given(st.binary(max_size=200))
def test_what_holds_no_secret_stays_byte_for_byte(content: bytes) -> None:
    redactor = Redactor(["a secret that is nowhere"])

    assert redactor.blob(content) == content
    assert redactor.document(content) == content


def test_a_secret_on_the_longest_of_lines_is_not_cut_in_two(
    yard: Project, role: Path, places: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log takes lines in pieces; a secret that straddles two of them is still one."""
    monkeypatch.setenv("MY_TOKEN", "straddling-secret")
    program = (
        "import json, os, sys\nsys.stdin.read()\n"
        "sys.stderr.write('x' * 65530 + os.environ['TOKEN'][:8])\nsys.stderr.flush()\n"
        "sys.stderr.write(os.environ['TOKEN'][8:] + 'y' * 70000)\n"
        "print(json.dumps({'success': True, 'data': {}}))\n"
    )
    (role / "leak.py").write_text(program)
    trust(yard.grants, yard.root)

    assert run(yard, "print").ok
    log = yard.logs.read(yard.history.list()[0].id).replace("\n", "")
    assert "straddling" not in log
    assert "-secret" not in log
    assert MASK in log
