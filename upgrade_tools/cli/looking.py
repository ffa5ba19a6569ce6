"""Commands that show what there is, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from statestore.errors.readable import without_secrets
from upgrade_tools.check.inspection import DEFAULT_SAMPLE_ENTRIES, databases_to_read, inspect_state
from upgrade_tools.cli import options as o
from upgrade_tools.cli import selecting as sel
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.delta_listing import delta_document, delta_lines
from upgrade_tools.cli.printing.documents import inspection_document
from upgrade_tools.cli.printing.entry_output import print_entries
from upgrade_tools.cli.printing.inspect_report import print_report
from upgrade_tools.cli.printing.output import entry_bar, errors, print_json, results, say
from upgrade_tools.location.deltas import read_delta
from upgrade_tools.rows.entry_encoding import EntryEncoding
from upgrade_tools.rows.selection import Selection
from upgrade_tools.states.state import State

_GROUP = "Look"


@dataclass(frozen=True)
class EntriesGroup(o.CommittedGroup, o.TaskGroup, o.StoreGroup):
    """Which store's entries to print and how, what its files do not say, and what is committed."""

    live_at: sel.LiveAtOption = None
    work_dir: o.WorkDirOption = None
    headers: sel.HeadersOption = True
    key_as: sel.KeyAsOption = None
    value_as: sel.ValueAsOption = None
    as_json: o.JsonOption = False

    def state(self, where: str) -> State:
        """Return the state at a path or URI."""
        chosen = self.chosen(o.StoreGroup, o.TaskGroup)
        return o.state_at(where, self, live_at_ms=self.live_at, work_dir=self.work_dir, **chosen)

    def print(self, state: State, selection: Selection, parts: Sequence[int]) -> int:
        """Print the selected entries of these parts; return how many there were."""
        encoding = EntryEncoding(self.key_as, self.value_as)
        return print_entries(
            state, selection, parts, with_headers=self.headers, as_json=self.as_json, encoding=encoding
        )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "inspect", _GROUP, inspect)
    add_command(app, "scan", _GROUP, scan)
    add_command(app, "get", _GROUP, get)
    add_command(app, "inspect-delta", _GROUP, inspect_delta)


def inspect(
    where: o.Where,
    *,
    store: o.StoreOption = None,
    subtopology: o.SubtopologyOption = None,
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            max=sys.maxsize,
            help="How many entries of each store to read, to count them and measure headers; 0 reads no entries.",
        ),
    ] = DEFAULT_SAMPLE_ENTRIES,
    every: Annotated[bool, typer.Option("--all", help="Read all entries.")] = False,
    committed: o.CommittedGroup,
    work_dir: o.WorkDirOption = None,
    as_json: o.JsonOption = False,
) -> None:
    """Show what there is: layout, stores, their kinds and formats, sizes, versions, progress of upgrades.

    Nothing is guessed: if the files do not say the kind of a store, all possible kinds are listed.
    """
    state = o.state_at(where, committed, store=store, subtopology=subtopology, work_dir=work_dir)
    with entry_bar("inspecting", state, opening=len(databases_to_read(state))) as advance:
        report = inspect_state(state, None if every else sample, advance)
    if as_json:
        print_json(inspection_document(report))
    else:
        print_report(report)


def scan(
    where: o.Where,
    *,
    key: sel.KeyOption = None,
    prefix: sel.PrefixOption = None,
    time_from: sel.TimeFromOption = None,
    time_to: sel.TimeToOption = None,
    window_start: sel.WindowStartOption = None,
    version_at: sel.VersionAtOption = None,
    header: sel.HeaderOption = None,
    part: sel.PartOption = None,
    limit: sel.LimitOption = None,
    of_entries: EntriesGroup,
) -> None:
    """Print the entries of a store: all, or those that match the options.

    With --json it is one document: kind, store, and entries. Keys and values are in hex, or as --key-as and --value-as
    say; header values are in hex.
    """
    selection = Selection(
        sel.key_of(key, "--key", of_entries.key_as),
        sel.key_of(prefix, "--prefix"),
        time_from,
        time_to,
        window_start,
        version_at,
        sel.conditions_of(header),
        limit,
    )
    state = of_entries.state(where)
    if not of_entries.print(state, selection, sel.parts_of(state, part)):
        say(errors(), "nothing was found")


def get(
    where: o.Where,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Text, 0x... in hex, or text:...")],
    *,
    every_part: Annotated[
        bool, typer.Option("--all-parts", help="Look into all shards, not only that of records with this key.")
    ] = False,
    of_entries: EntriesGroup,
) -> int:
    """Print what a store has for a key: value, windows, sessions or versions. The exit code is 1 if it has nothing."""
    selection = Selection(sel.key_of(key, "KEY", of_entries.key_as))
    state = of_entries.state(where)
    spec = state.the_spec()
    every = state.parts_of(spec)
    parts = every if every_part else state.parts_of(spec, selection.key)
    if of_entries.print(state, selection, parts):
        return ExitCode.OK
    advice = "; only its shard was searched, --all-parts searches all" if len(parts) < len(every) else ""
    say(errors(), f"there is nothing for this key{advice}")
    return ExitCode.FOUND_PROBLEMS


def inspect_delta(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Paths or URIs of delta files.")],
    limit: Annotated[int, typer.Option(min=0, max=sys.maxsize, help="Records shown of each file, 0 for all.")] = 20,
    as_json: o.JsonOption = False,
) -> None:
    """Print what delta files hold: the version that each makes, and its records.

    With --json each file is a document on a line.
    """
    for file in files:
        o.not_empty(file)
        where = without_secrets(file)
        with read_delta(file) as delta:
            if as_json:
                print_json(delta_document(where, delta, limit))
                continue
            for line in delta_lines(where, delta, limit):
                say(results(), line)
