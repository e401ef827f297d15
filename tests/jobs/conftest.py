"""Projects whose flows are done here, with the skills of the module that asks."""

from collections.abc import Iterator

import pytest

from skillyard.app.project import Project
from tests.jobs.test_flow import Place, opened


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, yard: Project, skills: None) -> Iterator[Place]:
    with opened(yard, request.param) as made:
        yield made


@pytest.fixture
def memory(yard: Project, skills: None) -> Iterator[Place]:
    with opened(yard, "memory") as made:
        yield made
