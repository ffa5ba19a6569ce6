"""Turns a state into one with another number of shards, from files alone."""

from __future__ import annotations

import sys

from statestore.operators.record_keys import record_keys
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.rescale import committed_pointers, rescale
from statestore.recovery.rescale_report import RescaleProgress
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
) -> bool:
    """Rescale, say how far it is on stderr, print what was made, and return True.

    `recorded` is what Spark's checkpoint has. Raises StateStoreError.
    """
    location = DurableLocation(source)
    metadata = metadata_at(location)
    report = rescale(
        location,
        DurableLocation(target),
        shards=shards,
        pointers=committed_pointers(location, metadata, recorded, complete=False),
        key_of=record_keys(metadata),
        trust_keys=trust_keys,
        work_dir=work_dir,
        on_progress=_show,
        dry_run=dry_run,
    )
    print(report)
    return True


def _show(progress: RescaleProgress) -> None:
    print(f"  {progress}", file=sys.stderr)
