"""Recursion without a stack of calls: nested values of a thousand levels are converted as flat ones are."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

Steps = Generator[Any, Any, Any]
"""What converts a container: it yields what converts an element, is sent what that made, and returns what it makes."""


def settle(made: Any) -> Any:
    """Return what was made; of Steps, what they make in the end."""
    if not isinstance(made, Generator):
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
            sent = None
            if isinstance(asked, Generator):
                running.append(asked)
            else:
                sent = asked
    return sent
