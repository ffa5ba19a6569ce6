"""Entries as rows: what files of Parquet and JSON lines hold, and back.

One row is one entry, or of a versioned store one version or tombstone. `value` of null is a tombstone. `start_ms` and
`end_ms` are the bounds of a window or session. A version is valid from `start_ms` until that of the next row of its
key. `sequence` tells the duplicates of a window apart. `part` is the shard or partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from statestore.bytestore.kinds.entry_scan import (
    END_FIELD,
    HEADERS_FIELD,
    KEY_FIELD,
    START_FIELD,
    TIMESTAMP_FIELD,
    VALUE_FIELD,
    stored_columns,
)
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import FormatError
from statestore.format.records.header_columns import decode_header_column, encode_header_column
from statestore.format.values.stored_value import join_stored
from statestore.recovery.making.logical_writes import LogicalWrite

ROWS: Final = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("store", pa.string()),
        KEY_FIELD,
        START_FIELD,
        END_FIELD,
        pa.field("sequence", pa.int32()),
        VALUE_FIELD,
        TIMESTAMP_FIELD,
        HEADERS_FIELD,
    ]
)


def to_rows(part: int, spec: StoreSpec, writes: list[LogicalWrite]) -> pa.RecordBatch:
    """Return the rows of a store's writes. Raises FormatError for bytes that are not of its kind and format."""
    split = layout_of(spec).split
    places = [split(write.key, write.timestamp_ms) for write in writes]
    stored = pa.array([write.stored for write in writes], pa.binary())
    values, timestamps_ms, header_bytes = stored_columns(spec.format, stored)
    columns: dict[str, pa.Array] = {
        "part": pa.repeat(pa.scalar(part, pa.int32()), len(writes)),
        "store": pa.repeat(pa.scalar(spec.name), len(writes)),
        "key": pa.array([place.key for place in places], KEY_FIELD.type),
        "start_ms": pa.array([place.start_ms for place in places], START_FIELD.type),
        "end_ms": pa.array([place.end_ms for place in places], END_FIELD.type),
        "sequence": pa.array([place.sequence for place in places], pa.int32()),
        "value": values,
        "timestamp_ms": timestamps_ms,
        "headers": decode_header_column(header_bytes),
    }
    return pa.record_batch([columns[name] for name in ROWS.names], schema=ROWS)


def to_writes(spec: StoreSpec, rows: pa.RecordBatch) -> list[LogicalWrite]:
    """Return the writes of a store that rows in the schema ROWS stand for.

    Raises FormatError for a row that can't be an entry of the store, with its number in the batch.
    """
    header_bytes = encode_header_column(rows.column("headers").fill_null([])).to_pylist()
    names = ("key", "start_ms", "end_ms", "sequence", "value", "timestamp_ms")
    columns = [rows.column(name).to_pylist() for name in names]
    layout = layout_of(spec)
    writes = []
    for number, (key, start_ms, end_ms, sequence, value, timestamp_ms) in enumerate(zip(*columns, strict=True)):
        try:
            if key is None:
                raise ValueError("it has no key")
            if value is None and not layout.keeps_versions:
                raise ValueError("it has no value, and only versions have tombstones")
            if timestamp_ms is None and spec.format.has_timestamp:
                raise ValueError("it has no timestamp_ms")
            whole_key, valid_from_ms = layout.join(key, start_ms, end_ms, sequence)
            stored = join_stored(spec.format, value, -1 if timestamp_ms is None else timestamp_ms, header_bytes[number])
        except ValueError as problem:
            raise FormatError("row", f"row {number} can't be an entry of store {spec.name!r}: {problem}") from problem
        writes.append(LogicalWrite(whole_key, stored, valid_from_ms))
    return writes


def by_store(rows: pa.RecordBatch) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Yield the rows of each part and store of a batch, in their order."""
    parts = rows.column("part").to_pylist()
    stores = rows.column("store").to_pylist()
    first = 0
    for number in range(1, len(parts) + 1):
        if number == len(parts) or (parts[number], stores[number]) != (parts[first], stores[first]):
            yield parts[first], stores[first], rows.slice(first, number - first)
            first = number
