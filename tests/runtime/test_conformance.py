"""`skillyard check`: good skills pass, and each thing that can be wrong with one is found and named."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import jsonschema_rs
import pytest
from tools.envelope_schema import envelope_schema

from skillyard.app.project import Project
from skillyard.catalog.manifest import read_skill
from skillyard.core.envelope import from_json
from skillyard.runners.probes import ExpectedParam, Probe, ProbeVerdict, described, make_up
from skillyard.runtime.trial import open_trial, probe
from tests.conftest import Skillyard, WriteSkill

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "skills"

#: S3's own sample, to the letter.
S3_SAMPLE = """\
#!/usr/bin/env python3
import json
import sys

def analyze(params):
    days = params.get("days", 7)
    # 模拟分析
    return {
        "success": True,
        "data": {
            "average": 85.3,
            "trend": "improving",
            "days_analyzed": days
        }
    }

def main():
    try:
        input_data = json.loads(sys.stdin.read())
        action = input_data.get("action")

        if action == "analyze":
            result = analyze(input_data.get("params", {}))
        else:
            result = {
                "success": False,
                "error": {"code": "UNKNOWN_ACTION", "message": f"Unknown action: {action}"}
            }

        print(json.dumps(result, ensure_ascii=False))
    except Exception as e:
        print(json.dumps({"success": False, "error": {"code": "INTERNAL_ERROR", "message": str(e)}}))

if __name__ == "__main__":
    main()
"""

#: A good program with one line that a test spoils.
GOOD = """\
import json, os, sys, time

def answer(request):
    if not isinstance(request, dict) or not isinstance(request.get("params") or {}, dict):
        return {"success": False, "error": {"code": "INVALID_PARAM", "message": "no object"}}
    action, params = request.get("action"), request.get("params") or {}
    if action != "analyze":
        error = {"code": "UNKNOWN_ACTION", "message": "unknown", "supported_actions": ["analyze"]}
        return {"success": False, "action": action, "error": error}
    if "target" not in params:
        return {"success": False, "action": action, "error": {"code": "MISSING_PARAM", "message": "target"}}
    if not isinstance(params["target"], str):
        return {"success": False, "action": action, "error": {"code": "INVALID_PARAM", "message": "target"}}
    data = {"target": params["target"]}
    #SPOIL
    return {"success": True, "action": action, "data": data}

try:
    response = answer(json.loads(sys.stdin.read()))
except ValueError as error:
    response = {"success": False, "error": {"code": "INVALID_JSON", "message": str(error)}}
print(json.dumps(response))
sys.exit(0 if response["success"] else 1)
"""
JSON_MD = """\
---
name: demo
description: A skill for tests. Use in tests.
protocol: json
entry: skill.py
actions: [analyze]
params:
  target: {required: true, type: string}
---
# Demo
"""
COMMAND_MD = """\
---
name: demo
description: A skill for tests. Use in tests.
command: python main.py {input} --out {output}
params:
  input: {required: true, type: path, description: The file}
---
# Demo
"""
COMMAND = """\
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("input")
parser.add_argument("--out")
options = parser.parse_args()
#SPOIL
print(len(pathlib.Path(options.input).read_text()))
"""


def check(path: Path, yard: Project, limit_seconds: float = 10) -> dict[str, Probe]:
    skill = read_skill(path).skill
    assert skill is not None
    with yard, open_trial(yard.sandbox, yard.paths.own_home, limit_seconds) as bench:
        return {done.name: done for done in probe(skill, bench)}


def verdicts(probes: Mapping[str, Probe], verdict: ProbeVerdict) -> set[str]:
    return {name for name, done in probes.items() if done.verdict is verdict}


@pytest.mark.parametrize("folder", sorted(path.name for path in EXAMPLES.iterdir()))
def test_every_example_passes(folder: str, yard: Project) -> None:
    probes = check(EXAMPLES / folder / "SKILL.md", yard)

    assert verdicts(probes, ProbeVerdict.FAILED) == set()
    assert len(probes) >= 3


def test_a_good_json_skill_passes_every_probe_without_advice(yard: Project, write_skill: WriteSkill) -> None:
    probes = check(write_skill("demo", JSON_MD, {"skill.py": GOOD}), yard)

    # A busy machine can make the program faster or slower than half of what it just took: then nothing was shown.
    timed = probes.pop("stopped half-way")
    assert timed.verdict in {ProbeVerdict.PASSED, ProbeVerdict.SKIPPED} or "to stop" in timed.says
    assert {name for name, done in probes.items() if done.advice or done.verdict is not ProbeVerdict.PASSED} == set()
    assert len(probes) == 19


def test_the_sample_of_s3_passes_with_advice(yard: Project, write_skill: WriteSkill) -> None:
    text = JSON_MD.replace("params:\n  target: {required: true, type: string}\n", "")
    probes = check(write_skill("demo", text, {"skill.py": S3_SAMPLE}), yard)

    assert verdicts(probes, ProbeVerdict.FAILED) == set()
    assert probes["not JSON"].advice == "INVALID_JSON is the code for this"
    assert "supported_actions" in probes["unknown action"].advice
    assert "echo" in probes["action"].advice


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        ('print("log line")', {"stdout", "analyze: valid request"}),
        ('data["now"] = time.time_ns()', {"analyze: same request twice"}),
        ('return {"success": True, "action": "other", "data": data}', {"action"}),
        ("sys.exit(3)", {"stdout", "analyze: valid request"}),
        ('return {"data": data}', {"stdout", "analyze: valid request"}),
        ('raise ValueError("boom")', {"analyze: valid request"}),
        ("os._exit(0)", {"stdout", "analyze: valid request"}),
    ],
)
def test_what_an_action_does_wrong_is_found(
    spoil: str, found: set[str], yard: Project, write_skill: WriteSkill
) -> None:
    path = write_skill("demo", JSON_MD, {"skill.py": GOOD.replace("#SPOIL", spoil)})

    assert verdicts(check(path, yard), ProbeVerdict.FAILED) == found


@pytest.mark.parametrize(
    ("line", "instead", "found"),
    [
        ("except ValueError", "except KeyError", {"empty stdin", "not JSON", "stdout"}),
        ("not isinstance(request, dict) or ", "", {"not an object", "stdout"}),
        ('"UNKNOWN_ACTION"', '"INVALID_PARAM"', {"unknown action"}),
        ('if "target" not in params', "if False", {"analyze: no params", "stdout"}),
        ('if not isinstance(params["target"], str)', "if False", {"analyze: wrong params"}),
        ("else 1)\n", "else 7)\n", {"exit code"}),
        ("import json, os", "print('hello')\nimport json, os", {"*"}),
    ],
)
def test_what_a_program_does_wrong_is_found(
    line: str, instead: str, found: set[str], yard: Project, write_skill: WriteSkill
) -> None:
    assert line in GOOD
    probes = check(write_skill("demo", JSON_MD, {"skill.py": GOOD.replace(line, instead)}), yard)

    failed = verdicts(probes, ProbeVerdict.FAILED)
    assert failed == found or ("*" in found and "stdout" in failed and len(failed) > 8)
    assert all(probes[name].advice for name in failed)


def test_a_skill_that_hangs_is_stopped_at_the_limit(yard: Project, write_skill: WriteSkill) -> None:
    path = write_skill("demo", JSON_MD, {"skill.py": GOOD.replace("#SPOIL", "time.sleep(60)")})
    started = time.monotonic()

    probes = check(path, yard, limit_seconds=0.5)

    assert {"analyze: valid request", "response time", "stdout"} <= verdicts(probes, ProbeVerdict.FAILED)
    assert time.monotonic() - started < 40


@pytest.mark.alone  # the probe stops a run after half of what another one took
def test_what_a_stopped_run_leaves_behind_must_not_change_the_next_answer(
    yard: Project, write_skill: WriteSkill
) -> None:
    spoil = """
    if os.path.exists("mybox/temp/lock"):
        return {"success": False, "action": action, "error": {"code": "TIMEOUT", "message": "locked"}}
    open("mybox/temp/lock", "w").close()
    time.sleep(1)
    os.unlink("mybox/temp/lock")"""
    probes = check(write_skill("demo", JSON_MD, {"skill.py": GOOD.replace("#SPOIL", spoil)}), yard)

    assert verdicts(probes, ProbeVerdict.FAILED) == {"stopped half-way"}


def test_an_entry_that_is_missing_is_said_once(yard: Project, write_skill: WriteSkill) -> None:
    probes = check(write_skill("demo", JSON_MD), yard)

    assert verdicts(probes, ProbeVerdict.FAILED) == {"entry"}


def test_actions_that_nobody_declared_are_asked_of_the_skill(yard: Project, write_skill: WriteSkill) -> None:
    text = JSON_MD.replace("actions: [analyze]\n", "")
    probes = check(write_skill("demo", text, {"skill.py": GOOD}), yard)

    assert probes["analyze: valid request"].verdict is ProbeVerdict.PASSED


def test_a_good_command_skill_passes(yard: Project, write_skill: WriteSkill) -> None:
    probes = check(write_skill("demo", COMMAND_MD, {"main.py": COMMAND}), yard)

    assert verdicts(probes, ProbeVerdict.PASSED) == probes.keys()
    assert probes["missing params"].says == "the run waits for input"


@pytest.mark.alone  # everything else must be over within the limit of the one that hangs
@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        ('open("stray.txt", "w")', "runs"),
        ('open("/etc/stray.txt", "w")', "runs"),
        ("import time; time.sleep(60)", "runs"),
    ],
)
def test_a_command_that_does_not_keep_to_its_place_is_found(
    spoil: str, found: str, yard: Project, write_skill: WriteSkill
) -> None:
    path = write_skill("demo", COMMAND_MD, {"main.py": COMMAND.replace("#SPOIL", spoil)})

    assert verdicts(check(path, yard, limit_seconds=2), ProbeVerdict.FAILED) == {found}


def test_a_traceback_is_no_usage_text(yard: Project, write_skill: WriteSkill) -> None:
    program = "import sys\nassert len(sys.argv) == 4\n"

    assert verdicts(check(write_skill("demo", COMMAND_MD, {"main.py": program}), yard), ProbeVerdict.FAILED) == {
        "wrong option"
    }


def test_a_program_that_is_missing_and_a_command_for_a_shell_are_found(yard: Project, write_skill: WriteSkill) -> None:
    assert verdicts(check(write_skill("demo", COMMAND_MD), yard), ProbeVerdict.FAILED) == {"program"}
    text = COMMAND_MD.replace("--out {output}", "| sort")
    probes = check(write_skill("demo", text, {"main.py": COMMAND}), yard)
    assert verdicts(probes, ProbeVerdict.FAILED) == {"SKILL.md", "command"}


def test_broken_links_and_too_long_texts_are_found(yard: Project, write_skill: WriteSkill) -> None:
    head = "---\nname: demo\ndescription: A skill for tests. Use in tests.\n---\n"
    text = f"{head}[a](references/a.md) and [b](b.md), run scripts/x.py\n"

    probes = check(write_skill("demo", text), yard)
    assert verdicts(probes, ProbeVerdict.FAILED) == {"files it names"}
    assert probes["files it names"].says == "not there: references/a.md, b.md"
    probes = check(write_skill("demo", text, {"references/a.md": "", "b.md": ""}), yard)
    assert probes["files it names"].says == "mentioned, but not there: scripts/x.py"
    probes = check(write_skill("demo", head + "字" * 30_001), yard)
    assert verdicts(probes, ProbeVerdict.FAILED) == {"size"}


def test_the_project_is_not_touched_and_nothing_is_recorded(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("demo", COMMAND_MD, {"main.py": COMMAND})

    shown = skillyard("check", "@demo")

    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.splitlines()[0] == "demo (command)"
    assert shown.stdout.splitlines()[-1] == "7 passed, 0 failed, 0 skipped"
    assert not (project / "mybox").exists()
    assert from_json(skillyard("runs", "--json").stdout).data["runs"] == []


def test_check_fails_with_1_and_tells_programs_every_probe(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    path = write_skill("demo", JSON_MD, {"skill.py": "print('hello')"})

    as_json = skillyard("check", str(path.parent), "--json").stdout
    jsonschema_rs.validator_for(envelope_schema()).validate(json.loads(as_json))
    by_path = from_json(as_json)
    shown = skillyard("check", str(path))

    assert shown.returncode == 1
    assert "FAIL empty stdin: stdout is not JSON" in shown.stdout
    assert "       → " in shown.stdout
    assert by_path.data["kind"] == "json"
    probes = by_path.data["probes"]
    assert isinstance(probes, list)
    assert {"name", "verdict", "says", "advice"} == set(probes[0])


def test_strict_takes_advice_for_failure(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    text = JSON_MD.replace("params:\n  target: {required: true, type: string}\n", "")
    write_skill("demo", text, {"skill.py": S3_SAMPLE})

    assert skillyard("check", "@demo").returncode == 0
    assert skillyard("check", "@demo", "--strict").returncode == 1


def test_a_skill_of_a_role_is_checked_in_its_own_folder(skillyard: Skillyard, project: Path) -> None:
    role = project / "agents" / "analyst"
    (role / ".claude" / "skills").mkdir(parents=True)
    (role / "agent.yaml").write_text("name: analyst\nskills:\n  - name: demo\n    entry: .claude/skills/demo.py\n")
    spoiled = GOOD.replace("#SPOIL", 'assert os.path.exists("agent.yaml")')
    (role / ".claude" / "skills" / "demo.py").write_text(spoiled)

    shown = skillyard("check", "@analyst/demo")

    assert shown.returncode == 0, shown.stdout
    assert "analyze: no params: answered MISSING_PARAM" in shown.stdout


@pytest.mark.parametrize(
    ("target", "type_"), [("@nobody", "SkillNotFound"), ("no/such/path", "SkillNotFound"), (".", "MetadataMissing")]
)
def test_what_is_no_skill_is_said_so(target: str, type_: str, skillyard: Skillyard) -> None:
    shown = skillyard("check", target, "--json")

    assert shown.returncode == 1
    assert from_json(shown.stdout).data["type"] == type_


def test_values_are_made_up_from_what_is_declared() -> None:
    params = (
        ExpectedParam("a", "string", required=True),
        ExpectedParam("b", "int", default=3),
        ExpectedParam("c", "enum", choices=("x", "y")),
        ExpectedParam("d", "path"),
    )

    assert make_up(params, "p") == {"a": "example", "b": 3}
    assert make_up(params, "p", every=True) == {"a": "example", "b": 3, "c": "x", "d": "p"}
    assert described(b"no json") == described(b"[]") == described(b'{"actions": [1]}') == {}
