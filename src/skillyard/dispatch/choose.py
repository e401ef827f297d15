"""Which agents a task may go to, the first one first."""

from collections.abc import Mapping, Sequence

from skillyard.backends.driver import Driver
from skillyard.core.errors import AgentNotInstalled, InvalidArgs
from skillyard.core.messages import Message, join_messages


def choose(drivers: Mapping[str, Driver], asked: str | None, latest: str, order: Sequence[str]) -> list[Driver]:
    """The one that was asked for, else the one that the conversation was with (`latest`), else the installed ones.

    A conversation goes on with its own agent: another one would know nothing of what was said.
    """
    if asked is not None or latest in drivers:
        name = latest if asked is None else asked
        if name not in drivers:
            raise InvalidArgs(
                Message("no backend {name!r}; there are {drivers}", name=name, drivers=", ".join(drivers))
            )
        return [drivers[name]]
    found: list[Driver] = []
    missing: dict[str, AgentNotInstalled] = {}
    for name in order or drivers:
        driver = drivers.get(name)
        if driver is None:
            raise InvalidArgs(
                Message("[dispatch] order names {name!r}; there are {drivers}", name=name, drivers=", ".join(drivers))
            )
        try:
            driver.locate()
        except AgentNotInstalled as error:
            missing[name] = error
        else:
            found.append(driver)
    if found:
        return found
    commands = [str(error.values.get("command")) for error in missing.values()]
    raise AgentNotInstalled(
        join_messages("; ", (error.msg for error in missing.values())),
        details={"backends": list(missing)},
        agent=", ".join(missing),
        command=" / ".join(commands),
    )
