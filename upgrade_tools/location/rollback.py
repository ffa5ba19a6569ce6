"""Takes a state back to a version that is still retained: as a new state, in a location of its own."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.rescale import OnProgress, RescaleReport, committed_pointers, rescale
from upgrade_tools.states.location import metadata_at


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
    """Make in `target`, an empty location, the state that `recorded` points at, and check it entry by entry.

    `recorded` are the commit pointers of an earlier batch; `complete` says that these are all that Spark had then. The
    number of shards, and with it every entry's place, stays. Raises StateStoreError; then `target` holds no state.
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
