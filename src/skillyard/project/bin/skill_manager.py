#!/usr/bin/env python3
"""Manage the skills of this project.

usage: python bin/skill_manager.py list | search WORDS | info NAME | validate PATH_OR_NAME | record NAME
                                   | install SOURCE | uninstall NAME

Laid out by `skillyard init`. The library does the work; where this Python has none, the command `skillyard` does.
"""

import sys

if not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]  # first of all: what stands beside this script is not for it to import

try:
    from skillyard.faces.bin.skill_manager import main
except ModuleNotFoundError:
    import os
    import shutil

    command = shutil.which("skillyard")
    if command is None:
        sys.exit("skillyard is neither in this Python nor on the PATH; install it: pipx install skillyard")
    os.execv(command, [command, "bin", "skill_manager", *sys.argv[1:]])

main(sys.argv[1:])
