"""Turns a state into one with another number of shards, from files alone."""

from __future__ import annotations

import sys
from typing import Any

from statestore.operators.record_keys import record_keys
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location import DurableLocation
from statestore.recovery.making.rescale import committed_pointers, rescale
from statestore.recovery.making.rescale_report import RescaleProgress, RescaleReport
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
) -> RescaleReport:
    """Rescale, say how far it is on stderr, and return what was made.

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
        on_progress=_show,
        dry_run=dry_run,
    )


def rescale_document(source: str, target: str, report: RescaleReport) -> dict[str, Any]:
    """Return what was made as `rescale --json` and `rollback --json` print it."""
    return {
        "source": source,
        "target": target,
        "dryRun": report.state_id is None,
        "fromStateId": report.from_state_id,
        "fromShards": report.from_shards,
        "stateId": report.state_id,
        "shards": report.shards,
        "stores": [
            {"store": name, "entries": list(store.entries), "sizeBytes": list(store.size_bytes)}
            for name, store in report.stores.items()
        ],
        "entries": report.entries,
        "elapsedMs": round(report.elapsed_s * 1000),
    }


def _show(progress: RescaleProgress) -> None:
    print(f"  {progress}", file=sys.stderr)
