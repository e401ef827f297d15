"""The server over stdin and stdout, for the agent that started it. It ends with its client, and its runs with it."""

import anyio
from mcp.server.stdio import stdio_server

from skillyard.faces.mcp.options import Options
from skillyard.faces.mcp.server import Service
from skillyard.kernel.assembly import Yard


def serve(yard: Yard, options: Options) -> None:
    """Until stdin ends."""
    anyio.run(_serve, Service(yard, options))


async def _serve(service: Service) -> None:
    async with stdio_server() as (reading, writing):
        await service.server.run(reading, writing, service.server.create_initialization_options())
