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
    BLOB_SCHEMA,
    WRITTEN_SCHEMA,
    BatchPlan,
    ForPartition,
    PartitionWritten,
    SayEnd,
    Writer,
    look_at_partition,
    write_partition,
)
from statestore.spark.kafka_sink.run import WriterRun
from statestore.spark.query_settings import hadoop_files
from statestore.spark.sessions import BATCH_ID, QUERY_ID, is_connect
from statestore.spark.shards.blobs import BLOB
from statestore.spark.shards.schema import HEADERS, check_column_type


@dataclass(frozen=True)
class RunningBatch:
    """A batch that a query of a classic session is running."""

    query_id: str
    run_id: str
    batch_id: int
    _log: str = field(repr=False)
    """The checkpoint's log of offsets."""
    _spark: SparkSession = field(repr=False)

    @classmethod
    def of(cls, spark: SparkSession) -> RunningBatch | None:
        """Return the batch that this thread is called for, if any. Needs a classic session."""
        context: Any = spark.sparkContext
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            return None
        # Spark has no public way from a batch's session to its run. All sessions share the list of runs.
        runs = spark._jsparkSession.sharedState().activeStreamingQueries()
        run = runs.get(context._jvm.java.util.UUID.fromString(query_id))
        if run is None:
            return None
        log = f"{run.resolvedCheckpointRoot()}/offsets"
        return cls(query_id, run.runId().toString(), int(batch_id), log, spark)

    def planned(self, batch_id: int) -> str | None:
        """Return the digest of a batch's entry in the checkpoint's log of offsets; None if it has none.

        Spark writes the entry before it begins the batch, and a repeated batch has the same. It has the sources'
        offsets, the watermark, and the time of planning; the time tells batches apart whose offsets are only counts, as
        those of files are.
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


_given: Final[dict[tuple[str, ...], tuple[str, int]]] = {}
"""By sink, even if several objects write to it: the run and the batch that it was given last."""
_giving: Final = Lock()


class KafkaTransactions:
    """Writes each micro-batch to Kafka so that a read_committed consumer sees each record once, and in order.

        rows.writeStream.foreachBatch(KafkaTransactions("broker:9092", markers="totals-markers"))

    Rows have the Kafka sink's shape: value, and optionally key, topic, partition, timestamp and headers. Each task
    writes its partition of a batch in one transaction, with a marker; a task that finds its marker writes nothing.
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
        transaction_timeout_ms: int = 300_000,
        query_id: str | None = None,
    ) -> None:
        """Take where to write.

        Args:
            cluster: host:port of brokers, or a KafkaCluster with further properties of clients.
            markers: a compacted topic for markers, which any number of queries may share. It is made if it is missing.
            topic: where rows without a topic go.
            partitions: None takes rows as they come: those of stateful() come to the same tasks each time. A number
                divides them by key first, for rows that may come to others.
            writer: tells several writers of one query apart.
            prefix: how all transactional ids begin, for rights that are granted by prefix.
            transaction_timeout_ms: how long a task may take to write its partition; the broker's
                transaction.max.timeout.ms bounds it.
            query_id: names the query where Spark does not tell its id. It must be new if the checkpoint is. A query of
                Spark Connect needs it, and `partitions`.

        Raises ValueError for numbers below 1, and if `topic` is `markers`.
        """
        self._cluster = cluster if isinstance(cluster, KafkaCluster) else KafkaCluster(cluster)
        for name, number in (("partitions", partitions), ("transaction_timeout_ms", transaction_timeout_ms)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        if topic == markers:
            raise ValueError(f"topic {topic!r} holds the markers, so rows can't go there: give another topic=")
        self._markers = markers
        self._topic = topic
        self._partitions = partitions
        self._writer = writer
        self._prefix = prefix
        self._transaction_timeout_ms = transaction_timeout_ms
        self._query_id = query_id
        self._runs: dict[str, tuple[str | None, WriterRun]] = {}
        """By query, the run of its last call. One that failed leaves none: the next run ends what it has begun."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, without the partitions that Kafka has already. Evaluates `rows` once.

        Raises InputSchemaError, InputError if Spark does not tell the query's id or the batch was given before, and
        KafkaSinkErrors; errors in tasks come in the text of Spark's error.
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
            self._runs[query] = None if running is None else running.run_id, run

    def _write(self, plan: BatchPlan, columns: DataFrame) -> list[PartitionWritten]:
        max_rows = int(columns.sparkSession.conf.get(_ARROW_ROWS) or 0)
        ended = columns.mapInArrow(SayEnd(max_rows).__call__, BLOB_SCHEMA)
        if not plan.is_repeat:
            # In one job: rows are taken once, in the tasks that make them.
            return _collected(ended, ForPartition(plan, write_partition))
        # First see whether rows come in other partitions than before, and only then commit any.
        ended = ended.persist()
        try:
            _collected(ended, ForPartition(plan, look_at_partition))
            return _collected(ended, ForPartition(plan, write_partition))
        finally:
            ended.unpersist()

    def _query(self, spark: SparkSession, running: RunningBatch | None) -> str:
        """Return the query's name in markers. Raises InputError if it has none."""
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
        """Raise InputError if the running query has given the batch before, to this object or another."""
        if running is None:
            yield
            return
        sink = self._cluster.servers, self._markers, query, self._writer
        batch = running.run_id, batch_id
        with _giving:
            if _given.get(sink) == batch:
                raise InputError(
                    f"batch {batch_id} of query {query} was given to the sink {self._writer!r} before, and these rows "
                    "would be taken for those. Call a KafkaTransactions once for a batch; if a foreachBatch writes "
                    "several DataFrames, give each a KafkaTransactions with its own writer="
                )
            _given[sink] = batch
        try:
            yield
        except BaseException:
            with _giving:
                _given.pop(sink, None)
            raise

    def _run(self, query: str, running: RunningBatch | None, partitions: int) -> WriterRun:
        """Return the sink's run for a run of a query; it begins with the first batch, and after a call that failed."""
        run_id = None if running is None else running.run_id
        known_id, run = self._runs.pop(query, (None, None))
        if run is None or known_id != run_id:
            topic = MarkerTopic.of(self._cluster, self._markers, partitions)
            run = WriterRun(Writer(topic, query, self._writer, self._prefix, self._transaction_timeout_ms), partitions)
        return run

    def _columns(self, schema: StructType) -> list[Any]:
        """Return the columns to write: blobs, or keys and values as bytes, times as numbers."""
        if schema.names == [BLOB]:
            if self._partitions is not None:
                raise InputError("rows of stateful(packed=True) can't be divided by partitions=: leave out one of both")
            return [f.col(BLOB)]
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
            # As a number: Python reads a timestamp in the time zone of the machine.
            columns.append(f.unix_millis(found.pop("timestamp")).alias("timestamp_ms"))
        return columns + [column.alias(name) for name, column in found.items()]


def _collected(ended: DataFrame, step: ForPartition) -> list[PartitionWritten]:
    return [PartitionWritten(*row) for row in ended.mapInArrow(step.__call__, WRITTEN_SCHEMA).collect()]
