"""Where things are: the project, the user's home folder, and our own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import is_utf8
from skillyard.catalog.roots import find_project
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message


class ProjectPaths(NamedTuple):
    """Passed in everywhere; only this module looks at the environment for it."""

    #: None in the home folder and above, which are nobody's project.
    project: Path | None
    user_home: Path
    own_home: Path

    @property
    def database(self) -> Path:
        return self.own_home / "state.db"

    @property
    def index_file(self) -> Path:
        return self.own_home / "cache" / "index.db"


def find_paths(cwd: Path | None = None, env: Mapping[str, str] = os.environ) -> ProjectPaths:
    try:
        user_home = Path(env.get("HOME") or Path.home())
        start = (cwd or Path.cwd()).absolute()
    except RuntimeError:
        raise InvalidArgs(Message("this user has no home folder: set HOME to an absolute path")) from None
    except FileNotFoundError:
        raise InvalidArgs(Message("the working directory was deleted: change into another one")) from None
    if not user_home.is_absolute() or not is_utf8(user_home):
        raise InvalidArgs(Message("HOME must be an absolute path in UTF-8, not {home!r}", home=str(user_home)))
    home = Path(env["SKILLYARD_HOME"]).absolute() if env.get("SKILLYARD_HOME") else _default_home(env, user_home)
    if not is_utf8(home):
        raise InvalidArgs(Message("SKILLYARD_HOME must be a path in UTF-8, not {home!r}", home=str(home)))
    if not is_utf8(start):
        msg = Message("the path {start!r} is not UTF-8: rename that folder, or work in another", start=str(start))
        raise InvalidArgs(msg)
    return ProjectPaths(find_project(start, user_home), user_home, own_home=home)


def _default_home(env: Mapping[str, str], user_home: Path) -> Path:
    if sys.platform == "darwin":
        return user_home / "Library" / "Application Support" / "skillyard"
    if sys.platform == "win32":
        return Path(env.get("LOCALAPPDATA") or user_home / "AppData" / "Local") / "skillyard"
    return Path(env.get("XDG_DATA_HOME") or user_home / ".local" / "share") / "skillyard"
