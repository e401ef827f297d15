"""The child process that matches a pattern: a program of its own, so that it can be killed in the middle of a match.

Reads one JSON request from stdin and writes one JSON answer: the matches with what replaces each, or what is wrong
with the pattern. Imports nothing of ours: it starts in a few milliseconds.
"""

import json
import re
import resource
import sys
from itertools import islice

_FLAGS = {"multiline": re.MULTILINE, "dotall": re.DOTALL, "ignore_case": re.IGNORECASE}


def main() -> None:
    request = json.load(sys.stdin.buffer)
    # The parent that would kill it at the limit may be dead by then.
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], request["cpu_seconds"]))
    try:
        flags = sum(flag for name, flag in _FLAGS.items() if request[name])
        pattern = re.compile(request["pattern"], flags)
        found = islice(pattern.finditer(request["text"]), request["count"] or None)
        answer: dict[str, object] = {
            "matches": [[match.start(), match.end(), match.expand(request["replacement"])] for match in found]
        }
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
