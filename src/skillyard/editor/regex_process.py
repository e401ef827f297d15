"""The child process that matches a pattern: a program of its own, so that it can be killed in the middle of a match.

Reads one JSON order from stdin and writes one JSON answer: the matches with what replaces each, or what is wrong
with the pattern. Imports nothing of ours: it starts in a few milliseconds.
"""

import json
import re
import resource
import sys
from itertools import islice


def main() -> None:
    order = json.load(sys.stdin.buffer)
    # Whoever would kill it at the limit may be dead by then.
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_seconds"], order["cpu_seconds"]))
    try:
        pattern = re.compile(order["pattern"], order["flags"])
        found = islice(pattern.finditer(order["text"]), order["count"] or None)
        answer: dict[str, object] = {
            "matches": [[match.start(), match.end(), match.expand(order["replacement"])] for match in found]
        }
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
