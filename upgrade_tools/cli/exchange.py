"""Commands that take state out into files and back in, and back in time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import refuse_occupied
from upgrade_tools.cli import options as o
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.documents import exchange_document, rescale_document
from upgrade_tools.cli.printing.output import entry_bar, errors, phase_bars, print_json, progress_bar, results, say
from upgrade_tools.errors import UnknownKindError
from upgrade_tools.location.rescale import roll_back
from upgrade_tools.rows.exchange import Exchanged, ImportOptions, export_state, import_state
from upgrade_tools.rows.files import FileFormat, refuse_existing, row_count
from upgrade_tools.states.state import StateOptions

_GROUP = "Out, in and back"
FormatOption = Annotated[
    FileFormat | None, typer.Option("--format", help="Format of the file (default: by its suffix).")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "export", _GROUP, export)
    add_command(app, "import", _GROUP, import_)
    add_command(app, "rollback", _GROUP, rollback)


def export(
    where: o.Where,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file, .parquet or .jsonl.", callback=o.not_empty)],
    *,
    file_format: FormatOption = None,
    of_store: o.StoreGroup,
    spans: o.SpanGroup,
    subtopology: o.SubtopologyOption = None,
    committed: o.CommittedGroup,
    work_dir: o.WorkDirOption = None,
    as_json: o.JsonOption = False,
) -> None:
    """Write all stores, or one, to a file of Parquet or JSON lines, from which `import` makes a state again.

    A row is an entry; in versioned stores it is a version, or a tombstone, whose value is null.
    """
    path = Path(file)
    chosen = _format_of(path, file_format)
    refuse_existing(path)
    state = o.state_at(where, committed, of_store, spans, subtopology=subtopology, work_dir=work_dir)
    with entry_bar("exporting", state) as advance:
        done = export_state(state, path, chosen, advance)
    _show(done, "exported to", as_json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, help="A file that `export` wrote.")],
    location: Annotated[str, typer.Argument(help="Path or URI of an empty location.", callback=o.not_empty)],
    *,
    file_format: FormatOption = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Place entries on this many shards by key: for stores that are keyed like their records "
            "(default: entries stay in their shards or partitions).",
        ),
    ] = None,
    spans: o.SpanGroup,
    expiry_header: o.ExpiryHeaderOption = None,
    work_dir: o.WorkDirOption = None,
    as_json: o.JsonOption = False,
) -> None:
    """Make a state location from an exported file, and check it. A query can then start on it."""
    chosen = _format_of(file, file_format)
    target = DurableLocation(location)
    refuse_occupied(target)
    expiry_headers = o.expiry_headers(expiry_header)
    options = ImportOptions(StateOptions(**spans.chosen(), work_dir=work_dir), shards, expiry_headers)
    with phase_bars(row_count(file, chosen)) as advance:
        done = import_state(file, chosen, target, options, advance)
    _show(done, "imported into", as_json)


def rollback(
    source: o.From,
    target: o.To,
    checkpoint: o.CheckpointOption = None,
    batch_id: Annotated[int | None, typer.Option("--batch-id", min=0, help="The batch to go back to.")] = None,
    pointers: o.PointersOption = None,
    work_dir: o.WorkDirOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read what is needed, and write nothing.")] = False,
    as_json: o.JsonOption = False,
) -> None:
    """Take a state back to a batch that Spark still retains, as a new state; the old one is not changed.

    Start a query on it with a new checkpoint, at the offsets that `python -m statestore.spark offsets CHECKPOINT
    --batch-id N` prints.
    """
    if (checkpoint is None) is (pointers is None) or (checkpoint is not None) is not (batch_id is not None):
        raise UnknownKindError(
            source,
            problem="which batch to go back to",
            remedy="give --checkpoint with --batch-id, or --pointers with the pointers of that batch",
        )
    refuse_occupied(DurableLocation(target))
    if pointers is not None:
        recorded = o.read_pointers_file(source, pointers)
    else:
        assert checkpoint is not None  # one of both was given
        recorded = o.pointers_of_checkpoint(source, checkpoint, batch_id)
    with progress_bar() as progress:
        task = progress.add_task("rolling back", total=None)
        report = roll_back(
            source,
            target,
            recorded,
            complete=checkpoint is not None,
            work_dir=work_dir,
            dry_run=dry_run,
            on_progress=lambda now: progress.update(task, description=now.phase, completed=now.entries),
        )
    if as_json:
        print_json(rescale_document(source, target, report))
    else:
        for line in str(report).splitlines():
            say(results(), line)


def _format_of(file: Path, chosen: FileFormat | None) -> FileFormat:
    found = chosen or FileFormat.of(file)
    if found is None:
        raise UnknownKindError(str(file), problem="its format by its suffix", remedy="give --format parquet or jsonl")
    return found


def _show(done: Exchanged, what: str, as_json: bool) -> None:
    if as_json:
        print_json(exchange_document(done))
        return
    total = sum(done.rows.values())
    counts = ", ".join(f"{name} {rows:,}" for name, rows in done.rows.items())
    say(results(), f"{total:,} rows {what} {done.path}: {counts}")
    for note in done.notes:
        say(errors(), f"note: {note}")
    if done.expired:
        say(results(), f"{done.expired:,} more had expired by the latest time in their store, and were left out")
