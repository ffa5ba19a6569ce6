"""One partition of a batch in one Kafka transaction, together with its marker: what a task of the sink does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa

from statestore.errors import (
    BatchChangedError,
    InputCutOffError,
    InputError,
    KafkaRefusedError,
    TransactionAbortedError,
    TransactionFencedError,
)
from statestore.middleware.extras import extra
from statestore.spark.kafka_sink.cluster import is_fenced
from statestore.spark.kafka_sink.markers import Marker, MarkerKey, MarkerTopic

with extra("kafka"):
    from confluent_kafka import KafkaError, KafkaException, Producer

_LOG: Final = logging.getLogger(__name__)
_ROWS_AT_ONCE: Final = 2_000
_POLL_S: Final = 0.1
_ABORT_S: Final = 5.0


@dataclass(frozen=True)
class BatchPlan:
    """What all tasks of a batch know of it. Picklable."""

    query: str
    writer: str
    batch_id: int
    partitions: int
    topic: MarkerTopic
    prefix: str
    transaction_timeout_ms: int
    markers: dict[int, Marker]
    """Of partitions, as far as the driver knows."""
    read_to: dict[int, int]
    """By partition, or if there it is missing by the marker topic's partition: where later markers would begin."""
    log_read_to: dict[int, int]

    def key(self, partition: int) -> MarkerKey:
        """Return the key of a partition's marker."""
        return MarkerKey(self.query, self.writer, partition)

    def transactional_id(self, partition: int) -> str:
        """Return the id that all attempts at this partition have in common: the latest one fences the others."""
        return "-".join(filter(None, [self.prefix, self.query, self.writer, str(partition)]))

    def last_marker(self, partition: int) -> Marker | None:
        """Return the latest marker of a partition, whose transaction nobody else may have by now."""
        key = self.key(partition)
        known_to = self.read_to.get(partition, self.log_read_to[self.topic.partition_of(key)])
        return self.topic.last_after(key, known_to) or self.markers.get(partition)


class PartitionWritten(NamedTuple):
    """What a task leaves to the driver."""

    partition: int
    records: int
    was_there: bool
    """Whether an earlier attempt had written it."""
    read_to: int
    """Before which offset of the log of markers later ones need not be looked for; -1 if this attempt wrote none."""


def write_partition(plan: BatchPlan, partition: int, parts: Iterator[pa.RecordBatch | None]) -> PartitionWritten:
    """Write the rows of a partition, unless its marker says that they are there; `None` in `parts` is their end.

    All rows are taken in any case: what is above commits its state when the last one is taken. Raises InputCutOffError
    if there is no end, InputError and other KafkaSinkErrors; nothing counts then, unless
    KafkaTimeoutError says otherwise.
    """
    records, whole, was_there, transaction = 0, False, False, None
    try:
        for part in parts:
            if part is None:
                whole = True
                break
            records += part.num_rows
            if part.num_rows and transaction is None and not was_there:
                transaction = Transaction(plan, partition)
                marker = plan.last_marker(partition)
                was_there = marker is not None and marker.covers(plan.query, plan.batch_id, plan.partitions)
                if was_there:
                    expected = marker.records if marker else 0
                    transaction.close()
                    transaction = None
                else:
                    transaction.begin()
            if transaction is not None:
                transaction.add(part)
        if not whole:
            raise InputCutOffError(partition)
        if was_there and records != expected:
            problem = f"partition {partition} has {records} records, and had {expected}"
            raise BatchChangedError(plan.batch_id, problem=problem)
        offset = transaction.commit(records) if transaction is not None else -1
    finally:
        if transaction is not None:
            transaction.close()
    return PartitionWritten(partition, records, was_there, offset)


class Transaction:
    """The transaction of a partition. Once it is made, no earlier attempt can commit any more."""

    def __init__(self, plan: BatchPlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._id = plan.transactional_id(partition)
        self._timeout_s = plan.topic.cluster.timeout_s
        self._producer: Producer = plan.topic.cluster.producer(
            self._id, plan.transaction_timeout_ms, self._note_failure
        )
        self._failure: KafkaError | None = None
        self._is_open = False
        with self._errors("taking over"):
            # Asked for the coordinator while it is connected to no broker, the client waits for half a second. The
            # first answer comes from an address that it was given, which it leaves then; the second from a broker.
            for _ in range(2):
                self._producer.list_topics(plan.topic.name, self._timeout_s)
            self._until_done(self._producer.init_transactions)

    def begin(self) -> None:
        """Begin it."""
        with self._errors("beginning"):
            self._producer.begin_transaction()
        self._is_open = True

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, in their order, as the client has room for them."""
        with self._errors("writing to"):
            for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
                self._add(rows.slice(start, _ROWS_AT_ONCE))

    def commit(self, records: int) -> int:
        """Write the marker of so many records and commit; return before which offset no later marker can be."""
        plan, key = self._plan, self._plan.key(self._partition)
        marker = Marker(plan.batch_id, plan.partitions, records)
        partition = plan.topic.partition_of(key)
        with self._errors("committing"):
            self._send(
                plan.topic.name,
                marker.to_bytes(),
                key.to_bytes(),
                partition=partition,
            )
            self._producer.flush(self._timeout_s)
            # The marker is in the log. The end of its transaction comes next, and before any other of its key.
            end = plan.topic.cluster.end_offsets(plan.topic.name, [partition], committed=False)[partition]
            self._until_done(self._producer.commit_transaction)
        self._is_open = False
        return end + 1

    def close(self) -> None:
        """Give the client back; a transaction that was not committed is aborted, by Kafka if nobody answers."""
        if self._is_open:
            self._is_open = False
            try:
                self._producer.abort_transaction(_ABORT_S)
            except (KafkaException, SystemError) as cause:
                # The next attempt does it, or transaction.timeout.ms.
                _LOG.warning("can't abort the transaction of %s: %s", self._id, cause)
                self._producer.purge()

    def _add(self, rows: pa.RecordBatch) -> None:
        columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
        if None in columns["topic"]:
            raise InputError(
                "a row for Kafka has no topic: fill the column, or name one with KafkaTransactions(topic=)"
            )
        names = ("topic", "value", "key", "timestamp_ms", "headers", "partition")
        produce, poll = self._producer.produce, self._producer.poll
        for topic, value, key, timestamp_ms, headers, partition in zip(
            *(columns.get(name, repeat(None)) for name in names), strict=False
        ):
            more: dict[str, Any] = {}
            if timestamp_ms is not None:
                if timestamp_ms < 0:
                    raise InputError(
                        f"a row for topic {topic} has the timestamp {timestamp_ms} ms, before 1970: correct it"
                    )
                more["timestamp"] = timestamp_ms
            if headers:
                more["headers"] = [(header["key"], header["value"]) for header in headers]
            if partition is not None:
                more["partition"] = partition
            try:
                produce(topic, value, key, **more)
            except BufferError:
                self._send(topic, value, key, **more)
        poll(0)

    def _send(self, topic: str, value: bytes | None, key: bytes | None, **more: Any) -> None:
        """Hand a record to the client, once it has room: what it holds goes out meanwhile."""
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(topic, value, key, **more)
            except BufferError as full:
                if time.monotonic() > give_up_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT_QUEUE)) from full
                self._producer.poll(_POLL_S)
            else:
                return

    def _until_done(self, step: Callable[[float], Any]) -> None:
        """Call, and again for what is to be called again."""
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            try:
                step(max(_POLL_S, give_up_s - time.monotonic()))
            except KafkaException as cause:
                if not cause.args[0].retriable() or time.monotonic() > give_up_s:
                    raise
            else:
                return

    def _note_failure(self, error: KafkaError | None, message: Any) -> None:
        self._failure = self._failure or error

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Raise what the client's errors mean for the transaction."""
        try:
            with self._plan.topic.cluster.errors(f"{doing} the transaction of {self._id!r}"):
                try:
                    yield
                except KafkaException as cause:
                    self._raise_for(cause)
                except SystemError as mixed:
                    # The client raises a fatal error, and then still says which records failed: to Python that is one.
                    cause_of = mixed.__cause__
                    self._raise_for(cause_of if isinstance(cause_of, KafkaException) else self._fatal_error(mixed))
        except KafkaRefusedError as refused:
            refusal = refused.__cause__
            if self._is_open and isinstance(refusal, KafkaException) and not refusal.args[0].fatal():
                raise TransactionAbortedError(self._id, cause=refused.cause) from refusal
            raise

    def _fatal_error(self, lost: SystemError) -> KafkaException:
        """Return the fatal error that got lost between the client and Python. Raises `lost` if there was none."""
        try:
            # After a fatal error the client answers everything with it, and else this is no time to begin.
            self._producer.begin_transaction()
        except KafkaException as cause:
            error: KafkaError = cause.args[0]
            if error.fatal():
                return cause
        raise lost

    def _raise_for(self, cause: KafkaException) -> NoReturn:
        error: KafkaError = cause.args[0]
        if is_fenced(error):
            raise TransactionFencedError(self._id, cause=error.str()) from cause
        if error.txn_requires_abort():
            raise TransactionAbortedError(self._id, cause=(self._failure or error).str()) from cause
        raise cause
