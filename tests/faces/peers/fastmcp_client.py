"""FastMCP's client, by the Python that has it: lists, gets and reads everything, and prints it as JSON."""

import asyncio
import base64
import hashlib
import json
import os
import sys
from pathlib import Path

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension


async def main() -> None:
    command, *args = sys.argv[1:]
    transport = StdioTransport(command=command, args=args, cwd=str(Path.cwd()), env=dict(os.environ))
    found = {}
    async with Client(transport, extensions=[SkillsClientExtension()]) as client:
        for skill in await client.list_skills():
            assert await client.get_skill(skill.uri) == skill
            for resource in skill.resources:
                (content,) = await client.read_resource(resource.uri)
                text = getattr(content, "text", None)
                raw = base64.b64decode(content.blob) if text is None else text.encode()
                assert resource.digest == f"sha256:{hashlib.sha256(raw).hexdigest()}"
                assert resource.size == len(raw)
            found[skill.uri] = [resource.uri for resource in skill.resources]
    print(json.dumps(found))


asyncio.run(main())
