"""What the sink does in Spark's tasks: a partition of a batch is one transaction, or none if its marker is there.

    rows or blobs ── SayEnd ──> blobs, end, end ── ForPartition(plan, write_partition) ──> one transaction

A function on Arrow sees the stream end when its rows end, and also when the process that feeds it ends. Committing then
would lose the rows that did not come. So a step before it marks the end, and does so twice: before Spark takes a batch
from a Python worker, it checks whether what feeds that worker has failed or was killed. The first mark may be on its
way by then, the second is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from statestore.errors.run import BatchChangedError, InputCutOffError, TransactionFencedError
from statestore.format.binary_columns import positions_of
from statestore.format.records.header_columns import decode_header_column, header_counts
from statestore.spark.kafka_sink.markers import OF_RECORDS, Marker, MarkerKey, MarkerTopic
from statestore.spark.kafka_sink.transaction import Transaction
from statestore.spark.shards.blobs import BLOB, decode_blob, encode_blob

BLOB_SCHEMA: Final = f"{BLOB} binary"
WRITTEN_SCHEMA: Final = "partition int, records bigint, digest string, was_there boolean, read_to bigint"
LATER_RUN: Final = "another run of the query has begun since, or another sink of it with the same writer="
_DIGEST_BYTES: Final = 16
_END: Final = b""
_COLLECTED_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Writer:
    """One of a query's sinks. Picklable."""

    topic: MarkerTopic
    query: str
    name: str
    prefix: str
    transaction_timeout_ms: int

    def key(self, partition: int) -> MarkerKey:
        """Return the key of a partition's marker."""
        return MarkerKey(self.query, self.name, partition)

    def transactional_id(self, partition: int | None) -> str:
        """Return the id of all attempts at a partition, or of all runs of the writer (None): the latest fences others.

        Names are quoted, so have no `/`, and ids of writers and partitions differ.
        """
        parts = (quote(self.query, safe=""), quote(self.name, safe=""), "run" if partition is None else str(partition))
        return "/".join([self.prefix, *parts])

    def transactional_id_of_version_1(self, partition: int) -> str:
        """Return the id that releases with markers of version 1 used."""
        return "-".join(filter(None, [self.prefix, self.query, self.name, str(partition)]))

    def take_over(self, transactional_id: str) -> Transaction:
        """Return a transaction with an id, after earlier ones with it have ended."""
        return Transaction(self.topic, transactional_id, self.transaction_timeout_ms)


@dataclass(frozen=True)
class BatchPlan:
    """What all tasks of a batch are told. Picklable."""

    writer: Writer
    run: str
    batch_id: int
    partitions: int
    digest: str
    """The digest of Spark's plan; empty if Spark does not tell."""
    markers: Mapping[int, Marker]
    """By partition, as far as the driver knows."""
    read_to: Mapping[int, int]
    """By partition, from which offset of the marker topic on later markers may stand."""
    log_read_to: Mapping[int, int]
    """The same by partition of the marker topic, for partitions that `read_to` lacks."""

    @property
    def is_repeat(self) -> bool:
        """Whether a part of the batch was written before, as far as the driver knows."""
        return any(marker.batch == self.batch_id for marker in self.markers.values())

    def written(self, partition: int) -> Marker | None:
        """Return a partition's marker of this batch; None if it is not written. Raises TransactionFencedError."""
        key = self.writer.key(partition)
        known_to = self.read_to.get(partition, self.log_read_to[self.writer.topic.partition_of(key)])
        found, run = self.writer.topic.last_after(key, known_to)
        if run is not None and run.run != self.run:
            raise TransactionFencedError(self.writer.transactional_id(partition), cause=LATER_RUN)
        return self.covered(found or self.markers.get(partition))

    def covered(self, marker: Marker | None) -> Marker | None:
        """Return the marker if it is of this batch, None if it is of an earlier one."""
        if marker is None:
            return None
        is_there = marker.covers(self.writer.query, self.batch_id, self.partitions, self.digest)
        return marker if is_there else None

    def check(self, partition: int, marker: Marker, rows: PartitionRows) -> None:
        """Raise BatchChangedError if a partition has other rows than its marker says."""
        problem = None
        if rows.records != marker.records:
            problem = f"{rows.records} records, and had {marker.records}"
        elif marker.is_of_records and marker.digest != rows.digest:
            problem = "other records than it had"
        if problem is not None:
            raise BatchChangedError(self.batch_id, problem=f"partition {partition} has {problem}")


class PartitionWritten(NamedTuple):
    """What a task reports to the driver; the fields are the columns of WRITTEN_SCHEMA."""

    partition: int
    records: int
    digest: str
    was_there: bool
    """Whether an earlier attempt had written it."""
    read_to: int
    """The offset in the marker topic after this partition's marker; -1 if this attempt wrote none."""


@dataclass
class PartitionRows:
    """The count of a partition's rows, and a digest that ignores their order: after a shuffle, Spark's order varies."""

    records: int = 0
    _sum: int = field(default=0, repr=False)

    def add(self, rows: pa.RecordBatch, *, with_digest: bool) -> None:
        """Count rows. `with_digest` must be the same for all of a partition."""
        self.records += rows.num_rows
        if with_digest:
            for row in _bytes_of(rows.to_struct_array()).to_pylist():
                self._sum += int.from_bytes(blake2b(row, digest_size=_DIGEST_BYTES).digest(), "big")

    @property
    def digest(self) -> str:
        """OF_RECORDS and the digest, if rows were taken with one."""
        return f"{OF_RECORDS}{self._sum % (1 << 8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"


def _bytes_of(values: pa.Array) -> pa.Array:
    """Return for each value bytes that no other value has; for a row, of its columns that are not null, by name."""
    is_bytes, is_null = False, values.is_null()
    if pa.types.is_struct(values.type):
        columns = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
        named = [_joined(_framed(name.encode()), _bytes_of(column)) for name, column in sorted(columns.items())]
        found = _joined(*(part.fill_null(b"") for part in named))
    elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        starts = pa.array(positions_of(header_counts(values)))
        each = _bytes_of(values.flatten()).fill_null(_framed(b"None"))
        found = pc.binary_join(pa.LargeListArray.from_arrays(starts, each), _text(""))
    else:
        is_bytes = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
        found = (values if is_bytes else values.cast(pa.large_string())).cast(pa.large_binary())
    sizes = pc.binary_length(found).cast(pa.large_string()).cast(pa.large_binary())
    return pc.if_else(is_null, None, _joined(_text(f"{is_bytes:d} "), sizes, _text(":"), found))


def _framed(text: bytes) -> pa.Scalar:
    return pa.scalar(b"0 %d:%b" % (len(text), text), pa.large_binary())


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text.encode(), pa.large_binary())


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _text(""))


def write_partition(plan: BatchPlan, partition: int, parts: Iterator[pa.RecordBatch | None]) -> PartitionWritten:
    """Write the rows of a partition, unless its marker says that they are there; `None` in `parts` is their end.

    Takes all rows in any case: the operators before it commit their state when the last row is taken. Without an end,
    or if Kafka refuses, nothing is committed, unless KafkaTimeoutError says otherwise.
    """
    rows, whole, marker, transaction, offset = PartitionRows(), False, None, None, -1
    try:
        for part in parts:
            if part is None:
                whole = True
                break
            if part.num_rows and rows.records == 0:
                transaction = plan.writer.take_over(plan.writer.transactional_id(partition))
                marker = plan.written(partition)
                if marker is None:
                    transaction.begin()
                else:
                    transaction.close()
                    transaction = None
            rows.add(part, with_digest=not plan.digest if marker is None else marker.is_of_records)
            if transaction is not None:
                transaction.add(part)
        if not whole:
            raise InputCutOffError(partition)
        if rows.records == 0:
            # The rows that it had before may be in other partitions now.
            marker = plan.written(partition)
        digest = plan.digest or rows.digest
        if marker is not None:
            plan.check(partition, marker, rows)
        elif transaction is not None:
            key = plan.writer.key(partition)
            value = Marker(plan.batch_id, plan.partitions, rows.records, digest).to_bytes()
            (offset,) = transaction.commit(key.to_bytes(), value, [plan.writer.topic.partition_of(key)]).values()
    finally:
        if transaction is not None:
            transaction.close()
    return PartitionWritten(partition, rows.records, digest, marker is not None, offset)


def look_at_partition(plan: BatchPlan, partition: int, parts: Iterator[pa.RecordBatch | None]) -> PartitionWritten:
    """Take the rows of a partition. Raises BatchChangedError if its marker is of others, and InputCutOffError."""
    rows, marker = PartitionRows(), plan.covered(plan.markers.get(partition))
    for part in parts:
        if part is None:
            if marker is not None:
                plan.check(partition, marker, rows)
            return PartitionWritten(partition, rows.records, "", marker is not None, -1)
        rows.add(part, with_digest=marker is not None and marker.is_of_records)
    raise InputCutOffError(partition)


@dataclass(frozen=True)
class SayEnd:
    """Puts rows into blobs, if they are not in blobs yet, and adds two marks of the end. Runs as a mapInArrow function.

    Spark collects up to `max_rows` rows before it hands them on, whatever their size, so after some MB rows of nulls
    fill that up; 0 or less is no bound.
    """

    max_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a blob for each batch of rows, then the marks."""
        waiting_bytes = 0
        for row in (row for batch in batches for row in _blobs(batch)):
            yield row
            waiting_bytes += row.nbytes
            if waiting_bytes >= _COLLECTED_BYTES and self.max_rows > 0:
                yield pa.record_batch([pa.nulls(self.max_rows, pa.binary())], names=[BLOB])
                waiting_bytes = 0
        yield _row(_END)
        yield _row(_END)


def _blobs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows as blobs, which those of `stateful(packed=True)` are already."""
    if batch.schema.names == [BLOB]:
        yield from (batch.slice(row, 1) for row in range(batch.num_rows))
    else:
        yield _row(encode_blob([batch]))


def _row(blob: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([blob], pa.binary())], names=[BLOB])


@dataclass(frozen=True)
class ForPartition:
    """Gives the rows in a task's blobs to `step`. Runs as a mapInArrow function."""

    plan: BatchPlan
    step: Callable[[BatchPlan, int, Iterator[pa.RecordBatch | None]], PartitionWritten]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of WRITTEN_SCHEMA, after the step."""
        context = TaskContext.get()
        assert context is not None
        written = self.step(self.plan, context.partitionId(), parts_of(batches))
        types = (pa.int32(), pa.int64(), pa.string(), pa.bool_(), pa.int64())
        columns = [pa.array([value], kind) for value, kind in zip(written, types, strict=True)]
        yield pa.record_batch(columns, names=[*PartitionWritten._fields])


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows in blobs, and None after both marks of their end."""
    ends = 0
    for batch in batches:
        for blob in batch.column(BLOB).drop_null():
            data = blob.as_buffer()
            if data.size:
                yield from map(_unpacked, decode_blob(data))
            else:
                ends += 1
    if ends == 2:
        yield None


def _unpacked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a blob as the sink takes them; those of `stateful(packed=True)` have headers as bytes."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    if "headers" not in columns or not pa.types.is_binary(columns["headers"].type):
        return rows
    columns["topic"] = columns["topic"].cast(pa.string())
    columns["headers"] = decode_header_column(columns["headers"])
    return pa.record_batch(columns)
