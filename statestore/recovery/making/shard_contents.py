"""A shard as it was committed, to be read by whoever is not the query that owns it, and what its stores hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.recovery.shard_batch import ShardBatch, ShardedState


@contextmanager
def open_shard(
    location: DurableLocation, metadata: StateMetadata, pointer: CommitPointer, work_dir: str | None
) -> Iterator[ShardBatch]:
    """Hand out the shard of `pointer` in a local copy that is nobody else's and gone afterwards.

    `work_dir` has room for the shard, in a temporary directory; None means that of the machine.
    """
    with TemporaryDirectory(prefix="statestore-shard-", dir=work_dir) as directory:
        # All on disk, also what a query keeps in memory: it need not fit here.
        state = ShardedState(metadata.state_id, location, metadata.stores, LocalDirectory(directory))
        with state.open(pointer) as batch:
            yield batch


def store_writes(batch: ShardBatch, spec: StoreSpec) -> Iterator[list[LogicalWrite]]:
    """Yield the writes that make what a store of a shard holds, as `logical_writes` does."""
    stream_time_ms = batch.pointer.store_times_ms.get(spec.name, NO_STREAM_TIME)
    return logical_writes(spec, batch.stores[spec.name].bytes, stream_time_ms)
