"""Recursion without a stack of calls: nested values of a thousand levels are converted as flat ones are."""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any

Steps = Generator[Any, Any, Any]
"""What converts a container: it yields the steps of an element, is sent what they make, and returns what it makes."""


def is_steps(made: Any) -> bool:
    """Return whether something is not made yet: only then need it be yielded."""
    return type(made) is GeneratorType


def settle(made: Any) -> Any:
    """Return what was made; of Steps, what they make in the end."""
    if not is_steps(made):
        return made
    running: list[Steps] = [made]
    sent: Any = None
    while running:
        try:
            asked = running[-1].send(sent)
        except StopIteration as done:
            running.pop()
            sent = done.value
        else:
            running.append(asked)
            sent = None
    return sent
