"""Recursion without Python's stack: values nested in a thousand levels are converted as flat ones are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from types import GeneratorType
from typing import Any

from statestore.errors import DataException

Steps = Generator[Any, Any, Any]
"""Converts a container: yields for each element, is sent what the element becomes, and returns the whole.

Under `settle` it yields the steps of the element, under `call` the argument that makes them.
"""


def is_steps(made: Any) -> bool:
    """Return whether something has yet to be made, and so has to be yielded."""
    return type(made) is GeneratorType


def all_of(made: Iterable[Any]) -> Steps:
    """Return a list of what each of several makes, one after the other."""
    found = []
    for each in made:
        found.append((yield each) if is_steps(each) else each)
    return found


def settle(made: Any) -> Any:
    """Return what was made; of Steps, what they make in the end."""
    return _run(made, lambda steps: steps, None) if is_steps(made) else made


def call(function: Callable[[Any], Steps], argument: Any, *, deepest: int) -> Any:
    """Return what a recursive function returns. Raises DataException if it calls itself more than `deepest` deep."""
    return _run(function(argument), function, deepest)


def _run(first: Steps, begin: Callable[[Any], Steps], deepest: int | None) -> Any:
    running = [first]
    sent: Any = None
    while running:
        try:
            asked = running[-1].send(sent)
        except StopIteration as done:
            running.pop()
            sent = done.value
            continue
        if deepest is not None and len(running) >= deepest:
            raise too_deep(deepest)
        running.append(begin(asked))
        sent = None
    return sent


def too_deep(deepest: int) -> DataException:
    """Return the error of containers that nest too deeply."""
    return DataException(f"arrays, maps and structs nest deeper than {deepest}")
