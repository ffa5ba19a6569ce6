"""Makes initial state from a DataFrame, for a query that has no state yet.

The location is claimed before anything is written, and becomes a state after everything was read back. After a failure
in between, no query would start on it, and the next attempt clears it.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import DataSourceOptionError
from statestore.errors.new_state import ShardOverlapError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.state_filling import DEFAULT_MEMORY_BYTES, FilledShard, with_expiry_stores
from statestore.recovery.metadata.state_metadata import ShardBy, metadata_of_stores, read_metadata
from statestore.spark.datasource.filling import fill_shards
from statestore.spark.datasource.options import WriteOptions
from statestore.spark.datasource.row_placement import (
    PLACED_SCHEMA,
    SHARD_BLOBS_SCHEMA,
    RowPlacement,
    check_row_columns,
    unpacked,
)
from statestore.spark.sessions import location_in, on_server
from statestore.spark.shards.schema import check_choice
from statestore.spark.spark_versions import repartition_by_shard
from statestore.stores.builder import StoreBuilder

_MADE_FROM: Final = "rows of a DataFrame"


@dataclass(frozen=True)
class InitialState:
    """The state that was made: start a query on `location`, with `shards` shards and a new checkpoint."""

    location: str
    state_id: str
    shards: int
    entries: Mapping[str, int]
    """How many entries each store has; in versioned stores, versions and the ends of those that none follows."""


def write_initial_state(
    rows: DataFrame,
    location: str | Path | DurableLocation,
    *,
    stores: Iterable[StoreBuilder[Any] | StoreSpec],
    shards: int,
    shard_by: str = "key",
    work_dir: str | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> InitialState:
    """Turn the rows of a batch DataFrame into a state in an empty location, from which a query can start.

    Args:
        rows: columns as a read of a store has them: key and value (binary), timestamp_ms, headers, start_ms and end_ms
            as far as the stores have them; with several stores, `store` names a row's store. `version` is ignored, and
            `shard` unless `shard_by` is "partition".
        location: path or URI of an empty location.
        stores: builders, as the topology has them, or specs. If a builder is `with_expiry_header` and its format has
            headers, its entries expire by that header.
        shards: how many parts the key space has; the query must have as many.
        shard_by: "key" if the keys of the stores (of windows and sessions without their times) are those of the records
            that the query will read; "partition" if `shard` says which shard a row belongs to: the Kafka partition of
            its records modulo `shards`.
        work_dir: directory on each executor with room for a shard, which is read back there; None means a temporary
            one.
        memory_bytes: about how much unwritten data a task holds in memory.

    Raises InputSchemaError, TargetNotEmptyError, LocationNotWritableError, and ValueError for illegal arguments. Errors
    of rows (StateRowError) and of reading back (StateCheckError) reach the driver in the text of Spark's exception. The
    location holds a state only if this returns.
    """
    stores = tuple(stores)
    specs = tuple(each.spec if isinstance(each, StoreBuilder) else each for each in stores)
    expiry_headers = _expiry_headers(stores)
    if not specs or len({spec.name for spec in specs}) < len(specs):
        raise ValueError(f"stores must be at least one, each with a name of its own, got {[s.name for s in specs]}")
    if type(shards) is not int or shards < 1:
        raise ValueError(f"shards must be a whole number of at least 1, not {shards!r}")
    check_choice("shard_by", shard_by, ShardBy)
    check_row_columns(rows.schema, specs, shard_by)
    target = location_in(rows.sparkSession, location)
    metadata = metadata_of_stores(with_expiry_stores(specs, expiry_headers), shards, shard_by)
    spark = rows.sparkSession
    made = NewState(target, metadata, work_dir, memory_bytes, expiry_headers=expiry_headers)
    on_server(spark, claim_state, made)
    placement = RowPlacement(specs, shards, shard_by)
    # Partition n has shard n, so that each shard is written by one task.
    if any(LAYOUTS[spec.kind].keeps_versions for spec in specs):
        placed = rows.mapInArrow(placement.__call__, PLACED_SCHEMA)
        by_shard = repartition_by_shard(placed, shards).sortWithinPartitions("store", "key", "start_ms")

        def placed_in(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return batches
    else:
        # A blob of many rows costs Spark as much as one row does.
        by_shard = repartition_by_shard(rows.mapInArrow(placement.packed, SHARD_BLOBS_SCHEMA), shards)
        placed_in = unpacked

    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[pickle.dumps(fill_shards(made, placed_in(batches)))]], names=["filled"])

    filled = [bytes(row.filled) for row in by_shard.mapInArrow(fill, "filled binary").collect()]
    entries = on_server(spark, complete_state, made, filled)
    return InitialState(str(target), metadata.state_id, shards, entries)


def claim_state(made: NewState) -> None:
    """Claim the location of a state that is to be made. Raises what `NewState.claim` raises."""
    NewState.claim(made.location, made.metadata, _MADE_FROM)


def complete_state(made: NewState, pickled: list[bytes]) -> dict[str, int]:
    """Complete the state with the shards that tasks have filled, unless that was done; return entries by store."""
    filled = [shard for each in pickled for shard in pickle.loads(each)]
    found = read_metadata(made.location)
    if found is None or found.state_id != made.metadata.state_id:
        made.complete(filled)
    return made.entries(filled)


def _expiry_headers(stores: Iterable[StoreBuilder[Any] | StoreSpec]) -> dict[str, str]:
    """Return by store the header by which entries expire, for stores with headers."""
    return {
        store.name: store.time_to_live.header
        for store in stores
        if isinstance(store, StoreBuilder)
        and store.format.has_headers
        and store.time_to_live is not None
        and store.time_to_live.header is not None
    }


@dataclass
class FilledShards(WriterCommitMessage):
    """The shards that one task has written."""

    shards: list[FilledShard]


@dataclass(frozen=True)
class StateWriter(DataSourceArrowWriter):
    """Writes rows as they are partitioned. Begun and committed on the driver's machine, written on the executors."""

    made: NewState
    placement: RowPlacement

    @classmethod
    def begin(cls, options: Mapping[str, str], schema: StructType, overwrite: bool) -> StateWriter:
        """Claim a location; return its writer. Raises as `NewState.claim`, and DataSourceOptionError."""
        if overwrite:
            raise DataSourceOptionError("mode", "can't be overwrite: a state is made in an empty location, by append")
        asked = WriteOptions.of(options)
        check_row_columns(schema, [asked.spec], asked.shard_by)
        metadata = metadata_of_stores([asked.spec], asked.shards, asked.shard_by)
        made = NewState.claim(DurableLocation(asked.path), metadata, _MADE_FROM, work_dir=asked.work_dir)
        return cls(made, RowPlacement((asked.spec,), asked.shards, asked.shard_by))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilledShards:
        """Write the rows of one partition. Raises StateRowError, StateCheckError, LocationNotWritableError."""
        return FilledShards(fill_shards(self.made, self.placement(iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the location a state. Raises ShardOverlapError if several tasks wrote to a shard."""
        filled = [shard for message in messages if isinstance(message, FilledShards) for shard in message.shards]
        times = Counter(shard.shard for shard in filled)
        if shared := sorted(shard for shard, count in times.items() if count > 1):
            raise ShardOverlapError(str(self.made.location), shards=shared)
        self.made.complete(filled)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what was written is not a state, and the next claim of the location deletes it."""
