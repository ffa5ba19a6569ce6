"""Recursion without Python's stack: a function of containers within one another, of limited depth."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from statestore.errors import DataException

Steps = Generator[Any, Any, Any]
"""Yields what the function is to be called with, is sent what that returned, and returns what it is asked for."""


def call(function: Callable[[Any], Steps], argument: Any, *, deepest: int) -> Any:
    """Return what a recursive function returns. Raises DataException if it calls itself more than `deepest` deep."""
    calls = [function(argument)]
    returned: Any = None
    while calls:
        try:
            wanted = calls[-1].send(returned)
        except StopIteration as done:
            calls.pop()
            returned = done.value
            continue
        if len(calls) >= deepest:
            raise too_deep(deepest)
        calls.append(function(wanted))
        returned = None
    return returned


def too_deep(deepest: int) -> DataException:
    """Return the error of containers that nest too deeply."""
    return DataException(f"arrays, maps and structs nest deeper than {deepest}")
