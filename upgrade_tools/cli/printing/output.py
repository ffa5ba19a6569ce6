"""Where commands write to: results to stdout, progress and errors to stderr, so that a script can read the first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


def console_on(file: TextIO, width: int | None = None) -> Console:
    """Return a console that prints names and keys as they are: `:id:` is no emoji."""
    return Console(file=file, highlight=False, emoji=False, width=width)


def results() -> Console:
    """Return the console for results. Made anew, as tests and pipes change what stdout is."""
    return console_on(sys.stdout)


def errors() -> Console:
    """Return the console for everything that is no result."""
    return console_on(sys.stderr)


def print_json(document: Any) -> None:
    """Print one document, as `--json` promises it: on a line of its own, nothing else on stdout."""
    sys.stdout.write(json_text(document) + "\n")


def json_text(document: Any) -> str:
    """Return a document as JSON, in ASCII: names of files need not be text, and no terminal has all characters."""
    return json.dumps(document)


def say(console: Console, line: str) -> None:
    """Print one line, however long: its brackets are no markup, and what is not printable is escaped."""
    console.print(printable(line), markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Return text for one line, which does nothing to a terminal: of a file's name or a header's key, which may be any.

    What is not printable is escaped as Python does: control characters, ends of lines, bytes of names that are no text.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


class _RateColumn(ProgressColumn):
    """How many entries a second there are."""

    def render(self, task: Task) -> Text:
        """Return the rate, nothing before there is one."""
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
    # Else what is printed meanwhile would go where the bar is, to stderr.
    console = errors()
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal
    ) as progress:
        yield progress
