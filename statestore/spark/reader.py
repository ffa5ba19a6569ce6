"""Reads committed state back from the durable location, as a batch DataFrame.

What is committed stands in Spark's checkpoint: the commit pointers are read from there with Spark's own state reader,
and each shard is restored from the state location in a task of its own. The running query is not disturbed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from statestore.errors import RecoveryError
from statestore.format.header_columns import decode_header_column
from statestore.recovery.contents import StoredEntry, stored_entries
from statestore.recovery.initial_state import initial_pointer
from statestore.recovery.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import METADATA_NAME, StateMetadata, read_metadata
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.drivers import POINTER_VARIABLE
from statestore.spark.schema import HEADERS

STORE_SCHEMA = ", ".join(
    [
        "shard int, version long, key binary, value binary, timestamp_ms long",
        f"headers {HEADERS}, start_ms long, end_ms long",
    ]
)
_NAMES = ["shard", "version", "key", "value", "timestamp_ms", "headers", "start_ms", "end_ms"]
_ENTRIES_PER_BATCH = 10_000


def read_pointers(spark: SparkSession, checkpoint_location: str | Path) -> DataFrame:
    """Return the commit pointers in the last committed batch, one row a shard, as one string column `pointer`.

    A query with several stateful() operators has those of all; each pointer says which state it belongs to. Raises
    RecoveryError if the checkpoint has none.
    """
    checkpoint = str(checkpoint_location)
    found = [
        pointers
        for operator in spark.read.format("state-metadata").load(checkpoint).collect()
        if (pointers := _operator_pointers(spark, checkpoint, operator)) is not None
    ]
    if not found:
        raise RecoveryError(checkpoint, "has no stateful() operator that has committed a batch")
    return reduce(DataFrame.unionAll, found)


def _operator_pointers(spark: SparkSession, checkpoint: str, operator: Row) -> DataFrame | None:
    """Return the pointers that one of the checkpoint's state stores holds, None if it is not one of ours."""
    reader = spark.read.format("statestore").option("operatorId", operator.operatorId)
    if operator.stateStoreName != "default":
        return None
    if operator.operatorName.startswith("transformWithState"):
        if f'"{POINTER_VARIABLE}"' not in (operator.operatorProperties or ""):
            return None
        state = reader.option("stateVarName", POINTER_VARIABLE).load(checkpoint)
        return state.select(f.col(f"value.{POINTER_VARIABLE}"))
    if operator.operatorName == "applyInPandasWithState":
        state = reader.load(checkpoint)
        fields = state.schema["value"].dataType["groupState"].dataType.names  # type: ignore[index]
        return state.select(f.col(f"value.groupState.{POINTER_VARIABLE}")) if fields == [POINTER_VARIABLE] else None
    return None


def read_store(
    spark: SparkSession, store: str, *, checkpoint_location: str | Path, state_location: str | Path | DurableLocation
) -> DataFrame:
    """Return the committed entries of `store`, one row each, in no set order; columns as in STORE_SCHEMA.

    `version` is the number of batches that have changed the shard. Keys and values are the serialized bytes. `start_ms`
    and `end_ms` are those of a window or session, or from when and until when a version of a versioned store is valid;
    null for key-value stores, and for the end of the latest version. Timestamp and headers are null if the store's
    format has none. Of a global store, of which every shard holds all, each row is there once.

    Raises RecoveryError if there is no state, and ValueError if it has no such store.
    """
    location = DurableLocation.of(state_location)
    metadata = read_metadata(location)
    if metadata is None:
        raise RecoveryError(location.path(METADATA_NAME), "there is no state; was the query started?")
    if store not in {spec.name for spec in metadata.stores}:
        raise ValueError(f"the state has no store {store!r}, only {sorted(spec.name for spec in metadata.stores)}")
    pointers = read_pointers(spark, checkpoint_location)
    if metadata.initial_state:
        pointers = pointers.unionAll(_initial_pointers(pointers, location, metadata))
    state = ShardedState(
        metadata.state_id, location, metadata.stores, LocalDirectory(), initial_state=metadata.initial_state
    )
    restore = _Restore(state, store, one_shard=store in metadata.global_stores)
    return pointers.repartition(metadata.shards).mapInArrow(restore.__call__, STORE_SCHEMA)


def _initial_pointers(recorded: DataFrame, location: DurableLocation, metadata: StateMetadata) -> DataFrame:
    """Return the pointers of the shards of which nothing is recorded yet: they are where they began."""
    known = [CommitPointer.from_json(row.pointer) for row in recorded.collect()]
    begun = {pointer.shard for pointer in known if pointer.state_id == metadata.state_id}
    shards = (shard for shard in range(metadata.shards) if shard not in begun)
    initial = [(initial_pointer(location, metadata.state_id, shard).to_json(),) for shard in shards]
    return recorded.sparkSession.createDataFrame(initial, "pointer string")


@dataclass(frozen=True)
class _Restore:
    state: ShardedState
    store: str
    one_shard: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for recorded in batch.column("pointer").to_pylist():
                pointer = CommitPointer.from_json(recorded)
                if pointer.state_id == self.state.state_id and (pointer.shard == 0 or not self.one_shard):
                    yield from self._entries(pointer)

    def _entries(self, pointer: CommitPointer) -> Iterator[pa.RecordBatch]:
        # A local copy of its own: a reader must not touch those of a running query.
        with tempfile.TemporaryDirectory(prefix="statestore-read-") as local_dir:
            state = replace(self.state, local=LocalDirectory(local_dir))
            with state.open(pointer) as shard:
                store = shard.stores[self.store]
                entries = stored_entries(store.spec, store.bytes)
                while chunk := list(islice(entries, _ENTRIES_PER_BATCH)):
                    yield _rows(pointer, chunk)


def _rows(pointer: CommitPointer, entries: list[StoredEntry]) -> pa.RecordBatch:
    keys, starts, ends, values, timestamps, header_bytes = zip(*entries, strict=True)
    columns = [
        pa.repeat(pa.scalar(pointer.shard, pa.int32()), len(keys)),
        pa.repeat(pa.scalar(pointer.version, pa.int64()), len(keys)),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(timestamps, pa.int64()),
        decode_header_column(pa.array(header_bytes, pa.binary())),
        pa.array(starts, pa.int64()),
        pa.array(ends, pa.int64()),
    ]
    return pa.record_batch(columns, names=_NAMES)
