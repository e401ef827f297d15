"""The secrets that a role declares, read when a run starts and given to its process alone.

Covered: only declared and trusted ones; in the environment of the run, never in arguments, in our tables or logs;
masked in what the run prints. Not covered: what a skill writes into files, sends away, or spells in its own way.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from skillyard.catalog.bounds import Secret
from skillyard.catalog.files import expand_home
from skillyard.core.errors import SecretMissing
from skillyard.core.messages import Message
from skillyard.core.secrets import SHORTEST

#: Below SKILLYARD_HOME: files named without a slash before them.
FOLDER = "secrets"
_MOST_BYTES = 65_536


def read_secrets(secrets: Iterable[Secret], own_home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the values by the names that the skill uses. Raise SecretMissing for one that cannot be read."""
    return {secret.name: _checked(secret, _value(secret, own_home, env), own_home) for secret in secrets}


def _value(secret: Secret, own_home: Path, env: Mapping[str, str]) -> str:
    if secret.source == "env":
        if value := env.get(secret.key, ""):
            return value
        raise _missing(secret, own_home, Message("is not set"), f"export {secret.key}=…")
    file, kept = _file(secret, own_home), own_home.resolve() / FOLDER
    if file.resolve().is_relative_to(kept.parent) and not file.resolve().is_relative_to(kept):
        remedy = Message("put it into {kept}", kept=kept)
        raise _missing(secret, own_home, Message("is ours, not a secret of yours"), remedy)
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) <= _MOST_BYTES:
            return content.decode().removesuffix("\n").removesuffix("\r")
        reason = Message("has more than {most_bytes} bytes", most_bytes=_MOST_BYTES)
    except UnicodeDecodeError:
        reason = Message("is no text")
    except OSError as error:
        reason = Message("cannot be read: {msg}", msg=error.strerror)
    raise _missing(secret, own_home, reason, Message("write only the value into {file}", file=file))


def _file(secret: Secret, own_home: Path) -> Path:
    """Return the file of a secret: `/…` and `~/…` as they are, other names below secrets/ in our home."""
    if secret.key.startswith(("/", "~/")):
        return Path(expand_home(secret.key))
    return own_home / FOLDER / secret.key


def _checked(secret: Secret, value: str, own_home: Path) -> str:
    """Return the value. Raise SecretMissing if it could not be masked later."""
    if len(value) < SHORTEST or "\0" in value:
        short = Message("has less than {shortest} characters, so it could not be masked", shortest=SHORTEST)
        reason = Message("holds a NUL") if "\0" in value else short
        raise _missing(secret, own_home, reason, Message("use a longer value"))
    return value


def _missing(secret: Secret, own_home: Path, reason: str, remedy: str) -> SecretMissing:
    looked_in = Message("the file {file}", file=_file(secret, own_home))
    if secret.source == "env":
        looked_in = Message("the environment variable {key}", key=secret.key)
    told = Message("{name}: {looked_in} {reason}", name=secret.name, looked_in=looked_in, reason=reason)
    return SecretMissing(told, remedy, details={"secret": secret.name, "source": secret.source, "looked_in": looked_in})
