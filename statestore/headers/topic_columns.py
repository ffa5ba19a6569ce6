"""Records of topics, as tuples and as columns: what comes to a task, and what its sinks send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import row_objects
from statestore.headers.record_columns import RecordColumns

SourceFields: TypeAlias = "tuple[str, int, int, int, bytes | None, bytes | None, bytes]"
"""A record as it comes from a topic: topic, partition, offset, timestamp_ms, key, value, header bytes (KIP-1271).

A plain tuple, as is SinkFields: there is one of each for every record.
"""

SinkFields: TypeAlias = "tuple[str, int, bytes | None, bytes | None, bytes]"
"""A record as it goes to a topic: topic, timestamp_ms, key, value, header bytes (KIP-1271)."""

Send: TypeAlias = "Callable[[str, int, bytes | None, bytes | None, bytes], None]"
"""Takes the fields of a SinkFields: who collects them by columns needs no tuple for each."""

SOURCE_COLUMNS: Final = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.binary(), nullable=False),
    ]
)
SINK_COLUMNS: Final = pa.schema(
    [SOURCE_COLUMNS.field(name) for name in ("topic", "timestamp_ms", "key", "value", "headers")]
)


def source_batch(records: Iterable[SourceFields]) -> pa.RecordBatch:
    """Return records, at least one, as the columns of SOURCE_COLUMNS."""
    topics, *columns = zip(*records, strict=True)
    return _batch(SOURCE_COLUMNS, topics, columns)


def source_records(batch: pa.RecordBatch) -> Iterator[SourceFields]:
    """Yield the rows of a batch of SOURCE_COLUMNS."""
    return cast(Iterator[SourceFields], _rows(batch))


def record_at(batch: pa.RecordBatch, place: tuple[str, int, int]) -> SourceFields | None:
    """Return the first record of a batch of SOURCE_COLUMNS from a topic, partition and offset; None if none is."""
    found = np.ones(batch.num_rows, np.bool_)
    for name, part in zip(("topic", "partition", "offset"), place, strict=True):
        column = batch.column(name)
        found &= pc.equal(column, pa.scalar(part).cast(column.type)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(found)
    return next(source_records(batch.slice(int(rows[0]), 1))) if len(rows) else None


def sink_batch(topics: Sequence[str], *columns: Sequence[object]) -> pa.RecordBatch:
    """Return records as the columns of SINK_COLUMNS, of lists with the objects of each column."""
    return _batch(SINK_COLUMNS, topics, columns)


def sink_records(batch: pa.RecordBatch) -> Iterator[SinkFields]:
    """Yield the rows of a batch of SINK_COLUMNS."""
    return cast(Iterator[SinkFields], _rows(batch))


def record_columns(batch: pa.RecordBatch, origin: pa.RecordBatch) -> RecordColumns:
    """Return a batch of either as RecordColumns, with where its rows came from or go to."""
    column = batch.column
    return RecordColumns.adopt(column("key"), column("value"), column("timestamp_ms"), column("headers"), origin)


def _batch(schema: pa.Schema, topics: Sequence[str], columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
    # Most often there is one topic, or few: they are told apart before Arrow makes anything of them.
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    codes = pa.array(map(numbers.__getitem__, topics), pa.int32(), size=len(topics))
    arrays = [pa.DictionaryArray.from_arrays(codes, pa.array(numbers, pa.string()))]
    arrays += [pa.array(column, field.type) for column, field in zip(columns, list(schema)[1:], strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*map(row_objects, batch.columns), strict=True)
