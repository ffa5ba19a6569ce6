"""After the shard call: blobs to rows of the Kafka sink's shape. Runs as a mapInArrow function."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from statestore.format.records.header_columns import decode_header_column
from statestore.spark.shards.blobs import BLOB, decode_blob, release_buffers

_NAMES = ["key", "value", "topic", "timestamp", "headers"]


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of all blobs as rows of OUTPUT_SCHEMA, in order."""
    for batch in batches:
        # A row that brings the figures of a shard may have no blob.
        for blob in batch.column(BLOB).drop_null():
            for records in decode_blob(blob.as_buffer()):
                yield rows_of(records)
    release_buffers()


def rows_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records in SINK_COLUMNS, or SOURCE_COLUMNS, as rows of OUTPUT_SCHEMA, with what else they have behind."""
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
