"""Commands that read everything, and report what is wrong or different."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import typer

from statestore.bytestore.kinds.store_spec import StoreType
from upgrade_tools.check.comparison import Comparison, EntryDifference, Ignored
from upgrade_tools.check.state_check import check_state
from upgrade_tools.cli import options as o
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.difference_output import difference_json, difference_line, summary_lines
from upgrade_tools.cli.printing.documents import check_document, comparison_document
from upgrade_tools.cli.printing.output import entry_bar, print_json, results, say
from upgrade_tools.states.state import State

_GROUP = "Check"
_OTHER = "The other state"
_SHOWN_DIFFERENCES = 20

Other = Annotated[
    str, typer.Argument(metavar="OTHER", help="Another directory or state location.", callback=o.not_empty)
]
OtherKindOption = Annotated[
    StoreType | None,
    typer.Option(
        "--other-kind", help="Its kind, if its files do not say (default: as the first).", rich_help_panel=_OTHER
    ),
]
OtherPointersOption = Annotated[
    str | None, typer.Option("--other-pointers", metavar="FILE", help="As --pointers.", rich_help_panel=_OTHER)
]
OtherCheckpointOption = Annotated[
    str | None,
    typer.Option("--other-checkpoint", help="As --checkpoint.", rich_help_panel=_OTHER, callback=o.not_empty),
]
OtherSubtopologyOption = Annotated[
    int | None, typer.Option("--other-subtopology", min=0, help="As --subtopology.", rich_help_panel=_OTHER)
]
IgnoreHeadersOption = Annotated[bool, typer.Option("--ignore-headers", help="Do not compare headers.")]
IgnoreTimestampsOption = Annotated[bool, typer.Option("--ignore-timestamps", help="Do not compare timestamps.")]


@dataclass(frozen=True)
class BothGroup(o.CommittedGroup, o.StoreGroup):
    """Options for two states, and for what is compared."""

    segment_interval_ms: o.SegmentIntervalOption = None
    subtopology: o.SubtopologyOption = None
    other_kind: OtherKindOption = None
    other_subtopology: OtherSubtopologyOption = None
    other_pointers: OtherPointersOption = None
    other_checkpoint: OtherCheckpointOption = None
    ignore_headers: IgnoreHeadersOption = False
    ignore_timestamps: IgnoreTimestampsOption = False
    work_dir: o.WorkDirOption = None

    def first(self, path: str) -> State:
        """Return the first state."""
        return o.state_at(path, self, **self._chosen(self.kind, self.subtopology))

    def both(self, path: str, other: str) -> tuple[State, State]:
        """Return both states; one that does not need Spark is opened first."""
        of_other = o.CommittedGroup(self.other_pointers, self.other_checkpoint)
        chosen = self._chosen(self.kind, self.subtopology), self._chosen(self.other_kind, self.other_subtopology)
        asked = list(zip((path, other), (self, of_other), chosen, strict=True))
        for where, committed, said in asked:
            o.check_state_at(where, committed, **said)
        opened = {}
        for number in sorted((0, 1), key=lambda number: asked[number][1].needs_spark):
            where, committed, said = asked[number]
            opened[number] = o.state_at(where, committed, **said)
        return opened[0], opened[1]

    @property
    def ignored(self) -> Ignored:
        """What is not compared."""
        return Ignored(self.ignore_headers, self.ignore_timestamps)

    def _chosen(self, kind: StoreType | None, subtopology: int | None) -> dict[str, Any]:
        """Return the options of one state, as `StateOptions` names them."""
        shared = {name: getattr(self, name) for name in ("store", "window_size_ms", "segment_interval_ms", "work_dir")}
        return {**shared, "kind": kind, "subtopology": subtopology}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "verify", _GROUP, verify)
    add_command(app, "diff", _GROUP, diff)


def verify(
    where: o.Where,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER]", help="Another state, which must have the same entries.", callback=o.not_empty
        ),
    ] = None,
    *,
    of_both: BothGroup,
    as_json: o.JsonOption = False,
) -> int:
    """Read everything, and report what is wrong: files, checksums, entries, indexes; or compare two states.

    Entries of a state location are read as its head says; without one, with --checkpoint or --pointers only.
    """
    if other is None:
        return _verify_one(of_both.first(where), as_json)
    return _verify_two(*of_both.both(where, other), of_both.ignored, as_json)


def diff(
    where: o.Where,
    other: Other,
    *,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, max=sys.maxsize, help="At most this many differences.")
    ] = None,
    of_both: BothGroup,
    as_json: o.JsonOption = False,
) -> int:
    """Print the entries in which two states differ: - is only in the first, + only in the other, ~ has changed.

    With --json each is a line. The exit code is 0 if there are none.
    """
    comparison = _compare(*of_both.both(where, other), of_both.ignored)
    for sign, where_alone, names in zip("-+", ("first", "other"), comparison.only_in, strict=True):
        for name in names:
            if as_json:
                print_json({"store": name, "in": where_alone})
            else:
                sys.stdout.write(f"{sign} {name}  the whole store\n")
    for found in islice(comparison.differences(), limit):
        spec = comparison.spec_of(found)
        if as_json:
            print_json(difference_json(spec, found))
        else:
            sys.stdout.write(f"{difference_line(spec, found)}\n")
    return ExitCode.OK if comparison.is_same else ExitCode.FOUND_PROBLEMS


def _verify_one(state: State, as_json: bool) -> int:
    with entry_bar("checking", state) as advance:
        report = check_state(state, advance)
    if as_json:
        print_json(check_document(report))
    else:
        console = results()
        for line in (f"{report.path}:", *(f"  {note}" for note in report.notes)):
            say(console, line)
        for check in report.stores:
            families = ", ".join(f"{count:,} in {family}" for family, count in sorted(check.entries.items()) if count)
            line = f"  {check.spec.name}: {sum(check.entries.values()):,} entries{f' ({families})' if families else ''}"
            say(console, line)
        problems = report.all_problems()
        for problem in problems:
            say(console, f"  DAMAGED {problem}")
        say(console, f"problems: {len(problems)}" if problems else "all of it can be read")
    return ExitCode.OK if report.is_sound else ExitCode.FOUND_PROBLEMS


def _verify_two(first: State, second: State, ignored: Ignored, as_json: bool) -> int:
    comparison = _compare(first, second, ignored)
    named, count = _first(comparison.differences())
    if as_json:
        print_json(comparison_document(first.path, second.path, comparison, count, named))
    else:
        for line in (
            *summary_lines(comparison),
            *(f"  {difference_line(comparison.spec_of(found), found)}" for found in named),
            *([f"  and {count - len(named):,} more; diff prints all"] if count > len(named) else []),
        ):
            sys.stdout.write(f"{line}\n")
    return ExitCode.OK if comparison.is_same else ExitCode.FOUND_PROBLEMS


def _first(differences: Iterator[EntryDifference]) -> tuple[list[EntryDifference], int]:
    named = list(islice(differences, _SHOWN_DIFFERENCES))
    return named, len(named) + sum(1 for _ in differences)


def _compare(first: State, second: State, ignored: Ignored) -> Comparison:
    with entry_bar("comparing", first, second) as advance:
        comparison = Comparison(first, second, ignored, advance)
        comparison.count()
    return comparison
