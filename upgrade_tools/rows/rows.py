"""Entries as rows: what files of Parquet and JSON lines hold, and back.

One row is one entry, or of a versioned store one version or tombstone. `value` of null is a tombstone. `start_ms` and
`end_ms` are the bounds of a window or session; of a version `start_ms` is from when it is valid, and the next row of
its key says until when. `sequence` tells the duplicates of a window apart. `part` is the shard or partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import FormatError
from statestore.format.header_columns import decode_header_column, encode_header_column
from statestore.format.stored_value import join_stored, split_stored
from statestore.recovery.making.logical_writes import LogicalWrite

HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
ROWS: Final = pa.schema(
    [
        ("part", pa.int32()),
        ("store", pa.string()),
        ("key", pa.binary()),
        ("start_ms", pa.int64()),
        ("end_ms", pa.int64()),
        ("sequence", pa.int32()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("headers", HEADERS_TYPE),
    ]
)


def to_rows(part: int, spec: StoreSpec, writes: list[LogicalWrite]) -> pa.RecordBatch:
    """Return the rows of a store's writes. Raises FormatError for bytes that are not of its kind and format."""
    columns: dict[str, list[Any]] = {name: [] for name in ROWS.names[2:-1]}
    header_bytes: list[bytes | None] = []
    split = layout_of(spec).split
    for key, stored, valid_from_ms in writes:
        value = timestamp_ms = headers = None
        if stored is not None:
            value, timestamp_ms, headers = split_stored(spec.format, stored)
        row = (*split(key, valid_from_ms), value, timestamp_ms)
        for column, cell in zip(columns.values(), row, strict=True):
            column.append(cell)
        header_bytes.append(headers)
    arrays = [pa.array(cells, ROWS.field(name).type) for name, cells in columns.items()]
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(part, pa.int32()), len(writes)),
            pa.repeat(pa.scalar(spec.name), len(writes)),
            *arrays,
            decode_header_column(pa.array(header_bytes, pa.binary())).cast(HEADERS_TYPE),
        ],
        schema=ROWS,
    )


def to_writes(spec: StoreSpec, rows: pa.RecordBatch) -> list[LogicalWrite]:
    """Return the writes of a store that rows in the schema ROWS stand for.

    Raises FormatError for a row that is none of the store's, with its number in the batch.
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
