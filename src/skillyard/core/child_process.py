"""How we start ourselves: by this very Python and this very package, whatever the folder or the environment say.

Covered: Python runs isolated (`-I`), so neither the current folder nor PYTHONPATH, PYTHONHOME, PYTHONSTARTUP,
PYTHONUSERBASE or any other PYTHON* variable can add a module; the package is named by its absolute path.
Not covered: where the package lies in the user's own site-packages, these must stay visible: then `-E -P`, which
ignores all of that but PYTHONUSERBASE.
"""

import os
import site
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import {function}; {function}()"


def own_command(*words: str) -> tuple[str, ...]:
    """The argument vector that runs `skillyard WORDS` from any folder and in any environment."""
    return (sys.executable, *_flags(), str(PACKAGE / "__main__.py"), *words)


def own_function(module: str, function: str, *words: str) -> tuple[str, ...]:
    """The argument vector that calls a function of ours; the words are in `sys.argv[1:]`."""
    code = _BOOT.format(module=module, function=function)
    return (sys.executable, *_flags(), "-c", code, str(PACKAGE.parent), *words)


def _flags() -> tuple[str, ...]:
    usual = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    in_user_site = bool(usual) and PACKAGE.is_relative_to(os.path.realpath(usual))
    return ("-E", "-P") if in_user_site else ("-I",)
