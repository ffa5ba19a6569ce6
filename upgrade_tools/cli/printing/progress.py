"""How far a command is that goes through entries: on stderr, with the rate and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.progress import TaskID

from statestore.recovery.making.new_state import OnEntries
from upgrade_tools.cli.printing.output import progress_bar
from upgrade_tools.states.state import State

_TOLD_EVERY = 1_000
"""Entries: to tell of each would cost more than to read it."""


@contextmanager
def entry_bar(
    what: str, *states: State, opening: int | None = None, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Hand out what is to be told of entries as they are read; on terminals only.

    If all entries of `states` are read, how many are left is estimated from what was opened so far: what is to come is
    taken to be as large. `opening` is how many parts, or databases, that will be in all; None means all parts. Without
    any states, no time left is shown.
    """
    if not shown:
        yield lambda entries: None
        return
    with progress_bar() as progress:
        task = progress.add_task(what, total=None)
        parts = sum(len(state.parts) for state in states) if opening is None else opening
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


@contextmanager
def phase_bars(entries: int | None, totals: Mapping[str, int] | None = None) -> Iterator[OnEntries]:
    """Hand out what is to be told of phases, each a bar of its own, and of their entries, as they are worked on.

    Each phase goes through about so many entries; None is not known. `totals` knows better of some of them.
    """
    with progress_bar() as progress:
        tasks: dict[str, TaskID] = {}

        def advance(phase: str, done: int) -> None:
            if phase not in tasks:
                tasks[phase] = progress.add_task(phase, total=(totals or {}).get(phase, entries))
            progress.advance(tasks[phase], done)

        yield advance
