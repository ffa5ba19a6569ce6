"""New states from the files of a location: with another number of shards, or as it was at an earlier batch."""

from __future__ import annotations

from collections.abc import Iterable

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
    """Make in `target` the state with another number of shards, and return what was made.

    `recorded` are the commit pointers in Spark's checkpoint. Raises StateStoreError.
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


def roll_back(
    source: str,
    target: str,
    recorded: Iterable[CommitPointer],
    *,
    complete: bool,
    work_dir: str | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RescaleReport:
    """Make in `target`, an empty location, the state at the pointers in `recorded`, and check it entry by entry.

    `recorded` are the commit pointers of an earlier batch; `complete` says that Spark had no others then. The number of
    shards, and with it every entry's place, stays. Raises StateStoreError; then `target` holds no state.
    """
    location = DurableLocation(source)
    metadata = metadata_at(location)
    return rescale(
        location,
        DurableLocation(target),
        shards=metadata.shards,
        pointers=committed_pointers(location, metadata, recorded, complete=complete),
        key_of={},
        routing=metadata.routing,
        work_dir=work_dir,
        on_progress=on_progress,
        dry_run=dry_run,
    )
