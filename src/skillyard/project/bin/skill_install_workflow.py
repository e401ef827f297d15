#!/usr/bin/env python3
"""Install skills; what the scan holds back waits for a decision (LangGraph, extra `skillyard[langgraph]`).

usage: python bin/skill_install_workflow.py start SOURCE [--skill NAME] [--thread ID]
       python bin/skill_install_workflow.py resume ID [--decisions '{"skill": "keep"}']

Laid out by `skillyard init`. The library does the work; where this Python has none, the command `skillyard` does.
"""

import os
import sys

if not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]  # first of all: what stands beside this script is not for it to import
PROJECT = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "")
PYTHON = tuple(os.path.join(os.path.realpath(each), "") for each in (sys.prefix, sys.base_prefix))


def is_outside(folder: str) -> bool:
    """Whether a folder is not the project's: nothing in the project may be imported or started in our place."""
    real = os.path.join(os.path.realpath(folder), "")
    return os.path.isabs(folder) and (not real.startswith(PROJECT) or real.startswith(PYTHON))


sys.path[:] = filter(is_outside, sys.path)

try:
    from skillyard.faces.bin.skill_install_workflow import main
except ModuleNotFoundError:
    import shutil

    command = shutil.which("skillyard", path=os.pathsep.join(filter(is_outside, os.get_exec_path())))
    if command is None:
        sys.exit("skillyard is neither in this Python nor on the PATH; install it: pipx install skillyard")
    os.execv(command, [command, "bin", "skill_install_workflow", *sys.argv[1:]])

main(sys.argv[1:])
