"""Records of topics as columns: what comes to a task, and what its sinks send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

import pyarrow as pa

from statestore.format.binary_columns import row_objects
from statestore.processor.receivers import SinkRecord, SourceRecord

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


def source_batch(records: Iterable[SourceRecord]) -> pa.RecordBatch:
    """Return records, at least one, as the columns of SOURCE_COLUMNS."""
    return _batch(SOURCE_COLUMNS, records)


def source_records(batch: pa.RecordBatch) -> Iterator[SourceRecord]:
    """Yield the rows of a batch of SOURCE_COLUMNS."""
    return cast(Iterator[SourceRecord], _rows(batch))


def sink_batch(records: Iterable[SinkRecord]) -> pa.RecordBatch:
    """Return records, at least one, as the columns of SINK_COLUMNS."""
    return _batch(SINK_COLUMNS, records)


def sink_records(batch: pa.RecordBatch) -> Iterator[SinkRecord]:
    """Yield the rows of a batch of SINK_COLUMNS."""
    return cast(Iterator[SinkRecord], _rows(batch))


def _batch(schema: pa.Schema, records: Iterable[tuple[object, ...]]) -> pa.RecordBatch:
    topics, *others = zip(*records, strict=True)
    columns = [pa.array(topics, pa.string()).dictionary_encode()]
    columns += [pa.array(column, field.type) for column, field in zip(others, list(schema)[1:], strict=True)]
    return pa.record_batch(columns, schema=schema)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*map(row_objects, batch.columns), strict=True)
