"""Commands for state locations: what a query's state is kept in."""

from __future__ import annotations

from typing import Annotated

import typer

from statestore.errors import StatePointersError
from statestore.recovery.options import DEFAULT_RETAINED_VERSIONS
from statestore.recovery.pointer import CommitPointer
from upgrade_tools.cli import options as o
from upgrade_tools.location_garbage import collect_location
from upgrade_tools.location_rescale import rescale_location

Location = Annotated[str, typer.Argument(help="Path or URI of a state location.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("gc", rich_help_panel="State locations")(gc)
    app.command("rescale", rich_help_panel="State locations")(rescale)


def gc(
    location: Location,
    pointers: o.PointersOption = None,
    checkpoint: o.CheckpointOption = None,
    retained_versions: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many versions before the last one stay, or more if the query has recorded that it retains more.",
        ),
    ] = DEFAULT_RETAINED_VERSIONS,
    remove: Annotated[bool, typer.Option("--remove", help="Remove what is listed.")] = False,
) -> None:
    """List what no retained version needs, with the reasons, and remove it if asked to. The query may run."""
    collect_location(
        location, _pointers(location, pointers, checkpoint), retained_versions=retained_versions, remove=remove
    )


def rescale(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Path or URI of the state location; not changed.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Path or URI of an empty location.")],
    shards: Annotated[int, typer.Option(min=1, help="The new number of shards.")],
    pointers: o.PointersOption = None,
    checkpoint: o.CheckpointOption = None,
    work_dir: o.WorkDirOption = None,
    trust_keys: Annotated[
        bool, typer.Option("--trust-keys", help="Believe that stores' keys are those of records (one old shard).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check where all belongs, and write nothing.")] = False,
) -> None:
    """Make a state with another number of shards, and check it entry by entry."""
    rescale_location(
        source,
        target,
        shards=shards,
        recorded=_pointers(source, pointers, checkpoint),
        work_dir=work_dir,
        trust_keys=trust_keys,
        dry_run=dry_run,
    )


def _pointers(location: str, pointers: str | None, checkpoint: str | None) -> list[CommitPointer]:
    found = o.read_pointers(location, pointers, checkpoint)
    if found is None:
        raise StatePointersError(
            location,
            problem="what is committed stands in Spark's checkpoint. Name it with --checkpoint, or give what "
            "`python -m statestore.spark pointers CHECKPOINT` prints with --pointers",
        )
    return found
