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
from skillyard.runtime.redact import SHORTEST

#: Below SKILLYARD_HOME: files named without a slash before them.
FOLDER = "secrets"
_MOST_BYTES = 65_536


def read_secrets(secrets: Iterable[Secret], own_home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The value of each, by the name that the skill knows it by; SecretMissing names the one that is not there."""
    return {secret.name: _checked(secret, _value(secret, own_home, env), own_home) for secret in secrets}


def where(secret: Secret, own_home: Path) -> str:
    """Where it is looked for, for people."""
    if secret.source == "env":
        return Message("the environment variable {key}", key=secret.key)
    return Message("the file {file}", file=_file(secret, own_home))


def _value(secret: Secret, own_home: Path, env: Mapping[str, str]) -> str:
    if secret.source == "env":
        value = env.get(secret.key, "")
        if not value:
            raise _missing(secret, own_home, Message("is not set"), f"export {secret.key}=…")
        return value
    file = _file(secret, own_home)
    home, kept = own_home.resolve(), own_home.resolve() / FOLDER
    real = file.resolve()
    if real.is_relative_to(home) and not real.is_relative_to(kept):
        raise _missing(
            secret, own_home, Message("is ours, not a secret of yours"), Message("put it into {kept}", kept=kept)
        )
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        text = content.decode()
    except UnicodeDecodeError:
        raise _missing(
            secret, own_home, Message("is no text"), Message("write the value into {file}", file=file)
        ) from None
    except OSError as error:
        reason = Message("cannot be read: {msg}", msg=error.strerror)
        raise _missing(secret, own_home, reason, Message("write the value into {file}", file=file)) from None
    if len(content) > _MOST_BYTES:
        raise _missing(
            secret,
            own_home,
            Message("has more than {most_bytes} bytes", most_bytes=_MOST_BYTES),
            Message("write only the value into {file}", file=file),
        )
    return text.removesuffix("\n").removesuffix("\r")


def _file(secret: Secret, own_home: Path) -> Path:
    """`/…` and `~/…` as they are; the rest below secrets/ of our home."""
    if secret.key.startswith(("/", "~/")):
        return Path(expand_home(secret.key))
    return own_home / FOLDER / secret.key


def _checked(secret: Secret, value: str, own_home: Path) -> str:
    """A value that could not be masked is not passed at all."""
    if len(value) < SHORTEST or "\0" in value:
        short = Message("has less than {shortest} characters, so it could not be masked", shortest=SHORTEST)
        reason = Message("holds a NUL") if "\0" in value else short
        raise _missing(secret, own_home, reason, Message("use a longer value"))
    return value


def _missing(secret: Secret, own_home: Path, reason: str, remedy: str) -> SecretMissing:
    looked_in = where(secret, own_home)
    return SecretMissing(
        Message("{name}: {looked_in} {reason}", name=secret.name, looked_in=looked_in, reason=reason),
        remedy,
        details={"secret": secret.name, "source": secret.source, "looked_in": looked_in},
    )
