"""The backends by name: those that a module of this room defines as `BACKEND`, and ACP programs that the user names."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import skillyard.backends
from skillyard.backends.acp import NamedAcpDriver
from skillyard.backends.driver import Driver


@cache
def list_backends() -> Mapping[str, type[Driver]]:
    """In alphabetical order, in which one is chosen if neither the caller nor the settings name one."""
    names = (module.name for module in iter_modules(skillyard.backends.__path__, "skillyard.backends."))
    found: list[type[Driver]] = [module.BACKEND for module in map(import_module, names) if hasattr(module, "BACKEND")]
    return {driver.name: driver for driver in sorted(found, key=lambda driver: driver.name)}


def make_drivers(env: Mapping[str, str], commands: Mapping[str, tuple[str, ...]] = {}) -> dict[str, Driver]:
    """`commands` are the user's ACP programs by name; none of them replaces a backend of ours."""
    drivers: dict[str, Driver] = {name: driver(env) for name, driver in list_backends().items()}
    for name, command in commands.items():
        drivers.setdefault(name, NamedAcpDriver(env, name, command))
    return drivers
