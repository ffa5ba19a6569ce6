"""`KafkaTransactions`: a sink for foreachBatch whose output a read_committed consumer sees exactly once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from statestore.errors import InputError, InputSchemaError
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.markers import Marker, MarkerTopic
from statestore.spark.kafka_sink.tasks import BLOB_SCHEMA, WRITTEN_SCHEMA, SayEnd, WriteBatch
from statestore.spark.kafka_sink.transaction import BatchPlan
from statestore.spark.schema import HEADERS, check_column_type
from statestore.spark.sessions import is_connect

_LOG: Final = logging.getLogger(__name__)
_QUERY_ID: Final = "sql.streaming.queryId"
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


@dataclass
class _Progress:
    """What the driver knows of a query's markers, so that tasks need not read it again."""

    markers: dict[int, Marker]
    log_read_to: dict[int, int]
    read_to: dict[int, int] = field(default_factory=dict)


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

        Raises ValueError for numbers below 1.
        """
        self._cluster = cluster if isinstance(cluster, KafkaCluster) else KafkaCluster(cluster)
        for name, number in (("partitions", partitions), ("transaction_timeout_ms", transaction_timeout_ms)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        self._markers = markers
        self._topic = topic
        self._partitions = partitions
        self._writer = writer
        self._prefix = prefix
        self._transaction_timeout_ms = transaction_timeout_ms
        self._query_id = query_id
        self._topics: dict[str, MarkerTopic] = {}
        self._progress: dict[str, _Progress] = {}

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, of which what is there already is left out. Evaluates `rows` once.

        Raises InputSchemaError, InputError where Spark does not tell the query's id, and KafkaSinkErrors; what is
        raised in tasks comes in the text of Spark's error.
        """
        query = self._query(rows.sparkSession)
        columns = rows.select(*self._columns(rows.schema))
        if self._partitions is not None:
            columns = columns.repartition(self._partitions, "key")
        partitions = self._partitions or rows.rdd.getNumPartitions()
        topic, progress = self._known(query, partitions)
        for marker in progress.markers.values():
            marker.covers(query, batch_id, partitions)
        plan = BatchPlan(
            query,
            self._writer,
            batch_id,
            partitions,
            topic,
            self._prefix,
            self._transaction_timeout_ms,
            progress.markers,
            progress.read_to,
            progress.log_read_to,
        )
        max_rows = int(rows.sparkSession.conf.get(_ARROW_ROWS) or 0)
        # Both functions in one job: all rows are taken once, and in the tasks that make them.
        ended = columns.mapInArrow(SayEnd(max_rows).__call__, BLOB_SCHEMA)
        written = ended.mapInArrow(WriteBatch(plan).__call__, WRITTEN_SCHEMA).collect()
        there = [row.partition for row in written if row.was_there]
        if there:
            _LOG.info("batch %d of query %s: partitions %s were written before", batch_id, query, there)
        for row in written:
            if row.read_to >= 0:
                progress.markers[row.partition] = Marker(batch_id, partitions, row.records)
                progress.read_to[row.partition] = row.read_to

    def _query(self, spark: SparkSession) -> str:
        """Return what names the query in markers. Raises InputError if nothing does."""
        if is_connect(spark):
            if self._query_id is None or self._partitions is None:
                raise InputError(
                    "Spark Connect tells a foreachBatch neither the query's id nor how its rows are divided: give both "
                    "with KafkaTransactions(query_id=, partitions=)"
                )
            return self._query_id
        query = self._query_id or spark.sparkContext.getLocalProperty(_QUERY_ID)
        if query is None:
            raise InputError("Spark does not tell the query's id here: give one with KafkaTransactions(query_id=)")
        return query

    def _known(self, query: str, partitions: int) -> tuple[MarkerTopic, _Progress]:
        """Return the marker topic, and what is known of a query, which is read in its first batch here."""
        if query not in self._progress:
            topic = MarkerTopic.of(self._cluster, self._markers, partitions)
            self._topics[query] = topic
            self._progress[query] = _Progress(*topic.read_all(query, self._writer))
        return self._topics[query], self._progress[query]

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
