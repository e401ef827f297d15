"""The server over stdin and stdout, for the agent that started it. It ends with its client, and its runs with it."""

import asyncio
import os
import signal

import anyio

from skillyard.app.project import Project
from skillyard.faces.mcp.options import Options
from skillyard.faces.mcp.server import Service
from skillyard.faces.mcp.transport import open_stdio


def serve(yard: Project, options: Options) -> None:
    """Until stdin ends, nobody reads any more, or a signal says so."""
    try:
        anyio.run(_serve, Service(yard, options))
    except* BrokenPipeError:
        pass  # the client has left; nothing more to say


async def _serve(service: Service) -> None:
    loop = asyncio.get_running_loop()
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(which, _leave, service)
    async with open_stdio() as (reading, writing):
        await service.server.run(reading, writing, service.server.create_initialization_options())


def _leave(service: Service) -> None:
    """Agents end their servers so. At once, because the thread that reads stdin sleeps until something comes."""
    service.close()
    os._exit(0)
