"""`KafkaTransactions`: a sink for foreachBatch whose output a read_committed consumer sees exactly once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from statestore.errors import InputError, InputSchemaError
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.markers import OF_PLAN, MarkerTopic
from statestore.spark.kafka_sink.partition import (
    BatchPlan,
    PartitionWritten,
    Writer,
    look_at_partition,
    write_partition,
)
from statestore.spark.kafka_sink.run import WriterRun
from statestore.spark.kafka_sink.tasks import BLOB_SCHEMA, WRITTEN_SCHEMA, ForPartition, SayEnd
from statestore.spark.query_settings import hadoop_files
from statestore.spark.sessions import BATCH_ID, QUERY_ID, is_connect
from statestore.spark.shards.schema import HEADERS, check_column_type


@dataclass(frozen=True)
class RunningBatch:
    """A batch that is run by a query of a classic session."""

    query_id: str
    run_id: str
    batch_id: int
    _log: str = field(repr=False)
    """Where the checkpoint's log of offsets is."""
    _spark: SparkSession = field(repr=False)

    @classmethod
    def of(cls, spark: SparkSession) -> RunningBatch | None:
        """Return the batch that this thread is called for; None if it is called for none. Needs a classic session."""
        context: Any = spark.sparkContext
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            return None
        # Spark has no public way from the session of a batch to its run. All sessions share what runs.
        runs = spark._jsparkSession.sharedState().activeStreamingQueries()
        run = runs.get(context._jvm.java.util.UUID.fromString(query_id))
        if run is None:
            return None
        log = f"{run.resolvedCheckpointRoot()}/offsets"
        return cls(query_id, run.runId().toString(), int(batch_id), log, spark)

    def planned(self, batch_id: int) -> str | None:
        """Return the digest of the entry of a batch in the checkpoint's log of offsets, None if it has none.

        Spark writes it before it begins the batch, and a repeated batch has the same. It says what sources are read up
        to, the watermark, and when the batch was planned; the last tells batches apart whose sources count, as files
        do.
        """
        entry, files = hadoop_files(self._spark)(f"{self._log}/{batch_id}")
        if not files.exists(entry):
            return None
        stream = files.open(entry)
        try:
            return OF_PLAN + sha256(bytes(stream.readAllBytes())).hexdigest()
        finally:
            stream.close()


_LOG: Final = logging.getLogger(__name__)
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES: Final = ("binary", "string")
_COLUMNS: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": (HEADERS,),
}
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 300_000


_given: Final[dict[tuple[str, ...], tuple[str, int]]] = {}
"""By sink, whatever objects stand for it: the run and the batch that it was given last."""
_giving: Final = Lock()


class KafkaTransactions:
    """Writes each micro-batch to Kafka such that a read_committed consumer sees each record once, and in order.

        rows.writeStream.foreachBatch(KafkaTransactions("broker:9092", markers="totals-markers"))

    Rows have the Kafka sink's shape: value, and if they are there key, topic, partition, timestamp and headers. Each
    task writes its partition of a batch in one transaction, with a marker; a task that finds its marker writes nothing.
    """

    def __init__(
        self,
        cluster: str | KafkaCluster,
        *,
        markers: str,
        topic: str | None = None,
        partitions: int | None = None,
        writer: str = "",
        prefix: str = "statestore",
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        query_id: str | None = None,
    ) -> None:
        """Take where to write.

        Args:
            cluster: host:port of brokers, or a KafkaCluster with further properties of clients.
            markers: a compacted topic for markers, which any number of queries share. It is made if it is missing.
            topic: where rows go that have no topic.
            partitions: None takes rows as they come: those of stateful() come to the same tasks each time. A number
                divides them by key first, for rows that may not.
            writer: tells several writers of one query apart.
            prefix: what all transactional ids begin with, for rights that are given by prefix.
            transaction_timeout_ms: how long a task may take to write its partition; the broker's
                transaction.max.timeout.ms bounds it.
            query_id: names the query, where Spark does not tell its id. It must be new if the checkpoint is. A query of
                Spark Connect needs it, and `partitions`.

        Raises ValueError for numbers below 1, and if both topics are one.
        """
        self._cluster = cluster if isinstance(cluster, KafkaCluster) else KafkaCluster(cluster)
        for name, number in (("partitions", partitions), ("transaction_timeout_ms", transaction_timeout_ms)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        if topic == markers:
            raise ValueError(f"{topic} holds markers: no rows can go there. Give topic= another one")
        self._markers = markers
        self._topic = topic
        self._partitions = partitions
        self._writer = writer
        self._prefix = prefix
        self._transaction_timeout_ms = transaction_timeout_ms
        self._query_id = query_id
        self._runs: dict[str, tuple[str | None, WriterRun]] = {}
        """By query, the last run of it that this object has seen."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, of which what is there already is left out. Evaluates `rows` once.

        Raises InputSchemaError, InputError where Spark does not tell the query's id or the batch was given before, and
        KafkaSinkErrors; what is raised in tasks comes in the text of Spark's error.
        """
        running = None if is_connect(rows.sparkSession) else RunningBatch.of(rows.sparkSession)
        query = self._query(rows.sparkSession, running)
        columns = rows.select(*self._columns(rows.schema))
        if self._partitions is not None:
            columns = columns.repartition(self._partitions, "key")
        partitions = self._partitions or rows.rdd.getNumPartitions()
        with self._given_once(query, running, batch_id):
            run = self._run(query, running, partitions)
            plan = run.plan(batch_id, partitions, running.planned if running else lambda _: None)
            written = self._write(plan, columns)
            there = [each.partition for each in written if each.was_there]
            if there:
                _LOG.info("batch %d of query %s: partitions %s were written before", batch_id, query, there)
            run.note(plan, written)

    def _write(self, plan: BatchPlan, columns: DataFrame) -> list[PartitionWritten]:
        max_rows = int(columns.sparkSession.conf.get(_ARROW_ROWS) or 0)
        ended = columns.mapInArrow(SayEnd(max_rows).__call__, BLOB_SCHEMA)
        if not plan.is_repeat:
            # All functions in one job: rows are taken once, and in the tasks that make them.
            return _collected(ended, ForPartition(plan, write_partition))
        # Rows that come in other partitions than before must be seen before one of these is committed.
        ended = ended.persist()
        try:
            _collected(ended, ForPartition(plan, look_at_partition))
            return _collected(ended, ForPartition(plan, write_partition))
        finally:
            ended.unpersist()

    def _query(self, spark: SparkSession, running: RunningBatch | None) -> str:
        """Return what names the query in markers. Raises InputError if nothing does."""
        if is_connect(spark) and (self._query_id is None or self._partitions is None):
            raise InputError(
                "Spark Connect tells a foreachBatch neither the query's id nor how its rows are divided: give both "
                "with KafkaTransactions(query_id=, partitions=)"
            )
        query = self._query_id or (None if running is None else running.query_id)
        if query is None:
            raise InputError("Spark does not tell the query's id here: give one with KafkaTransactions(query_id=)")
        return query

    @contextmanager
    def _given_once(self, query: str, running: RunningBatch | None, batch_id: int) -> Iterator[None]:
        """Raise InputError if the running query has given the batch before, to this object or to another one."""
        if running is None:
            yield
            return
        sink = self._cluster.servers, self._markers, query, self._writer
        batch = running.run_id, batch_id
        with _giving:
            if _given.get(sink) == batch:
                raise InputError(
                    f"batch {batch_id} of query {query} was given to the sink {self._writer!r} before, so these rows "
                    "would be taken for those. Call a KafkaTransactions once for a batch; where a foreachBatch writes "
                    "several DataFrames, each needs a sink with a name of its own, writer="
                )
            _given[sink] = batch
        try:
            yield
        except BaseException:
            with _giving:
                _given.pop(sink, None)
            raise

    def _run(self, query: str, running: RunningBatch | None, partitions: int) -> WriterRun:
        """Return the sink's run for a run of a query, which begins with its first batch here."""
        run_id = None if running is None else running.run_id
        known_id, run = self._runs.get(query, (None, None))
        if run is None or known_id != run_id:
            topic = MarkerTopic.of(self._cluster, self._markers, partitions)
            run = WriterRun(Writer(topic, query, self._writer, self._prefix, self._transaction_timeout_ms), partitions)
            self._runs[query] = run_id, run
        return run

    def _columns(self, schema: StructType) -> list[Any]:
        """Return the columns to write: keys and values as bytes, times as numbers."""
        for fields in schema.fields:
            wanted = _COLUMNS.get(fields.name)
            if wanted is None:
                raise InputSchemaError(fields.name, f"is not a column of Kafka's sink ({', '.join(_COLUMNS)}). Drop it")
            if fields.dataType.simpleString() not in wanted:
                check_column_type(fields, wanted[0])
        if "value" not in schema.names:
            raise InputSchemaError("value", "is missing; Kafka's sink needs it as binary")
        if "topic" not in schema.names and self._topic is None:
            raise InputSchemaError("topic", "is missing. Add it, or name a topic with KafkaTransactions(topic=)")
        found = {name: f.col(name) for name in _COLUMNS if name in schema.names}
        if self._topic is not None:
            found["topic"] = f.coalesce(found.get("topic", f.lit(None)), f.lit(self._topic))
        found["key"] = found.get("key", f.lit(None))
        columns = [found.pop(name).cast("binary").alias(name) for name in ("key", "value")]
        if "timestamp" in found:
            # As a number: what Python makes of a timestamp depends on the time zone of the machine.
            columns.append(f.unix_millis(found.pop("timestamp")).alias("timestamp_ms"))
        return columns + [column.alias(name) for name, column in found.items()]


def _collected(ended: DataFrame, step: ForPartition) -> list[PartitionWritten]:
    return [PartitionWritten(*row) for row in ended.mapInArrow(step.__call__, WRITTEN_SCHEMA).collect()]
