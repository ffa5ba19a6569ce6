"""Commands write results to stdout, progress and errors to stderr, so that a script can read stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from statestore.recovery.making.new_state import OnEntries
from upgrade_tools.states.state import State

_TOLD_EVERY = 1_000
"""Entries: to report each would cost more than to read it."""


def console_on(file: TextIO, width: int | None = None) -> Console:
    """Return a console that prints names and keys unchanged: `:id:` is not an emoji."""
    return Console(file=file, highlight=False, emoji=False, width=width)


def results() -> Console:
    """Return a new console for results, since tests and pipes replace stdout."""
    return console_on(sys.stdout)


def tables() -> Console:
    """Return a new console for tables of results: a pipe has no width, so nothing is cut."""
    return console_on(sys.stdout, width=None if sys.stdout.isatty() else 10_000)


def errors() -> Console:
    """Return the console for everything but results."""
    return console_on(sys.stderr)


def print_json(document: Any) -> None:
    """Print one document in one line, as `--json` promises."""
    sys.stdout.write(json_text(document) + "\n")


def json_text(document: Any) -> str:
    """Return a document as JSON in ASCII: file names may not be text, and no terminal has all characters."""
    return json.dumps(document)


def say(console: Console, line: str) -> None:
    """Print one line of any length, without markup; characters that are not printable are escaped."""
    console.print(printable(line), markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Return a text, such as a file's name or a header's key, in one line that is safe for a terminal.

    Escapes, as Python does, what is not printable: control characters, ends of lines, bytes that are not text.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def plain_table(*columns: str) -> Table:
    """Return a table without lines, with these headings; what is too wide goes on below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def cells(*contents: object) -> list[Text]:
    """Return a row of a table: numbers in groups of three digits, texts as `printable` returns them."""
    return [Text(f"{cell:,}" if isinstance(cell, int) else printable(str(cell))) for cell in contents]


class _RateColumn(ProgressColumn):
    """Entries a second."""

    def render(self, task: Task) -> Text:
        """Return the rate; an empty text before there is one."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Hand out a progress bar on stderr, with rate and time left; on a pipe it shows nothing."""
    columns = (
        SpinnerColumn(),
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Without redirect_stdout=False, results that are printed meanwhile would go to stderr, too.
    console = errors()
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal
    ) as progress:
        yield progress


@contextmanager
def entry_bar(
    what: str, *states: State, opening: int | None = None, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Hand out a function to call with counts of entries that were read. Shows a bar on terminals only.

    If all entries of `states` are read, the bar estimates how many are left: those not opened yet are taken to be as
    large as those opened so far. `opening` is how many parts, or databases, there are in all; None means all parts.
    Without states, the bar shows no time left.
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
    """Hand out a function to call with a phase and how many of its entries are done; each phase has its own bar.

    Each phase goes through about `entries` entries, None if unknown; `totals` has better numbers for some phases.
    """
    with progress_bar() as progress:
        tasks: dict[str, TaskID] = {}

        def advance(phase: str, done: int) -> None:
            if phase not in tasks:
                tasks[phase] = progress.add_task(phase, total=(totals or {}).get(phase, entries))
            progress.advance(tasks[phase], done)

        yield advance
