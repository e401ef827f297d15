"""A real agent in a home of its own, configured as a user would for a provider of theirs: the stub."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.agents import offline, programs
from tests.agents.stub import Stub

MODEL = "m"
CEILING_SECONDS = 240


class Agent(NamedTuple):
    """`program` and `env` are all that is needed to start it: so it talks to the stub, and to nobody else."""

    name: str
    program: Path
    env: dict[str, str]
    #: Its home, its configuration, and the folder it works in.
    home: Path
    config: Path
    cwd: Path
    #: How `--model` names the stub's model.
    model: str

    def ask(
        self, text: str, *arguments: str, cwd: Path | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """One question, without any driver of ours: the text on stdin, then the end of it."""
        return subprocess.run(
            [self.program, *ONE_SHOT[self.name], *arguments],
            input=text,
            cwd=cwd or self.cwd,
            env={**self.env, "PWD": str(cwd or self.cwd), **env},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=CEILING_SECONDS,
            check=False,
        )


ONE_SHOT: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("-p", "--output-format", "stream-json", "--verbose", "--model", MODEL),
    "codex": ("exec", "--json", "--skip-git-repo-check"),
    "opencode": ("run", "--format", "json"),
}


def make(name: str, stub: Stub, folder: Path) -> Agent:
    """Skips the test where the program is not installed, or where it would look for other hosts."""
    program = programs.program(name)
    if name == "opencode":
        offline.need_namespaces()
    if not offline.refusal():
        program = offline.wrapped(program, stub, folder / "programs")
    home, cwd, temporary = folder / "home", folder / "work", folder / "tmp"
    for place in (home, cwd, temporary):
        place.mkdir(parents=True, exist_ok=True)
    env = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TMPDIR": str(temporary),  # codex makes no sandbox when its own home is below this
    }
    config, more = CONFIGURE[name](home, stub)
    return Agent(name, program, {**env, **more}, home, config, cwd, "stub/m" if name == "opencode" else MODEL)


def _claude_code(home: Path, stub: Stub) -> tuple[Path, dict[str, str]]:
    config = home / ".claude"
    config.mkdir(exist_ok=True)
    return config, {
        "CLAUDE_CONFIG_DIR": str(config),
        "ANTHROPIC_BASE_URL": stub.url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }


def _codex(home: Path, stub: Stub) -> tuple[Path, dict[str, str]]:
    config = home / ".codex"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text(
        f"""model = "{MODEL}"
model_provider = "stub"
check_for_update_on_startup = false

[model_providers.stub]
name = "stub"
base_url = "{stub.url}/v1"
env_key = "STUB_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 600000

[analytics]
enabled = false

[feedback]
enabled = false

[features]
plugins = false
apps = false
""",
        "utf-8",
    )
    return config, {"CODEX_HOME": str(config), "STUB_KEY": "dummy"}


def _opencode(home: Path, stub: Stub) -> tuple[Path, dict[str, str]]:
    config = home / ".config" / "opencode"
    config.mkdir(parents=True, exist_ok=True)
    model = {"name": MODEL, "tool_call": True, "limit": {"context": 200_000, "output": 32_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stub",
        "options": {"baseURL": f"{stub.url}/v1", "apiKey": "dummy", "timeout": 600_000},
        "models": {MODEL: model},
    }
    settings = {
        "model": f"stub/{MODEL}",
        "small_model": f"stub/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"stub": provider},
    }
    (config / "opencode.json").write_text(json.dumps(settings, indent=2), "utf-8")
    return config, {
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    }


CONFIGURE: Mapping[str, Callable[[Path, Stub], tuple[Path, dict[str, str]]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
}
