"""OpenCode, an ACP backend.

It reports a model that fails only in its log, and tries again for ever: so its log is read, and after some tries the
turn fails. What came before a retry and what comes after it are one message in its stream; it stores the retry alone.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from skillyard.backends.acp import MODEL_FAILED, AcpDriver
from skillyard.backends.driver import NPM_PLATFORM, SkillsQuestion, VisibleSkill
from skillyard.core.values import Json

_FAILED_CALL: Final = re.compile(r'message="stream error".*error\.error(?:\.message)?="?(?:\w+: )?(?P<words>[^"]*)')


class OpenCode(AcpDriver):
    name = command = "opencode"
    variable = "SKILLYARD_OPENCODE"
    package = "opencode-ai"
    native = f"opencode-{NPM_PLATFORM}*/bin/opencode"
    minimum = "1.0"
    login = "opencode auth login"
    arguments = ("acp", "--print-logs", "--log-level", "ERROR")
    variables: Mapping[str, str] = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
    # By default it asks nobody. A person decides what is allowed, as with the others.
    defaults: Mapping[str, str] = {
        "OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}'
    }

    def as_message(self, line: str) -> Mapping[str, Json] | None:
        found = _FAILED_CALL.search(line)
        return {"method": MODEL_FAILED, "params": {"words": found["words"]}} if found else None

    def skills_question(self, url: str) -> SkillsQuestion:
        del url
        off = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE")
        env = {**{f"OPENCODE_DISABLE_{what}": "1" for what in off}, "OPENCODE_PURE": "1"}
        return SkillsQuestion(("debug", "skill"), _read_skills, env=env)


def _read_skills(said: str) -> list[VisibleSkill]:
    return [VisibleSkill(skill["name"], skill["location"]) for skill in json.loads(said)]


BACKEND: Final = OpenCode
