"""The sink's two steps in each task of Spark: rows to blobs with an end that can be told, and blobs to Kafka.

    rows ── SayEnd ──> blobs, end, end ── ForPartition(plan, write_partition) ──> one transaction

A function on Arrow can't tell the end of its rows from the end of the process that feeds it: both end the stream. To
commit then would lose what did not come. So a step of its own says the end, and twice: before each batch that Spark
takes from a Python worker it looks whether what feeds that worker has failed or was killed. The first end may be on its
way by then, the second is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from statestore.spark.kafka_sink.partition import BatchPlan, PartitionWritten
from statestore.spark.shards.blobs import BLOB, decode_blob, encode_blob

BLOB_SCHEMA: Final = f"{BLOB} binary"
WRITTEN_SCHEMA: Final = "partition int, records bigint, digest string, was_there boolean, read_to bigint"
_END: Final = b""
_COLLECTED_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class SayEnd:
    """Puts rows into blobs, and two ends behind them. Runs as a mapInArrow function.

    Spark collects up to `max_rows` of what it is given before it hands it on, whatever the size, so rows of nulls fill
    that up after some MB; 0 or less is no bound.
    """

    max_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a blob for each batch of rows, and the ends."""
        waiting_bytes = 0
        for batch in batches:
            blob = encode_blob([batch])
            yield _row(blob)
            waiting_bytes += len(blob)
            if waiting_bytes >= _COLLECTED_BYTES and self.max_rows > 0:
                yield pa.record_batch([pa.nulls(self.max_rows, pa.binary())], names=[BLOB])
                waiting_bytes = 0
        yield _row(_END)
        yield _row(_END)


def _row(blob: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([blob], pa.binary())], names=[BLOB])


@dataclass(frozen=True)
class ForPartition:
    """Does something with the rows of a task's blobs. Runs as a mapInArrow function."""

    plan: BatchPlan
    step: Callable[[BatchPlan, int, Iterator[pa.RecordBatch | None]], PartitionWritten]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of WRITTEN_SCHEMA, after it is done."""
        context = TaskContext.get()
        assert context is not None
        written = self.step(self.plan, context.partitionId(), parts_of(batches))
        types = (pa.int32(), pa.int64(), pa.string(), pa.bool_(), pa.int64())
        columns = [pa.array([value], kind) for value, kind in zip(written, types, strict=True)]
        yield pa.record_batch(columns, names=[*PartitionWritten._fields])


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows in blobs, and None once both ends were there."""
    ends = 0
    for batch in batches:
        for blob in batch.column(BLOB).drop_null():
            data = blob.as_buffer()
            if data.size:
                yield from decode_blob(data)
            else:
                ends += 1
    if ends == 2:
        yield None
