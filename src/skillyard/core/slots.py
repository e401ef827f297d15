"""The slots of a command: `{name}` and `${name}`, in any script. One pattern for those who read and those who fill."""

import re
from typing import Final

NAME: Final = r"[^\W\d][\w-]*"
SLOT: Final = re.compile(rf"\$?\{{({NAME})\}}")
#: Those that we fill; all others are params.
OWN_SLOTS: Final = frozenset({"output", "skill", "baseDir", "CLAUDE_SKILL_DIR"})
