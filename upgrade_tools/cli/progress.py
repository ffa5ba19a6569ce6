"""How far a command is that goes through entries: on stderr, with the rate and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from upgrade_tools.cli.output import progress_bar
from upgrade_tools.states import State

_TOLD_EVERY = 1_000
"""Entries: to tell of each would cost more than to read it."""


@contextmanager
def counted(what: str, *states: State, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Hand out what is to be told of entries as they are read; on terminals only.

    If all entries of `states` are read, how many are left is estimated from the parts that were opened so far: those to
    come are taken to be as large. Without any, no time left is shown.
    """
    if not shown:
        yield lambda entries: None
        return
    with progress_bar() as progress:
        task = progress.add_task(what, total=None)
        parts = sum(len(state.parts) for state in states)
        opened: list[int] = []
        pending = 0

        def on_open(entries: int) -> None:
            opened.append(entries)
            progress.update(task, total=sum(opened) * max(1, parts / len(opened)))

        def advance(entries: int) -> None:
            nonlocal pending
            pending += entries
            if pending >= _TOLD_EVERY:
                progress.advance(task, pending)
                pending = 0

        for state in states:
            state.on_open = on_open
        yield advance
        progress.advance(task, pending)
