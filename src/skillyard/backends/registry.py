"""The backends by name: those that a module of this room defines as `BACKEND`, and ACP programs that the user names."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import skillyard.backends
from skillyard.backends.acp import AcpBackend, AcpDriver
from skillyard.backends.driver import Backend, Driver


@cache
def list_backends() -> Mapping[str, Backend]:
    """In alphabetical order, in which one is chosen if neither the caller nor the settings name one."""
    names = (module.name for module in iter_modules(skillyard.backends.__path__, "skillyard.backends."))
    found: list[Backend] = [module.BACKEND for module in map(import_module, names) if hasattr(module, "BACKEND")]
    return {backend.program.backend: backend for backend in sorted(found, key=lambda each: each.program.backend)}


def make_drivers(env: Mapping[str, str], commands: Mapping[str, tuple[str, ...]] = {}) -> dict[str, Driver]:
    """`commands` are the user's ACP programs by name; none of them replaces a backend of ours."""
    drivers = {name: backend.driver(env) for name, backend in list_backends().items()}
    users = {name: AcpDriver(AcpBackend(name, command), env) for name, command in commands.items()}
    return {**drivers, **{name: driver for name, driver in users.items() if name not in drivers}}
