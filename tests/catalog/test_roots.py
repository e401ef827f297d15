from pathlib import Path

from skillyard.catalog.roots import find_project, list_roots


def make(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_the_nearest_parent_with_git_or_our_own_file_is_the_project(tmp_path: Path) -> None:
    project = make(tmp_path / "home" / "work" / "project")
    (project / "skillyard.toml").touch()
    deep = make(project / "src" / "deep")

    assert find_project(deep, tmp_path / "home") == project


def test_git_further_up_is_stronger_than_skills_nearby(tmp_path: Path) -> None:
    project = tmp_path / "work"
    make(project / ".git")
    nested = tmp_path / "work" / "part"
    make(nested / ".claude" / "skills")

    assert find_project(nested, tmp_path / "home") == project


def test_without_git_the_folder_with_skills_or_roles_is_the_project(tmp_path: Path) -> None:
    make(tmp_path / "a" / ".claude" / "skills")
    role = make(tmp_path / "b" / "agents" / "analyst")
    (role / "agent.yaml").touch()

    assert find_project(make(tmp_path / "a" / "sub"), tmp_path / "home") == tmp_path / "a"
    assert find_project(make(tmp_path / "b" / "sub"), tmp_path / "home") == tmp_path / "b"


def test_a_role_is_never_a_project_of_its_own_although_it_has_skills(tmp_path: Path) -> None:
    role = make(tmp_path / "b" / "agents" / "analyst")
    (role / "agent.yaml").touch()
    inside = make(role / ".claude" / "skills")

    assert find_project(inside, tmp_path / "home") == tmp_path / "b"


def test_nothing_marked_means_the_working_directory(tmp_path: Path) -> None:
    here = make(tmp_path / "here")

    assert find_project(here, tmp_path / "home") == here


def test_the_home_folder_and_everything_above_it_are_nobodys_project(tmp_path: Path) -> None:
    home = make(tmp_path / "users" / "me")
    make(home / ".git")
    make(home / ".claude" / "skills")

    assert find_project(home, home) is None
    assert find_project(tmp_path / "users", home) is None
    assert find_project(Path("/"), home) is None


def test_below_a_home_folder_with_git_the_working_directory_is_the_project(tmp_path: Path) -> None:
    home = make(tmp_path / "me")
    make(home / ".git")
    notes = make(home / "notes")

    assert find_project(notes, home) == notes


def test_the_projects_roots_come_before_the_users_and_ours_come_last(tmp_path: Path) -> None:
    roots = list_roots(tmp_path / "p", tmp_path / "home", tmp_path / "ours", [tmp_path / "team"])

    assert [root.label for root in roots] == [
        ".claude/skills",
        ".agents/skills",
        "skills",
        "agents",
        str(tmp_path / "team"),
        "~/.claude/skills",
        "~/.agents/skills",
        "skillyard home",
    ]
    assert [root.rank for root in roots] == sorted(root.rank for root in roots)
