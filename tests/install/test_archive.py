"""Archives that strangers made: what is fine comes out as it is, and of what is not, nothing is written."""

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.errors import SourceRefused
from skillyard.install.archive import extract
from skillyard.install.names import as_safe_path, link_stays_inside
from skillyard.install.source import Limits
from skillyard.install.target import copy_checked, digests_of

SMALL = Limits(total_bytes=1_000_000, files=50, ratio=20, free_bytes=10_000)


def zip_of(path: Path, *members: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.NameToInfo.clear()  # it would warn of a second file of one name
            archive.writestr(info, content)
    return path


def tar_of(path: Path, *members: tarfile.TarInfo | tuple[str, bytes, int]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size, info.mode = len(member[1]), member[2]
            archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


FILE, PROGRAM, SETUID, LINK, DEVICE = 0o100644, 0o100755, 0o104755, 0o120777, 0o020666
OK = ("a/SKILL.md", b"fine", FILE)

HOSTILE_NAMES = [
    "../out",
    "a/../../out",
    "/etc/passwd",
    "\\windows\\system32",
    "C:/x",
    "C:x",
    "a\\..\\..\\x",
    "nul",
    "a/CON.txt",
    "a/com¹",
    "a/x.",
    "a/x ",
    "a/x:stream",
    "a/what?",
    "a/\x1b[31m",
    "x" * 300,
    "d/" * 600 + "x",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
@pytest.mark.parametrize("ending", ["zip", "tar.gz", "tar"])
def test_a_hostile_name_refuses_the_whole_archive(name: str, ending: str, tmp_path: Path) -> None:
    make: Callable[..., Path] = zip_of if ending == "zip" else tar_of
    archive = make(tmp_path / f"x.{ending}", OK, (name, b"evil", FILE))
    with pytest.raises(SourceRefused):
        extract(archive, tmp_path / "out", SMALL)

    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [archive.name]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/README", "a/readme"),
        ("a/x", "a/x"),
        ("A/x", "a/y"),
        ("a/\u00e9", "a/e\u0301"),
        ("a/x", "a/x/y"),
        ("a/straße", "a/STRASSE"),
    ],
)
@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_two_names_for_one_file_refuse_the_archive(one: str, other: str, ending: str, tmp_path: Path) -> None:
    make: Callable[..., Path] = zip_of if ending == "zip" else tar_of
    archive = make(tmp_path / f"x.{ending}", OK, (one, b"1", FILE), (other, b"2", FILE))
    with pytest.raises(SourceRefused):
        extract(archive, tmp_path / "out", SMALL)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../..", "a/../../../x", "b/b/../../..", "", "C:\\x"])
def test_a_link_that_leads_out_refuses_the_archive(target: str, tmp_path: Path) -> None:
    packed = [
        zip_of(tmp_path / "x.zip", OK, ("a/link", target.encode(), LINK)),
        tar_of(tmp_path / "x.tar.gz", OK, special("a/link", tarfile.SYMTYPE, target)),
    ]
    for archive in packed:
        with pytest.raises(SourceRefused):
            extract(archive, tmp_path / "out", SMALL)
        assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "x.tar", OK, special("d", tarfile.SYMTYPE, "a"), ("d/SKILL.md", b"evil", FILE))
    with pytest.raises(SourceRefused):
        extract(archive, tmp_path / "out", SMALL)


@pytest.mark.parametrize(
    "member",
    [
        special("dev", tarfile.CHRTYPE),
        special("dev", tarfile.BLKTYPE),
        special("pipe", tarfile.FIFOTYPE),
        special("hard", tarfile.LNKTYPE, "/etc/passwd"),
        special("hard", tarfile.LNKTYPE, "../x"),
        special("hard", tarfile.LNKTYPE, "not-there"),
    ],
    ids=lambda member: f"{member.name}-{member.linkname}",
)
def test_devices_pipes_and_hard_links_out_refuse_the_archive(member: tarfile.TarInfo, tmp_path: Path) -> None:
    with pytest.raises(SourceRefused):
        extract(tar_of(tmp_path / "x.tar.gz", OK, member), tmp_path / "out", SMALL)

    assert not (tmp_path / "out").exists()


def test_a_device_in_a_zip_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(SourceRefused):
        extract(zip_of(tmp_path / "x.zip", OK, ("dev", b"", DEVICE)), tmp_path / "out", SMALL)


def test_bombs_are_refused_by_size_count_and_ratio(tmp_path: Path) -> None:
    many = [(f"f{count}", b"", FILE) for count in range(51)]
    bombs = [
        zip_of(tmp_path / "size.zip", ("x", os.urandom(1_000_001), FILE)),
        tar_of(tmp_path / "size.tar.gz", ("x", os.urandom(1_000_001), FILE)),
        zip_of(tmp_path / "ratio.zip", ("x", bytes(900_000), FILE)),
        tar_of(tmp_path / "ratio.tar.gz", ("x", bytes(900_000), FILE)),
        zip_of(tmp_path / "many.zip", *many),
        tar_of(tmp_path / "many.tar.gz", *many),
        tar_of(tmp_path / "huge.tar.gz", ("x", bytes(5_000_000), FILE)),
    ]
    for bomb in bombs:
        with pytest.raises(SourceRefused):
            extract(bomb, tmp_path / "out", SMALL)
        assert not (tmp_path / "out").exists()


def test_a_zip_that_lies_about_a_size_writes_no_more_than_it_said(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "x.zip", ("x", bytes(200_000), FILE))
    content = bytearray(archive.read_bytes())
    size = (200_000).to_bytes(4, "little")
    for _ in range(2):
        at = content.index(size)
        content[at : at + 4] = (5).to_bytes(4, "little")
    archive.write_bytes(content)
    with pytest.raises(SourceRefused):
        extract(archive, tmp_path / "out", SMALL)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04broken", b"\x1f\x8bbroken", b"no archive at all" * 99])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(SourceRefused):
        extract(tmp_path / "x.zip", tmp_path / "out", SMALL)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "x.tar.gz", ("a/SKILL.md", os.urandom(5000), FILE))
    archive.write_bytes(archive.read_bytes()[:3000])
    with pytest.raises(SourceRefused):
        extract(archive, tmp_path / "out", SMALL)

    assert not (tmp_path / "out").exists()


def test_setuid_goes_and_execute_stays(tmp_path: Path) -> None:
    members = (("a/run.sh", b"#!/bin/sh\n", SETUID), ("a/x", b"", PROGRAM), OK)
    for archive in (zip_of(tmp_path / "x.zip", *members), tar_of(tmp_path / "x.tar.gz", *members)):
        out = tmp_path / f"out-{archive.name}"
        extract(archive, out, SMALL)

        assert stat.S_IMODE((out / "a/run.sh").stat().st_mode) == 0o755
        assert stat.S_IMODE((out / "a/SKILL.md").stat().st_mode) == 0o644


def test_links_inside_and_hard_links_inside_come_out(tmp_path: Path) -> None:
    archive = tar_of(
        tmp_path / "x.tar.gz",
        OK,
        special("a/link", tarfile.SYMTYPE, "SKILL.md"),
        special("a/hard", tarfile.LNKTYPE, "a/SKILL.md"),
    )
    extract(archive, tmp_path / "out", SMALL)

    assert (tmp_path / "out/a/link").readlink() == Path("SKILL.md")
    assert (tmp_path / "out/a/hard").read_bytes() == b"fine"
    assert (tmp_path / "out/a/hard").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["技能/说明.md", "🧰/日本語.txt", "emoji-👩‍🔬/ß.md"])
def test_names_in_any_script_come_out(name: str, tmp_path: Path) -> None:
    for archive in (zip_of(tmp_path / "x.zip", (name, b"1", FILE)), tar_of(tmp_path / "x.tar.gz", (name, b"1", FILE))):
        extract(archive, tmp_path / archive.name[2:], SMALL)

        assert (tmp_path / archive.name[2:] / name).read_bytes() == b"1"


def test_names_that_windows_in_china_wrote_are_read_as_gbk(tmp_path: Path) -> None:
    name = "技能/说明.md"
    archive = zip_of(tmp_path / "x.zip", ("x" * len(name.encode("gbk")), b"1", FILE))
    archive.write_bytes(archive.read_bytes().replace(b"x" * len(name.encode("gbk")), name.encode("gbk")))
    extract(archive, tmp_path / "out", SMALL)

    assert (tmp_path / "out" / name).read_bytes() == b"1"


@given(st.text(max_size=30))
def test_a_path_that_passes_stays_below_its_folder(name: str) -> None:
    try:
        path = as_safe_path(name)
    except SourceRefused:
        return
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert as_safe_path(str(path)) == path


@given(st.lists(st.sampled_from(["..", "a", "b", "."]), max_size=6), st.integers(0, 3))
def test_a_link_that_passes_never_leaves_lexically(parts: list[str], depth: int) -> None:
    link = PurePosixPath(*["d"] * depth, "link")
    if link_stays_inside(link, "/".join(parts)):
        assert not os.path.normpath("/".join(["d"] * depth + parts)).startswith("..")


def test_a_folder_is_copied_only_where_all_of_it_may_be(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("x")
    (skill / "scripts/run").write_text("#!/bin/sh\n")
    (skill / "scripts/run").chmod(0o6755)
    (skill / "same").symlink_to("scripts/run")
    (skill / ".git").mkdir()
    copy_checked(skill, tmp_path / "copy")

    assert digests_of(tmp_path / "copy") == digests_of(skill)
    assert stat.S_IMODE((tmp_path / "copy/scripts/run").stat().st_mode) == 0o755
    assert not (tmp_path / "copy/.git").exists()

    (skill / "out").symlink_to("/etc/passwd")
    with pytest.raises(SourceRefused):
        copy_checked(skill, tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_pipe_in_a_folder_is_refused_and_never_opened(tmp_path: Path) -> None:
    (tmp_path / "skill").mkdir()
    os.mkfifo(tmp_path / "skill" / "SKILL.md")
    with pytest.raises(SourceRefused):
        copy_checked(tmp_path / "skill", tmp_path / "copy")
