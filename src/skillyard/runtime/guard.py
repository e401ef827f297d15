"""The sandbox of one run: its policy on it, and everything that it does noted down."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from skillyard.core.errors import PermissionDenied, RuntimeFailed, Stopped
from skillyard.core.messages import Message
from skillyard.runtime.cleanup import Cleanup
from skillyard.runtime.record import Record
from skillyard.sandbox.launch import Exit, Launch, Sandbox
from skillyard.trust.permit import Permit

if TYPE_CHECKING:
    from skillyard.sandbox.cancel_token import CancelToken

#: Called with each piece of stderr as it comes.
OnProgress: TypeAlias = Callable[[bytes], None] | None
NO_SECRETS: Mapping[str, str] = {}


def guard(
    sandbox: Sandbox,
    found: Permit | None,
    record: Record,
    on_progress: OnProgress,
    secrets: Mapping[str, str] = NO_SECRETS,
    stop: "CancelToken | None" = None,
    cleanup: Cleanup | None = None,
) -> Sandbox:
    """The sandbox with this call's policy on it, and everything it does noted down.

    Here, where its output comes in, a secret that it prints is masked: whoever reads on never had it.
    """

    def hear(piece: bytes) -> None:
        shown = record.hear(piece)
        if on_progress and shown:
            on_progress(shown)

    def launch_it(launch: Launch) -> Exit:
        passed = {name: os.environ[name] for name in (found.variables if found else ()) if name in os.environ}
        passed |= secrets
        policy = found.policy if found else None
        bound = launch._replace(env={**launch.env, **passed}, policy=policy, on_stderr=hear, cancel=stop)
        if stop and stop.cancelled:
            raise Stopped(Message("it was stopped before it started"))
        record.starting(bound, tuple(passed.values()))
        looked = cleanup.before() if cleanup else None
        try:
            ended = record.clean(sandbox(bound))
        except PermissionError as error:
            raise PermissionDenied(f"{launch.argv[0]}: {error.strerror}") from None
        except OSError as error:
            raise RuntimeFailed(
                Message("{argv} cannot be started: {strerror}", argv=launch.argv[0], strerror=error.strerror)
            ) from None
        finally:
            left = cleanup.after(looked) if cleanup and looked is not None else None
            if left:
                record.left(left)
        rest = record.rest()
        if on_progress and rest:
            on_progress(rest)
        record.ended(ended)
        if stop and stop.cancelled:
            raise Stopped(Message("it was stopped, with everything that it had started"))
        return ended._replace(files=left.files) if left else ended

    return launch_it
