"""Starts a command as another user, on a machine with one level of ours: `enter.py UID LEVEL SRC HOME CMD…`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from drive import become, lack  # type: ignore[import-not-found]


def main() -> None:
    uid, level, source, home, *words = sys.argv[1:]
    sys.path.insert(0, source)
    lack(level)
    become(int(uid))
    if level == "bubblewrap":
        # A machine where our own namespaces are refused and bubblewrap's are not, as a run before would have noted it.
        from skillyard.sandbox import bubblewrap
        from skillyard.sandbox.layers import find_layers, remember_layers, remembered_layers

        if remembered_layers(Path(home)) is None and (layers := find_layers()):
            program, _ = bubblewrap.find()
            remember_layers(Path(home), layers._replace(namespaces=False, bubblewrap=program))
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
