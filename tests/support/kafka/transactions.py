"""The sink's tasks without Spark: batches of rows, written by processes that die, and what consumers see of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark import TaskContext

from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.markers import MarkerTopic, WriterMarkers
from statestore.spark.kafka_sink.partition import BatchPlan, Writer, write_partition
from statestore.spark.kafka_sink.run import WriterRun
from statestore.testing.faults import FaultJournal

STEPS = ("init", "begin", "produce", "commit")
"""Where a process can die, before and after."""
ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)


class Mortal(Protocol):
    """What may end a process when it comes to a step."""

    def strike(self, moment: str, when: str) -> bool:
        """Do so, or return whether anything was done."""
        ...


@dataclass(frozen=True)
class Death:
    """SIGKILL to the process that comes to a step for the time `occurrence`, counted from 1."""

    journal: FaultJournal
    step: str
    when: str
    occurrence: int

    def strike(self, moment: str, when: str) -> bool:
        if (moment, when) != (self.step, self.when) or self.journal.count(f"{moment}-{when}") != self.occurrence:
            return False
        self.journal.note("struck", [moment, when])
        os.kill(os.getpid(), signal.SIGKILL)
        return True


class MortalProducer(Producer):
    """A producer whose process may die before and after each of its steps; `produce` is half way in a batch."""

    def __init__(self, properties: dict[str, Any], *, deaths: Sequence[Mortal], **more: Any) -> None:
        super().__init__(properties, **more)
        self._deaths = deaths
        self._sent = 0

    def init_transactions(self, *arguments: Any) -> None:
        self._strike("init", "before")
        super().init_transactions(*arguments)
        self._strike("init", "after")

    def begin_transaction(self, *arguments: Any) -> None:
        self._strike("begin", "before")
        super().begin_transaction(*arguments)
        self._strike("begin", "after")

    def produce(self, *arguments: Any, **more: Any) -> None:
        self._sent += 1
        if self._sent == 3:
            self._strike("produce", "before")
        super().produce(*arguments, **more)
        if self._sent == 3:
            self.flush(30)  # it is in the log, and open
            self._strike("produce", "after")

    def commit_transaction(self, *arguments: Any) -> None:
        self._strike("commit", "before")
        super().commit_transaction(*arguments)
        self._strike("commit", "after")

    def _strike(self, step: str, when: str) -> None:
        for death in self._deaths:
            death.strike(step, when)


@dataclass(frozen=True)
class MortalCluster(KafkaCluster):
    """A cluster with producers whose process may die."""

    deaths: tuple[Mortal, ...] = ()
    in_tasks: bool = False
    """Whether only those of Spark's tasks may."""

    def producer(self, *arguments: Any) -> Producer:
        made: Any = super().producer
        if self.in_tasks and TaskContext.get() is None:
            return made(*arguments)
        return made(*arguments, kind=partial(MortalProducer, deaths=self.deaths))


@dataclass
class Query:
    """Batches of a query that writes to topics on a broker, without Spark."""

    cluster: KafkaCluster
    name: str
    markers: str
    partitions: int = 2

    @property
    def topic(self) -> MarkerTopic:
        return MarkerTopic.of(self.cluster, self.markers, self.partitions)

    def writer(self, **changes: Any) -> Writer:
        return replace(Writer(self.topic, self.name, "", "statestore", 60_000), **changes)

    def plan(self, batch_id: int, **changes: Any) -> BatchPlan:
        """A plan of a run that never began, and so knows nothing."""
        fields: dict[str, Any] = {
            "writer": self.writer(),
            "run": "none",
            "batch_id": batch_id,
            "partitions": self.partitions,
            "digest": f"plan:{batch_id}",
            "markers": {},
            "read_to": {},
            "log_read_to": dict.fromkeys(range(self.topic.partitions), 0),
        }
        return BatchPlan(**{**fields, **changes})

    def found(self) -> WriterMarkers:
        found = WriterMarkers()
        self.topic.read(self.name, "", found)
        return found


def rows(topic: str, *records: tuple[Any, ...] | bytes) -> pa.RecordBatch:
    """Return rows of (key, value, timestamp_ms, partition, headers), of which what is missing is null."""
    filled = [((b"k", record) if isinstance(record, bytes) else record) for record in records]
    found = [(*record, *[None] * (5 - len(record))) for record in filled]
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "timestamp_ms": timestamp_ms,
                "topic": topic,
                "partition": partition,
                "headers": headers and [{"key": name, "value": header} for name, header in headers],
            }
            for key, value, timestamp_ms, partition, headers in found
        ],
        ROWS,
    )


def whole(*parts: pa.RecordBatch) -> Iterator[pa.RecordBatch | None]:
    """Yield parts and their end."""
    yield from parts
    yield None


def seen(servers: str, topic: str, partitions: int = 1) -> list[list[Any]]:
    """Return what a read_committed consumer sees of a topic in which no transaction is left open, by partition.

    Kafka ends a transaction in its logs a little after it has told the producer.
    """
    ends = KafkaCluster(servers).end_offsets(topic, range(partitions))
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "seen",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    found: list[list[Any]] = [[] for _ in range(partitions)]
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        left = {*range(partitions)}
        while left:
            message = consumer.poll(30)
            assert message is not None, "no answer"
            error = message.error()
            if error is None:
                found[message.partition()].append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                if message.offset() >= ends[message.partition()]:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found


def values(servers: str, topic: str) -> list[bytes]:
    """Return the values that a read_committed consumer sees in partition 0 of a topic."""
    return [message.value() for message in seen(servers, topic)[0]]


def attempt_batch(query: Query, topic: str, batch_id: int, values_of_batch: Sequence[bytes]) -> None:
    """Write a batch of partition 0 in a run of its own, a value at a time."""
    plan = WriterRun(query.writer(), query.partitions).plan(batch_id, query.partitions, "plan:{}".format)
    write_partition(plan, 0, whole(*(rows(topic, value) for value in values_of_batch)))
