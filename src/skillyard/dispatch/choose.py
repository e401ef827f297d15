"""Which agents a task may go to, the first one first."""

from collections.abc import Mapping, Sequence

from skillyard.backends.driver import Driver
from skillyard.core.errors import AgentNotInstalled, InvalidArgs


def choose(drivers: Mapping[str, Driver], asked: str | None, latest: str, order: Sequence[str]) -> list[Driver]:
    """The one that was asked for, else the one that the conversation was with (`latest`), else the installed ones.

    A conversation goes on with its own agent: another one would know nothing of what was said.
    """
    if asked is not None or latest in drivers:
        name = latest if asked is None else asked
        if name not in drivers:
            raise InvalidArgs(f"no backend {name!r}; there are {', '.join(drivers)}")
        return [drivers[name]]
    found: list[Driver] = []
    missing: dict[str, AgentNotInstalled] = {}
    for name in order or drivers:
        driver = drivers.get(name)
        if driver is None:
            raise InvalidArgs(f"[dispatch] order names {name!r}; there are {', '.join(drivers)}")
        try:
            driver.locate()
        except AgentNotInstalled as error:
            missing[name] = error
        else:
            found.append(driver)
    if found:
        return found
    commands = [str(error.words.get("command")) for error in missing.values()]
    raise AgentNotInstalled(
        "; ".join(error.msg for error in missing.values()),
        details={"backends": list(missing)},
        agent=", ".join(missing),
        command=" / ".join(commands),
    )
