"""The change feed: the records of the deltas that were committed between two batches, shard by shard.

A delta is what one batch wrote to a shard. Between two commit pointers, all deltas exist if the older pointer is on the
newer one's chain. Within a shard, changes are ordered by version and position.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.kinds.entry_scan import ENTRY_FIELDS
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.errors import ChangesUnavailableError, FormatError
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.records.header_columns import decode_header_column
from statestore.recovery.commit.delta import DeltaInfo
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import open_delta
from statestore.spark.datasource.options import work_directory
from statestore.spark.datasource.store_scan import StoreToRead

CHANGE_FIELDS: Final = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("version", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("batch_id", pa.int64()),
        pa.field("change", pa.string()),
        *ENTRY_FIELDS,
    ]
)


class ShardChanges(NamedTuple):
    """A shard's deltas in a change feed, oldest first."""

    shard: int
    first_version: int
    deltas: tuple[DurableFile, ...]
    first_batch_id: int | None
    """The batch of the first delta, if each batch made one; None if it is unknown which batch made which delta."""


def shard_changes(
    location: DurableLocation, older: CommitPointer, newer: CommitPointer, batch_ids: range
) -> ShardChanges:
    """Return what `batch_ids` changed between two pointers. Raises ChangesUnavailableError if a delta is missing."""
    shard, behind = newer.shard, older.version - newer.base_version
    if behind < 0:
        raise ChangesUnavailableError(
            str(location),
            shard=shard,
            cause=f"they begin after version {older.version}, but snapshots have replaced the deltas up to version "
            f"{newer.base_version}. Begin with a later batch, or read the feed in steps of fewer batches",
        )
    if older.version > newer.version or newer.chain[behind] != older.head:
        raise ChangesUnavailableError(
            str(location),
            shard=shard,
            cause=f"version {newer.version} does not follow from version {older.version}, where they begin: meanwhile "
            "the query went on from an older copy of its checkpoint, or on another state",
        )
    deltas = newer.deltas[behind:]
    return ShardChanges(shard, older.version + 1, deltas, batch_ids[0] if len(deltas) == len(batch_ids) else None)


class ChangeScan(StoreToRead):
    """Which changes of a store to read."""

    fields = CHANGE_FIELDS

    def read(self, changes: ShardChanges) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a shard in order."""
        with work_directory("statestore-changes-", self.work_dir) as directory:
            space_of = LocalDirectory(directory).spill_space
            for number, file in enumerate(changes.deltas):
                info = DeltaInfo(self.metadata.state_id, changes.shard, changes.first_version + number)
                batch_id = None if changes.first_batch_id is None else changes.first_batch_id + number
                with (
                    space_of(Path(directory, str(number))) as space,
                    open_delta(self.location, file, info, space) as delta,
                ):
                    position = 0
                    for store, records in delta.batches():
                        if store == self.spec.name:
                            try:
                                yield self._rows(info, batch_id, position, records)
                            except FormatError as cause:
                                problem = f"has a record that store {store!r} can't have: {cause}"
                                raise DurableFileCorruptedError(delta.where, cause=problem) from cause
                        position += records.num_rows

    def _rows(self, info: DeltaInfo, batch_id: int | None, position: int, records: pa.RecordBatch) -> pa.RecordBatch:
        count = records.num_rows
        places = layout_of(self.spec).record_columns(records.column("key"), records.column("timestamp"))
        keys, starts_ms, ends_ms = places
        columns = {
            "shard": pa.repeat(pa.scalar(info.shard, pa.int32()), count),
            "version": pa.repeat(pa.scalar(info.version, pa.int64()), count),
            "position": pa.array(range(position, position + count), pa.int64()),
            "batch_id": pa.repeat(pa.scalar(batch_id, pa.int64()), count),
            "change": pc.if_else(pc.is_null(records.column("value")), "delete", "put"),
            "key": keys,
            "value": records.column("value"),
            "timestamp_ms": records.column("timestamp"),
            "start_ms": starts_ms,
            "end_ms": ends_ms,
        }
        if self.with_headers:
            columns["headers"] = decode_header_column(records.column("header_bytes"))
        return self.rows(columns)
