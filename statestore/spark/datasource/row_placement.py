"""Checks the rows for a new state, and finds each row's shard. Vectorised over Arrow.

Rows have the columns of a read, as far as the store's kind and format have them. `version` is ignored, and so is
`shard`, except where records are placed by partition: there it says which shard a row belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from statestore.bytestore.kinds.entry_scan import ENTRY_FIELDS
from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import InputSchemaError
from statestore.errors.new_state import StateRowError
from statestore.errors.readable import key_digest
from statestore.format.keys.partitioner import partition_column
from statestore.format.records.header_columns import HEADERS_TYPE, encode_header_column
from statestore.format.values.value_timestamp_headers import UNKNOWN_TIMESTAMP_MS
from statestore.spark.shards.blobs import BLOB, by_shard, decode_blob, encode_blob, pieces
from statestore.spark.shards.schema import check_column_type, spark_schema, spark_type

_ROWS: Final = pa.schema([pa.field("shard", pa.int32()), pa.field("store", pa.string()), *ENTRY_FIELDS])
_HEADERS: Final = _ROWS.get_field_index("headers")
PLACED: Final = _ROWS.set(_HEADERS, pa.field("headers", pa.binary()))
"""Headers are header bytes: lists would cost more in a shuffle than all other columns."""
PLACED_SCHEMA: Final = spark_schema(PLACED)
SHARD_BLOBS: Final = pa.schema([pa.field("shard", pa.int32()), pa.field(BLOB, pa.binary())])
SHARD_BLOBS_SCHEMA: Final = spark_schema(SHARD_BLOBS)
_COLUMN_TYPES: Final = {"version": spark_type(pa.int64()), **{field.name: spark_type(field.type) for field in _ROWS}}


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the PLACED rows in blobs of `RowPlacement.packed`."""
    for batch in batches:
        for blob in batch.column(BLOB):
            yield from decode_blob(blob.as_buffer())


def check_row_columns(schema: StructType, stores: Sequence[StoreSpec], shard_by: str) -> None:
    """Raise InputSchemaError unless rows with these columns can become entries of the stores."""
    needed = {"key", "value"}
    if len(stores) > 1:
        needed.add("store")
    if shard_by == "partition":
        needed.add("shard")
    for spec in stores:
        needed |= {"timestamp_ms"} if spec.format.has_timestamp else set()
        needed |= set(LAYOUTS[spec.kind].row_columns)
    for name in sorted(needed):
        if name not in schema.names:
            raise InputSchemaError(name, f"is missing; a state of these stores needs {sorted(needed)}")
    for field in schema.fields:
        if field.name not in _COLUMN_TYPES:
            raise InputSchemaError(field.name, f"is not one of {', '.join(_COLUMN_TYPES)}: drop it")
        check_column_type(field, _COLUMN_TYPES[field.name])


@dataclass(frozen=True)
class RowPlacement:
    """Brings rows into the schema PLACED. Runs as a mapInArrow function, or in the task that writes them."""

    stores: tuple[StoreSpec, ...]
    shards: int
    shard_by: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their shards, in the same order. Raises StateRowError."""
        for batch in batches:
            if batch.num_rows:
                yield self._placed(batch)

    def packed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows for `unpacked`: many of a shard in a blob, in no particular order."""
        for placed in self(batches):
            for shard, rows in by_shard(placed, placed.column("shard").to_numpy()):
                blobs = [encode_blob([piece]) for piece in pieces(rows)]
                yield pa.record_batch([[shard] * len(blobs), blobs], schema=SHARD_BLOBS)

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # The casts undo large variable-size types, if Spark is set to use them, and fields that can't be null.
        columns = {
            field.name: batch.column(field.name).cast(HEADERS_TYPE if field.name == "headers" else field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in _ROWS
        }
        if "store" not in batch.schema.names:
            columns["store"] = pa.repeat(self.stores[0].name, batch.num_rows)
        rows = pa.record_batch([columns[field.name] for field in _ROWS], schema=_ROWS)
        self._check(rows)
        header_bytes = encode_header_column(rows.column("headers"))
        rows = rows.set_column(_HEADERS, PLACED.field(_HEADERS), header_bytes)
        if self.shard_by == "key":
            shards = pa.array(partition_column(rows.column("key"), self.shards))
            rows = rows.set_column(0, PLACED.field("shard"), shards)
        return rows

    def _check(self, rows: pa.RecordBatch) -> None:
        names = [spec.name for spec in self.stores]
        unknown = pc.invert(pc.is_in(rows.column("store"), value_set=pa.array(names, pa.string())))
        _refuse("", "store", rows, unknown, f"is of no store that was named ({', '.join(names)})")
        if self.shard_by == "partition":
            shard = rows.column("shard")
            outside = pc.or_(pc.less(shard, 0), pc.greater_equal(shard, self.shards))
            _refuse("", "shard", rows, pc.fill_null(outside, True), f"is of no shard from 0 to {self.shards - 1}")
        for spec in self.stores:
            of_store = rows if len(names) == 1 else rows.filter(pc.equal(rows.column("store"), spec.name))
            if of_store.num_rows:
                _check_entries(spec, of_store)


def _check_entries(spec: StoreSpec, rows: pa.RecordBatch) -> None:
    for column in ("key", "value"):
        _refuse(spec.name, column, rows, pc.is_null(rows.column(column)), f"has no {column}")
    timestamps_ms = rows.column("timestamp_ms")
    if spec.format.has_timestamp:
        missing = pc.fill_null(pc.less(timestamps_ms, UNKNOWN_TIMESTAMP_MS), True)
        _refuse(spec.name, "timestamp_ms", rows, missing, "has no timestamp, or a negative one other than -1")
    else:
        _refuse_no_room(spec, "timestamp_ms", rows, pc.is_valid(timestamps_ms))
    _refuse(spec.name, "headers", rows, _without_header_key(rows), "has a header without a key")
    if not spec.format.has_headers:
        some = pc.fill_null(pc.greater(pc.list_value_length(rows.column("headers")), 0), False)
        _refuse_no_room(spec, "headers", rows, some)
    starts_ms, ends_ms = rows.column("start_ms"), rows.column("end_ms")
    if not spec.kind.is_segmented:
        _refuse_no_room(spec, "start_ms", rows, pc.is_valid(starts_ms))
        _refuse_no_room(spec, "end_ms", rows, pc.is_valid(ends_ms))
        return
    negative = pc.fill_null(pc.less(starts_ms, 0), True)
    _refuse(spec.name, "start_ms", rows, negative, "has no start, or one before 1970")
    unsound = layout_of(spec).unsound_ends(starts_ms, ends_ms)
    _refuse(spec.name, "end_ms", rows, unsound.rows, unsound.problem)


def _without_header_key(rows: pa.RecordBatch) -> pa.BooleanArray:
    """Return for each row whether one of its headers is null or has no key."""
    headers = rows.column("headers")
    missing = pc.is_null(pc.struct_field(pc.list_flatten(headers), "key"))
    found = np.zeros(rows.num_rows, np.bool_)
    found[pc.list_parent_indices(headers).filter(missing).to_numpy()] = True
    return pa.array(found)


def _refuse_no_room(spec: StoreSpec, column: str, rows: pa.RecordBatch, wrong: pa.BooleanArray) -> None:
    described = f"{spec.kind.value} store, {spec.format.describe()}"
    _refuse(spec.name, column, rows, wrong, f"has {column}, which a {described}, has no room for: make it null")


def _refuse(store: str, column: str, rows: pa.RecordBatch, wrong: pa.BooleanArray, problem: str) -> None:
    """Raise StateRowError for the first row that is `wrong` (true, not null)."""
    if pc.any(wrong).as_py():
        row = rows.filter(wrong).slice(0, 1).to_pylist()[0]
        raise StateRowError(
            store or str(row["store"]), column=column, key_digest=key_digest(row["key"]), problem=problem
        )
