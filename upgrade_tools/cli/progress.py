"""How far a command is that goes through entries: on stderr, with the rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from upgrade_tools.cli.output import progress_bar

_TOLD_EVERY = 1_000
"""Entries: to tell of each would cost more than to read it."""


@contextmanager
def counted(what: str, total: int | None = None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Hand out what is to be told of entries as they are read; `total` of None is not known, and no time left then.

    On terminals only.
    """
    if not shown:
        yield lambda entries: None
        return
    with progress_bar() as progress:
        task = progress.add_task(what, total=total)
        pending = 0

        def advance(entries: int) -> None:
            nonlocal pending
            pending += entries
            if pending >= _TOLD_EVERY:
                progress.advance(task, pending)
                pending = 0

        yield advance
        progress.advance(task, pending)
