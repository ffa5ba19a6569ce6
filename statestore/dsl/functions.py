"""Users' functions: what they take is looked at when a program is built, not at its first record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from statestore.errors import TopologyError

Function: TypeAlias = "Callable[..., Any]"
AnyFunction = TypeVar("AnyFunction", bound=Function)


def of_key_and_value(what: str, function: AnyFunction) -> AnyFunction:
    """Return a function that takes these. Raises TopologyError for another one."""
    return checked(what, function, "key", "value")


def checked(what: str, function: AnyFunction, *parameters: str) -> AnyFunction:
    """Return a function that takes these. Raises TopologyError for another one."""
    if not _takes(function, len(parameters)):
        raise _refusal(what, function, parameters)
    return function


def of_key_and(what: str, function: Function, *parameters: str) -> Function:
    """Return a function of a key and these, of one that takes them with the key or without.

    One that can be called both ways gets no key. Raises TopologyError for any other. Source: ValueMapperWithKey,
    ValueJoinerWithKey.
    """
    if _takes(function, len(parameters)):
        return _WithoutKey(function)
    if _takes(function, len(parameters) + 1):
        return function
    raise _refusal(what, function, parameters, ("key", *parameters))


class _WithoutKey:
    """A function of a key and what else there is, which looks at the key no further."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def __call__(self, key: Any, *others: Any) -> Any:
        return self._function(*others)


def _takes(function: Any, count: int) -> bool:
    """Return whether something can be called with so many values; so it is taken to be where Python can't tell."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:  # also of what is no function
        return False
    except ValueError:  # as of str and max
        return True
    return True


def _refusal(what: str, function: Any, *wanted: tuple[str, ...]) -> TopologyError:
    return TopologyError(f"{what} wants a function of {', or of '.join(map(_and, wanted))}, not {function!r}")


def _and(parameters: tuple[str, ...]) -> str:
    *first, last = parameters or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last
