"""What is active: by name, per conversation and project, in order, once; and gone with the skill."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.errors import InvalidArgs, MetadataMissing, SkillNotFound
from skillyard.store.activations import Activation, Activations
from skillyard.store.database import open_database
from tests.conftest import TORTURE, Skillyard, WriteSkill


def skill_text(name: str, body: str = "Do it.") -> str:
    return f"---\nname: {name}\ndescription: x\n---\n\n{body}\n"


def activate(yard: Project, *names: str, session: str | None = None) -> list[bool]:
    yard.catalog.sync()
    return [change.changed for change in yard.activator.activate(names, session, 1.0)]


def names(yard: Project, session: str | None = None) -> list[str]:
    return [skill.name for skill in yard.contents.active(session).skills]


def rows(yard: Project) -> int:
    return int(open_database(yard.paths.database).execute("SELECT count(*) FROM activations").fetchone()[0])


@pytest.fixture
def three(write_skill: WriteSkill) -> None:
    for name in ("a", "b", "c"):
        write_skill(name, skill_text(name))


@pytest.mark.usefixtures("three")
def test_global_and_conversation_are_one_list_in_the_order_of_activation(yard: Project) -> None:
    activate(yard, "b")
    activate(yard, "c", session="talk")
    activate(yard, "a")

    assert names(yard) == ["b", "a"]
    assert names(yard, "talk") == ["b", "c", "a"]
    assert names(yard, "other talk") == ["b", "a"]


@pytest.mark.usefixtures("three")
def test_active_twice_is_active_once_and_keeps_its_place(yard: Project) -> None:
    assert activate(yard, "a", "b", "@a") == [True, True]
    assert activate(yard, "a", session="talk") == [True]
    assert activate(yard, "a") == [False]

    assert names(yard, "talk") == ["a", "b"]


@pytest.mark.usefixtures("three")
def test_what_was_taken_back_and_activated_again_comes_last(yard: Project) -> None:
    activate(yard, "a", "b")
    yard.activator.deactivate(["a"], None)
    activate(yard, "a")

    assert names(yard) == ["b", "a"]


@pytest.mark.usefixtures("three")
def test_taking_back_is_about_one_conversation_or_about_what_is_global(yard: Project) -> None:
    activate(yard, "a", "b")
    activate(yard, "a", "c", session="talk")

    assert [change.changed for change in yard.activator.deactivate(["c", "a"], None)] == [False, True]
    assert names(yard, "talk") == ["b", "a", "c"]
    assert [change.name for change in yard.activator.deactivate_all("talk")] == ["a", "c"]
    assert names(yard, "talk") == ["b"]


@pytest.mark.usefixtures("three")
def test_one_unknown_name_and_nothing_changes(yard: Project) -> None:
    activate(yard, "b")
    with pytest.raises(SkillNotFound):
        activate(yard, "a", "nobody")
    with pytest.raises(SkillNotFound):
        yard.activator.deactivate(["b", "nobody"], None)

    assert names(yard) == ["b"]


def test_a_name_that_is_nearly_right_gets_a_suggestion(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("code-review", skill_text("code-review"))

    with pytest.raises(SkillNotFound) as failed:
        activate(yard, "code-reveiw")
    assert failed.value.details["nearest"] == ["code-review"]


def test_what_has_no_text_to_hand_over_cannot_be_activated(
    yard: Project, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("broken", "")
    role = project / "agents" / "clerk"
    role.mkdir(parents=True)
    (role / "agent.yaml").write_text("skills:\n  - name: post\n    entry: post.py\n")

    with pytest.raises(MetadataMissing):
        activate(yard, "broken")
    with pytest.raises(InvalidArgs, match=r"agent\.yaml"):
        activate(yard, "clerk/post")


@pytest.mark.parametrize("session", ["", "  ", "a\nb", "x" * 201, "\udcff", "\x9b"])
@pytest.mark.usefixtures("three")
def test_a_session_needs_a_name_that_can_be_read_back(yard: Project, session: str) -> None:
    with pytest.raises(InvalidArgs):
        activate(yard, "a", session=session)
    with pytest.raises(InvalidArgs):
        yard.contents.active(session)


@pytest.mark.usefixtures("three")
def test_a_session_may_be_called_anything_else(yard: Project) -> None:
    for session in ("发布 说明", "👨‍👩‍👧", "a'; DROP TABLE activations; --", "a:b", "%_*"):
        activate(yard, "a", session=session)
        assert names(yard, session) == ["a"]
    assert names(yard, "x") == []


def test_users_do_not_see_each_others(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("a", skill_text("a"))
    yard.catalog.sync()
    yard.activator.activate(["a"], None, 1.0, user="ann")

    assert names(yard) == []
    assert [skill.name for skill in yard.contents.active(user="ann").skills] == ["a"]


def other_project(places: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    return places._replace(project=other)


def test_a_projects_skill_is_active_in_its_project_and_the_users_everywhere(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill, tmp_path: Path
) -> None:
    write_skill("mine", skill_text("mine"), root=places.user_home / ".claude" / "skills")
    write_skill("theirs", skill_text("theirs"))
    activate(yard, "mine", "theirs")
    activate(yard, "mine", session="talk")
    yard.activator.deactivate(["mine"], None)
    activate(yard, "mine")

    with Project(other_project(places, tmp_path)) as other:
        assert names(other) == ["mine"]
        assert [skill.conversation for skill in other.contents.active("talk").skills] == [""]
    assert names(yard) == ["theirs", "mine"]


def test_a_conversation_belongs_to_its_project(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill, tmp_path: Path
) -> None:
    write_skill("mine", skill_text("mine"), root=places.user_home / ".claude" / "skills")
    activate(yard, "mine", session="main")

    with Project(other_project(places, tmp_path)) as other:
        assert names(other, "main") == []


def test_a_clone_with_a_skill_of_the_same_name_does_not_take_the_users_place(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    mine = write_skill("pdf", skill_text("pdf", "mine"), root=places.user_home / ".claude" / "skills")
    activate(yard, "pdf")
    write_skill("pdf", skill_text("pdf", "the clone's"))

    (only,) = yard.contents.active().skills
    assert (only.content, only.path) == ("mine", str(mine))

    activate(yard, "pdf")
    assert [skill.content for skill in yard.contents.active().skills] == ["mine", "the clone's"]
    assert len(yard.activator.deactivate(["pdf"], None)) == 2
    assert names(yard) == []


def test_one_file_that_is_reached_in_two_ways_is_handed_over_once(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    folder = write_skill("real", skill_text("real")).parent
    (folder.parent / "link").symlink_to(folder)
    activate(yard, "real")
    yard.activations.add("default", [Activation(str(folder.parent / "link"), "", str(project))], 1.0)

    assert names(yard) == ["real"]


@pytest.mark.usefixtures("three")
def test_a_folder_that_is_away_for_a_moment_is_told_and_keeps_its_activation(yard: Project, project: Path) -> None:
    activate(yard, "a", "b")
    activate(yard, "a", session="talk")
    folder = project / ".claude" / "skills" / "a"
    folder.rename(project / "away")

    active = yard.contents.active("talk")
    assert [skill.name for skill in active.skills] == ["b"]
    ((lost),) = active.unreadable
    assert (lost.name, lost.path) == ("a", str(folder / "SKILL.md"))
    assert "the folder is not there" in lost.reason
    assert "skillyard deactivate a" in lost.reason
    (project / "away").rename(folder)
    assert names(yard) == ["a", "b"]


@pytest.mark.usefixtures("three")
def test_what_is_gone_for_good_is_deactivated_by_its_folders_name(yard: Project, project: Path) -> None:
    activate(yard, "a", "b")
    shutil.rmtree(project / ".claude" / "skills" / "a")

    assert [(each.name, each.changed) for each in yard.deactivate("a")] == [("a", True)]
    assert yard.contents.active().unreadable == ()


@pytest.mark.usefixtures("three")
def test_a_file_that_is_missing_is_told(yard: Project, project: Path) -> None:
    activate(yard, "a")
    (project / ".claude" / "skills" / "a" / "SKILL.md").unlink()

    assert ["there is no SKILL.md" in lost.reason for lost in yard.contents.active().unreadable] == [True]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("moved", "place", "order"),
    [
        (["c"], {"first": True}, "c a b"),
        (["c"], {"before": "b"}, "a c b"),
        (["b", "c"], {"before": "a"}, "b c a"),
        (["c", "b"], {"first": True}, "c b a"),
        (["a"], {"before": "c"}, "b a c"),
        (["a"], {}, "a b c"),
    ],
)
def test_the_order_can_be_changed(yard: Project, moved: list[str], place: dict[str, Any], order: str) -> None:
    yard.activate("a", "b", "c")
    before = names(yard)

    changes = yard.activate(*moved, **place)

    assert names(yard) == order.split()
    assert any(change.changed for change in changes) == (before != order.split())


@pytest.mark.usefixtures("three")
def test_a_new_one_can_come_first_and_nothing_counts_if_the_place_is_none(yard: Project) -> None:
    yard.activate("a", "b")

    with pytest.raises(InvalidArgs):
        yard.activate("c", before="nobody")
    with pytest.raises(InvalidArgs):
        yard.activate("c", first=True, before="a")
    assert names(yard) == ["a", "b"]
    yard.activate("c", conversation="talk", first=True)
    assert [skill.name for skill in yard.contents.active("talk").skills] == ["c", "a", "b"]
    assert names(yard) == ["a", "b"]


def test_the_command_moves_what_is_active(skillyard: Skillyard, write_skill: WriteSkill, yard: Project) -> None:
    for name in ("甲", "b"):
        write_skill(name, skill_text(name))

    assert skillyard("activate", "甲").returncode == 0
    assert skillyard("activate", "b", "--before", "甲").returncode == 0
    assert names(yard) == ["b", "甲"]
    assert skillyard("activate", "甲", "--first", "--before", "b").returncode == 2
    assert skillyard("activate", "甲", "--first").returncode == 0
    assert names(yard) == ["甲", "b"]


def test_a_users_skill_can_be_active_in_one_project_only(
    skillyard: Skillyard, write_skill: WriteSkill, places: ProjectPaths, tmp_path: Path
) -> None:
    write_skill("style", skill_text("style"), root=places.user_home / ".claude" / "skills")
    (tmp_path / "other" / ".git").mkdir(parents=True)

    assert skillyard("activate", "style", "--here").returncode == 0

    with Project(places) as here, Project(places._replace(project=tmp_path / "other")) as there:
        assert (names(here), names(there)) == (["style"], [])
        here.deactivate("style")
        there.activate("style")
        assert (names(here), names(there)) == (["style"], ["style"])


@pytest.mark.usefixtures("three")
def test_python_activates_and_deactivates(yard: Project) -> None:
    assert [(each.name, each.changed) for each in yard.activate("@a", "b", conversation="talk")] == [
        ("a", True),
        ("b", True),
    ]
    assert [(each.name, each.changed) for each in yard.deactivate("b", "c", conversation="talk")] == [
        ("b", True),
        ("c", False),
    ]
    assert [skill.name for skill in yard.contents.active("talk").skills] == ["a"]
    with pytest.raises(SkillNotFound):
        yard.activate("a", "no-such")


@pytest.mark.usefixtures("three")
def test_a_file_that_is_just_being_replaced_costs_no_activation(yard: Project, project: Path) -> None:
    activate(yard, "a")
    file = project / ".claude" / "skills" / "a" / "SKILL.md"
    file.rename(file.with_suffix(".bak"))

    assert names(yard) == []
    file.with_suffix(".bak").rename(file)
    assert names(yard) == ["a"]


@pytest.mark.usefixtures("three")
def test_a_project_that_is_not_mounted_costs_no_activation(yard: Project, project: Path) -> None:
    activate(yard, "a")
    project.rename(project.with_name("away"))

    assert names(yard) == []
    project.with_name("away").rename(project)
    assert names(yard) == ["a"]


def test_ten_thousand_activations_are_one_list_and_a_conversation_finds_its_own(tmp_path: Path) -> None:
    activations = Activations(open_database(tmp_path / "state.db"))
    everything = [Activation(f"/skills/{i}", f"talk-{i % 100}" if i % 2 else "", "/p") for i in range(10_000)]

    assert activations.add("default", everything, 1.0) == tuple(everything)
    assert activations.add("default", everything, 2.0) == ()
    found = activations.list("default", "talk-7", "/p")
    assert found == tuple(row for row in everything if row.conversation in {"", "talk-7"})


def test_thousands_of_active_skills_are_read_in_order(yard: Project, project: Path) -> None:
    count = 10_000 if TORTURE else 2_000
    root = project / ".claude" / "skills"
    for i in range(count):
        (root / f"s-{i}").mkdir(parents=True)
        (root / f"s-{i}" / "SKILL.md").write_text(skill_text(f"s-{i}"))
    yard.activations.add("default", [Activation(str(root / f"s-{i}"), "", str(project)) for i in range(count)], 1.0)

    assert names(yard) == [f"s-{i}" for i in range(count)]
    shutil.rmtree(root)
    assert names(yard) == []
    assert len(yard.contents.active().unreadable) == count


ACTIVATOR = """
import sys, time
from pathlib import Path
from skillyard.app.project import Project
from skillyard.app.paths import ProjectPaths
project, user_home, own_home, *names = sys.argv[1:]
with Project(ProjectPaths(Path(project), Path(user_home), Path(own_home))) as yard:
    yard.catalog.sync()
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(change.changed for change in yard.activator.activate(names, None, time.time())), flush=True)
"""


def test_two_processes_that_activate_at_once_activate_each_skill_once(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    wanted = [f"s-{i}" for i in range(50)]
    for name in wanted:
        write_skill(name, skill_text(name))
    command = [sys.executable, "-c", ACTIVATOR, *map(str, places), *wanted]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        for _ in range(2)
    ]
    for each in both:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in both:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    said = [int(each.communicate(timeout=60)[0]) for each in both]

    assert sorted(said) == [0, 50]
    assert names(yard) == wanted
    assert rows(yard) == 50


def test_threads_share_what_was_read_and_all_see_the_same(places: ProjectPaths, write_skill: WriteSkill) -> None:
    for i in range(20):
        write_skill(f"s-{i}", skill_text(f"s-{i}"))
    with Project(places) as yard:
        activate(yard, *(f"s-{i}" for i in range(20)))
    seen: list[list[str]] = []

    def look() -> None:
        for _ in range(20):
            with Project(places) as own:
                seen.append(names(own))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert seen == [[f"s-{i}" for i in range(20)]] * 80


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Activations]]:
    connection = open_database(tmp_path_factory.mktemp("home") / "state.db")

    def fresh() -> Activations:
        connection.execute("DELETE FROM activations")
        return Activations(connection)

    yield fresh
    connection.close()


STEP = st.tuples(
    st.booleans(),
    st.builds(
        Activation,
        st.sampled_from(["/a", "/b", "/c"]),
        st.sampled_from(["", "t", "u"]),
        st.sampled_from(["", "/p", "/q"]),
    ),
)


@settings(max_examples=200)
@given(steps=st.lists(STEP, max_size=20))
def test_the_table_is_an_ordered_set(table: Callable[[], Activations], steps: list[tuple[bool, Activation]]) -> None:
    activations, model = table(), list[Activation]()
    for is_added, row in steps:
        if is_added:
            added = activations.add("default", [row], 1.0)
            assert added == (() if row in model else (row,))
            model += added
        else:
            activations.remove("default", [row])
            model = [each for each in model if each != row]

    counts = [row for row in model if row[1:] in {("", ""), ("", "/p"), ("t", "/p")}]
    assert list(activations.list("default", "t", "/p")) == counts
