"""1,520 real files: every one gets an answer, and the answers agree with an independent reading."""

import hashlib
from typing import Any

from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.core.skill import Skill
from skillyard.core.values import check_value

File = dict[str, Any]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def well_formed(file: File) -> bool:
    oracle = file["oracle"]
    return oracle["frontmatter"] == "ok" and oracle["yaml11_ok"] is True and "malformed" not in file["tags"]


def test_every_file_gets_an_answer_that_json_can_carry(manifest: list[File]) -> None:
    for file in manifest:
        reading = lint(read_skill(file["on_disk"]))

        assert reading.skill or not reading.ok, file["file"]
        check_value([finding.as_dict() for finding in reading.findings])
        if reading.skill:
            assert reading.skill.name, file["file"]
            check_value(reading.skill.fields)


def test_well_formed_files_agree_in_name_description_and_body(manifest: list[File]) -> None:
    files = [file for file in manifest if well_formed(file)]
    different = [file["file"] for file in files if not agrees(file)]

    print(f"well-formed: {len(files) - len(different)} of {len(files)} agree")
    assert len(files) > 1300
    assert different == []


def agrees(file: File) -> bool:
    oracle, reading = file["oracle"], read_skill(file["on_disk"])
    assert reading.skill
    return (
        reading.skill.name == oracle["name"]
        and digest(reading.skill.description) == oracle["description_sha256"]
        and digest(reading.body) == oracle["body_sha256"]
        and not any(finding.code == "yaml-invalid" for finding in reading.findings)
    )


def test_files_with_valid_yaml_and_another_flaw_agree_too(manifest: list[File]) -> None:
    """Wherever the other reading has a name, a description and a body, ours has the same."""
    for file in manifest:
        oracle = file["oracle"]
        if oracle["frontmatter"] == "ok" and oracle["yaml11_ok"] is True:
            reading = read_skill(file["on_disk"])
            assert reading.skill
            assert digest(reading.body) == oracle["body_sha256"], file["file"]
            assert not oracle["name"] or reading.skill.name == oracle["name"], file["file"]
            wanted = oracle["description_100"]
            assert not wanted or digest(reading.skill.description) == oracle["description_sha256"], file["file"]


def test_at_least_95_percent_of_the_repairs_agree_with_the_lenient_reading(manifest: list[File]) -> None:
    files = [
        file
        for file in manifest
        if file["oracle"]["yaml11_ok"] is not True and file["oracle"]["lenient_reference"]["status"] == "ok"
    ]
    different = [file["file"] for file in files if not repaired_alike(file)]

    print(f"repaired: {len(files) - len(different)} of {len(files)} agree; not: {different}")
    assert len(different) <= len(files) * 0.05


def repaired_alike(file: File) -> bool:
    reading, wanted = read_skill(file["on_disk"]), file["oracle"]["lenient_reference"]
    skill: Skill | None = reading.skill
    if skill is None:
        return False
    return (skill.name, skill.description[:100]) == (wanted["name"], wanted["description_100"])


def test_a_file_that_no_yaml_parser_takes_is_never_strictly_ok(manifest: list[File]) -> None:
    for file in manifest:
        if file["oracle"]["yaml11_ok"] is not True:
            assert not read_skill(file["on_disk"]).ok, file["file"]


def test_each_repair_says_where(manifest: list[File]) -> None:
    for file in manifest:
        reading = read_skill(file["on_disk"])
        lines = reading.text.count("\n") + 1
        for finding in reading.findings:
            assert 1 <= finding.line <= lines + 1, (file["file"], finding)
            assert finding.column >= 1, (file["file"], finding)
            assert finding.advice, finding.code


def test_no_slash_command_of_the_wild_is_ever_a_program(manifest: list[File]) -> None:
    for file in manifest:
        skill = read_skill(file["on_disk"]).skill
        assert skill is None or not skill.command.startswith("/"), file["file"]
