"""Run a script of bin/ without its file, for a Python that has no library.

The script prints one result in two lines, as it does for the worker; options such as --json are not its own.

examples:
  skillyard bin skill_manager list
  skillyard bin skill_scanner scan
"""

import argparse
import importlib

from skillyard.faces.bin import SCRIPTS
from skillyard.faces.command import Options, Parser


def arguments(parser: Parser) -> None:
    parser.add_argument("script", choices=SCRIPTS, help=" | ".join(SCRIPTS), metavar="SCRIPT")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's own words")
    parser.set_defaults(answer=_answer)


def _answer(options: Options) -> None:
    importlib.import_module(f"skillyard.faces.bin.{options.script}").main(options.args)
