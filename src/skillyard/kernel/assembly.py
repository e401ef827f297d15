"""Builds the rest, each part when it is first needed."""

import os
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from skillyard.core.errors import InvalidArgs
from skillyard.kernel.places import Places, find_places

if TYPE_CHECKING:
    from pathlib import Path

    from skillyard.catalog.catalog import Catalog
    from skillyard.core.request import Request
    from skillyard.core.result import Result
    from skillyard.runtime.pipeline import Runtime
    from skillyard.store.runs import Runs


class Yard:
    """One project with everything in it."""

    def __init__(self, places: Places) -> None:
        self.places = places

    @cached_property
    def root(self) -> "Path":
        if self.places.project is None:
            raise InvalidArgs("this is not a project folder: change into one, or make one")
        return self.places.project

    @cached_property
    def catalog(self) -> "Catalog":
        from skillyard.catalog.catalog import Catalog
        from skillyard.catalog.index import Index
        from skillyard.catalog.roots import list_roots

        roots = list_roots(self.places.project, self.places.user_home, self.places.own_home)
        return Catalog(roots=roots, index=Index(self.places.index_file), uses=self._uses)

    @cached_property
    def runs(self) -> "Runs":
        from skillyard.store.database import open_database
        from skillyard.store.runs import Runs

        return Runs(open_database(self.places.database), str(self.places.project or ""))

    @cached_property
    def runtime(self) -> "Runtime":
        from skillyard.runtime.pipeline import Runtime
        from skillyard.sandbox.launch import LocalSandbox

        return Runtime(
            catalog=self.catalog,
            sandbox=LocalSandbox(),
            runs=self.runs,
            root=self.root,
            new_id=new_run_id,
        )

    def _uses(self) -> Mapping[str, int]:
        return self.runs.uses() if self.places.database.exists() else {}


def new_run_id() -> str:
    """Unique, and in the order of time as text: lists sort themselves."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(6).hex()}"


def open_yard() -> Yard:
    return Yard(find_places())


def run(request: "Request") -> "Result":
    """Run one skill of the project that the working directory belongs to."""
    return open_yard().runtime.run(request)
