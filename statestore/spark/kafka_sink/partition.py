"""What a task of the sink does with a partition of a batch: one transaction, or none if its marker is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from statestore.errors.run import BatchChangedError, InputCutOffError, TransactionFencedError
from statestore.spark.kafka_sink.markers import OF_RECORDS, Marker, MarkerKey, MarkerTopic
from statestore.spark.kafka_sink.transaction import Transaction

LATER_RUN: Final = "another run of the query has begun since, or another sink of it with the same writer="
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True)
class Writer:
    """What puts out the batches of a query: one of its sinks, or the only one. Picklable."""

    topic: MarkerTopic
    query: str
    name: str
    prefix: str
    transaction_timeout_ms: int

    def key(self, partition: int) -> MarkerKey:
        """Return the key of a partition's marker."""
        return MarkerKey(self.query, self.name, partition)

    @property
    def run_key(self) -> MarkerKey:
        """The key of the marker of its run."""
        return MarkerKey(self.query, self.name)

    def transactional_id(self, partition: int | None) -> str:
        """Return the id that all attempts at a partition have in common, None for its runs: the latest fences others.

        No two writers and partitions have the same, whatever is in their names: from the right, the parts end at `/`.
        """
        parts = (quote(self.query, safe=""), quote(self.name, safe=""), "run" if partition is None else str(partition))
        return "/".join([self.prefix, *parts])

    def transactional_id_of_version_1(self, partition: int) -> str:
        """Return the id that releases had which wrote markers of version 1."""
        return "-".join(filter(None, [self.prefix, self.query, self.name, str(partition)]))

    def take_over(self, transactional_id: str) -> Transaction:
        """Return a transaction of an id, once whatever was done under it before has ended."""
        return Transaction(self.topic, transactional_id, self.transaction_timeout_ms)


@dataclass(frozen=True)
class BatchPlan:
    """What all tasks of a batch know of it. Picklable."""

    writer: Writer
    run: str
    batch_id: int
    partitions: int
    digest: str
    """Of what Spark has planned; empty if it does not tell."""
    markers: Mapping[int, Marker]
    """Of partitions, as far as the driver knows."""
    read_to: Mapping[int, int]
    """By partition, or if there it is missing by the marker topic's partition: where later markers would begin."""
    log_read_to: Mapping[int, int]

    @property
    def is_repeat(self) -> bool:
        """Whether a part of the batch is there, as far as the driver knows."""
        return any(marker.batch == self.batch_id for marker in self.markers.values())

    def written(self, partition: int) -> Marker | None:
        """Return the marker of a partition that is there, else None. Raises TransactionFencedError for a later run."""
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
    """What a task leaves to the driver."""

    partition: int
    records: int
    digest: str
    was_there: bool
    """Whether an earlier attempt had written it."""
    read_to: int
    """Before which offset of the log of markers later ones need not be looked for; -1 if this attempt wrote none."""


@dataclass
class PartitionRows:
    """How many rows a partition has, and a digest of them in any order: Spark may fetch them so over a shuffle."""

    records: int = 0
    _sum: int = field(default=0, repr=False)

    def add(self, rows: pa.RecordBatch, *, with_digest: bool) -> None:
        """Take rows, all of them with a digest or none."""
        self.records += rows.num_rows
        if with_digest:
            for row in rows.to_pylist():
                self._sum += int.from_bytes(blake2b(_bytes_of(row), digest_size=_DIGEST_BYTES).digest(), "big")

    @property
    def digest(self) -> str:
        """OF_RECORDS and the digest, if rows were taken with one."""
        return f"{OF_RECORDS}{self._sum % (1 << 8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"


def _bytes_of(value: Any) -> bytes:
    """Return bytes that no other value has; of a row those of its columns that are not null, by their names."""
    if isinstance(value, dict):
        found = b"".join(_bytes_of(name) + _bytes_of(value[name]) for name in sorted(value) if value[name] is not None)
    elif isinstance(value, list):
        found = b"".join(map(_bytes_of, value))
    else:
        found = value if isinstance(value, bytes) else str(value).encode()
    return b"%d %d:%b" % (type(value) is bytes, len(found), found)


def write_partition(plan: BatchPlan, partition: int, parts: Iterator[pa.RecordBatch | None]) -> PartitionWritten:
    """Write the rows of a partition, unless its marker says that they are there; `None` in `parts` is their end.

    All rows are taken in any case: what is above commits its state when the last one is taken. Where there is no end,
    or Kafka refuses, nothing counts, unless KafkaTimeoutError says otherwise.
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
            # What it had before may come in other partitions now.
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
    """Take the rows of a partition. Raises BatchChangedError if its marker says others, and InputCutOffError."""
    rows, marker = PartitionRows(), plan.covered(plan.markers.get(partition))
    for part in parts:
        if part is None:
            if marker is not None:
                plan.check(partition, marker, rows)
            return PartitionWritten(partition, rows.records, "", marker is not None, -1)
        rows.add(part, with_digest=marker is not None and marker.is_of_records)
    raise InputCutOffError(partition)
