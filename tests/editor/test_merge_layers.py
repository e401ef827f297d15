"""Several upper layers become one: what it shows over the project is what the layers showed one over the other."""

import os
from pathlib import Path

import pytest

from skillyard.editor.change_set import Change, LayerConflict, is_opaque, merge_layers, read_changes

DELETED = None


def layer(folder: Path, **entries: object) -> Path:
    """Make an upper layer: a text, None for a deletion, a dict for a folder, a set of one dict for an opaque one."""
    folder.mkdir()
    for name, entry in entries.items():
        place = folder / name.replace("_", ".")
        if entry is DELETED:
            os.mknod(place, 0o020000, 0)
        elif isinstance(entry, str):
            place.write_text(entry)
        elif isinstance(entry, list):
            os.setxattr(layer(place, **entry[0]), "user.overlay.opaque", b"y")
        else:
            assert isinstance(entry, dict)
            layer(place, **entry)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return layer(tmp_path / "project", a="a", sub={"b": "b", "deep": {"c": "c"}})


def merged(project: Path, before: Path | None, *uppers: Path) -> tuple[list[LayerConflict], set[tuple[str, str]]]:
    target = project.parent / "target"
    target.mkdir()
    found = merge_layers(uppers, before, project, target)
    return found, {kind_of(change) for change in read_changes(target, project, lambda _: False).changes}


def kind_of(change: Change) -> tuple[str, str]:
    return str(change.kind), change.path


def test_a_later_layer_wins_and_keeps_what_it_does_not_touch(project: Path, tmp_path: Path) -> None:
    before = layer(tmp_path / "before", a="one", n="n", sub={"b": DELETED}, d=[{"x": "x"}])
    upper = layer(tmp_path / "upper", a="two", n=DELETED, sub={"deep": {"c": "C"}}, d={"y": "y"})

    conflicts, changes = merged(project, before, upper)

    assert conflicts == []
    assert changes == {
        ("modified", "a"),
        ("deleted", "sub/b"),
        ("modified", "sub/deep/c"),
        ("added", "d"),
        ("added", "d/x"),
        ("added", "d/y"),
    }
    assert (tmp_path / "target/a").read_text() == "two"


def test_a_replaced_folder_hides_what_the_layer_before_had_in_it(project: Path, tmp_path: Path) -> None:
    before = layer(tmp_path / "before", sub={"new": "n"}, gone={"x": "x"})
    upper = layer(tmp_path / "upper", sub=[{"b": "other"}], gone=DELETED)

    conflicts, changes = merged(project, before, upper)

    assert conflicts == []
    assert changes == {("modified", "sub/b"), ("deleted", "sub/deep")}


def test_a_folder_made_anew_stays_without_what_was_deleted_before(project: Path, tmp_path: Path) -> None:
    conflicts, changes = merged(
        project, layer(tmp_path / "before", sub=DELETED), layer(tmp_path / "upper", sub=[{"x": "x"}])
    )

    assert conflicts == []
    assert changes == {("deleted", "sub/b"), ("deleted", "sub/deep"), ("added", "sub/x")}
    assert is_opaque(tmp_path / "target/sub")


def test_layers_side_by_side_may_fill_the_same_new_folder(project: Path, tmp_path: Path) -> None:
    one = layer(tmp_path / "one", out=[{"1": "1", "same": "s"}], sub={"b": DELETED})
    two = layer(tmp_path / "two", out=[{"2": "2", "same": "s"}], sub={"b": DELETED, "n": "n"})

    conflicts, changes = merged(project, None, one, two)

    assert conflicts == []
    assert {path for _, path in changes} == {"out", "out/1", "out/2", "out/same", "sub/b", "sub/n"}


@pytest.mark.parametrize(
    ("one", "two", "path"),
    [
        ({"a": "1"}, {"a": "2"}, "a"),
        ({"a": "1"}, {"a": DELETED}, "a"),
        ({"sub": DELETED}, {"sub": {"b": "2"}}, "sub"),
        ({"sub": [{"b": "1"}]}, {"sub": {"n": "2"}}, "sub"),
        ({"new": "1"}, {"new": {"x": "2"}}, "new"),
    ],
)
def test_two_layers_that_change_the_same_path_conflict(
    project: Path, tmp_path: Path, one: dict[str, object], two: dict[str, object], path: str
) -> None:
    layers = layer(tmp_path / "one", **one), layer(tmp_path / "two", n="n"), layer(tmp_path / "three", **two)

    conflicts, _ = merged(project, None, *layers)

    assert conflicts == [LayerConflict(path, 0, 2)]


def test_modes_links_and_odd_names_are_kept(project: Path, tmp_path: Path) -> None:
    upper = layer(tmp_path / "upper", d={"x": "x"})
    (upper / "d/x").chmod(0o750)
    (upper / "d").chmod(0o500)
    (upper / "link").symlink_to("d/nowhere")
    (upper / "\udcff").mkdir()

    conflicts, changes = merged(project, None, upper)

    assert conflicts == []
    assert {path for _, path in changes} == {"d", "d/x", "link", "\udcff"}
    target = tmp_path / "target"
    assert [oct((target / name).stat().st_mode & 0o777) for name in ("d", "d/x")] == ["0o500", "0o750"]
    assert (target / "link").readlink() == Path("d/nowhere")
