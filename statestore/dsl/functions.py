"""Users' functions: what they take is checked when a program is built, what they return at each record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from statestore.errors import TopologyError

Function: TypeAlias = "Callable[..., Any]"
AnyFunction = TypeVar("AnyFunction", bound=Function)


def of_key_and_value(what: str, function: AnyFunction) -> AnyFunction:
    """Return the function. Raises TopologyError unless it takes a key and a value."""
    return checked(what, function, "key", "value")


def checked(what: str, function: AnyFunction, *parameters: str) -> AnyFunction:
    """Return the function. Raises TopologyError unless it takes as many arguments."""
    if not _takes(function, len(parameters)):
        raise _refusal(what, function, parameters)
    return function


def of_key_and(what: str, function: Function, *parameters: str) -> Function:
    """Return a function of a key and these parameters, given one that takes them with or without the key.

    A function that can be called both ways gets no key. Raises TopologyError for any other. Source: ValueMapperWithKey,
    ValueJoinerWithKey.
    """
    if _takes(function, len(parameters)):
        return partial(_without_key, function)
    if _takes(function, len(parameters) + 1):
        return function
    raise _refusal(what, function, parameters, ("key", *parameters))


def pair(what: str, made: Any) -> Any:
    """Return the key and the value that a user's function has made. Raises TypeError for anything but a pair."""
    if isinstance(made, (tuple, list)) and len(made) == 2:
        return made
    raise TypeError(f"{what} wants a function that returns a key and a value, not {type(made).__name__}")


def _without_key(function: Function, key: Any, *others: Any) -> Any:
    return function(*others)


def _takes(function: Any, count: int) -> bool:
    """Return whether something can be called with so many arguments; True if Python can't tell."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:  # it takes others, or is not callable
        return False
    except ValueError:  # it has no signature, such as str and max
        return True
    return True


def _refusal(what: str, function: Any, *wanted: tuple[str, ...]) -> TopologyError:
    return TopologyError(f"{what} wants a function of {', or of '.join(map(_and, wanted))}, not {function!r}")


def _and(parameters: tuple[str, ...]) -> str:
    *first, last = parameters or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last
