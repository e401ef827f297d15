#!/usr/bin/env python3
"""Install skills; what the scan holds back waits for a decision (LangGraph, extra `skillyard[langgraph]`).

usage: python bin/skill_install_workflow.py start SOURCE [--skill NAME] [--thread ID]
       python bin/skill_install_workflow.py resume ID [--decisions '{"skill": "keep"}']

Laid out by `skillyard init`. The library does the work; where this Python has none, the command `skillyard` does.
"""

import sys

if not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]  # first of all: what stands beside this script is not for it to import

try:
    from skillyard.faces.bin.skill_install_workflow import main
except ModuleNotFoundError:
    import os
    import shutil

    command = shutil.which("skillyard")
    if command is None:
        sys.exit("skillyard is neither in this Python nor on the PATH; install it: pipx install skillyard")
    os.execv(command, [command, "bin", "skill_install_workflow", *sys.argv[1:]])

main(sys.argv[1:])
