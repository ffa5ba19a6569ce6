"""Waits for heads: the listener that publishes them is told of batches after they have ended."""

from __future__ import annotations

from pathlib import Path

from statestore.recovery.heads.head import ASKED, HEADS_DIRECTORY, PUBLISHED, Head, head_names, newest_head
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.clusters.processes import wait_until


def wait_for_head(state: str | Path, batch: int) -> Head:
    """Return the head of a state once it is that of a batch, and what it replaces is deleted."""
    location = DurableLocation(state)
    metadata = read_metadata(location)
    assert metadata is not None

    def found() -> Head | None:
        head = newest_head(location, metadata.state_id)
        names = head_names(location.names(HEADS_DIRECTORY), (PUBLISHED, ASKED))
        is_alone = head is not None and all((each.run, each.suffix) == (head.run, PUBLISHED) for each in names)
        return head if head is not None and is_alone and head.batch == batch else None

    wait_until(found, f"there is no head of batch {batch}")
    head = found()
    assert head is not None
    return head
