"""Checks of the arguments that Python code passes in: a wrong type is a TypeError that names the argument."""

from collections.abc import Mapping

from skillyard.core.values import check_value


def expect(name: str, value: object, *types: type) -> None:
    """Raise TypeError unless the value is of one of the types; True is no number."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join(each.__name__ for each in types)
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def expect_params(name: str, value: object) -> None:
    """Raise TypeError unless the value is a mapping of JSON values."""
    expect(name, value, Mapping)
    try:
        check_value(value)
    except ValueError as error:
        raise TypeError(f"{name} must hold JSON values: {error}") from None
