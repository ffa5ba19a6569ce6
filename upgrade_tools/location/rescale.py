"""Turns a state into one with another number of shards, from files alone."""

from __future__ import annotations

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.placement import record_keys
from statestore.recovery.making.rescale import OnProgress, RescaleReport, committed_pointers, rescale
from upgrade_tools.states.location import metadata_at


def rescale_location(
    source: str,
    target: str,
    *,
    shards: int,
    recorded: list[CommitPointer],
    work_dir: str | None,
    trust_keys: bool,
    dry_run: bool,
    on_progress: OnProgress | None = None,
) -> RescaleReport:
    """Rescale, and return what was made.

    `recorded` is what Spark's checkpoint has. Raises StateStoreError.
    """
    location = DurableLocation(source)
    metadata = metadata_at(location)
    return rescale(
        location,
        DurableLocation(target),
        shards=shards,
        pointers=committed_pointers(location, metadata, recorded, complete=False),
        key_of=record_keys(metadata),
        trust_keys=trust_keys,
        work_dir=work_dir,
        on_progress=on_progress,
        dry_run=dry_run,
    )
