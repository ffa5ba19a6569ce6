"""One shard in one batch: from a committed version, through uncommitted writes, to the next pointer.

Spark decides whether the returned pointer counts. Until it does, the delta it names is a file that nothing refers to.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from statestore.bytestore.shard_layout import column_family
from statestore.bytestore.store_spec import StoreSpec
from statestore.bytestore.write_set import RecordContext, WriteSet
from statestore.errors import CommitPointerError, LocationMismatchError
from statestore.recovery.delta import Changes, DeltaInfo, encode_delta
from statestore.recovery.local_copy import open_local_copy
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer, DurableFile, digest


@dataclass(frozen=True)
class ShardedState:
    """Where a state lives and what stores it has: all that opening one of its shards takes."""

    state_id: str
    location: DurableLocation
    stores: tuple[StoreSpec, ...]
    local_dir: str | None

    def pointer(self, shard: int, recorded: str | None) -> CommitPointer:
        """Return the commit pointer that Spark's state has recorded for `shard`; None is version 0.

        Raises CommitPointerError, and LocationMismatchError if it points at the state of another location.
        """
        if recorded is None:
            return CommitPointer(self.state_id, shard)
        pointer = CommitPointer.from_json(recorded)
        if pointer.state_id != self.state_id:
            raise LocationMismatchError(str(self.location), recorded=pointer.state_id, found=self.state_id)
        if pointer.shard != shard:
            raise CommitPointerError(f"commit pointer of shard {shard}", f"is that of shard {pointer.shard}")
        return pointer

    @contextmanager
    def open(self, pointer: CommitPointer, context: RecordContext) -> Iterator[ShardBatch]:
        """Hand out the shard at the version of `pointer`, ready to take a batch's writes."""
        with open_local_copy(self.location, pointer, self.stores, self.local_dir) as database:
            stores = {
                spec.name: WriteSet(database.family(column_family(spec), spec.name), context) for spec in self.stores
            }
            try:
                yield ShardBatch(self.location, pointer, stores)
            finally:
                for store in stores.values():
                    store.close()


@dataclass(frozen=True)
class ShardBatch:
    """A shard's stores at a committed version, and the uncommitted writes of one batch over them."""

    location: DurableLocation
    pointer: CommitPointer
    stores: Mapping[str, WriteSet]

    def commit(self, *, skipped_records: int = 0, stream_time_ms: int = -1) -> CommitPointer:
        """Make the writes durable as one delta and return the pointer that commits them, if Spark keeps it.

        Without writes there is no delta and no new version. Raises LocationNotWritableError.
        """
        changes = {name: store.changes for name, store in self.stores.items() if store.changes}
        delta = self._write_delta(changes) if changes else None
        return self.pointer.advance(delta, skipped_records=skipped_records, stream_time_ms=stream_time_ms)

    def _write_delta(self, changes: Mapping[str, Changes]) -> DurableFile:
        info = DeltaInfo(self.pointer.state_id, self.pointer.shard, self.pointer.version + 1)
        data = encode_delta(info, changes)
        # The name is this attempt's alone: retries, speculative and zombie attempts never write the same file.
        name = f"{shard_directory(info.shard)}/{info.version:012d}-{uuid.uuid4().hex}.arrow"
        self.location.write(name, data)
        return DurableFile(name, data.size, digest(data))


def shard_directory(shard: int) -> str:
    """Return where the deltas of a shard stand in the state location."""
    return f"shards/{shard:04d}/deltas"
