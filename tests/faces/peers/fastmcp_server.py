"""FastMCP's server of a folder of skills, by the Python that has it: on stdio, or on a port of loopback."""

import sys

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

server = FastMCP("peer")
provider = SkillsDirectoryProvider(sys.argv[1], experimental_skills=True)
server.add_provider(provider)
server.add_extension(SkillsExtension(providers=[provider]))
if len(sys.argv) > 2:
    server.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    server.run(show_banner=False)
