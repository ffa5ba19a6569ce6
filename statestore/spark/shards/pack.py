"""Before the shuffle, rows of Kafka's shape become blobs of shards; after it, blobs become rows again.

Both steps run as mapInArrow functions, vectorised over Arrow columns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from statestore.errors import FormatError, InputSchemaError
from statestore.errors.run import FutureTimestampError, InputHeadersError, InvalidTimestampError, NullKeyError
from statestore.format.keys.partitioner import partition_column
from statestore.format.records.header_columns import HEADERS_TYPE, decode_header_column, encode_header_column
from statestore.spark.query_failure import sentence_first
from statestore.spark.sessions import BATCH_ID
from statestore.spark.shards.blobs import (
    BLOB,
    BLOB_BYTES,
    INPUT,
    OUTPUT,
    POSITION,
    BlobWriter,
    by_shard,
    decode_blob,
    encode_blob,
    pieces,
    release_buffers,
    sort_by_position,
)
from statestore.spark.shards.lanes import Lanes, is_of_topics, lane_of, schema_of, shards_by_key
from statestore.spark.shards.schema import INPUT_COLUMNS

PACKED_SCHEMA = "route int, blob binary"
_PACKED = pa.schema([("route", pa.int32()), ("blob", pa.binary())])
_HELD_LIMIT_BYTES = 64 << 20
_NO_RECORDS = pa.record_batch([pa.array([], column.type) for column in INPUT], schema=INPUT)
_LAST_MS = (1 << 63) - 1
_Place: TypeAlias = "tuple[int, str]"
"""A shard, and its lane or ""."""


@dataclass(frozen=True)
class Pack:
    """Places records in shards and packs them into blobs; `routing[shard]` is Spark's group key of a shard."""

    shards: int
    shard_by: str
    routing: tuple[int, ...]
    global_topics: tuple[str, ...] = ()
    """Topics whose records every shard receives, in record batches of their own."""
    calls_every_shard: bool = False
    """Whether the query's first batch calls each shard, even without records."""
    max_timestamp_ahead_ms: int | None = None
    """How far ahead of the clock a record's timestamp may be; None is no bound."""
    lanes: Lanes | None = None
    """Which of several stages records are for; None if there is only one."""
    follows_stage: bool = False
    """Whether it takes a stage's blobs, not a source's rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield (route, blob) rows; a shard's blobs come in the order of its records."""
        with sentence_first():
            yield from self._rows(batches)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.calls_every_shard and _is_start_of_query():
            yield from (_row(route, encode_blob([_NO_RECORDS])) for route in self.routing)
        # Written at once: a slice that waited would keep its whole batch in memory.
        held: dict[_Place, BlobWriter] = {}
        for batch in batches:
            if batch.num_rows:
                for lane, records in self._by_lane(batch):
                    yield from self._add(lane, records, held)
                    del records
            # Free it before Spark sends the next one.
            del batch
            while sum(blob.size_bytes for blob in held.values()) > _HELD_LIMIT_BYTES:
                largest = max(held, key=lambda place: held[place].size_bytes)
                yield _row(self.routing[largest[0]], held.pop(largest).finish())
        for place in sorted(held):
            yield _row(self.routing[place[0]], held.pop(place).finish())
        release_buffers()

    def _by_lane(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield the records of rows, for this stage (None) or for a lane."""
        if not self.follows_stage:
            records = _in_order(source_columns(batch))
            self._check_ahead(records)
            yield from ((None, records),) if self.lanes is None else self.lanes.of_input(records)
            return
        assert self.lanes is not None
        for blob in batch.column(BLOB).drop_null():
            for records in decode_blob(blob.as_buffer()):
                for lane, part in self.lanes.of_passed(lane_of(records.schema), records):
                    # What this stage processes is put in order; lanes keep the order in which records were sent.
                    yield lane, part if lane is not None else _in_order(part)

    def _check_ahead(self, records: pa.RecordBatch) -> None:
        if self.max_timestamp_ahead_ms is None:
            return
        latest_ms = int(time.time() * 1000) + self.max_timestamp_ahead_ms
        wrong = pc.greater(records.column("timestamp_ms"), pa.scalar(min(latest_ms, _LAST_MS), pa.int64()))
        if pc.any(wrong).as_py():
            raise FutureTimestampError(
                **_position(records, wrong),
                timestamp_ms=records.column("timestamp_ms").filter(wrong)[0].as_py(),
                max_ahead_ms=self.max_timestamp_ahead_ms,
            )

    def _add(self, lane: str | None, batch: pa.RecordBatch, held: dict[_Place, BlobWriter]) -> Iterator[pa.RecordBatch]:
        """Write records into the blobs of their shards; yield full blobs."""
        schema = schema_of(lane)
        for shard, records in self._split(batch) if lane is None else self._split_by_key(batch):
            for piece in pieces(records.replace_schema_metadata(schema.metadata), BLOB_BYTES):
                place = shard, lane or ""
                blob = held.setdefault(place, BlobWriter(schema))
                blob.write(piece)
                if blob.size_bytes >= BLOB_BYTES:
                    yield _row(self.routing[shard], held.pop(place).finish())

    def _split_by_key(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        yield from by_shard(batch, shards_by_key(batch.column("key"), self.shards))

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each shard that has records, with them."""
        if self.global_topics:
            is_global = pa.array(is_of_topics(batch, self.global_topics))
            for_all = batch.filter(is_global)
            if for_all.num_rows:
                yield from ((shard, for_all) for shard in range(self.shards))
                batch = batch.filter(pc.invert(is_global))
                if not batch.num_rows:
                    return
        if self.follows_stage:
            yield from self._split_by_key(batch)
            return
        if self.shard_by == "partition":
            shard_of = batch.column("partition").to_numpy() % self.shards
        elif self.lanes is None:
            if batch.column("key").null_count:
                raise NullKeyError(**_position(batch, pc.is_null(batch.column("key"))))
            shard_of = partition_column(batch.column("key"), self.shards)
        else:  # records may get keys before the next stage
            shard_of = shards_by_key(batch.column("key"), self.shards, batch.column("partition"))
        yield from by_shard(batch, shard_of)


def _is_start_of_query() -> bool:
    """Return whether this is the first task of a query's first batch."""
    context = TaskContext.get()
    return context is not None and context.partitionId() == 0 and context.getLocalProperty(BATCH_ID) == "0"


def _row(route: int, blob: bytes) -> pa.RecordBatch:
    return pa.record_batch([[route], [blob]], schema=_PACKED)


def source_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return Spark's rows of Kafka's source in SOURCE_COLUMNS. Raises an error for the first that is not a record."""
    columns = {name: batch.column(name) for name in INPUT_COLUMNS}
    for name in POSITION:
        if columns[name].null_count:
            raise InputSchemaError(name, "holds null; topic, partition and offset identify a record")
    # The casts undo large variable-size types, if Spark is set to use them, and fields that can't be null.
    topic = columns["topic"].cast(pa.string()).dictionary_encode()
    timestamp_us = columns["timestamp"].cast(pa.int64())
    packed = pa.record_batch(
        [
            topic,
            columns["partition"],
            columns["offset"],
            pc.divide(timestamp_us, 1000).fill_null(-1),
            columns["key"].cast(pa.binary()),
            columns["value"].cast(pa.binary()),
            _encoded_headers(batch),
        ],
        schema=INPUT,
    )
    _check_timestamps(packed, timestamp_us)
    return packed


def _encoded_headers(batch: pa.RecordBatch) -> pa.BinaryArray:
    headers = batch.column("headers").cast(HEADERS_TYPE)
    try:
        return encode_header_column(headers)
    except FormatError as cause:
        for row, of_row in enumerate(headers.to_pylist()):
            for index, header in enumerate(of_row or ()):
                if header is None or header["key"] is None:
                    position = _position(batch.slice(row, 1), pa.array([True]))
                    problem = "is null" if header is None else "has a null key"
                    raise InputHeadersError(**position, index=index, problem=problem) from cause
        raise


def _in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch ordered by position."""
    partition = batch.column("partition").to_numpy()
    # Kafka's source gives one topic partition with rising offsets.
    is_in_order = (
        len(batch.column("topic").dictionary) == 1
        and bool((partition == partition[0]).all())
        and bool((np.diff(batch.column("offset").to_numpy()) > 0).all())
    )
    return batch if is_in_order else sort_by_position(batch)


def _check_timestamps(batch: pa.RecordBatch, timestamp_us: pa.Array) -> None:
    wrong = pc.less(timestamp_us, 0).fill_null(True)
    if pc.any(wrong).as_py():
        first_us = timestamp_us.filter(wrong)[0].as_py()
        timestamp_ms = None if first_us is None else first_us // 1000
        raise InvalidTimestampError(**_position(batch, wrong), timestamp_ms=timestamp_ms)


def _position(batch: pa.RecordBatch, mask: pa.Array) -> dict[str, Any]:
    """Return topic, partition and offset of the first record in `mask`."""
    position: dict[str, Any] = batch.filter(mask).slice(0, 1).select(POSITION).to_pylist()[0]
    return position


_NAMES = ["key", "value", "topic", "timestamp", "headers"]


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of all blobs as rows of OUTPUT_SCHEMA, in order."""
    for batch in batches:
        # A row with the figures of a shard may have no blob.
        for blob in batch.column(BLOB).drop_null():
            for records in decode_blob(blob.as_buffer()):
                yield rows_of(records.select(OUTPUT.names))
    release_buffers()


def rows_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records in SINK_COLUMNS or SOURCE_COLUMNS as rows of OUTPUT_SCHEMA; further columns come last."""
    timestamp = records.column("timestamp_ms").cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    columns = [
        records.column("key"),
        records.column("value"),
        records.column("topic").cast(pa.string()),
        timestamp,
        decode_header_column(records.column("headers")),
    ]
    others = [name for name in ("partition", "offset") if name in records.schema.names]
    return pa.record_batch([*columns, *map(records.column, others)], names=[*_NAMES, *others])
